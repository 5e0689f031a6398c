"""Active producers and the places of their last batches (C-39.1, C-85, F-10, R192-1, R192-2)."""

from __future__ import annotations

import random
import shutil
import tracemalloc
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from cleanerd.errors import CleanerdError, CorruptionError, LogTooLargeError
from cleanerd.format.names import parse_topic_partition_dir
from cleanerd.segments import producers
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.segments.partition import read_partition
from cleanerd.segments.producers import PRODUCER_BYTES, read_last_records, read_producers
from cleanerd.segments.producers import ProducerEntry as Known
from cleanerd.segments.reading import SegmentReader
from tests.support.log_dirs import Partition, Producer, make_log_dir
from tests.support.logs import Record, encode_batch, encode_marker, keyed_batch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cleanerd.segments.partition import PartitionLog

NOW = 1_700_000_000_000
EXPIRATION = 10_000


@dataclass(frozen=True)
class Found:
    """Results of both calls. ``marker_epochs``: producers whose epoch is known from markers only."""

    last_data_offsets: tuple[int, ...]
    snapshot_offset: int
    end_offset: int
    damaged_snapshots: tuple[str, ...]
    marker_epochs: tuple[tuple[int, int], ...] = ()


def data(
    base: int, producer: int, *, age_ms: int = 0, count: int = 1, epoch: int = 0, transactional: bool = False
) -> bytes:
    records = [Record(b"k", b"v", NOW - age_ms)] * count
    return encode_batch(
        records,
        base_offset=base,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=0,
        transactional=transactional,
    )


def emptied(base: int, last_offset: int, producer: int, *, age_ms: int = 0) -> bytes:
    return encode_batch(
        [],
        base_offset=base,
        last_offset_delta=last_offset - base,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
        max_timestamp=NOW - age_ms,
    )


def read(
    path: Path,
    segments: Mapping[int, bytes],
    snapshots: Mapping[int, Sequence[Producer]] | None = None,
    now_ms: int = NOW,
) -> Found:
    make_log_dir(path / "logs", {"orders-0": Partition(segments, snapshots=snapshots or {})})
    return reread(path, now_ms)


def reread(path: Path, now_ms: int = NOW, chunk_bytes: int = 70, torn_from: int | None = None) -> Found:
    log, reader = open_log(path, chunk_bytes)
    with reader:
        last, damaged = read_last_records(log, reader, now_ms=now_ms, expiration_ms=EXPIRATION, torn_from=torn_from)
        state = read_producers(log, reader, torn_from=torn_from)
    assert state.damaged_snapshots == damaged
    markers = zip(last.marker_producers.tolist(), last.marker_epochs.tolist(), strict=True)
    return Found(tuple(last.data_offsets.tolist()), state.snapshot_offset, state.end_offset, damaged, tuple(markers))


def open_log(path: Path, chunk_bytes: int) -> tuple[PartitionLog, SegmentReader]:
    name = parse_topic_partition_dir("orders-0")
    assert name is not None
    log = read_partition(read_log_dir(path / "logs"), name)
    return log, SegmentReader.open(str(log.path), chunk_bytes=chunk_bytes)


def test_more_producers_than_fit_into_memory(tmp_path: Path) -> None:
    """U-35: refused by name, before they are in memory, whether a snapshot or the log has them."""
    read(tmp_path, {0: data(0, 1) + data(1, 2) + data(2, 3)})
    log, reader = open_log(tmp_path, 70)
    with reader:
        assert len(read_producers(log, reader, memory_bytes=3 * PRODUCER_BYTES).producers) == 3
        with pytest.raises(
            LogTooLargeError, match=r"3 producers wrote to the log.*producer\.id\.expiration\.ms"
        ) as error:
            read_producers(log, reader, memory_bytes=3 * PRODUCER_BYTES - 1)
        assert error.value.where == str(log.path)
    shutil.rmtree(tmp_path / "logs")
    read(tmp_path, {0: b"", 2: b""}, {2: [Producer(number, 1, NOW) for number in range(3)]})
    log, reader = open_log(tmp_path, 70)
    with reader, pytest.raises(LogTooLargeError, match="3 producers"):
        read_producers(log, reader, memory_bytes=3 * PRODUCER_BYTES - 1)


@pytest.mark.parametrize("by", ["snapshot", "log"])
@pytest.mark.parametrize("torn", [False, True])
def test_a_producer_takes_no_more_than_is_counted(tmp_path: Path, by: str, torn: bool) -> None:
    """U-35: a producer id costs a client little, so the limit counts the maximum memory per id, with all results."""
    ids = range(1_000_000, 1_003_000)  # Python has the small numbers anyway
    if by == "snapshot":
        base = len(ids)
        read(tmp_path, {0: b"", base: data(base, 1)}, {base: [Producer(number, 1, NOW) for number in ids]})
    else:
        read(tmp_path, {0: b"".join(data(row, number) for row, number in enumerate(ids))})
    log, reader = open_log(tmp_path, 1 << 16)
    torn_from = len(ids) if torn else None
    with reader:
        read_last_records(log, reader, now_ms=NOW, expiration_ms=EXPIRATION, torn_from=torn_from)  # fills caches
        tracemalloc.start()
        try:
            found, _ = read_last_records(log, reader, now_ms=NOW, expiration_ms=EXPIRATION, torn_from=torn_from)
            most = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert len(found.known) >= len(ids)
    assert most / len(ids) < PRODUCER_BYTES, most / len(ids)


def test_no_snapshot_means_the_whole_log(tmp_path: Path) -> None:
    """C-85: from the first batch to the end of the active segment (R192-2)."""
    found = read(tmp_path, {0: data(0, 1) + data(1, 2), 2: data(2, 1, count=3) + keyed_batch(5, [("a", "1")])})
    assert found == Found((1, 4), -1, 6, ())


def test_snapshot_and_later_batches(tmp_path: Path) -> None:
    """F-10: the newest snapshot, then the batches from its offset on; older batches are not read again."""
    old, new = [Producer(9, 7, NOW)], [Producer(1, 0, NOW), Producer(2, 1, NOW)]
    found = read(tmp_path, {0: data(0, 1) + data(1, 2), 2: data(2, 1)}, {0: old, 2: new})
    assert found == Found((1, 2), 2, 3, ())


def test_snapshot_inside_a_segment(tmp_path: Path) -> None:
    """Batches below the snapshot's offset in the same segment are outdated, whatever the snapshot has about them."""
    found = read(tmp_path, {0: data(0, 1) + data(1, 2) + data(2, 3)}, {2: [Producer(2, 1, NOW)]})
    assert found.last_data_offsets == (1, 2)


@pytest.mark.parametrize(("age_ms", "alive"), [(EXPIRATION - 1, True), (EXPIRATION, False), (EXPIRATION + 1, False)])
def test_expiry(tmp_path: Path, age_ms: int, alive: bool) -> None:
    """C-85: expired when now - last timestamp >= producer.id.expiration.ms, from the log and from a snapshot alike."""
    expected = (0,) if alive else ()
    assert read(tmp_path / "log", {0: data(0, 1, age_ms=age_ms)}).last_data_offsets == expected
    snapshot = {1: [Producer(1, 0, NOW - age_ms)]}
    assert read(tmp_path / "snapshot", {0: data(0, 1), 1: b""}, snapshot).last_data_offsets == expected


def test_the_last_batch_counts_not_the_largest_timestamp(tmp_path: Path) -> None:
    """A younger timestamp in an older batch does not keep a producer: Kafka uses that of the last batch."""
    assert read(tmp_path, {0: data(0, 1) + data(1, 1, age_ms=EXPIRATION)}).last_data_offsets == ()


def test_emptied_batches_count(tmp_path: Path) -> None:
    """C-41: an empty batch that a cleaner kept is still its producer's last."""
    found = read(tmp_path, {0: data(0, 1) + emptied(1, 5, 1, age_ms=3), 6: b""})
    assert found == Found((5,), -1, 6, ())


def test_epochs(tmp_path: Path) -> None:
    """A new epoch takes over: its batch is the last."""
    assert read(tmp_path, {0: data(0, 1, epoch=3) + data(1, 1, epoch=4)}).last_data_offsets == (1,)


def test_markers_keep_alive(tmp_path: Path) -> None:
    """C-39.1: a marker is not a data batch; its timestamp keeps the producer, whose last data stays protected."""
    old = data(0, 1, age_ms=EXPIRATION, transactional=True)
    ended_long_ago = old + encode_marker(1, commit=True, producer_id=1, timestamp=NOW - EXPIRATION)
    assert read(tmp_path / "a", {0: ended_long_ago}).last_data_offsets == ()
    marked = old + encode_marker(1, commit=True, producer_id=1, timestamp=NOW)
    assert read(tmp_path / "b", {0: marked}).last_data_offsets == (0,)
    alone = encode_marker(0, commit=False, producer_id=1, timestamp=NOW)
    assert read(tmp_path / "c", {0: alone}) == Found((), -1, 1, (), ((1, 0),))
    known = {0: [Producer(1, -1, NOW, last_sequence=-1)]}
    assert read(tmp_path / "d", {0: alone}, known) == Found((), 0, 1, (), ((1, 0),)), "only markers are known"
    expired = encode_marker(0, commit=False, producer_id=1, timestamp=NOW - EXPIRATION)
    assert read(tmp_path / "e", {0: expired}) == Found((), -1, 1, ())


def test_marker_and_data_in_one_chunk(tmp_path: Path) -> None:
    """Whatever the chunk size, marker and data of one producer give the same."""
    log = b"".join(
        data(base, 1, age_ms=50, transactional=True)
        + encode_marker(base + 1, commit=True, producer_id=1, timestamp=NOW)
        for base in range(0, 20, 2)
    )
    read(tmp_path, {0: log})
    assert {reread(tmp_path, chunk_bytes=size) for size in (70, 200, 1 << 20)} == {Found((18,), -1, 20, ())}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        pytest.param(lambda _old: b"", "too short", id="0 bytes"),
        pytest.param(lambda old: old[:-1], "CRC", id="cut"),
        pytest.param(lambda old: old[:20] + b"\xff" + old[21:], "CRC", id="one byte"),
        pytest.param(lambda old: b"\x00\x09" + old[2:], "version 9", id="version"),
    ],
)
def test_damaged_snapshot(tmp_path: Path, damage: object, message: str) -> None:
    """F-10: a damaged snapshot is skipped for the next older one, and reported."""
    path = tmp_path / "logs" / "orders-0" / f"{2:020d}.snapshot"
    snapshots = {1: [Producer(7, 0, NOW)], 2: [Producer(8, 1, NOW)]}
    assert read(tmp_path, {0: keyed_batch(0, [("a", "1")]), 1: data(1, 2), 2: data(2, 3)}, snapshots) == Found(
        (1, 2), 2, 3, ()
    )
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    found = reread(tmp_path)
    assert (found.last_data_offsets, found.snapshot_offset) == ((0, 1, 2), 1)
    assert len(found.damaged_snapshots) == 1
    assert str(path) in found.damaged_snapshots[0]
    assert message in found.damaged_snapshots[0]


def test_unreadable_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot that the system cannot read is skipped too: it used to end the whole run."""
    read(tmp_path, {0: data(0, 1), 1: b""}, {1: [Producer(8, 0, NOW)]})

    def refused(_name: str, _directory: int, where: str) -> bytes:
        raise CleanerdError("cannot be read: Input/output error", where=where)

    monkeypatch.setattr(producers, "read_small_file_at", refused)  # no disk fails on demand
    found = reread(tmp_path)
    assert found.last_data_offsets == (0,)
    assert "cannot be read" in found.damaged_snapshots[0]


def test_snapshot_beyond_the_end(tmp_path: Path) -> None:
    """A log truncated below its snapshot (power loss): the snapshot's last batches no longer exist."""
    found = read(tmp_path, {0: data(0, 1) + data(1, 1)}, {9: [Producer(1, 8, NOW)]})
    assert (found.last_data_offsets, found.snapshot_offset) == ((1,), -1)
    assert "beyond the log end offset 2" in found.damaged_snapshots[0]


def test_snapshot_below_the_log(tmp_path: Path) -> None:
    """A snapshot from before the first segment adds nothing to the log."""
    found = read(tmp_path, {5: data(5, 1)}, {3: [Producer(9, 2, NOW)]})
    assert found == Found((5,), -1, 6, ())


def test_damaged_log(tmp_path: Path) -> None:
    """The batches after the snapshot have to be readable: no guess about producers."""
    with pytest.raises(CorruptionError) as raised:
        read(tmp_path, {0: data(0, 1), 1: data(1, 1)[:-1]})
    assert (raised.value.where, raised.value.position) == (str(tmp_path / "logs" / "orders-0" / f"{1:020d}.log"), 0)


def test_torn_log(tmp_path: Path) -> None:
    """S-27, C-85: damage from the recovery point on ends the replay; below it, it stays an error."""
    segments = {0: data(0, 1), 1: data(1, 2) + data(2, 3)[:-1]}
    make_log_dir(tmp_path / "logs", {"orders-0": Partition(segments)})
    assert reread(tmp_path, torn_from=1) == Found((0, 1), -1, 2, ())
    with pytest.raises(CorruptionError):
        reread(tmp_path)
    (tmp_path / "logs" / "orders-0" / f"{0:020d}.log").write_bytes(data(0, 1)[:-1])
    with pytest.raises(CorruptionError):
        reread(tmp_path, torn_from=1)


def test_recovery_may_cut_the_log(tmp_path: Path) -> None:
    """R192-1: batches that the broker's recovery may truncate do not make an older batch removable."""
    segments = {0: data(0, 1) + data(1, 2), 2: data(2, 1), 3: data(3, 1)}
    snapshots = {2: [Producer(1, 0, NOW), Producer(2, 1, NOW)], 3: [Producer(1, 2, NOW), Producer(2, 1, NOW)]}
    assert read(tmp_path, segments, snapshots).last_data_offsets == (1, 3)
    assert reread(tmp_path, torn_from=4).last_data_offsets == (1, 3), "all of it was flushed"
    assert reread(tmp_path, torn_from=3).last_data_offsets == (1, 2, 3)
    assert reread(tmp_path, torn_from=2).last_data_offsets == (0, 1, 3)
    assert reread(tmp_path, torn_from=1).last_data_offsets == (0, 1, 3), "inside a segment, and below every snapshot"


def test_snapshots_from_above_the_recovery_point(tmp_path: Path) -> None:
    """U-32: the recovery removes them, and the log may end before them: their batches may no longer exist."""
    segments = {0: data(0, 1) + data(1, 2), 2: data(2, 3)[:-1], 3: data(3, 1)}
    snapshots = {2: [Producer(1, 0, NOW), Producer(2, 1, NOW)], 3: [Producer(3, 2, NOW)]}
    make_log_dir(tmp_path / "logs", {"orders-0": Partition(segments, snapshots=snapshots)})
    assert reread(tmp_path, torn_from=2) == Found((0, 1), 2, 2, ())


def opened(path: Path, segments: Mapping[int, bytes], below: int, chunk_bytes: int = 70, **facts: object) -> int | None:
    """The start of the oldest transaction that is open at ``below``."""
    make_log_dir(path / "logs", {"orders-0": Partition(segments, **facts)})  # type: ignore[arg-type]
    log, reader = open_log(path, chunk_bytes)
    with reader:
        return read_producers(log, reader, below=below).first_open_offset()


def txn(base: int, producer: int, count: int = 1, epoch: int = 0) -> bytes:
    return data(base, producer, count=count, epoch=epoch, transactional=True)


def end(base: int, producer: int, *, commit: bool = True, epoch: int = 0) -> bytes:
    return encode_marker(base, commit=commit, producer_id=producer, producer_epoch=epoch, timestamp=NOW)


@pytest.mark.parametrize(
    ("segments", "below", "expected"),
    [
        pytest.param({0: txn(0, 1) + txn(1, 1)}, 2, 0, id="from its first batch"),
        pytest.param({0: data(0, 1) + txn(1, 1)}, 2, 1, id="idempotent data opens nothing"),
        pytest.param({0: txn(0, 1) + end(1, 1)}, 2, None, id="committed"),
        pytest.param({0: txn(0, 1) + end(1, 1, commit=False)}, 2, None, id="aborted"),
        pytest.param({0: txn(0, 1) + end(1, 1)}, 1, 0, id="S-04: its marker is not below the high watermark"),
        pytest.param({0: txn(0, 1) + end(1, 1) + txn(2, 1)}, 3, 2, id="the next one"),
        pytest.param({0: txn(0, 1) + txn(1, 2) + end(2, 1)}, 3, 1, id="another's marker ends another's"),
        pytest.param({0: txn(0, 1) + txn(1, 2), 2: end(2, 1)}, 3, 1, id="over two segments"),
        pytest.param({0: txn(0, 2) + txn(1, 1)}, 2, 0, id="of several open ones the oldest"),
        pytest.param({0: txn(0, 1) + end(1, 1, epoch=1)}, 2, None, id="transaction version 2: a marker of a new epoch"),
        pytest.param({0: txn(0, 1) + txn(1, 1, epoch=1)}, 2, 0, id="a new epoch leaves it open, from where it began"),
        pytest.param({0: txn(0, 1), 1: txn(1, 2), 2: b""}, 1, 0, id="only what is below counts"),
        pytest.param(
            {0: txn(0, 1) + encode_batch([], base_offset=1, control=True, transactional=True, producer_id=1,
                                         producer_epoch=0)}, 2, 0, id="F-10: an emptied marker does not count"),
        pytest.param(
            {0: txn(0, 1) + encode_batch([Record(b"\0\0\0\2", b"")], base_offset=1, control=True, producer_id=1,
                                         producer_epoch=0)}, 2, 0, id="nor does another control batch"),
        pytest.param({}, 0, None, id="no log to speak of"),
    ],
)  # fmt: skip
def test_open_transactions(tmp_path: Path, segments: dict[int, bytes], below: int, expected: int | None) -> None:
    """S-04, C-05, F-10; the chunk size makes no difference."""
    for chunk_bytes in (70, 200, 1 << 20):
        assert opened(tmp_path / str(chunk_bytes), segments or {0: b""}, below, chunk_bytes) == expected


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        pytest.param({2: [Producer(7, 1, NOW, open_from=0)]}, 0, id="open in the snapshot, its marker further on"),
        pytest.param({3: [Producer(7, 1, NOW, open_from=0)]}, 0, id="open in the newest snapshot"),
        pytest.param({3: [Producer(7, 1, NOW)]}, None, id="closed in the snapshot"),
        pytest.param(
            {4: [Producer(7, 1, NOW, open_from=0)]}, 2, id="S-04: snapshots above the high watermark do not count"
        ),
    ],
)
def test_open_transactions_of_a_snapshot(
    tmp_path: Path, known: dict[int, list[Producer]], expected: int | None
) -> None:
    """S-04, F-10: the newest snapshot up to the high watermark, and the batches from there to it."""
    segments = {0: data(0, 7) + data(1, 7), 2: txn(2, 8), 3: end(3, 7) + end(4, 8)}
    assert opened(tmp_path, segments, 3, snapshots=known) == expected


def test_an_open_transaction_keeps_its_producer(tmp_path: Path) -> None:
    """C-43, C-85: however long ago it wrote."""
    old = data(0, 1, age_ms=50 * EXPIRATION, transactional=True)
    assert read(tmp_path / "open", {0: old}).last_data_offsets == (0,)
    assert read(tmp_path / "another's marker", {0: old + end(1, 2)}).last_data_offsets == (0,)
    closed = old + encode_marker(1, commit=True, producer_id=1, timestamp=NOW - 50 * EXPIRATION)
    assert read(tmp_path / "closed", {0: closed}).last_data_offsets == ()
    known = [Producer(1, 0, NOW - 50 * EXPIRATION, open_from=0)]
    assert read(tmp_path / "snapshot", {0: old, 1: b""}, {1: known}).last_data_offsets == (0,)


def test_markers_and_epochs(tmp_path: Path) -> None:
    """F-10: a marker of another epoch clears the known sequences; one of the same does not."""
    assert read(tmp_path / "same", {0: txn(0, 1) + end(1, 1)}) == Found((0,), -1, 2, ())
    assert read(tmp_path / "bump", {0: txn(0, 1) + end(1, 1, epoch=1)}) == Found((), -1, 2, (), ((1, 1),))
    again = txn(0, 1) + end(1, 1, epoch=1) + txn(2, 1, epoch=1)
    assert read(tmp_path / "again", {0: again}) == Found((2,), -1, 3, ())
    twice = again + end(3, 1, epoch=2) + end(4, 1, epoch=3)
    assert read(tmp_path / "twice", {0: twice}) == Found((), -1, 5, (), ((1, 3),))
    for size in (70, 200, 1 << 20):
        assert reread(tmp_path / "twice", chunk_bytes=size) == Found((), -1, 5, (), ((1, 3),))


def test_state(tmp_path: Path) -> None:
    """F-10: every field, with a snapshot before it."""
    known = {1: [Producer(1, 0, NOW - 5, epoch=3, open_from=0), Producer(2, 0, NOW - 7, epoch=1)]}
    segments = {0: data(0, 9), 1: txn(1, 1, epoch=3) + end(2, 2, epoch=1) + txn(3, 3, count=2)}
    make_log_dir(tmp_path / "logs", {"orders-0": Partition(segments, snapshots=known)})
    log, reader = open_log(tmp_path, 70)
    with reader:
        assert read_producers(log, reader).producers == {
            1: Known(3, 1, NOW, 0), 2: Known(1, 0, NOW, -1), 3: Known(0, 4, NOW, 3),
        }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("torn_from", [None, 0, 13, 25])
@pytest.mark.parametrize("seed", range(12))
def test_state_taken_forward(tmp_path: Path, seed: int, torn_from: int | None) -> None:
    """F-8: the state computed segment by segment equals the one computed at once, whatever is between.

    Snapshots that know more than the log (a cleaning removed a transaction's first batch), damaged ones, damage in it.
    """
    pick = random.Random(seed)
    segments = {}
    for base in range(0, 40, 4):
        kinds = [pick.choice((txn, end, data)) for _ in range(4)]
        segments[base] = b"".join(kind(base + at, pick.randint(1, 3)) for at, kind in enumerate(kinds))
    snapshots = {
        base: [Producer(1, base - 1, NOW, open_from=pick.choice((-1, base - 1)))]
        for base in pick.sample(range(4, 40), 6)
    }
    make_log_dir(tmp_path / "logs", {"orders-0": Partition(segments, snapshots=snapshots)})
    for base in pick.sample(sorted(snapshots), 2):
        (tmp_path / "logs" / "orders-0" / f"{base:020d}.snapshot").write_bytes(b"damage")
    if torn_from is not None:
        hurt = tmp_path / "logs" / "orders-0" / f"{pick.choice([b for b in segments if b >= torn_from]):020d}.log"
        hurt.write_bytes(hurt.read_bytes()[:-9])
    log, reader = open_log(tmp_path, 70)
    with reader:
        state = None
        for base in [*sorted(segments)[1:], 10**6]:
            at_once = read_producers(log, reader, below=base, torn_from=torn_from)
            state = read_producers(log, reader, below=base, torn_from=torn_from, after=state)
            assert state.producers == at_once.producers, base
            assert (state.snapshot_offset, state.end_offset) == (at_once.snapshot_offset, at_once.end_offset), base


@pytest.mark.parametrize("seed", range(20))
def test_one_state_for_both_queries(tmp_path: Path, seed: int) -> None:
    """S-04, R192-1: the state at the high watermark is that of the log if no batch is above it.

    Otherwise it is marked as incomplete.

    Only the second reading reports a snapshot beyond the end of the log, so the first does not replace it.
    """
    pick = random.Random(seed)
    segments = {base: b"".join(data(base + at, pick.randint(1, 3)) for at in range(4)) for base in range(0, 12, 4)}
    snapshots = {base: [Producer(1, base - 1, NOW)] for base in pick.sample((4, 8, 12, 13), 2)}
    make_log_dir(tmp_path / "logs", {"orders-0": Partition(segments, snapshots=snapshots)})
    log, reader = open_log(tmp_path, 70)
    with reader:
        whole = read_producers(log, reader)
        for below in (3, 8, 11, 12, 13):
            state = read_producers(log, reader, below=below)
            is_same = replace(state, below=0) == replace(whole, below=0)
            assert state.is_of_all(log, 12, None) == (below >= 12 and max(snapshots) <= below)
            assert is_same or not state.is_of_all(log, 12, None)
            assert not state.is_of_all(log, 12, 8), "read as if the log was not torn"
        known = read_producers(log, reader, below=13)
        last, damaged = read_last_records(log, reader, now_ms=NOW, expiration_ms=EXPIRATION, known=known)
        again, _ = read_last_records(log, reader, now_ms=NOW, expiration_ms=EXPIRATION)
        assert (last.data_offsets.tolist(), damaged) == (again.data_offsets.tolist(), known.damaged_snapshots)
        with pytest.raises(LogTooLargeError):
            read_last_records(log, reader, now_ms=NOW, expiration_ms=EXPIRATION, known=known, memory_bytes=1)
