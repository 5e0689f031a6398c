"""Which cleaning ``undo`` puts back, and that none is put back on which another one rests (S-40)."""

from __future__ import annotations

import json
import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from cleanerd.apply.kept_segments import KeptSegments
from cleanerd.apply.lock import LogDirLock
from cleanerd.apply.round import clean_partition
from cleanerd.apply.session import LockedDir
from cleanerd.apply.undo import entries_of, undo_cleaning
from cleanerd.cleaner.survey import CleaningOptions
from cleanerd.format.names import TopicPartition
from cleanerd.log.clean_point import StateStore
from cleanerd.log.log_dir import read_log_dir
from tests.cleaner.driver import NAME, Silent, config, resources
from tests.cli.clean_log_dirs import keys
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import BASE_TIMESTAMP_MS, Record, encode_batch, encode_marker, keyed_batch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cleanerd.apply.undo import UndoResult
    from cleanerd.cleaner.result import CleaningResult

PARTITION = TopicPartition("orders", 0)
NOW = BASE_TIMESTAMP_MS + 1_000_000
RETENTION_MS = 1000


@contextmanager
def opened(path: Path, *, keeps: bool) -> Iterator[LockedDir]:
    root = path.parent
    kept = root / "kept" if keeps else None
    with LogDirLock.acquire(path, settle_seconds=0) as lock:
        yield LockedDir(
            read_log_dir(path), lock, StateStore(root / "state"), resources(expiration_ms=1), keep_replaced=kept
        )


def clean(path: Path, now_ms: int, *, keeps: bool = False, **wished: object) -> CleaningResult:
    """Segments are never merged."""
    options = CleaningOptions(now_ms, force=True, **wished)  # type: ignore[arg-type]  # by name
    topic = config(segment_bytes=100, delete_retention_ms=RETENTION_MS)
    with opened(path, keeps=keeps) as locked:
        return clean_partition(locked, PARTITION, topic, options, Silent())


def undo(path: Path) -> UndoResult:
    kept_segments = KeptSegments(path.parent / "state")
    with opened(path, keeps=False) as locked:
        return undo_cleaning(locked, kept_segments, entries_of(kept_segments, locked.log_dir)[0])


def batch(base: int, *entries: tuple[str, str | None]) -> bytes:
    return keyed_batch(base, entries, timestamp=NOW - 1000)


def with_an_aborted_transaction(root: Path, c: str | None = "1") -> Path:
    """``bad`` was aborted by a marker two segments above it; ``c`` is the value of two other keys."""
    (root / "kept").mkdir()
    bad = encode_batch(
        [Record(key=b"k", value=b"bad", timestamp=NOW - 1000)],
        transactional=True, producer_id=7, producer_epoch=0, base_sequence=0,
    )  # fmt: skip
    marker = encode_marker(4, commit=False, producer_id=7, timestamp=NOW - 1000)
    logs = {
        0: bad + batch(1, ("a", "1")),
        2: batch(2, ("b", "1"), ("c", c)),
        4: marker + batch(5, ("d", "1")),
        6: batch(6, ("e", c)),
        7: batch(7, ("f", "1")),
        8: b"",
    }
    return make_log_dir(root / "logs", {NAME: Partition(logs, aborted={4: [(7, 0, 4, 5)]})})


def has_marker(path: Path) -> bool:
    log = (path / NAME / f"{4:020d}.log").read_bytes()
    return struct.pack(">hh", 0, 0) in log and bool((path / NAME / f"{4:020d}.txnindex").exists())


def test_a_cleaning_above_took_the_marker(tmp_path: Path) -> None:
    """Later ones with --first-dirty let its ABORT marker go, and moved no clean point: what it aborted stays away."""
    path = with_an_aborted_transaction(tmp_path)
    assert clean(path, NOW, keeps=True, up_to_offset=4).outcome == "cleaned"
    assert "k" not in [key for records in keys(path / NAME).values() for _, key in records]
    assert has_marker(path)
    assert clean(path, NOW, first_dirty_offset=6).outcome == "cleaned", "the marker gets its horizon"
    assert clean(path, NOW + RETENTION_MS + 1, first_dirty_offset=6).outcome == "cleaned"
    assert not has_marker(path)
    before = keys(path / NAME)
    refused = undo(path)
    assert (refused.outcome, refused.reason.partition(" (")[0]) == (
        "refused", f"{path / NAME}: cannot be undone: it was cleaned again: segment 4 was replaced after it",
    )  # fmt: skip
    assert keys(path / NAME) == before


def test_an_earlier_cleaning_above_does_not_prevent_an_undo(tmp_path: Path) -> None:
    """Only a later cleaning counts: this one was killed before it remembered anything, and is undone."""
    path = with_an_aborted_transaction(tmp_path, c=None)
    assert clean(path, NOW).outcome == "cleaned"
    state = next((tmp_path / "state" / "partitions").rglob("*.json"))
    told, before = state.read_bytes(), keys(path / NAME)
    assert json.loads(told)["clean_point"]["last_output"]["base"] == 6
    later = NOW + RETENTION_MS + 1
    assert clean(path, later, keeps=True, from_start=True, up_to_offset=4).outcome == "cleaned"
    assert keys(path / NAME) != before, "the tombstone went"
    state.write_bytes(told)
    assert undo(path).outcome == "undone"
    assert keys(path / NAME) == before


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_was_set_back(tmp_path: Path, hours: int) -> None:
    """Three cleanings, each on what the one before it left; whatever the clock said, the last goes back first."""
    (tmp_path / "kept").mkdir()
    logs = {2 * row: batch(2 * row, ("a", str(row)), (f"k{row}", "1")) for row in range(4)} | {8: b""}
    path = make_log_dir(tmp_path / "logs", {NAME: Partition(logs)})
    trash = tmp_path / "state" / "trash"
    seen = [keys(path / NAME)]
    for row, end in enumerate((4, 6, 8)):
        known = set(trash.iterdir()) if row else set()
        assert clean(path, NOW, keeps=True, up_to_offset=end).outcome == "cleaned"
        seen.append(keys(path / NAME))
        (file,) = set(trash.iterdir()) - known
        head, groups = file.read_text().split("\n", 1)
        document = json.loads(head)
        document["entry"]["cleaned_ms"] += row * hours * 3_600_000
        file.write_text(json.dumps(document) + "\n" + groups)
    for expected in reversed(seen[:-1]):
        result = undo(path)
        assert (result.outcome, result.reason) == ("undone", "")
        assert keys(path / NAME) == expected
    assert not list(trash.iterdir())
