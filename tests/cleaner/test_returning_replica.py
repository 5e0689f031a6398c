"""A deleted key that comes back, with a metadata log that brokers wrote, and without brokers (U-70..U-72).

``golden/README.md`` describes how the log was made: broker 3 left the ISR of the topic ``live`` at 7.2 s and was back
at 64.9 s. In between broker 2, the leader, was stopped, so that the ISR was empty. At the end broker 2 was stopped
again.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cleanerd.cleaner.survey import CleaningOptions
from cleanerd.policy.replicas import TopicReplicas
from cleanerd.segments.cluster_metadata import read_cluster_metadata
from cleanerd.state.full_isr import remember_full_isr
from tests.cleaner.driver import NAME, clean, config
from tests.support.log_dirs import Partition, batches_of, make_log_dir, read_segments
from tests.support.logs import Record, encode_batch, encode_marker

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cleanerd.policy.replicas import ExpiryBound
    from tests.support.log_dirs import StoredBatch

GOLDEN = Path(__file__).parent.parent / "format" / "golden" / "kafka-4.3.1-returning-replica" / "__cluster_metadata-0"
LOG, SNAPSHOT = f"{0:020d}.log", f"{119:020d}-{1:010d}.checkpoint"
BATCHES = batches_of((GOLDEN / LOG).read_bytes())
T0 = BATCHES[0].header.base_timestamp
MARGIN_MS, RETENTION_MS = 2000, 1000
LEFT_MS, CAME_BACK_MS, LEFT_AGAIN_MS = 7202, 64_897, 67_682
"""Milliseconds after T0, like all times in this module."""


@dataclass(frozen=True)
class Metadata:
    """The metadata log in a directory of its own, as it was at any time; ``snapshot``: with one of 15 s."""

    work_dir: Path
    snapshot: bool = False

    def at(self, time_ms: int, *, remembers: bool = False, warnings: list[str] | None = None) -> TopicReplicas:
        """The replicas of ``live``; ``remembers``: with the state directory."""
        directory = self.work_dir / "metadata"
        directory.mkdir(exist_ok=True)
        (directory / LOG).write_bytes(b"".join(b.data for b in BATCHES if b.header.max_timestamp <= T0 + time_ms))
        if self.snapshot:
            (directory / SNAPSHOT).write_bytes((GOLDEN / SNAPSHOT).read_bytes())
        found = read_cluster_metadata(directory, only_before_ms=None, margin_ms=MARGIN_MS)
        topic_id, facts = found.topics["live"], found.replicas
        remembered = {}
        if remembers:
            (self.work_dir / "memory").mkdir(exist_ok=True)
            known = remember_full_isr(self.work_dir / "memory", "place", facts, T0 + time_ms, warnings or [])
            remembered = dict(known.get(topic_id.hex, {}))
        return TopicReplicas(facts, facts.topics.get(topic_id, {}), remembered)

    def bound(self, time_ms: int, now_ms: int | None = None, *, remembers: bool = False) -> ExpiryBound:
        """The bound by the log of ``time_ms``, at ``now_ms`` by this host's clock."""
        now_ms = time_ms if now_ms is None else now_ms
        return self.at(time_ms, remembers=remembers).bound(0, T0 + now_ms)


def full_ms(bound: ExpiryBound) -> int:
    """The last full ISR that a bound shows, in milliseconds after T0; below 0: none."""
    assert bound.at_ms is not None
    return bound.at_ms + MARGIN_MS - T0 if bound.at_ms >= 0 else -1


def test_the_bound_as_time_passes(tmp_path: Path) -> None:
    """U-70, U-71: at no moment later than the ISR was full, and never back."""
    times = [batch.header.max_timestamp - T0 for batch in BATCHES if batch.header.max_timestamp > T0 + 9000]
    found = [full_ms(Metadata(tmp_path).bound(time_ms)) for time_ms in times]
    assert found == sorted(found)
    assert {each for each in found if LEFT_MS - MARGIN_MS <= each < CAME_BACK_MS} >= {LEFT_MS}
    assert not {each for each in found if LEFT_MS < each < CAME_BACK_MS}
    assert all(each <= time_ms - MARGIN_MS for each, time_ms in zip(found, times, strict=True))
    assert found[-1] > CAME_BACK_MS, "U-26"


def test_the_brokers_that_are_waited_for(tmp_path: Path) -> None:
    """U-70: broker 3, and both while the ISR is empty."""
    waits = [Metadata(tmp_path).bound(each).missing for each in (12_000, 30_000, 67_600, 69_999)]
    assert waits == [(3,), (2, 3), (), (2,)]


def test_a_snapshot_of_a_short_isr(tmp_path: Path) -> None:
    """U-72: its history is in the state directory; if that was lost, everything waits until the ISR is full again."""
    (tmp_path / "lost").mkdir()
    (tmp_path / "kept").mkdir()
    assert full_ms(Metadata(tmp_path / "lost", snapshot=True).bound(60_000, remembers=True)) == -1
    assert full_ms(Metadata(tmp_path / "kept").bound(14_000, remembers=True)) == LEFT_MS
    assert full_ms(Metadata(tmp_path / "kept", snapshot=True).bound(60_000, remembers=True)) == LEFT_MS
    for name in ("lost", "kept"):
        assert full_ms(Metadata(tmp_path / name, snapshot=True).bound(67_600, remembers=True)) > CAME_BACK_MS


# ---- the log of two replicas, cleaned with that bound

END_OF_FOLLOWER = 3


def plain(offset: int, key: bytes, value: bytes | None) -> bytes:
    return encode_batch([Record(key, value, T0)], base_offset=offset)


def of_transaction(offset: int, key: bytes, value: bytes, sequence: int) -> bytes:
    record = Record(key, value, T0)
    return encode_batch(
        [record], base_offset=offset, transactional=True, producer_id=7, producer_epoch=0, base_sequence=sequence
    )


BEFORE = plain(0, b"k", b"v") + plain(1, b"z", b"1") + of_transaction(2, b"a", b"aborted", 0)
AFTER = (
    plain(3, b"k", None)
    + encode_marker(4, commit=False, producer_id=7)
    + of_transaction(5, b"b", b"committed", 1)
    + encode_marker(6, commit=True, producer_id=7)
    + plain(7, b"z", b"2")
)


class Leader:
    """The leader's log, cleaned by itself at any time; ``clock_ms``: the difference of its clock."""

    def __init__(self, work_dir: Path, metadata: Metadata | None, clock_ms: int = 0) -> None:
        self.metadata, self.clock_ms = metadata, clock_ms
        work_dir.mkdir(exist_ok=True)
        segments = {0: BEFORE, 3: AFTER, 8: plain(8, b"z", b"3"), 9: b""}
        self.path = make_log_dir(work_dir / "leader", {NAME: Partition(segments)})

    def clean(self, time_ms: int, log_ms: int | None = None) -> None:
        """``log_ms``: the time up to which its metadata log has entries."""
        topic = config(delete_retention_ms=RETENTION_MS)
        if self.metadata is not None:
            topic = replace(topic, replicas=self.metadata.at(time_ms if log_ms is None else log_ms))
        options = CleaningOptions(T0 + time_ms + self.clock_ms, force=True, from_start=True)
        assert clean(self.path, options, topic).outcome in {"cleaned", "unchanged"}

    def clean_without_follower(self, log_ms: int | None = None) -> None:
        """Until everything removable is removed: records, then the marker's horizon, then the marker."""
        for time_ms in (7300, 9500, 11_000, 12_500, 14_000):
            self.clean(time_ms, log_ms)

    @property
    def batches(self) -> list[StoredBatch]:
        return [batch for found in read_segments(self.path / NAME).values() for batch in found]

    @property
    def has_tombstone(self) -> bool:
        return any((r.key, r.value) == (b"k", None) for b in self.batches for r in b.records)

    @property
    def has_abort(self) -> bool:
        return any(b.header.is_control and (r.key or b"")[2:4] == b"\0\0" for b in self.batches for r in b.records)


def read_by_follower(batches: Iterable[StoredBatch]) -> dict[bytes, bytes]:
    """A read_committed consumer's records from the follower, after it has fetched the rest from the leader."""
    fetched = [batch for batch in batches if batch.header.last_offset >= END_OF_FOLLOWER]
    log: Sequence[StoredBatch] = [*batches_of(BEFORE), *fetched]
    found: dict[bytes, bytes] = {}
    for place, batch in enumerate(log):
        if batch.header.is_control:
            continue
        if batch.header.is_transactional:
            # The producer's next marker ends the transaction, whichever marker it is.
            markers = (r.key for b in log[place:] if b.header.is_control for r in b.records)
            if (next(markers) or b"")[2:4] == b"\0\0":
                continue
        for record in batch.records:
            found.pop(record.key or b"", None)
            if record.value is not None:
                found[record.key or b""] = record.value
    return found


def test_by_kafkas_rule(tmp_path: Path) -> None:
    """The reason for U-70: the deleted key is back, and aborted records are read as committed."""
    leader = Leader(tmp_path, None)
    leader.clean_without_follower()
    assert not leader.has_tombstone
    assert not leader.has_abort
    assert read_by_follower(leader.batches) == {b"k": b"v", b"a": b"aborted", b"b": b"committed", b"z": b"3"}


@pytest.mark.parametrize(
    ("snapshot", "log_ms", "clock_ms"),
    [
        pytest.param(False, None, 0, id="the log continues"),
        pytest.param(True, None, 0, id="a snapshot without history"),
        pytest.param(False, 7000, 0, id="the controller is dead: the log always shows a full ISR"),
        pytest.param(False, None, 1500, id="the leader's clock is ahead by less than the margin"),
        pytest.param(False, None, -1500, id="behind by less than the margin"),
        pytest.param(False, None, -60_000, id="behind by a minute"),
        pytest.param(False, None, 60_000, id="ahead by a minute"),
    ],
)
def test_it_waits(tmp_path: Path, snapshot: bool, log_ms: int | None, clock_ms: int) -> None:
    """U-70: tombstone and ABORT marker stay until the follower has them, whatever the clocks and the log are."""
    leader = Leader(tmp_path, Metadata(tmp_path, snapshot), clock_ms)
    leader.clean_without_follower(log_ms)
    assert leader.has_tombstone
    assert leader.has_abort
    assert read_by_follower(leader.batches) == {b"b": b"committed", b"z": b"3"}


def test_it_expires_when_the_follower_has_it(tmp_path: Path) -> None:
    """U-70: not a moment later than the log needs to show it; COMMIT stays as long as the records that it commits."""
    leader = Leader(tmp_path, Metadata(tmp_path))
    leader.clean_without_follower()
    leader.clean(CAME_BACK_MS)
    assert leader.has_tombstone
    leader.clean(LEFT_AGAIN_MS)
    assert not leader.has_tombstone
    assert not leader.has_abort
    markers = itertools.chain.from_iterable(b.records for b in leader.batches if b.header.is_control)
    assert [(r.key or b"")[2:4] for r in markers] == [b"\0\1"]
