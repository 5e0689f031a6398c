"""Which cleaning ``undo`` restores, and that it never restores below a cleaning that depends on it (S-40)."""

from __future__ import annotations

import json
import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from cleanerd.cleaner.survey import CleaningOptions
from cleanerd.format.names import TopicPartition
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.state.cleaner_checkpoint import StateStore
from cleanerd.swap.kept_segments import KeptSegments
from cleanerd.swap.lock import LogDirLock
from cleanerd.swap.round import clean_partition
from cleanerd.swap.session import LockedDir
from cleanerd.swap.undo import entries_of, undo_cleaning
from tests.cleaner.driver import NAME, Silent, config, resources
from tests.cli.clean_log_dirs import keys
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import BASE_TIMESTAMP_MS, Record, encode_batch, encode_marker, keyed_batch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cleanerd.cleaner.result import CleaningResult
    from cleanerd.swap.undo import UndoResult

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


def undo(path: Path, *, hide_later: bool = False) -> UndoResult:
    kept_segments = KeptSegments(path.parent / "state")
    with opened(path, keeps=False) as locked:
        return undo_cleaning(locked, kept_segments, entries_of(kept_segments, locked.log_dir)[0], hide_later=hide_later)


def batch(base: int, *entries: tuple[str, str | None]) -> bytes:
    return keyed_batch(base, entries, timestamp=NOW - 1000)


def with_an_aborted_transaction(root: Path, c: str | None = "1") -> Path:
    """A marker two segments above aborted ``bad``; ``c`` is the value of two other keys."""
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


def test_a_cleaning_above_removed_the_marker(tmp_path: Path) -> None:
    """Later cleanings with --first-dirty removed its ABORT marker and moved no checkpoint: aborted data stays away."""
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
    """Only a later cleaning counts: this one was killed before it stored any state, and is undone."""
    path = with_an_aborted_transaction(tmp_path, c=None)
    assert clean(path, NOW).outcome == "cleaned"
    state = next((tmp_path / "state" / "partitions").rglob("*.json"))
    reported, before = state.read_bytes(), keys(path / NAME)
    assert json.loads(reported)["cleanerd_checkpoint"]["last_output"]["base"] == 6
    later = NOW + RETENTION_MS + 1
    assert clean(path, later, keeps=True, from_start=True, up_to_offset=4).outcome == "cleaned"
    assert keys(path / NAME) != before, "the tombstone went"
    state.write_bytes(reported)
    assert undo(path).outcome == "undone"
    assert keys(path / NAME) == before


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_was_set_back(tmp_path: Path, hours: int) -> None:
    """Three cleanings, each on the result of the previous; the last is restored first, whatever the clock."""
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


def two_transactions(root: Path, *, first_commits: bool, second: bool | None) -> Path:
    """A transaction of producer 7 from segment 0 to its marker at offset 4; all of its data is superseded or aborted.

    ``second``: another one above it, which commits or aborts; None: there is none.
    """
    (root / "kept").mkdir()

    def data(base: int, key: bytes, sequence: int) -> bytes:
        record = [Record(key=key, value=b"txn", timestamp=NOW - 1000)]
        of_producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
        return encode_batch(record, base_offset=base, transactional=True, **of_producer)

    def marker(base: int, *, commit: bool) -> bytes:
        return encode_marker(base, commit=commit, producer_id=7, timestamp=NOW - 1000)

    logs = {0: data(0, b"k", 0) + batch(1, ("a", "1")), 2: batch(2, ("k", "1"), ("c", "1"))}
    logs[4] = marker(4, commit=first_commits) + batch(5, ("d", "1"))
    logs[6] = batch(6, ("e", "1"), ("f", "1"))
    aborted = {} if first_commits else {4: [(7, 0, 4, 5)]}
    if second is not None:
        logs[6] = data(6, b"e", 1) + marker(7, commit=second)
        aborted |= {} if second else {6: [(7, 6, 7, 8)]}
    logs[8] = batch(8, ("g", "1"))
    logs[9] = b""
    return make_log_dir(root / "logs", {NAME: Partition(logs, aborted=aborted)})


def spoil(state: Path, how: str) -> None:
    """Lose the partition's state file, damage it, or make it one of a newer release."""
    (file,) = (state / "partitions").rglob("*.json")
    if how == "lost":
        file.unlink()
    elif how == "damaged":
        file.write_bytes(file.read_bytes()[:-9])
    elif how == "newer":
        file.write_text(json.dumps(json.loads(file.read_text()) | {"format": 10**6}))


def lose_marker(path: Path, state: Path) -> None:
    """Later cleanings remove the marker at offset 4, and their state is lost."""
    before = [file for file in state.rglob("*.json") if file.parent.name != "trash"]
    reported = {file: file.read_bytes() for file in before}
    for now_ms in (NOW, NOW + RETENTION_MS + 1):
        assert clean(path, now_ms, first_dirty_offset=8).outcome == "cleaned"
    assert (path / NAME / f"{4:020d}.log").read_bytes().find(struct.pack(">q", 4), 0, 8) != 0, "it went"
    for file, data in reported.items():
        file.write_bytes(data)


STATES = ("older", "lost", "damaged", "newer")


@pytest.mark.parametrize("how", STATES)
@pytest.mark.parametrize("second", [None, True, False])
@pytest.mark.parametrize("first_commits", [True, False])
def test_a_transaction_without_its_marker_stays_away(
    tmp_path: Path, first_commits: bool, second: bool | None, how: str
) -> None:
    """S-40: the log shows whether the marker exists. The state file is older than its removal, or unusable."""
    path = two_transactions(tmp_path, first_commits=first_commits, second=second)
    written = keys(path / NAME)
    assert clean(path, NOW, keeps=True, up_to_offset=4).outcome == "cleaned"
    assert keys(path / NAME) != written
    state = tmp_path / "state"
    lose_marker(path, state)
    spoil(state, how)
    left = keys(path / NAME)
    result = undo(path, hide_later=how == "damaged")
    if first_commits and second:
        # the next COMMIT ends it like its own marker
        assert result.outcome == "undone"
        return
    assert (result.outcome, keys(path / NAME)) == ("refused", left)
    what = "COMMIT marker" if first_commits else "ABORT marker (offset 4)"
    assert f"the {what} of producer 7, whose data at offset 0 would come back, is no longer in the log" in result.reason


@pytest.mark.parametrize("how", STATES)
@pytest.mark.parametrize("second", [None, True, False])
@pytest.mark.parametrize("first_commits", [True, False])
def test_a_transaction_that_has_its_marker_comes_back(
    tmp_path: Path, first_commits: bool, second: bool | None, how: str
) -> None:
    """S-40: its marker is above the restored segments and exists; no state file is needed."""
    path = two_transactions(tmp_path, first_commits=first_commits, second=second)
    written = keys(path / NAME)
    assert clean(path, NOW, keeps=True, up_to_offset=4).outcome == "cleaned"
    spoil(tmp_path / "state", how)
    if how == "damaged":
        assert undo(path).reason.startswith("whether records written since would be hidden is unknown"), "S-52"
    result = undo(path, hide_later=how == "damaged")
    assert (result.outcome, result.reason, keys(path / NAME)) == ("undone", "", written)


def test_an_entry_lists_aborted_transactions(tmp_path: Path) -> None:
    """S-40: it shows which transaction the producer's next marker ends."""
    path = two_transactions(tmp_path, first_commits=False, second=None)
    assert clean(path, NOW, keeps=True, up_to_offset=4).outcome == "cleaned"
    (file,) = (tmp_path / "state" / "trash").iterdir()
    assert json.loads(file.read_text().split("\n", 1)[0])["entry"]["aborted"] == [[7, 0, 4]]
    assert undo(path).outcome == "undone"
