"""Another user's files in one partition, or one directory, stop the commands for no other one (OP-10, U-33)."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.clean_log_dirs import CLEANED, COMPACT, NOW, Answer, Shell, dirty, keys, make
from tests.support.log_dirs import CLEAN_SHUTDOWN, make_log_dir
from tests.support.root import OTHER_UID, as_other_user, needs_root
from tests.support.system_calls import system_call

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

STAGE = ("--force", "--quiet", "--now-ms", NOW, *COMPACT)


def as_another_user(shell: Shell, *words: object) -> Answer:
    """Modules are imported before: the other user may not have access to them."""
    root, shell.root = shell.root, shell.root / "before"
    path = make_log_dir(shell.root / "logs", {"orders-0": dirty()})
    assert shell("stage", path, *STAGE).code == 0
    assert shell("apply", path, *COMPACT).code == 0
    assert shell.clean(path, "--from-start").code == 0
    shell.root = root

    def call() -> list[object]:
        answer = shell(*words)  # type: ignore[arg-type]
        return [answer.code, answer.out, answer.err]

    return Answer(*as_other_user(call))


def give_to_another_user(paths: Iterable[Path]) -> None:
    for path in paths:
        os.chown(path, OTHER_UID, OTHER_UID, follow_symlinks=False)


def outcomes(answer: Answer) -> dict[int, Any]:
    return {row["partition"]: (row["outcome"], row["reason"]) for row in answer.json["partitions"]}


@needs_root
def test_apply_beside_a_partition_of_root(root: Path, shell: Shell) -> None:
    """The hook before the broker's start: an accessible staged cleaning is applied, and the other is reported."""
    root.chmod(0o755)
    path = make_log_dir(root / "logs", {"orders-0": dirty(), "orders-1": dirty()})
    give_to_another_user((path, *path.rglob("*")))
    assert shell("stage", path, "--partition", "orders-1", *STAGE).code == 0
    give_to_another_user((root / "state", *(root / "state").rglob("*")) if (root / "state").exists() else ())
    os.chown(path / "orders-0", 0, 0)
    (path / "orders-0").chmod(0o700)
    answer = as_another_user(shell, "apply", path, "--json", "--quiet", *COMPACT)
    assert answer.code == 6, answer.err
    assert outcomes(answer)[1] == ("cleaned", "")
    assert "Permission denied" in outcomes(answer)[0][1]
    assert keys(path / "orders-1") == CLEANED


@needs_root
def test_a_staging_file_of_root_does_no_harm(root: Path, shell: Shell) -> None:
    """A day later it would be swept, and cannot be: nothing depends on it."""
    root.chmod(0o755)
    path = make(root)
    left = path / "orders-0" / ".kstage" / "backup"
    left.mkdir(parents=True)
    (left / "file").write_text("")
    give_to_another_user((path, *path.rglob("*")))
    os.chown(left, 0, 0)
    left.chmod(0o700)
    os.utime(left, (0, 0))
    (root / "state").mkdir()
    give_to_another_user([root / "state"])
    answer = as_another_user(shell, "clean", path, "--yes", "--json", *STAGE)
    assert (answer.code, outcomes(answer)) == (0, {0: ("cleaned", "")}), answer.err
    assert keys(path / "orders-0") == CLEANED
    assert (left / "file").exists()


@pytest.mark.parametrize("command", ["clean", "stage"])
def test_another_file_instead_of_kstage(root: Path, shell: Shell, command: str) -> None:
    """An operator has to act: the log is not at fault, whatever the swap method."""
    path = make_log_dir(root / "logs", {"orders-0": dirty(), "orders-1": dirty()})
    (path / "orders-0" / ".kstage").write_text("")
    yes = ("--yes",) if command == "clean" else ()
    answer = shell(command, path, "--json", *yes, *STAGE)
    assert answer.code == 6
    found = outcomes(answer)
    assert (found[0][0], found[1][0]) == ("refused", "cleaned" if command == "clean" else "staged")
    assert ".kstage is not a directory: cleanerd cannot stage here (remove it, or move it away)" in found[0][1]
    assert not [file for file in (root / "state").rglob("*.json") if '"quarantine": "' in file.read_text()]


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("command", ["clean", "apply", "undo"])
def test_a_disk_that_does_not_answer(root: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """The next log directory gets its turn."""
    bad = make_log_dir(root / "bad", {"orders-0": dirty()})
    path = make(root)
    if command == "undo":
        assert shell.clean(path, "--keep-replaced", root / "kept").code == 0
    if command == "apply":
        assert shell("stage", path, *STAGE).code == 0
    real = os.stat

    def refuses(name: Any, *more: Any, **named: Any) -> Any:
        if str(name) == str(bad / CLEAN_SHUTDOWN):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(name))
        return real(name, *more, **named)

    # No test makes a disk fail.
    system_call(monkeypatch, "stat", refuses)
    words = {"clean": ("--yes", *STAGE), "apply": COMPACT, "undo": ("--yes",)}[command]
    answer = shell(command, bad, path, *words)
    monkeypatch.undo()
    assert "Input/output error" in answer.err
    assert answer.code == 6
    assert (keys(path / "orders-0") == CLEANED) == (command != "undo")
