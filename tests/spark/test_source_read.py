"""The data source's options: which records, from where to where, how split; and its refusals."""

from __future__ import annotations

import json
import random
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StructType

from cleanerd.errors import CleanerdError, ConfigError, CorruptionError, SegmentChangedError
from cleanerd.format.names import TopicPartition
from cleanerd.spark.api import ReadableLogs
from cleanerd.spark.source.options import OffsetLimit, options_from
from cleanerd.spark.source.plan import find_requested
from cleanerd.spark.source.visible import stable_end
from tests.spark.reading import KafkaSegments, offsets, read_rows, read_splits, schema_of
from tests.support.log_dirs import Partition, Producer, make_log_dir
from tests.support.logs import Record, encode_batch, encode_legacy, encode_marker, encode_wrapper

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

T0 = 1_700_000_000_000


def one(at: int, *, key: bytes = b"k", value: bytes | None = b"v", time_ms: int | None = None, **batch: Any) -> bytes:
    record = Record(key, value, T0 + at if time_ms is None else time_ms)
    return encode_batch([record], base_offset=at, **batch)


def simple(root: Path, count: int = 60, a_segment: int = 20, **partition: Any) -> Path:
    """Batches of one to three records, one segment per ``a_segment`` offsets, one index entry per few batches."""
    segments: dict[int, bytes] = {}
    at, pick = 0, random.Random(5)
    while at < count:
        many = min(pick.randint(1, 3), count - at, a_segment - at % a_segment)
        records = [Record(b"k%d" % (row % 7), b"v%d" % row, T0 + 10 * row) for row in range(at, at + many)]
        base = at - at % a_segment
        segments[base] = segments.get(base, b"") + encode_batch(records, base_offset=at)
        at += many
    return make_log_dir(root, {"t-0": Partition(segments, index_interval_bytes=150, **partition)})


def test_every_split_size_reads_each_batch_once(tmp_path: Path) -> None:
    """Any range by any split size is that range, in order: every batch is read once."""
    path = simple(tmp_path / "logs", count=200, a_segment=50)
    pick = random.Random(1)
    counts = set()
    for _ in range(60):
        begin, end = sorted(pick.choices(range(202), k=2))
        size = pick.choice((1, 100, 333, 1000, 10**6))
        splits = read_splits(
            path, columns="offset", splitBytes=str(size),
            startingOffsets={"t": {"0": begin}}, endingOffsets={"t": {"0": end}},
        )  # fmt: skip
        assert [row["offset"] for rows in splits for row in rows] == list(range(begin, min(end, 200)))
        counts.add(len(splits))
    assert max(counts) > 20


def test_nothing_outside_of_the_range_is_read(tmp_path: Path) -> None:
    """Segments and blocks outside of the offsets may be damaged: they are not read."""
    path = simple(tmp_path / "logs", count=200, a_segment=50)
    for base in (0, 100, 150):
        (path / "t-0" / f"{base:020d}.log").write_bytes(b"\xff" * 500)
    log = path / "t-0" / f"{50:020d}.log"
    data = bytearray(log.read_bytes())
    data[:200] = b"\xff" * 200
    data[-200:] = b"\xff" * 200
    log.write_bytes(data)
    wanted = {"startingOffsets": {"t": {"0": 65}}, "endingOffsets": {"t": {"0": 80}}, "view": "all"}
    assert offsets(path, **wanted) == list(range(65, 80))
    with pytest.raises(CorruptionError):
        offsets(path, view="all")


def test_wrappers_wherever_they_are_cut(tmp_path: Path) -> None:
    """A compressed batch of format v1 has in its header the offset of its last record: a range may end inside of it."""
    data, at = b"", 0
    for many in (2, 1, 3, 2, 4, 1, 2):
        inner = b"".join(encode_legacy(row, b"k", b"v%d" % (at + row), magic=1, timestamp=T0) for row in range(many))
        at += many
        data += encode_wrapper(at - 1, inner, timestamp=T0)
    data += encode_batch([Record(b"k", b"last", T0)], base_offset=at)
    path = make_log_dir(tmp_path / "logs", {"t-0": Partition({0: data, at + 1: b""}, index_interval_bytes=1)})
    for begin in range(at + 1):
        for end in range(begin, at + 2):
            ranges = {"startingOffsets": {"t": {"0": begin}}, "endingOffsets": {"t": {"0": end}}}
            assert offsets(path, **ranges) == list(range(begin, end))


def test_a_false_index(tmp_path: Path) -> None:
    """Entries that point into a batch, beyond the file or at another offset are ignored, as is a damaged index."""
    path = simple(tmp_path / "logs", count=100, a_segment=100)
    index = path / "t-0" / f"{0:020d}.index"
    good = index.read_bytes()
    corruptions: list[Callable[[int, int], tuple[int, int]]] = [
        lambda offset, position: (offset, position + 1),
        lambda offset, position: (offset, position + 10**6),
        lambda offset, position: (offset // 4 + 1, position),
        lambda offset, position: (3 * offset // 4, position),  # still ascending, so that it is an index
        lambda offset, position: (2 * offset, position),
    ]
    for corrupt in corruptions:
        entries = [(int.from_bytes(good[at : at + 4], "big"), int.from_bytes(good[at + 4 : at + 8], "big"))
                   for at in range(0, len(good), 8)]  # fmt: skip
        index.write_bytes(b"".join(n.to_bytes(4, "big") for entry in entries for n in corrupt(*entry)))
        for begin in (0, 30, 99):
            found = offsets(path, splitBytes="200", startingOffsets={"t": {"0": begin}})
            assert found == list(range(begin, 100))
            assert offsets(path, splitBytes="200", endingOffsets={"t": {"0": begin}}) == list(range(begin))
    index.write_bytes(good[:-3])
    assert offsets(path, splitBytes="200") == list(range(100))
    index.unlink()
    assert offsets(path, splitBytes="200") == list(range(100))


def test_times(tmp_path: Path) -> None:
    """As ``offsetsForTimes``: the first offset with that time or a later one, with indexes that may be missing."""
    pick = random.Random(3)
    times = [T0 + 5 * row + pick.randint(-30, 30) for row in range(120)]
    segments: dict[int, bytes] = {}
    for at in range(0, 120, 3):
        base = at - at % 30
        records = [Record(b"k", b"v", times[row]) for row in range(at, at + 3)]
        segments[base] = segments.get(base, b"") + encode_batch(records, base_offset=at)
    whole = make_log_dir(tmp_path / "whole", {"t-0": Partition(segments, index_interval_bytes=150)})
    bare = make_log_dir(tmp_path / "bare", {"t-0": Partition(segments, indexes=False)})
    active = whole / "t-0" / f"{90:020d}.timeindex"
    active.write_bytes(active.read_bytes()[:12])  # a broker completes it when the segment is closed
    for path in (whole, bare):
        for time_ms in [*pick.sample(range(T0 - 40, T0 + 650), 40), times[7], times[119]]:
            first = next((row for row in range(120) if times[row] >= time_ms), None)
            edge = {"startingTimestamp": str(time_ms), "startingOffsetsByTimestampStrategy": "latest"}
            assert offsets(path, **edge) == ([] if first is None else list(range(first, 120)))
            by_partition = {"endingOffsetsByTimestamp": {"t": {"0": time_ms}}}
            assert offsets(path, **by_partition) == list(range(120 if first is None else first))
    with pytest.raises(ConfigError, match="no record of t-0 is of 9999999999999 ms or later"):
        offsets(whole, startingOffsetsByTimestamp={"t": {"0": 9999999999999}})


def test_edges(tmp_path: Path) -> None:
    """Words and numbers as in Spark's kafka source."""
    path = simple(tmp_path / "logs", log_start_offset=7)
    assert offsets(path) == list(range(7, 60))
    assert offsets(path, startingOffsets="earliest", endingOffsets="latest") == list(range(7, 60))
    assert offsets(path, startingOffsets={"t": {"0": -2}}, endingOffsets={"t": {"0": -1}}) == list(range(7, 60))
    assert offsets(path, startingOffsets={"t": {"0": 50}}, endingOffsets={"t": {"0": 1000}}) == list(range(50, 60))
    assert offsets(path, view="raw") == list(range(60))
    with pytest.raises(ConfigError, match="offset 3 is below 7, where t-0 begins"):
        offsets(path, startingOffsets={"t": {"0": 3}})
    for nothing in ("latest", {"t": {"0": -1}}):
        with pytest.raises(ConfigError, match="a batch that starts at the end reads nothing"):
            offsets(path, startingOffsets=nothing)
    with pytest.raises(ConfigError, match="t-0 starts at 30, above its end"):
        offsets(path, startingOffsets={"t": {"0": 30}}, endingOffsets={"t": {"0": 29}})
    for message, why in (
        ({"t": {"1": 3}}, "t-0.*missing|t-1: starting"), ({"t": {"0": 9, "1": 3}}, "not read"),
        ({}, "t-0.*missing"), ({"t": {}}, "t-0.*missing"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=why):
            offsets(path, startingOffsets=message)


def test_which_partitions_are_read(tmp_path: Path) -> None:
    """SP-2: topics, patterns, partitions, globs, a partition's own directory, several paths; errors name the topics."""
    made = {name: Partition({0: one(0, value=name.encode())}) for name in ("a-0", "a-1", "b-0", "ab-2")}
    path = make_log_dir(tmp_path / "x" / "data", made)
    other = make_log_dir(tmp_path / "y" / "data", {"c-0": Partition({0: one(0, value=b"c-0")})})

    def found(where: Path | str | list[str], **options: Any) -> list[str]:
        return [row["value"].decode() for row in read_rows(where, columns="value", **options)]

    assert found(path) == ["a-0", "a-1", "ab-2", "b-0"]
    assert found(path, topics="b, a") == ["a-0", "a-1", "b-0"]
    assert found(path, topicsPattern="a.*") == ["a-0", "a-1", "ab-2"]
    assert found(path, topicsPattern="a") == ["a-0", "a-1"]
    assert found(path, partitions="a-1,b-0") == ["a-1", "b-0"]
    assert found(path, subscribe="b, a") == ["a-0", "a-1", "b-0"]
    assert found(path, subscribePattern=" a ") == ["a-0", "a-1"]
    assert found(path, assign={"a": [1], "b": [0]}) == ["a-1", "b-0"]
    assert found(tmp_path / "*" / "data") == ["a-0", "a-1", "ab-2", "b-0", "c-0"]
    assert found([str(other), str(path)], topics="c,b") == ["b-0", "c-0"]
    assert found(path / "a-1") == ["a-1"]
    assert found(str(path / "a-*")) == ["a-0", "a-1"]
    assert found(f"file://{path}", topics="b") == ["b-0"]
    wrong: list[tuple[Path | str, dict[str, str], str]] = [
        (path, {"topics": "zz"}, "no partition of topic zz .topics there: a, ab, b"),
        (path, {"topics": "a,zz"}, "no partition of topic zz .topics there: a, ab, b"),
        (path, {"topicsPattern": "z+"}, "has no partition to read .topics there: a, ab, b"),
        (path, {"partitions": "a-7"}, "no such partition .in .*; topics there: a, ab, b"),
        (path, {"subscribe": " , "}, "names nothing"),
        (path, {"subscribePattern": " "}, "names nothing"),
        (path, {"subscribe": "a", "assign": '{"a": [0]}'}, "subscribe and assign, not several"),
        (path, {"assign": '{"a": 0}'}, 'is not of the form {"orders": .0, 1.}'),
        (path, {"assign": "{}"}, "is not of the form"),
        (path, {"minPartitions": "0"}, "is not a number above 0"),
        (path, {"partitions": "a"}, "TOPIC-N"),
        (path, {"topicsPattern": "("}, "regular expression"),
        (path, {"topics": "a", "partitions": "a-0"}, "not several"),
        (tmp_path / "nowhere", {}, "no such directory"),
        ("ftp://host/data", {}, "nothing here reads ftp://"),
        (path, {"startingOfsets": "earliest"}, "no such option: startingofsets|no such option: startingOfsets"),
        (path, {"view": "comitted"}, "is none of committed, all, raw, latest"),
        (path, {"columns": "key,vlue"}, "no such column: vlue"),
        (path, {"columns": "key,KEY"}, "twice"),
        (path, {"splitBytes": "0"}, "is not a size"),
        (path, {"startingOffsets": '{"a": 1}'}, "not of the form"),
        (path, {"startingOffsets": "soon"}, "is not JSON"),
        (path, {"endingOffsets": "earliest"}, "ends where the log begins"),
        (path, {"strategy": "newest"}, "is not offset, timestamp or header:NAME"),
        (path, {"strategies": '{"a": {"compaction.strateg": "offset"}}'}, "no such key"),
        (path, {"strategies": '{"a": 5}'}, "5 is not offset, timestamp or header:NAME, nor a table of a topic's keys"),
        (path, {"strategies": '{"a": ["compaction.strategy"]}'}, "is not offset"),
        (path, {"strategies": '{"a": null}'}, "None is not offset"),
        (path, {"columns": "offset,damaged"}, "onCorruption=skip"),
    ]
    for where, options, why in wrong:
        with pytest.raises(CleanerdError, match=why):
            read_rows(where, **options)


def test_internal_topics(tmp_path: Path) -> None:
    """SP-1: they are read if they are named, and not because everything, or a pattern, is read."""
    made = {name: Partition({0: one(0, value=name.encode())}) for name in ("a-0", "__consumer_offsets-3", "__a-0")}
    path = make_log_dir(tmp_path / "data", made)

    def found(**options: Any) -> list[str]:
        return [row["value"].decode() for row in read_rows(path, columns="value", **options)]

    assert found() == found(topicsPattern=".*") == ["__a-0", "a-0"]
    assert found(topics="__consumer_offsets") == ["__consumer_offsets-3"]
    assert found(assign={"__consumer_offsets": [3]}) == found(partitions="__consumer_offsets-3")
    assert found(partitions="__consumer_offsets-3") == ["__consumer_offsets-3"]
    assert {log.name.topic for log in ReadableLogs(None, path).found()} == {"a", "__a", "__consumer_offsets"}


def test_the_minimum_number_of_tasks(tmp_path: Path) -> None:
    """``minPartitions`` is a hint, as for ``kafka``: small partitions stay apart, and a large one is cut."""
    batches = {number: b"".join(one(at, value=bytes(200)) for at in range(50)) for number in range(4)}
    made = {f"t-{number}": Partition({0: data}, index_interval_bytes=300) for number, data in batches.items()}
    path = make_log_dir(tmp_path / "data", made)

    def tasks(**options: Any) -> list[list[int]]:
        found = read_splits(path, columns="partition,offset", **options)
        assert sum(map(len, found)) == 200
        return [sorted({row["partition"] for row in split}) for split in found]

    assert tasks() == [[0, 1, 2, 3]]
    assert tasks(minPartitions="4") == [[0], [1], [2], [3]]
    assert 10 <= len(tasks(minPartitions="12")) <= 16
    assert len(tasks(minPartitions="2", splitBytes="1k")) > 20


def test_two_replicas(tmp_path: Path) -> None:
    """The same partition twice would count its records twice."""
    for name in ("x", "y"):
        make_log_dir(tmp_path / name, {"a-0": Partition({0: one(0)})})
    with pytest.raises(ConfigError, match=r"a-0.*is in .*x too"):
        read_rows(str(tmp_path / "*"))


def test_no_high_watermark(tmp_path: Path) -> None:
    """The acknowledged offsets are unknown: refused, unless the whole log is requested."""
    path = make_log_dir(tmp_path / "logs", {"a-0": Partition({0: one(0) + one(1, **TXN)})})
    (path / "replication-offset-checkpoint").unlink()
    with pytest.raises(ConfigError, match=r'high watermark of a-0 is not known.*option\("bound", "end"\)'):
        offsets(path)
    assert offsets(path, bound="end") == [0]
    assert offsets(path, bound="end", view="all") == offsets(path, view="raw") == [0, 1]


TXN: dict[str, Any] = {"transactional": True, "producer_id": 7, "producer_epoch": 0, "base_sequence": 0}


def test_snapshots(tmp_path: Path) -> None:
    """U-12: a producer snapshot shows the open transactions, so nothing before it is read; a wrong one is ignored."""
    segments = {
        0: one(0) + one(1, **TXN) + one(2),
        3: one(3) + encode_marker(4, producer_id=7, producer_epoch=0, commit=True) + one(5),
        6: one(6) + one(7, **TXN) + one(8),
        9: one(9),
    }
    says = {3: [Producer(7, 1, T0, open_from=1)], 6: [Producer(7, 1, T0)], 9: [Producer(7, 7, T0, open_from=7)]}
    path = make_log_dir(tmp_path / "logs", {"t-0": Partition(segments, snapshots=says)})

    def stable(high_watermark: int) -> int:
        (path / "replication-offset-checkpoint").write_text(f"0\n1\nt 0 {high_watermark}\n")
        (log,) = find_requested(options_from({"path": str(path)}))
        return stable_end(log, skip_damage=False)

    expected = {0: 0, 1: 1, 2: 1, 4: 1, 5: 5, 7: 7, 8: 7, 10: 7}
    assert {at: stable(at) for at in expected} == expected
    first = path / "t-0" / f"{0:020d}.log"
    whole = first.read_bytes()
    first.write_bytes(b"\xff" * len(whole))  # not read from 3 on
    assert {at: stable(at) for at in (5, 7, 10)} == {5: 5, 7: 7, 10: 7}
    first.write_bytes(whole)
    beyond = path / "t-0" / f"{6:020d}.snapshot"
    shutil.copy(beyond, beyond.with_name(f"{30:020d}.snapshot"))  # of a log that was truncated: nothing is open there
    assert {at: stable(at) for at in expected} == expected
    assert stable(50) == 7
    for snapshot in (path / "t-0").glob("*.snapshot"):
        snapshot.write_bytes(snapshot.read_bytes()[:-1])
    assert {at: stable(at) for at in expected} == expected


def test_damage(tmp_path: Path) -> None:
    """File and position are in the error; ``skip`` continues behind it, and ``damaged`` counts it at its place."""
    batches = [one(at) for at in range(6)]
    batches[2] = batches[2][:-1] + b"\xff"
    path = make_log_dir(tmp_path / "logs", {"t-0": Partition({0: b"".join(batches), 6: one(6)}, indexes=False)})
    file = path / "t-0" / f"{0:020d}.log"
    position = 2 * len(batches[0])
    with pytest.raises(CorruptionError, match=rf"{file}.*{position}"):
        offsets(path)
    assert offsets(path, onCorruption="skip") == [0, 1, 3, 4, 5, 6]
    rows = read_rows(path, onCorruption="skip", columns="topic,offset,segment,position,damaged")
    (bad,) = [row for row in rows if row["damaged"] is not None]
    assert (bad["topic"], bad["offset"], bad["segment"], bad["position"]) == ("t", None, str(file), position)
    assert "CRC" in bad["damaged"]
    assert [row["offset"] for row in rows if row["damaged"] is None] == [0, 1, 3, 4, 5, 6]


@pytest.mark.parametrize("tail", [b"", one(6)[:-5], b"\0" * 300, one(6)[:9]])
def test_torn_end(tmp_path: Path, tail: bytes) -> None:
    """A crash's leftovers behind the last batch of the active segment, or a preallocated tail, are its end."""
    path = make_log_dir(tmp_path / "logs", {"t-0": Partition({0: one(0), 5: one(5)})})
    with (path / "t-0" / f"{5:020d}.log").open("ab") as file:
        file.write(tail)
    (path / "replication-offset-checkpoint").write_text("0\n1\nt 0 9\n")
    for view in ("committed", "all", "raw", "latest"):
        assert offsets(path, view=view)[-1] == 5


def test_torn_end_of_a_closed_segment(tmp_path: Path) -> None:
    """There it is damage."""
    path = make_log_dir(tmp_path / "logs", {"t-0": Partition({0: one(0) + one(1)[:-5], 5: one(5)}, indexes=False)})
    with pytest.raises(CorruptionError, match="ends inside a batch"):
        offsets(path, view="all")
    assert offsets(path, view="all", onCorruption="skip") == [0, 5]


def test_a_file_that_was_replaced(tmp_path: Path) -> None:
    """D-06: splits use positions in the listed file; another file has other positions."""
    path = simple(tmp_path / "logs")
    reader = KafkaSegments({"path": str(path)}).reader(schema_of(["offset"]))
    (split,) = reader.partitions()
    file = path / "t-0" / f"{20:020d}.log"
    shutil.copy(file, file.with_suffix(".new"))
    file.with_suffix(".new").replace(file)
    with pytest.raises(SegmentChangedError, match="another file"):
        list(reader.read(split))


def test_a_file_deleted_since_the_plan(tmp_path: Path) -> None:
    """SP-4: a batch reports that its plan is outdated, a stream that it continues from its checkpoint."""
    path = simple(tmp_path / "logs")
    reader = KafkaSegments({"path": str(path)}).reader(schema_of(["offset"]))
    stream = KafkaSegments({"path": str(path)}).streamReader(schema_of(["offset"]))
    (split,) = reader.partitions()
    (batch,) = stream.partitions({"t": {"0": 0}}, {"t": {"0": 40}})
    (path / "t-0" / f"{20:020d}.log").unlink()
    with pytest.raises(SegmentChangedError, match="the log changed after this reading was planned") as raised:
        list(reader.read(split))
    assert "call load() again, or use a table" in str(raised.value)
    with pytest.raises(SegmentChangedError, match="start the query again: it continues from its checkpoint"):
        list(stream.read(batch))


def test_a_table_of_the_catalog(tmp_path: Path) -> None:
    """SP-3: Spark passes a table's stored options when it is created, and only its columns when it is read."""
    path = simple(tmp_path / "logs")
    properties = {"option.columns": "offset", "option.endingOffsets": '{"t": {"0": 9}}', "provider": "kafka-segments"}
    catalogs = {"location": f"file:{path}", "path": f"file:{path}", "owner": "us", "owned.by": "us", "comment": "x"}
    columns = KafkaSegments(CaseInsensitiveDict({**properties, **catalogs})).schema()
    stored = StructType.fromJson(json.loads(columns.json()))

    def found(**query: str) -> list[int]:
        reader = KafkaSegments(CaseInsensitiveDict(query)).reader(stored)
        return [
            offset for split in reader.partitions() for each in reader.read(split) for offset in each[0].to_pylist()
        ]

    assert found() == list(range(9))
    assert found(startingOffsets='{"t": {"0": 7}}') == [7, 8]
    with pytest.raises(ConfigError, match=r"no path .*without a list of columns"):
        KafkaSegments(CaseInsensitiveDict({})).reader(schema_of(["offset"]))
    with pytest.raises(ConfigError, match="no such option: tpoic"):
        KafkaSegments(CaseInsensitiveDict({**properties, **catalogs, "option.tpoic": "t"})).schema()


def test_transactions_that_reach_out_of_a_split(tmp_path: Path) -> None:
    """Data and marker segments apart, many splits: a task reads on until it knows the outcome, and no further."""
    segments: dict[int, bytes] = {}
    commits = {}
    at = 0
    pick = random.Random(11)
    opened: dict[int, list[int]] = {}
    for base in range(0, 400, 20):
        data = b""
        for at in range(base, base + 20):
            producer = pick.randint(1, 4)
            if opened.get(producer) and pick.random() < 0.2:
                commit = pick.random() < 0.5
                data += encode_marker(at, producer_id=producer, producer_epoch=0, commit=commit)
                commits.update(dict.fromkeys(opened.pop(producer), commit))
            elif pick.random() < 0.8:
                txn = {"transactional": True, "producer_id": producer, "producer_epoch": 0, "base_sequence": at}
                data += one(at, **txn)
                opened.setdefault(producer, []).append(at)
            else:
                data += one(at)
                commits[at] = True
        segments[base] = data
    path = make_log_dir(tmp_path / "logs", {"t-0": Partition(segments, index_interval_bytes=100)})
    stable = min([at for data in opened.values() for at in data], default=400)
    expected = [offset for offset in sorted(commits) if commits[offset]]
    for size in (1, 300, 5000, 10**6):
        assert offsets(path, splitBytes=str(size)) == [offset for offset in expected if offset < stable]
        assert offsets(path, splitBytes=str(size), bound="end") == expected


def test_old_formats_seek(tmp_path: Path) -> None:
    """Index entries of v1 messages: the frame has the last offset."""
    data = b"".join(encode_legacy(at, b"k", b"x" * 50, timestamp=T0 + at) for at in range(50))
    path = make_log_dir(tmp_path / "logs", {"t-0": Partition({0: data}, index_interval_bytes=200)})
    for begin in (0, 13, 49):
        assert offsets(path, splitBytes="300", startingOffsets={"t": {"0": begin}}) == list(range(begin, 50))
        assert offsets(path, startingTimestamp=str(T0 + begin)) == list(range(begin, 50))


@pytest.mark.parametrize("strategy", ["offset", "timestamp"])
def test_a_tiny_map(tmp_path: Path, strategy: str) -> None:
    """The map has its minimum size, and the keys are cut into shards; the query ended with a wrong call."""
    batches = b"".join(one(at, key=b"%d" % (at % 5000)) for at in range(9000))
    path = make_log_dir(tmp_path / "logs", {"t-0": Partition({0: batches, 9000: b""}, indexes=False)})
    assert offsets(path, view="latest", mapBytes="1", strategy=strategy) == list(range(4000, 9000))


def test_options_in_any_case() -> None:
    """Spark's options are case-insensitive; missing values have their documented defaults."""
    options = options_from({"PATH": "/x", "SplitBytes": "64m", "STARTINGOFFSETS": "Latest", "includeheaders": "FALSE"})
    assert (options.split_bytes, options.starting.word) == (64 << 20, "latest")
    assert options.columns == ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    plain = options_from({"path": "/x"})
    assert (plain.view, plain.bound, plain.split_bytes, plain.columns[-1]) == ("committed", "hw", 128 << 20, "headers")
    assert (plain.starting.word, plain.ending.word) == ("earliest", "latest")
    assert options_from({"path": "/x", "view": "raw"}).bound == "end"
    offset = options_from({"path": "/x", "startingOffsets": json.dumps({"t": {"3": 5}})}).starting.offsets
    assert offset == {TopicPartition("t", 3): 5}
    assert OffsetLimit("earliest").times_ms is None
