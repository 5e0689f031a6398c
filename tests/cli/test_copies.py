"""A trial on a copy, as the FAQ recommends, does not affect the original (U-46)."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from tests.cli.clean_log_dirs import keys, only_partition, write_metadata
from tests.cli.strategy_topics import HEADER, UNDELEGATED, clean_forced, log_dir_by_version
from tests.cli.undoing import undo

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.clean_log_dirs import Shell


def copied(path: Path) -> Path:
    """As ``cp -a``."""
    shutil.copytree(path, path.parent / "copy")
    return path.parent / "copy"


def test_a_strategy_tried_on_a_copy(root: Path, shell: Shell) -> None:
    """The original is cleaned with the settings that it always had, before and after its own first cleaning."""
    path = log_dir_by_version(root)
    copy = copied(path)
    write_metadata(path, topics={"orders": UNDELEGATED})
    assert clean_forced(shell, copy, *HEADER).code == 0
    assert clean_forced(shell, path).code == 0
    assert clean_forced(shell, copy, *HEADER, "--from-start").code == 0
    assert only_partition(clean_forced(shell, path))["reason"].startswith("nothing to clean")


def test_a_copy_cleaned_by_offset(root: Path, shell: Shell) -> None:
    """The original is still protected from forgotten settings, and so is a copy that is made of it now."""
    path = log_dir_by_version(root)
    assert clean_forced(shell, path, *HEADER).code == 0
    copy = copied(path)
    assert clean_forced(shell, copy, "--from-start").code == 4
    assert clean_forced(shell, copy, "--change-strategy", "--from-start").code == 0
    (path / "orders-0" / f"{6:020d}.log").write_bytes(b"")
    answer = clean_forced(shell, path, "--from-start")
    assert (answer.code, "was last cleaned by" in only_partition(answer)["reason"]) == (4, True)


def test_undo_of_the_original_and_of_the_copy(root: Path, shell: Shell, kept: Path) -> None:
    """Each has its own cleanings, in one directory of kept segments."""
    path = log_dir_by_version(root)
    before = keys(path / "orders-0")
    copy = copied(path)
    for each in (path, copy):
        assert clean_forced(shell, each, *HEADER, "--keep-replaced", str(kept)).code == 0
    assert undo(shell, path).code == 0
    assert (keys(path / "orders-0"), keys(copy / "orders-0") == before) == (before, False)
    assert undo(shell, copy).code == 0
    assert keys(copy / "orders-0") == before


def test_a_log_directory_with_another_mount_point(root: Path, shell: Shell, kept: Path) -> None:
    """It is the same directory: its checkpoint, settings and replaced segments are known there."""
    path = log_dir_by_version(root)
    before = keys(path / "orders-0")
    assert clean_forced(shell, path, *HEADER, "--keep-replaced", str(kept)).code == 0
    path.rename(root / "mounted")
    assert only_partition(clean_forced(shell, root / "mounted", *HEADER))["reason"].startswith("nothing to clean")
    assert clean_forced(shell, root / "mounted").code == 4
    assert undo(shell, root / "mounted", "--keep-replaced", kept).code == 0
    assert keys(root / "mounted" / "orders-0") == before
