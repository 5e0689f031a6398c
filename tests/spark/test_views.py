"""``spark profile`` and ``spark snapshot`` compared with dictionaries of the same records."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import TYPE_CHECKING

import pytest

from cleanerd.client.latest_state import LatestState
from cleanerd.client.log_dir_topic import LogDirTopic
from cleanerd.errors import ConfigError, CorruptionError
from cleanerd.spark.logs import find_logs, known_clean_end
from cleanerd.spark.profile import map_bytes, profile_logs
from cleanerd.spark.snapshot import write_snapshot
from cleanerd.spark.state_rows import STATE_COLUMNS
from cleanerd.verify.rules import KAFKAS_RULES, KeyRules
from tests.cleaner.driver import scratch
from tests.spark.audit_model import Pair
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import Record, encode_batch, encode_legacy, encode_marker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime
    from pathlib import Path

    from pyspark.sql import Row, SparkSession

    from cleanerd.spark.logs import Log
    from cleanerd.spark.profile import Profile
    from cleanerd.spark.snapshot import SnapshotResult
    from tests.spark.audit_model import Known

PAIRS = {f"t{seed}": Pair(seed) for seed in range(1000, 1020)}
"""One topic for each, because each has its own settings."""


def latest(records: list[Known]) -> dict[bytes, Known]:
    best: dict[bytes, Known] = {}
    for known in records:
        if known.record.key is not None and not known.aborted:
            best[known.record.key] = max(best.get(known.record.key, known), known, key=lambda each: each.rank)
    return best


def sealed(pair: Pair, records: list[Known]) -> list[Known]:
    """The records below the active segment."""
    active = max(pair.case().before)
    return [known for known in records if known.offset < active]


@pytest.fixture(scope="module")
def logs() -> Iterator[list[Log]]:
    with scratch() as root:
        partitions = {f"{topic}-0": Partition(pair.case().before, indexes=False) for topic, pair in PAIRS.items()}
        path = make_log_dir(root / "logs", partitions)
        yield find_logs([path], (), lambda topic: PAIRS[topic].rules)


@pytest.fixture(scope="module", params=["jobs", "alone"])
def by(request: pytest.FixtureRequest, spark: SparkSession) -> SparkSession | None:
    """The engine: tasks of a session, or this process."""
    return spark if request.param == "jobs" else None


@pytest.fixture(scope="module")
def profiles(by: SparkSession | None, logs: list[Log]) -> dict[str, Profile]:
    return {each.name.topic: each for each in profile_logs(by, logs)}


@pytest.mark.long
def test_profile(profiles: dict[str, Profile]) -> None:
    """Every count equals the dictionary's."""
    assert len(profiles) == len(PAIRS)
    for topic, pair in PAIRS.items():
        found, known = profiles[topic], sealed(pair, pair.known())
        rivals = [each for each in known if each.record.key is not None and not each.aborted]
        keys = Counter(each.record.key for each in rivals)
        winners = latest(known)
        assert found.records == len(known)
        assert found.keys == len(keys)
        assert found.superseded == len(rivals) - len(keys)
        assert found.tombstones == sum(each.tombstone for each in rivals)
        assert found.deleted_keys == sum(each.tombstone for each in winners.values())
        assert found.unversioned == sum(not each.rank[0] for each in rivals)
        assert found.no_key == sum(each.record.key is None and not each.aborted for each in known)
        assert found.unseen == sum(each.aborted for each in known)
        assert found.active == len(pair.known()) - len(known)
        assert found.records_a_key[-1] == max(keys.values(), default=0)
        assert found.superseded_share == (found.superseded / len(rivals) if rivals else 0)
        hottest = [each.offset for each in winners.values() if keys[each.record.key] == found.records_a_key[-1]]
        assert not winners or found.hot_keys[0].offset in hottest
        last = {each.record.key: each.offset for each in rivals}
        assert found.overtaken == sum(each.offset != last[key] for key, each in winners.items())
        assert dict(found.keys_by_records) == Counter(1 << (count.bit_length() - 1) for count in keys.values())
        stamped = [each for each in pair.known() if each.record.timestamp >= 0]
        assert sum(count for _, count in found.written) == len(stamped)
        assert list(found.records_a_key) == sorted(found.records_a_key)
        assert 0 <= found.saved_bytes <= found.stored_bytes


@pytest.mark.long
def test_saving_equals_that_of_a_cleaning(by: SparkSession | None, tmp_path: Path) -> None:
    """80 of 100 records of equal size are superseded, so about four fifths of the bytes are removed."""
    data = b"".join(encode_batch([Record(b"%02d" % (at % 20), b"v" * 100)], base_offset=at) for at in range(100))
    path = make_log_dir(tmp_path / "logs", {"t-0": Partition({0: data, 100: b""}, indexes=False)})
    (found,) = profile_logs(by, find_logs([path], (), lambda _topic: KAFKAS_RULES))
    assert (found.keys, found.superseded, found.superseded_share) == (20, 80, 0.8)
    assert found.saved_bytes == len(data) * 4 // 5
    assert found.records_a_key == (5, 5, 5, 5)
    assert found.bytes_a_key[0] == found.bytes // 20
    assert found.damaged == ()


def test_damage_that_only_decoding_finds(by: SparkSession | None, tmp_path: Path) -> None:
    """Wrong records under a right checksum are reported with their place, once, and so is damage in a header."""
    good, no_record = encode_batch([Record(b"k", b"v")]), b"\x0e\x00\x00\x00\x02k\x02"
    cut = b"".join(encode_batch([Record(b"k", b"v")], base_offset=at, payload=no_record) for at in range(1, 25))
    data = good + cut
    path = make_log_dir(
        tmp_path / "logs",
        {
            "a-0": Partition({0: good + cut[: len(cut) // 24], 5: b""}, indexes=False),
            "b-0": Partition({0: good[:-1] + b"\xff", 5: b""}, indexes=False),
            "c-0": Partition({0: data, 25: b""}, indexes=False),
        },
    )
    one, crc, many = profile_logs(by, find_logs([path], (), lambda _topic: KAFKAS_RULES))
    (reported,) = one.damaged
    assert reported.startswith(f"{path}/a-0/{0:020d}.log at byte {len(good)}: ")
    assert "record 0" in reported
    assert (one.records, one.keys) == (1, 1)
    assert [text.split(": ")[0] for text in crc.damaged] == [f"{path}/b-0/{0:020d}.log at byte 0"]
    assert len(many.damaged) == 21
    assert many.damaged[-1] == f"{path}/c-0: 4 more places cannot be read (cleanerd verify)"


@pytest.mark.long
def test_the_dirty_section(by: SparkSession | None, tmp_path: Path) -> None:
    """By the checkpoint's first dirty offset, if Kafka's strategy applies; otherwise it is unknown."""
    batches = [encode_batch([Record(b"k", b"v", timestamp=1000 + at)], base_offset=at) for at in range(10)]
    partition = Partition({0: b"".join(batches[:8]), 8: b"".join(batches[8:])}, cleaner_offset=6)
    path = make_log_dir(tmp_path / "logs", {"kafka-0": partition, "other-0": partition, "mine-0": partition})
    versions = KeyRules(strategy="timestamp")
    logs = find_logs([path], (), lambda topic: KAFKAS_RULES if topic == "kafka" else versions)
    kafka, other, mine = (
        {each.name.topic: each for each in profile_logs(by, logs, clean_end_of=end)}[topic]
        for topic, end in (
            ("kafka", known_clean_end),
            ("other", known_clean_end),
            ("mine", lambda _log: 8),
        )
    )
    assert (kafka.dirty_share, kafka.dirty_since_ms) == (2 / 8, 1006)
    assert (other.dirty_bytes, other.dirty_share, other.dirty_since_ms) == (None, None, None)
    assert (mine.dirty_bytes, mine.dirty_since_ms) == (0, None)


def test_map_memory() -> None:
    """U-19: at most 20 bytes per key, 30 with versions, at the documented load."""
    assert map_bytes(1_000_000, versioned=False, load=0.85) < 20_000_000
    assert map_bytes(1_000_000, versioned=True, load=0.85) < 30_000_000
    assert map_bytes(10, versioned=True, load=0.5) > map_bytes(10, versioned=False, load=0.5)


@pytest.fixture(scope="module")
def snapshot(
    spark: SparkSession, by: SparkSession | None, logs: list[Log]
) -> Iterator[tuple[list[SnapshotResult], list[Row]]]:
    with scratch() as root:
        taken = write_snapshot(by, logs, (root / "out").as_uri(), whole_log=True)
        assert (root / "out" / "topic=t1000").is_dir()
        yield taken, spark.read.parquet(str(root / "out")).collect()


def test_snapshot(snapshot: tuple[list[SnapshotResult], list[Row]], logs: list[Log]) -> None:
    """R280-14: per key the retained record of the strategy, complete; deleted keys are left out."""
    taken, rows = snapshot
    found: dict[str, dict[bytes, Row]] = {}
    for row in rows:
        assert row.partition == 0
        assert bytes(row.key) not in found.setdefault(row.topic, {})
        found[row.topic][bytes(row.key)] = row
    for topic, pair in PAIRS.items():
        expected = {key: known for key, known in latest(pair.known()).items() if not known.tombstone}
        assert found.get(topic, {}).keys() == expected.keys()
        for key, known in expected.items():
            row, record = found[topic][key], known.record
            assert (row.offset, _ms(row.timestamp)) == (known.offset, record.timestamp)
            assert (None if row.value is None else bytes(row.value)) == record.value
            headers = tuple((h.key.encode(), None if h.value is None else bytes(h.value)) for h in row.headers)
            assert headers == record.headers
    ends = {log.name: max(PAIRS[log.name.topic].case().before) for log in logs}
    assert {each.name: each.end_offset for each in taken} == ends
    assert sum(each.keys for each in taken) == len(rows) > 25


@pytest.mark.long
def test_snapshot_with_tombstones(spark: SparkSession, by: SparkSession | None, tmp_path: Path) -> None:
    """Old formats and names that are not UTF-8 too."""
    odd = Record(b"odd", b"", 5, headers=((b"a\xff", None), (b"b", b"")))
    gone = encode_batch([odd, Record(b"gone", None, -1)], base_offset=1)
    data = encode_legacy(0, b"old", b"1", magic=1, timestamp=3) + gone
    path = make_log_dir(tmp_path / "logs", {"t-3": Partition({0: data}, indexes=False)})
    logs = find_logs([path], (), lambda _topic: KAFKAS_RULES)
    (taken,) = write_snapshot(by, logs, (tmp_path / "out").as_uri(), tombstones=True)
    assert taken.keys == 3
    rows = {bytes(row.key): row for row in spark.read.parquet(str(tmp_path / "out")).collect()}
    assert [(h.key, h.value) for h in rows[b"odd"].headers] == [("a\ufffd", None), ("b", b"")]
    assert (rows[b"gone"].value, bytes(rows[b"odd"].value), _ms(rows[b"old"].timestamp)) == (None, b"", 3)
    assert _ms(rows[b"gone"].timestamp) == -1
    assert {row.partition for row in rows.values()} == {3}


def _ms(timestamp: datetime | None) -> int:
    """As Kafka has it; Spark's rows are in the time zone of this process."""
    return -1 if timestamp is None else round(timestamp.timestamp() * 1000)


STABLE = {
    "committed below": 20,
    "its marker at the high watermark": 4,
    "aborted below": 20,
    "aborted above": 4,
    "never ended": 4,
    "after the open one": 4,
}
"""The end of a transaction of the log in the next test, and the last stable offset then, with 20 for the HW."""


ENDS = {f"t{at}": each for at, each in enumerate(product(STABLE, (20, 3, 0, 40)))}
"""By topic, because all of them are read at once: the end of the transaction, and the high watermark."""


def _ends_somehow(how: str, high_watermark: int) -> Partition:
    """Thirty records and one of a transaction at 4."""
    with_txn = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    batches = {at: encode_batch([Record(b"%d" % (at % 6), b"v%d" % at, 1000 + at)], base_offset=at) for at in range(30)}
    batches[4] = encode_batch([Record(b"t", b"x", 9)], base_offset=4, transactional=True, **with_txn)
    marker = {"committed below": 12, "its marker at the high watermark": 20, "aborted below": 12, "aborted above": 25}
    if how in marker:
        commits = how in {"committed below", "its marker at the high watermark"}
        batches[marker[how]] = encode_marker(marker[how], producer_id=7, producer_epoch=0, commit=commits)
    first = b"".join(data for at, data in batches.items() if at < 15)
    rest = b"".join(data for at, data in batches.items() if at >= 15)
    aborted = {15 * (at >= 15): [(7, 4, at, at + 1)] for at in (12, 25) if marker.get(how) == at and "aborted" in how}
    return Partition({0: first, 15: rest}, high_watermark=high_watermark, aborted=aborted, indexes=False)


@pytest.mark.long
def test_snapshot_ends_where_a_consumer_ends(spark: SparkSession, by: SparkSession | None, tmp_path: Path) -> None:
    """R280-14: as a read_committed consumer, which sees nothing from the high watermark or an open transaction on."""
    path = make_log_dir(tmp_path / "logs", {f"{topic}-0": _ends_somehow(*each) for topic, each in ENDS.items()})
    logs = find_logs([path], (), lambda _topic: KAFKAS_RULES)
    taken = {each.name.topic: each for each in write_snapshot(by, logs, (tmp_path / "out").as_uri())}
    rows: dict[str, dict[int, bytes]] = {topic: {} for topic in ENDS}
    for row in spark.read.parquet(str(tmp_path / "out")).collect():
        rows[row.topic][row.offset] = bytes(row.value)
    report = {each.topic: each for each in spark.read.json(str(tmp_path / "out" / "_cleanerd")).collect()}
    for topic, (how, high_watermark) in ENDS.items():
        with LatestState(LogDirTopic([path], topic)) as state:
            state.update()
            expected = {record.offset: record.value for record in state.winners()}
        assert rows[topic] == expected, (how, high_watermark)
        assert (report[topic].partition, report[topic].end_offset) == (0, taken[topic].end_offset)
        assert report[topic].records == len(expected)
        if high_watermark == 20:
            assert taken[topic].end_offset == STABLE[how], how
    whole = write_snapshot(by, logs, (tmp_path / "whole").as_uri(), whole_log=True)
    assert {each.end_offset for each in whole} == {30}


def test_snapshot_of_nothing(spark: SparkSession, by: SparkSession | None, tmp_path: Path) -> None:
    """It can be read nevertheless, and its report is complete."""
    path = make_log_dir(tmp_path / "logs", {"t-0": _ends_somehow("never ended", 0)})
    (taken,) = write_snapshot(by, find_logs([path], (), lambda _topic: KAFKAS_RULES), (tmp_path / "out").as_uri())
    assert (taken.keys, taken.end_offset) == (0, 0)
    assert spark.read.schema(STATE_COLUMNS).parquet(str(tmp_path / "out")).collect() == []
    assert (tmp_path / "out" / "_cleanerd").is_dir()


def test_snapshot_without_a_high_watermark(by: SparkSession | None, tmp_path: Path) -> None:
    """A copy of some partitions only: the acknowledged offsets are unknown."""
    path = make_log_dir(tmp_path / "logs", {"t-0": Partition({0: encode_batch([Record(b"k", b"v")])}, indexes=False)})
    (path / "replication-offset-checkpoint").unlink()
    logs = find_logs([path], (), lambda _topic: KAFKAS_RULES)
    with pytest.raises(ConfigError, match=r"high watermark of t-0 is not known.*--whole-log"):
        write_snapshot(by, logs, (tmp_path / "out").as_uri())
    assert not (tmp_path / "out").exists()
    (taken,) = write_snapshot(by, logs, (tmp_path / "out").as_uri(), whole_log=True)
    assert taken.keys == 1


@pytest.mark.long
def test_snapshot_of_damaged_bytes(by: SparkSession | None, tmp_path: Path) -> None:
    """An unknown state is not a snapshot, whether headers or a record are damaged."""
    good = encode_batch([Record(b"k", b"v")])
    bad = encode_batch([Record(b"k", b"v")], base_offset=1, payload=b"\x0e\x00\x00\x00\x02k\x02")
    for at, data in enumerate((good[:-1] + b"\xff", good + bad)):
        path = make_log_dir(tmp_path / f"logs-{at}", {"t-0": Partition({0: data, 5: b""}, indexes=False)})
        logs = find_logs([path], (), lambda _topic: KAFKAS_RULES)
        with pytest.raises(CorruptionError, match="byte"):
            write_snapshot(by, logs, (tmp_path / f"out-{at}").as_uri(), whole_log=True)
        assert not list((tmp_path / f"out-{at}").glob("**/*.parquet"))


def test_directories(tmp_path: Path) -> None:
    """The same partition twice is two replicas: it is ambiguous."""
    one = make_log_dir(tmp_path / "one", {"t-0": Partition({0: b""}, indexes=False)})
    two = make_log_dir(tmp_path / "two", {"t-0": Partition({0: b""}), "t-1": Partition({0: b""})})
    rules = KeyRules()
    with pytest.raises(ConfigError, match="too"):
        find_logs([one, two], (), lambda _topic: rules)
    names = [str(log.name) for log in find_logs([two], (), lambda _topic: rules)]
    assert names == ["t-0", "t-1"]
    with pytest.raises(ConfigError, match="has no partition"):
        find_logs([tmp_path], (), lambda _topic: rules)
