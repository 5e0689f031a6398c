"""The latest state from files: what a read_committed consumer would see, and nothing else (R280-14, U-2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleanerd.client.errors import ClientError
from cleanerd.client.latest_state import LatestState
from cleanerd.client.log_dir_topic import LogDirTopic
from cleanerd.errors import CorruptionError
from tests.client.histories import WRITES, Write, batch_of, left_of, rules_of
from tests.support.log_dirs import Partition, make_log_dir, write_checkpoint
from tests.support.logs import Record, encode_batch, encode_legacy, encode_marker, encode_wrapper, keyed_batch

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.client.rules import Strategy, TombstoneMode, TopicRules


def offsets(*log_dirs: Path, rules: TopicRules | None = None, whole_log: bool = False) -> list[int]:
    """The offsets of all records that it returns, retained or not."""
    source = LogDirTopic(log_dirs, "t", rules, whole_log=whole_log)
    source.begin()
    return [record.offset for record in source.records(1)]


def one(tmp_path: Path, partition: Partition, *, clean_shutdown: bool = True) -> Path:
    return make_log_dir(tmp_path / "d", {"t-0": partition}, clean_shutdown=clean_shutdown)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(WRITES, min_size=1, max_size=4), min_size=1, max_size=6),
    st.sampled_from(("offset", "timestamp", "header")),
    st.sampled_from(("null", "flag", "header")),
    st.integers(0, 4),
    st.data(),
)
def test_any_history(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[list[Write]],
    strategy: Strategy,
    tombstones: TombstoneMode,
    codec: int,
    data: st.DataObject,
) -> None:
    """Compared with the plain model: codecs, segments, log start, high watermark.

    R87-2: the flag is bit 5 of the record.
    """
    segments: dict[int, bytes] = {}
    writes: dict[int, Write] = {}
    end, base = 0, 0
    for batch in batches:
        if data.draw(st.booleans()):
            base = end
        segments[base] = segments.get(base, b"") + batch_of(batch, end, codec, tombstones)
        writes |= {end + place: write for place, write in enumerate(batch)}
        end += len(batch)
    log_start, high_watermark = sorted((data.draw(st.integers(0, end)), data.draw(st.integers(0, end))))
    partition = Partition(segments=segments, log_start_offset=log_start, high_watermark=high_watermark)
    log_dir = one(tmp_path_factory.mktemp("history"), partition)
    state = LatestState(LogDirTopic([log_dir], "t", rules_of(strategy, tombstones)))
    for _ in range(2):  # everything is read each time
        state.update()
        visible = {offset: write for offset, write in writes.items() if log_start <= offset < high_watermark}
        found = {record.key: (record.offset, record.is_tombstone()) for record in state.winners()}
        assert found == left_of(visible, strategy, tombstones)


def transaction(base: int, key: str, producer: int) -> bytes:
    return encode_batch(
        [Record(key.encode(), b"v")], base_offset=base, transactional=True, producer_id=producer, producer_epoch=0,
        base_sequence=0,
    )  # fmt: skip


def test_transactions(tmp_path: Path) -> None:
    """U-2, U-12: aborted data and markers are invisible; from the first open transaction on everything is."""
    log = (
        transaction(0, "a", 1)
        + transaction(1, "b", 2)
        + keyed_batch(2, [("c", "v")])
        + encode_marker(3, commit=False, producer_id=1)
        + encode_marker(4, commit=True, producer_id=2)
        + transaction(5, "d", 3)
        + keyed_batch(6, [("e", "v")])
    )
    assert offsets(one(tmp_path, Partition({0: log}, aborted={0: [(1, 0, 3, 1)]}))) == [1, 2]


def test_the_high_watermark(tmp_path: Path) -> None:
    """Records above it may never have been acknowledged: only on request."""
    log_dir = one(tmp_path, Partition({0: keyed_batch(0, [("a", "1"), ("a", "2"), ("a", "3")])}, high_watermark=2))
    assert offsets(log_dir) == [0, 1]
    assert offsets(log_dir, whole_log=True) == [0, 1, 2]
    write_checkpoint(log_dir / "replication-offset-checkpoint", {})
    with pytest.raises(ClientError, match="high watermark of t-0 is not known"):
        offsets(log_dir)
    assert offsets(log_dir, whole_log=True) == [0, 1, 2]


def test_old_formats(tmp_path: Path) -> None:
    """R87-2: magic 0 and 1 delete by null value, in flag mode too; they have no versions."""
    plain = encode_legacy(0, b"a", b"x", magic=0) + encode_legacy(1, b"b", None, magic=1, timestamp=5)
    inner = encode_legacy(0, b"c", b"1", timestamp=6) + encode_legacy(1, b"c", b"2", timestamp=7)
    log_dir = one(tmp_path, Partition({0: plain + encode_wrapper(3, inner, timestamp=7)}))
    state = LatestState(LogDirTopic([log_dir], "t", rules_of("header", "flag")))
    state.update()
    assert [(r.offset, r.timestamp_ms, r.magic, r.version, r.is_tombstone()) for r in state.winners()] == [
        (0, -1, 0, None, False),
        (1, 5, 1, None, True),
        (3, 7, 1, None, False),
    ]


def test_a_wrapper_over_the_bound(tmp_path: Path) -> None:
    """Its last offset is above the high watermark, its first is not."""
    inner = encode_legacy(0, b"c", b"1", timestamp=6) + encode_legacy(1, b"d", b"2", timestamp=7)
    log_dir = one(tmp_path, Partition({0: encode_wrapper(1, inner, timestamp=7)}, high_watermark=1))
    assert offsets(log_dir) == [0]


@pytest.mark.parametrize("tail", [b"\0" * 80, b"\xff" * 80, keyed_batch(2, [("x", "y")])[:-1]])
def test_a_torn_end(tmp_path: Path, tail: bytes) -> None:
    """After a crash bytes above the high watermark may be garbage; below it none may."""
    good = keyed_batch(0, [("a", "1")]) + keyed_batch(1, [("b", "2")])
    torn = one(tmp_path, Partition({0: good + tail}, high_watermark=2, recovery_point=0), clean_shutdown=False)
    assert offsets(torn) == [0, 1]
    assert offsets(torn, whole_log=True) == [0, 1]
    write_checkpoint(torn / "replication-offset-checkpoint", {"t-0": 3})
    with pytest.raises(CorruptionError):
        offsets(torn)


def test_a_transaction_index_that_is_written_again(tmp_path: Path) -> None:
    """U-32: without a clean stop the log shows the aborted transactions, as the broker's recovery finds them."""
    records = [Record(b"k", b"bad")]
    bad = encode_batch(
        records, base_offset=1, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    ) + encode_marker(2, commit=False, producer_id=7)
    log = Partition({0: keyed_batch(0, [("k", "good")]) + bad}, aborted={0: []}, recovery_point=0)
    assert offsets(one(tmp_path, log, clean_shutdown=False)) == [0]
    (tmp_path / "d" / ".kafka_cleanshutdown").touch()
    assert offsets(tmp_path / "d") == [0, 1], "U-26: otherwise the index decides"


def test_damage(tmp_path: Path) -> None:
    """A wrong checksum below the bound is an error with file and position."""
    first, second = keyed_batch(0, [("a", "1")]), bytearray(keyed_batch(1, [("b", "2")]))
    second[-1] ^= 1
    log_dir = one(tmp_path, Partition({0: first + bytes(second), 2: b""}))
    with pytest.raises(CorruptionError, match=rf"00000000000000000000\.log at byte {len(first)}: CRC"):
        offsets(log_dir)


def test_several_log_directories(tmp_path: Path) -> None:
    """A topic's partitions may be in any of them."""
    partitions = [Partition({0: keyed_batch(0, [(key, "v")])}) for key in ("a", "b")]
    first = make_log_dir(tmp_path / "1", {"t-0": partitions[0], "u-1": partitions[0]})
    second = make_log_dir(tmp_path / "2", {"t-1": partitions[1]})
    state = LatestState(LogDirTopic([first, second], "t"))
    state.update()
    assert {number: list(partition) for number, partition in state.partitions.items()} == {0: [b"a"], 1: [b"b"]}
    twice = make_log_dir(tmp_path / "3", {"t-1": partitions[1]})
    with pytest.raises(ClientError, match="t-1 is in two log directories"):
        LatestState(LogDirTopic([second, twice], "t")).update()
    with pytest.raises(ClientError, match="topic v is in none of"):
        LatestState(LogDirTopic([first, second], "v")).update()
