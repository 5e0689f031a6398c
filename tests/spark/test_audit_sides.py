"""Which files are compared: copies, replaced segments of several cleanings, outputs of a split.

Files by their names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cleanerd.errors import ConfigError
from cleanerd.format.names import TopicPartition
from cleanerd.spark.audit_inputs import files_below, plans_in, sides_of, without_outputs
from cleanerd.spark.task_runner import _pack

if TYPE_CHECKING:
    from pathlib import Path

FIRST, SECOND = "20251121T063143-ffffffff", "20251121T063144-00000000"


def put(root: Path, *names: str) -> None:
    for name in names:
        directory, _, base = name.rpartition("/")
        (root / directory).mkdir(parents=True, exist_ok=True)
        stem, dot, suffix = base.partition(".")
        (root / directory / f"{int(stem):020d}{dot or '.log'}{suffix}").write_bytes(b"x" * int(stem or 0))


def bases(files: object) -> list[str]:
    return [f"{file.path.parents[1].name}:{file.base}" for file in files]  # type: ignore[attr-defined]


def test_a_copy_is_the_only_evidence_of_the_earlier_log(tmp_path: Path) -> None:
    """Segments that only the log has are not part of the earlier log: an extra segment must not prove itself."""
    put(tmp_path, "copy/t-0/0", "copy/t-0/10", "copy/u-0/0", "logs/t-0/0", "logs/t-0/5", "logs/v-0/0")
    compared, notes = sides_of(tmp_path / "copy", tmp_path / "logs")
    assert [str(each.name) for each in compared] == ["t-0", "u-0"]
    assert bases(compared[0].before) == ["copy:0", "copy:10"]
    assert bases(compared[0].after) == ["logs:0", "logs:5"]
    assert compared[1].after == (), "a missing partition is lost"
    assert len(notes) == 1
    assert "v-0" in notes[0]


def test_kept_segments_of_two_cleanings(tmp_path: Path) -> None:
    """S-40: undone virtually, the newest first; segments that were not replaced are as they were."""
    put(tmp_path, f"kept/{FIRST}/t-0/0", f"kept/{FIRST}/t-0/10", f"kept/{SECOND}/t-0/0.log.deleted")
    put(tmp_path, f"kept/{SECOND}/t-0/20", "logs/t-0/0", "logs/t-0/30", "logs/u-0/0")
    (sides,), notes = sides_of(tmp_path / "kept", tmp_path / "logs")
    assert bases(sides.before) == [f"{FIRST}:0", f"{FIRST}:10", f"{SECOND}:20", "logs:30"]
    assert bases(sides.copied) == [f"{FIRST}:0", f"{FIRST}:10", f"{SECOND}:20"]
    assert notes == [], "nothing of u-0 was replaced"
    (last,), _ = sides_of(tmp_path / "kept" / SECOND, tmp_path / "logs")
    assert bases(last.before) == [f"{SECOND}:0", f"{SECOND}:20", "logs:30"]
    assert [path.name for path in plans_in(tmp_path / "kept")] == [FIRST, SECOND]


def test_outputs_of_a_split(tmp_path: Path) -> None:
    """C-67: one segment became two, the second of which is within the kept one."""
    put(tmp_path, f"kept/{FIRST}/t-0/0", "logs/t-0/0", "logs/t-0/40", "logs/t-0/100")
    (sides,), _ = sides_of(tmp_path / "kept", tmp_path / "logs")
    kept = sides.copied[0].path
    assert bases(without_outputs(sides, {kept: 100}).before) == [f"{FIRST}:0", "logs:100"]
    assert bases(without_outputs(sides, {kept: 40}).before) == [f"{FIRST}:0", "logs:40", "logs:100"]


def test_nothing_to_compare(tmp_path: Path) -> None:
    put(tmp_path, "copy/t-0/0", "logs/t-0/0")
    with pytest.raises(ConfigError, match="no such partition"):
        sides_of(tmp_path / "copy", tmp_path / "logs", [TopicPartition("x", 1)])
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="has no partition to compare"):
        sides_of(tmp_path / "empty", tmp_path / "logs")


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("t-0/5", "live"),
        ("t-0/5.log.deleted", "deleted"),
        ("t-0/5.log.cleaned", "cleaned"),
        ("t-0/5.log.swap", "swap"),
        (f"t-0/.kstage/{FIRST}/5", "staged"),
        ("t-0.0123456789abcdef-delete/5", "-delete"),
        ("t-0.0123456789abcdef-stray/5", "-stray"),
        ("t-0.0123456789abcdef-future/5", "-future"),
        (f"kept/{FIRST}/t-0/5", "kept"),
        ("t-0/5.index", None),
        ("t-0/5.snapshot", None),
    ],
)
def test_files_below(tmp_path: Path, name: str, state: str | None) -> None:
    """F-12: every file that holds records counts, and its role is shown."""
    put(tmp_path, name)
    found = files_below(tmp_path)
    assert [each.state for each in found] == ([] if state is None else [state])
    assert all(each.partition.name.startswith("t-0") for each in found)


def test_work_is_distributed_evenly() -> None:
    """Nothing is lost, no task is empty, and the largest piece is alone."""
    items = [(size, {"item": size}) for size in (1, 1, 100, 1, 50, 49, 0)]
    bins = _pack(items, 3)
    assert sorted(item["item"] for each in bins for _, item in each) == sorted(size for size, _ in items)
    assert all(size == item["item"] for each in bins for size, item in each)
    assert [(100, {"item": 100})] in bins
    assert all(bins)
    assert _pack([], 0) == []
