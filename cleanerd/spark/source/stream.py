"""``spark.readStream.format("kafka-segments")``: streams the stable part of the closed segments of logs.

A batch is a range of offsets per partition, as in Spark's ``kafka`` source, and not of files. A cleaning between two
batches, or between two tries of a batch, changes files but no offsets.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias

from pyspark.sql.datasource import DataSourceStreamReader

from cleanerd.errors import ConfigError
from cleanerd.spark.source.offsets import start_of
from cleanerd.spark.source.options import OffsetLimit
from cleanerd.spark.source.partition import PLANNED_BY_BATCH, SplitPartition, batches_of
from cleanerd.spark.source.plan import find_requested, reach_of, splits_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

    from cleanerd.format.names import TopicPartition
    from cleanerd.spark.logs import Log
    from cleanerd.spark.source.options import Options
    from cleanerd.spark.source.plan import LogRange
    from cleanerd.spark.values.decoding import Decoding
else:
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    except ImportError:  # Spark 4.1: it has no limits and queries the latest offset without a start
        SupportsTriggerAvailableNow = object

HAS_LIMITS: Final = SupportsTriggerAvailableNow is not object
"""Whether this Spark supports limits per batch."""

Offsets: TypeAlias = dict[str, dict[str, int]]
"""``{"orders": {"0": 23}}``: exclusive ends, as Spark writes them into a checkpoint."""

_WHOLE: Final = (OffsetLimit("earliest"), OffsetLimit("latest"))


class SegmentsStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream of closed segments. Spark calls one instance from beginning to end, and copies of it in tasks."""

    def __init__(
        self, options: Options, decoding: Decoding | None, schema: pa.Schema, *, has_limits: bool = HAS_LIMITS
    ) -> None:
        if not has_limits:
            _require_no_limit(options)
        self._options = options
        self._has_limits = has_limits
        self._decoding = decoding
        self._schema = schema
        self._last: Offsets | None = None
        self._readable: Offsets | None = None

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's name
        """Where a new query begins: ``startingOffsets`` and related options.

        Raises:
            ConfigError: an offset that was removed, or of an unknown partition; with Spark 4.1 one above the closed
                segments.
            CleanerdError: a directory or file cannot be read, or is damaged.
        """
        found = self._reaches(self._options)
        self._options.starting.require_all([log.name for log, _ in found])
        starts = {}
        for log, reach in found:
            start = start_of(log, self._options.starting, reach.begin, reach.end, skip_damage=self._options.skip_damage)
            if start > reach.end and not self._has_limits:
                # It would query only the end, use it as the end of the first batch, and begin there.
                raise ConfigError(
                    f"offset {start} of {log.name} is above {reach.end}, where the closed segments end",
                    where="startingOffsets",
                    hint="begin at -1 (latest) or lower, or update pyspark to 4.2",
                )
            starts[log.name] = start
        return _by_topic(starts)

    def latestOffset(self, start: Offsets | None = None, limit: ReadLimit | None = None) -> Offsets:  # noqa: N802
        """The end of the next batch: within the closed segments and ``limit``, but at least one segment.

        Raises:
            ConfigError: the records at the read offset were removed.
            CleanerdError: a directory or file cannot be read, or is damaged.
        """
        found = self._reaches(self._options)
        ends = {log.name: reach.end for log, reach in found}
        self._readable = _by_topic(ends)
        if self._last is not None:
            ends = {name: min(end, _of(self._last, name, 0)) for name, end in ends.items()}
        if start is None:
            return _by_topic(ends)
        self._require_no_data_loss(start, {log.name: log for log, _ in found})
        begins = {log.name: _of(start, log.name, reach.begin) for log, reach in found}
        # A log that ends below the read offset is another log, or was truncated: new records will not be missed.
        cut = {log.name for log, _ in found if begins[log.name] > _end_of(log, begins[log.name])}
        ends = {name: end if name in cut else max(end, begins[name]) for name, end in ends.items()}
        if limit is not None:
            ends = _limited([log for log, _ in found], begins, ends, _Budget.of(limit))
        return {**{topic: dict(each) for topic, each in start.items()}, **_merged(start, _by_topic(ends))}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Store the current end of closed segments: this query ends there.

        Raises:
            CleanerdError: a directory or file cannot be read, or is damaged.
        """
        self._last = _by_topic({log.name: reach.end for log, reach in self._reaches(self._options)})

    def reportLatestOffset(self) -> Offsets | None:  # noqa: N802
        """The end of a batch without limits at the last :meth:`latestOffset`, for the query's progress."""
        return self._readable

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit from the options ``max...PerTrigger``, of which one can be set."""
        from pyspark.sql.streaming.datasource import (  # noqa: PLC0415 - only Spark 4.2 and later ask
            ReadAllAvailable,
            ReadMaxBytes,
            ReadMaxFiles,
            ReadMaxRows,
        )

        options = self._options
        if options.max_bytes is not None:
            return ReadMaxBytes(options.max_bytes)
        if options.max_files is not None:
            return ReadMaxFiles(options.max_files)
        return ReadAllAvailable() if options.max_offsets is None else ReadMaxRows(options.max_offsets)

    def partitions(self, start: Offsets, end: Offsets) -> list[SplitPartition]:
        """The splits of a batch.

        Raises:
            ConfigError: some of its records were removed.
            CleanerdError: a directory or file cannot be read, or is damaged.
        """
        found = self._reaches(self._options)
        logs = {log.name: log for log, _ in found}
        self._require_no_data_loss(start, logs)
        self._require_no_data_loss(end, logs)
        wanted = []
        for log, reach in found:
            upto = _of(end, log.name, -1)
            if not self._options.fail_on_data_loss:
                upto = min(upto, reach.end)
            begin = max(_of(start, log.name, reach.begin), reach.begin)
            if begin < upto:
                wanted.append((log, replace(reach, begin=begin, end=upto)))
        splits = splits_of([log for log, _ in wanted], [reach for _, reach in wanted], self._options)
        return [SplitPartition(split) for split in splits]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches of one split.

        Raises:
            CleanerdError: see :func:`~cleanerd.spark.source.read.read_split`.
        """
        return batches_of(partition, self._options, self._decoding, self._schema, PLANNED_BY_BATCH)

    def _reaches(self, options: Options) -> list[tuple[Log, LogRange]]:
        """The logs, each from its beginning to the end of its closed and stable part."""
        whole = replace(options, starting=_WHOLE[0], ending=_WHOLE[1])
        found = []
        for each in find_requested(options):
            log = each
            if log.high_watermark is None and len(log.segments) == 1:
                # A new partition whose checkpoint entry will come in some seconds: it has no closed segment.
                log = replace(log, high_watermark=log.segments[0].base)
            reach = reach_of(log, whole)
            found.append((log, replace(reach, end=max(reach.begin, min(reach.end, log.segments[-1].base)))))
        return found

    def _require_no_data_loss(self, start: Offsets, logs: dict[TopicPartition, Log]) -> None:
        """Check that records from ``start`` on still exist, unless ``failOnDataLoss`` is false."""
        if not self._options.fail_on_data_loss:
            return
        known = {str(name): log for name, log in logs.items()}
        for topic, each in start.items():
            for number, offset in each.items():
                log = known.get(f"{topic}-{number}")
                if log is None:
                    raise _data_loss_error(f"{topic}-{number} is gone")
                first = max(log.log_start, log.segments[0].base)
                if offset < first:
                    raise _data_loss_error(f"{log.name} begins at {first}, and was read up to {offset}")
                # A log that ends below the read offset is an error: records written there later would be skipped.
                end = _end_of(log, offset)
                if offset > end:
                    why = "its topic was created again, it was cut, or this is an older copy"
                    raise _data_loss_error(f"{log.name} ends at {end}, and was read up to {offset}: {why}")


def _end_of(log: Log, offset: int) -> int:
    """The acknowledged end of ``log``; ``offset`` if no checkpoint has it."""
    first = max(log.log_start, log.segments[0].base)
    return max(first, log.segments[-1].base, offset if log.high_watermark is None else log.high_watermark)


def _require_no_limit(options: Options) -> None:
    limits = {
        "maxFilesPerTrigger": options.max_files,
        "maxBytesPerTrigger": options.max_bytes,
        "maxOffsetsPerTrigger": options.max_offsets,
    }
    for option, limit in limits.items():
        if limit is not None:
            raise ConfigError(
                "limits of a batch need Spark 4.2 or later; this one would take all at once",
                where=option,
                hint="leave it out, or update pyspark",
            )


class _Budget:
    """A batch's limits. None: unlimited."""

    def __init__(self, *, size_bytes: int | None, files: int | None, offsets: int | None, least: int) -> None:
        self._left = [size_bytes, files, offsets]
        self.least_offsets = least
        self._taken = False

    @classmethod
    def of(cls, limit: ReadLimit) -> _Budget:
        """The budget from Spark's limit."""
        return cls(
            size_bytes=getattr(limit, "max_bytes", None),
            files=getattr(limit, "max_files", None),
            offsets=getattr(limit, "max_rows", None),
            least=getattr(limit, "min_rows", 0),
        )

    def take(self, size_bytes: int, offsets: int) -> int:
        """How many of ``offsets`` in a segment of ``size_bytes`` fit; the first segment always does."""
        left_bytes, left_files, left_offsets = self._left
        fits = (left_bytes is None or size_bytes <= left_bytes) and (left_files is None or left_files > 0)
        taken = min(offsets, left_offsets) if left_offsets is not None else offsets if fits or not self._taken else 0
        self._taken = True
        self._left = [
            left if left is None else max(left - used, 0)
            for left, used in zip(self._left, (size_bytes, 1, taken), strict=True)
        ]
        return taken


def _limited(
    logs: Sequence[Log], begins: dict[TopicPartition, int], ends: dict[TopicPartition, int], budget: _Budget
) -> dict[TopicPartition, int]:
    """Ends within the budget: a segment of each log in turn, so that all logs progress."""
    if sum(max(ends[name] - begins[name], 0) for name in ends) < budget.least_offsets:
        return begins
    reached = {name: min(begins[name], ends[name]) for name in ends}
    waiting = {log.name: [each for each in log.segments if each.end > begins[log.name]] for log in logs}
    while any(waiting.values()):
        for name, segments in waiting.items():
            if not segments or reached[name] >= ends[name]:
                segments.clear()
                continue
            segment = segments.pop(0)
            wanted = min(segment.end, ends[name]) - reached[name]
            taken = budget.take(segment.size_bytes, wanted)
            reached[name] += taken
            if taken < wanted:
                segments.clear()
    return reached


def _by_topic(offsets: dict[TopicPartition, int]) -> Offsets:
    found: Offsets = {}
    for name in sorted(offsets):
        found.setdefault(name.topic, {})[str(name.partition)] = offsets[name]
    return found


def _merged(first: Offsets, second: Offsets) -> Offsets:
    """The second over the first, in a fixed order, because Spark treats other text as other data."""
    return {topic: {**first.get(topic, {}), **each} for topic, each in second.items()}


def _of(offsets: Offsets, name: TopicPartition, otherwise: int) -> int:
    return int(offsets.get(name.topic, {}).get(str(name.partition), otherwise))


def _data_loss_error(what: str) -> ConfigError:
    hint = 'option("failOnDataLoss", "false") continues with the existing records'
    return ConfigError(f"records were deleted before they were read: {what}", where="kafka-segments", hint=hint)
