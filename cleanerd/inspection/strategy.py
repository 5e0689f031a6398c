"""The strategies in ``inspect``: a log directory's topics (R192-4), versions in a partition's records."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cleanerd._kernel import FLAG_BAD_VERSION, FLAG_HAS_KEY, Chunk, decode_chunk
from cleanerd.cleaner.record_anomalies import FAR_FUTURE_MS
from cleanerd.config.fingerprint import describe_settings
from cleanerd.config.topic_config import NEVER_CLEANED, resolve_topic_config
from cleanerd.errors import CleanerdError, CorruptionError
from cleanerd.format.batch import CONTROL
from cleanerd.format.names import SEGMENT_SUFFIX, TopicPartition, file_name, parse_file_name, parse_topic_partition_dir
from cleanerd.host.memory import batch_bytes
from cleanerd.inspection.report import ReportTable, RowSelection, TableColumn, number, text_column, text_of
from cleanerd.inspection.segment import zero_tail
from cleanerd.policy.rules import STRATEGIES
from cleanerd.resolution.broker_facts import BrokerFacts, broker_facts
from cleanerd.segments.log_dir import LogDir, read_log_dir
from cleanerd.segments.message_format import glance
from cleanerd.segments.partition import read_partition
from cleanerd.segments.reading import SegmentReader
from cleanerd.segments.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from cleanerd.config.load import Settings

_GLANCE_BYTES: Final = 4096

TOPIC_COLUMNS: Final = (
    text_column("topic", "topic"),
    number("partitions", "partitions"),
    TableColumn("magic", lambda row: _range(row["lowest_magic"], row["highest_magic"])),
    number("max.message.bytes", "max_message_bytes"),
    text_column("origin", "max_message_bytes_origin"),
    text_column("strategy", "strategy"),
    TableColumn("problem", lambda row: text_of(row.get("problem"))),
)


def _range(lowest: object, highest: object) -> str:
    return text_of(lowest) if lowest == highest else f"{lowest}-{highest}"


def topic_table(path: Path, settings: Settings, selection: RowSelection) -> ReportTable:
    """A row per topic of a log directory: message formats, largest message, strategy (R192-4).

    The formats are those of the segments' first batches. An unreadable topic has its error in its row.
    """
    log_dir = read_log_dir(path)
    facts, problem = _facts(settings, log_dir)
    table = ReportTable("topics", TOPIC_COLUMNS, selection.limit)
    by_topic: dict[str, list[TopicPartition]] = {}
    for name in log_dir.partitions:
        by_topic.setdefault(name.topic, []).append(name)
    for topic in sorted(by_topic.keys() - NEVER_CLEANED):
        if table.is_full:
            table.omitted += 1
        else:
            table.add(_topic_row(log_dir, topic, by_topic[topic], facts, problem))
    return table


def _facts(settings: Settings, log_dir: LogDir) -> tuple[BrokerFacts | None, str]:
    try:
        others = [path for path in settings.daemon.cleanerd_log_dirs if path != log_dir.path]
        return broker_facts(settings, log_dir, others), ""
    except CleanerdError as error:
        return None, str(error)


def _topic_row(
    log_dir: LogDir, topic: str, names: Sequence[TopicPartition], facts: BrokerFacts | None, problem: str
) -> dict[str, object]:
    magics = []
    problems = [problem] if problem else []
    for name in names:
        try:
            log = read_partition(log_dir, name)
            with SegmentReader.open(str(log.path), chunk_bytes=_GLANCE_BYTES) as reader:
                formats = glance(log, reader)
        except CleanerdError as error:
            problems.append(str(error))
            continue
        magics += [magic for magic in (formats.lowest, formats.highest) if magic is not None]
    row: dict[str, object] = {
        "topic": topic,
        "partitions": len(names),
        "lowest_magic": min(magics, default=None),
        "highest_magic": max(magics, default=None),
        "max_message_bytes": None,
        "max_message_bytes_origin": None,
        "strategy": None,
    }
    try:
        config = None if facts is None else facts.topic_config(topic)
    except CleanerdError as error:
        config, problems = None, [*problems, str(error)]
    if config is not None:
        row |= {
            "max_message_bytes": config.max_message_bytes,
            "max_message_bytes_origin": config.origins["max.message.bytes"],
            "strategy": describe_settings(config),
        }
    return {**row, "problem": "; ".join(problems)} if problems else row


@dataclass(slots=True)
class _Versions:
    """Sums over the records with a key, without control batches."""

    records: int = 0
    without: int = 0
    malformed: int = 0
    far_future: int = 0
    smallest: int | None = None
    largest: int | None = None

    def facts(self) -> dict[str, object]:
        return {
            "records_with_key": self.records,
            "without_version": self.without,
            "without_version_share": round(self.without / self.records, 6) if self.records else 0.0,
            "malformed_versions": self.malformed,
            "smallest_version": self.smallest,
            "largest_version": self.largest,
            "far_future_timestamps": self.far_future,
        }


def version_facts(path: Path, strategy: str, header: str, settings: Settings) -> dict[str, object]:
    """What a strategy finds in a partition's records, including the active segment and aborted records.

    Raises:
        CorruptionError, CleanerdError: a segment is damaged or cannot be read.
    """
    encoding = "long"
    name = parse_topic_partition_dir(path.resolve().name)
    if name is not None and name.topic not in NEVER_CLEANED:
        config = resolve_topic_config(name.topic, overrides=settings.topic_overrides(name.topic), topic_configs=None)
        encoding = config.compaction_strategy_header_encoding
    latest_ms = time.time_ns() // 1_000_000 + FAR_FUTURE_MS
    ranking = STRATEGIES[strategy]
    sums = _Versions()

    def decode(data: NDArray[np.uint8], position: int) -> Chunk:
        found = header.encode() if header else None
        return decode_chunk(data, position, version_header=found, version_encoding=encoding, max_unpacked=batch_bytes())

    with SegmentReader.open(str(path)) as reader:
        for base in _bases(path):
            segment = Segment.from_stat(base, os.stat(path / file_name(base, SEGMENT_SUFFIX)), frozenset())
            for chunk in _chunks(reader, segment, decode, path):
                _add(sums, chunk, *ranking.versions(chunk.records), latest_ms)
    return {"strategy": f"{strategy}:{header}" if header else strategy, **sums.facts()}


def _chunks(
    reader: SegmentReader, segment: Segment, decode: Callable[[NDArray[np.uint8], int], Chunk], path: Path
) -> Iterator[Chunk]:
    """The segment's chunks, without preallocated zeros at its end (F-1)."""
    end = 0
    try:
        for chunk in reader.chunks(segment, decode):
            end += chunk.consumed
            yield chunk
    except CorruptionError as error:
        if error.position < 0:
            raise
        zero_tail(path / file_name(segment.base, SEGMENT_SUFFIX), error.position)
        yield from reader.chunks(replace(segment, size_bytes=error.position), decode, start=end)


def _bases(path: Path) -> list[int]:
    parsed = (parse_file_name(name) for name in os.listdir(path))
    return sorted(found[0] for found in parsed if found is not None and found[1] == SEGMENT_SUFFIX)


def _add(sums: _Versions, chunk: Chunk, version: NDArray[np.int64], present: NDArray[np.bool_], latest_ms: int) -> None:
    records, batches = chunk.records, chunk.batches
    plain = np.repeat((batches.attributes & CONTROL) == 0, np.diff(batches.first_record))
    keyed: NDArray[Any] = plain & ((records.flags & FLAG_HAS_KEY) != 0)
    sums.records += int(np.count_nonzero(keyed))
    sums.without += int(np.count_nonzero(keyed & ~present))
    sums.malformed += int(np.count_nonzero(keyed & ((records.flags & FLAG_BAD_VERSION) != 0)))
    sums.far_future += int(np.count_nonzero(keyed & (records.timestamp > latest_ms)))
    known = version[keyed & present]
    if known.size:
        low, high = int(known.min()), int(known.max())
        sums.smallest = low if sums.smallest is None else min(sums.smallest, low)
        sums.largest = high if sums.largest is None else max(sums.largest, high)
