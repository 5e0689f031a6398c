"""``stage --keep-replaced``: ``apply`` keeps the replaced segments, and ``undo`` puts them back (S-40)."""

from __future__ import annotations

import errno
import json
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cleanerd.swap import apply_staged
from cleanerd.swap.group_swap import swap_group
from tests.cleaner.driver import scratch
from tests.cli.clean_log_dirs import CLEANED, COMPACT, NOW, Answer, Shell, batch, keys, make
from tests.support.failing_files import Injector, Killed
from tests.support.log_dirs import CLEANER_CHECKPOINT, Partition, make_log_dir, read_checkpoint, tree
from tests.support.system_calls import system_call

SMALL = ("--set", "topics.orders.segment.bytes=200")


pytestmark = pytest.mark.usefixtures("kept")


def stage(shell: Shell, path: Path, *more: object) -> Answer:
    answer = shell("stage", path, "--force", "--quiet", "--json", "--now-ms", NOW, *COMPACT, *more)
    assert (answer.code, answer.err) == (0, "")
    return answer


def apply(shell: Shell, path: Path, *more: object) -> Answer:
    return shell("apply", path, "--quiet", "--json", *COMPACT, *more)


def outcome(answer: Answer) -> Any:
    (found,) = answer.json["partitions"]
    return found["outcome"]


def undo(shell: Shell, path: Path) -> Answer:
    return shell("undo", path, "--yes", "--quiet", "--json")


def test_stage_apply_undo(root: Path, shell: Shell) -> None:
    """Nothing is kept before apply; then every replaced file; then everything is as before, inodes included."""
    path = make(root, cleaner_offset=2)
    before = tree(path / "orders-0", without=())
    stage(shell, path, "--keep-replaced", root / "kept")
    assert list((root / "kept").iterdir()) == []
    assert outcome(apply(shell, path)) == "cleaned"
    assert keys(path / "orders-0") == CLEANED
    (entry,) = shell("undo", path, "--list", "--json").json["cleanings"]
    assert entry["kept_bytes"] == sum(file.stat().st_size for file in (root / "kept").rglob("*") if file.is_file()) > 0
    assert outcome(undo(shell, path)) == "undone"
    assert tree(path / "orders-0", without=()) == before
    assert read_checkpoint(path / CLEANER_CHECKPOINT) == {"orders-0": 2}
    assert list((root / "kept").iterdir()) == []


def test_without_the_option_nothing_is_kept(root: Path, shell: Shell) -> None:
    """An earlier staged cleaning keeps nothing, whatever fields an older ready.json lacks."""
    path = make(root)
    stage(shell, path)
    (ready_json,) = (path / "orders-0" / ".kstage").glob("*/ready.json")
    document = json.loads(ready_json.read_text())
    assert document.pop("keep_replaced") is None
    ready_json.write_text(json.dumps(document))
    assert outcome(apply(shell, path)) == "cleaned"
    assert shell("undo", path, "--list").out == f"Nothing is kept, according to {root / 'state'}.\n"


@pytest.mark.parametrize("command", ["plan", "stage", "clean --dry-run", "apply"])
@pytest.mark.parametrize("where", ["missing", "inside", "another file system"])
def test_a_directory_that_cannot_keep_segments(root: Path, shell: Shell, command: str, where: str) -> None:
    """S-40, H-21: one clear line before anything is done; a missing path is exit code 3 everywhere."""
    path = make(root)
    kept = {"missing": root / "nowhere", "inside": path, "another file system": Path("/proc")}[where]
    before = tree(root, without=())
    force = () if command == "apply" else ("--force",)
    answer = shell(*command.split(), path, "--quiet", *force, "--keep-replaced", kept, *COMPACT)
    assert answer.code == (3 if where == "missing" else 4)
    (line,) = answer.errors
    assert str(kept) in line
    assert tree(root, without=()) == before


def test_plan_accepts_a_good_directory(root: Path, shell: Shell) -> None:
    """``plan`` takes the option too: it checks the directory, and nothing more."""
    path = make(root)
    before = tree(root, without=())
    assert shell("plan", path, "--keep-replaced", root / "kept", *COMPACT).code == 0
    assert tree(root, without=()) == before


def test_the_kept_directory_is_missing_at_apply(root: Path, shell: Shell) -> None:
    """The broker starts with the old log, exit code 0, and the staged cleaning waits for the directory."""
    path = make(root)
    stage(shell, path, "--keep-replaced", root / "kept")
    shutil.rmtree(root / "kept")
    before = keys(path / "orders-0")
    answer = apply(shell, path)
    assert (answer.code, outcome(answer)) == (0, "skipped")
    assert "cannot be kept" in answer.err
    assert apply(shell, path, "--require").code == 4
    assert keys(path / "orders-0") == before
    (root / "kept").mkdir()
    assert outcome(apply(shell, path)) == "cleaned"
    assert outcome(undo(shell, path)) == "undone"
    assert keys(path / "orders-0") == before


def three_groups(root: Path) -> Path:
    logs = {2 * n: batch(2 * n, ("a", "1"), (f"k{n}", "1" * 120)) for n in range(4)}
    return make_log_dir(root / "logs", {"orders-0": Partition(logs)})


@pytest.mark.long
def test_killed_at_every_operation(shell: Shell, injector: Injector) -> None:
    """S-28, S-40: the next apply continues there, its own links notwithstanding; undo has every group.

    Except in the moments before a group's commit point, where recovery discards the staged files: then the rest of the
    staged cleaning is discarded. Undo restores every swapped group nevertheless.
    """
    seen, resumed = set(), 0
    for alive in range(200):
        with scratch() as root:
            (root / "kept").mkdir()
            shell.root = root
            path = three_groups(root)
            before = keys(path / "orders-0")
            stage(shell, path, "--keep-replaced", root / "kept", *SMALL)
            injector.arm(alive, kills=True)
            with suppress(Killed):
                apply(shell, path, *SMALL)
            injector.disarm()
            dead = injector.happened
            seen.add(str(keys(path / "orders-0")))
            rows = apply(shell, path, *SMALL).json["partitions"] if dead else []
            resumed += [row["outcome"] for row in rows] == ["cleaned"]
            if dropped := [row["reason"] for row in rows if row["outcome"] == "skipped"]:
                assert "is missing or has another size" in dropped[0], alive
            else:
                assert sum(len(records) for records in keys(path / "orders-0").values()) == 6
            undone = undo(shell, path)
            assert undone.out.startswith("Nothing to undo:") or outcome(undone) in ("undone", "unchanged")
            assert keys(path / "orders-0") == before
            assert not [file for file in (root / "kept").rglob("*") if file.is_file()]
            if not dead:
                break
    else:
        pytest.fail("never through")
    assert alive > 40
    assert len(seen) >= 3
    assert resumed > 20


def test_no_room_in_the_kept_directory(root: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """OP-10: when linking fails half way, apply reports it and the log is unchanged."""
    path = make(root)
    before = keys(path / "orders-0")
    stage(shell, path, "--keep-replaced", root / "kept")
    real, calls = os.link, 0

    def full(*arguments: Any, **more: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(*arguments, **more)

    # No test fills a disk.
    system_call(monkeypatch, "link", full)
    answer = apply(shell, path)
    assert answer.code == 1
    assert "No space left" in answer.err
    assert keys(path / "orders-0") == before


def cut_short(shell: Shell, path: Path, monkeypatch: pytest.MonkeyPatch, base: int, *more: object) -> None:
    """An apply that ends when the group ``base`` is kept and not swapped yet."""

    def swap(files: Any, plan: Any, group: Any, *others: Any, **named: Any) -> None:
        if group.base == base:
            raise KeyboardInterrupt
        swap_group(files, plan, group, *others, **named)

    with monkeypatch.context() as patch:
        patch.setattr(apply_staged, "swap_group", swap)
        assert shell("apply", path, "--quiet", *COMPACT, *SMALL, *more).code == 130


def test_a_broker_writes_an_index_again(root: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two tries: the kept index does not belong to the segment any more, and does no harm."""
    path = three_groups(root)
    before = keys(path / "orders-0")
    stage(shell, path, "--keep-replaced", root / "kept", *SMALL)
    cut_short(shell, path, monkeypatch, 2)
    index = path / "orders-0" / f"{2:020d}.index"
    data = index.read_bytes()
    index.unlink()
    index.write_bytes(data)
    assert outcome(apply(shell, path, *SMALL)) == "cleaned"
    assert outcome(undo(shell, path)) == "undone"
    assert keys(path / "orders-0") == before
    assert not [file for file in (root / "kept").rglob("*") if file.is_file()]


def test_kept_in_two_places(root: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """``undo`` reads one directory, so the second try asks for the same one, and the staged cleaning waits for that."""
    path = three_groups(root)
    before = keys(path / "orders-0")
    stage(shell, path, "--keep-replaced", root / "kept", *SMALL)
    cut_short(shell, path, monkeypatch, 2)
    half = keys(path / "orders-0")
    assert half != before
    (root / "other").mkdir()
    answer = apply(shell, path, *SMALL, "--keep-replaced", root / "other")
    assert (answer.code, outcome(answer)) == (0, "skipped")
    assert f"the segments replaced so far are kept in {root / 'kept'}/" in answer.err
    assert keys(path / "orders-0") == half
    (root / "link").symlink_to(root / "kept")
    assert outcome(apply(shell, path, *SMALL, "--keep-replaced", root / "link")) == "cleaned"
    assert outcome(undo(shell, path)) == "undone"
    assert keys(path / "orders-0") == before


def test_a_probe_that_was_left(root: Path, shell: Shell) -> None:
    """Left by a killed process: in a container all of them have the same process number."""
    path = make(root)
    (root / "kept" / f".cleanerd-link-probe-{os.getpid()}").write_text("")
    stage(shell, path, "--keep-replaced", root / "kept")
    assert list((root / "kept").iterdir()) == []
