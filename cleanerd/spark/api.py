"""The Python API for PySpark programs: :class:`ReadableLogs` has a method for each command that reads.

Cleaning is in ``notebook.py``, so that reading commands cannot change anything. A session of Spark Connect is enough;
``session_info.py`` has the queries that are not DataFrames.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from cleanerd.errors import ConfigError
from cleanerd.format.names import TopicPartition, parse_topic_partition_dir
from cleanerd.segments.log_dir import CLEANER_CHECKPOINT
from cleanerd.spark.audit import AuditedPartition, AuditQuestion, audit_sides, new_digest_key
from cleanerd.spark.audit_inputs import AuditInputs, sides_of
from cleanerd.spark.divergence import EXAMPLES, ReplicaComparison, compare_logs, pairs_of
from cleanerd.spark.erasure import Erasure, search_records
from cleanerd.spark.latest_by_tasks import LARGE_BYTES
from cleanerd.spark.listed import list_complete
from cleanerd.spark.logs import Log, known_clean_end, size_of_all
from cleanerd.spark.profile import Profile, profile_logs
from cleanerd.spark.report.files import profile_table, write_report
from cleanerd.spark.session import register_source, use_own_python
from cleanerd.spark.snapshot import SnapshotResult, write_snapshot
from cleanerd.spark.source.options import Options
from cleanerd.spark.source.plan import expanded, find_requested
from cleanerd.spark.stores import path_of
from cleanerd.spark.strategies import Strategies, StrategyText, keys_of
from cleanerd.spark.tables.files import ROWS
from cleanerd.spark.tables.merge import Merged, merge_into, write_table
from cleanerd.spark.tables.target import Delta, Iceberg
from cleanerd.spark.tables.undecoded import write_undecoded
from cleanerd.spark.task_runner import ignore_progress
from cleanerd.spark.values.decoding import Decoding, resolved
from cleanerd.verify.audit import Term
from cleanerd.verify.finding import Findings
from cleanerd.verify.log_dir import read_surroundings
from cleanerd.verify.rules import KAFKAS_RULES, KeyRules

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from cleanerd.spark.values.decode_options import Decode
    from cleanerd.verify.listing import Listing

Place: TypeAlias = str | Path
Advance: TypeAlias = Callable[[int], None]
RulesOf: TypeAlias = Callable[[str], KeyRules]
"""The rules that decide between the records of a key, by topic."""

DELETE_RETENTION_MS: Final = 86_400_000
"""Kafka's default of ``delete.retention.ms``."""


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The result of :meth:`ReadableLogs.audit`.

    ``notes``: what was not compared. ``digest_key``: the key of the digests.
    """

    partitions: tuple[AuditedPartition, ...]
    notes: tuple[str, ...]
    digest_key: bytes

    @property
    def found(self) -> int:
        """The number of findings; 0: all is right."""
        return sum(each.found for each in self.partitions)


class Profiles(list[Profile]):
    """The profiles of logs, one per partition."""

    def __init__(self, logs: ReadableLogs, profiles: Iterable[Profile]) -> None:
        super().__init__(profiles)
        self._logs = logs

    def to_dataframe(self) -> DataFrame:
        """A row per partition, with the columns of a report's ``profile.parquet``.

        Raises:
            ConfigError: there is no session.
        """
        return self._logs.session.createDataFrame(profile_table(self))


class ReadableLogs:
    """The logs in log directories of brokers, or copies of them.

    ``paths``: directories or patterns, as in ``load()`` of the data source. ``strategies``: by topic ``offset``,
    ``timestamp``, ``header:NAME`` or a topic's keys (``{"compaction.strategy": ...}``), Kafka's rules for the others;
    or a function from a topic to its rules. ``topics``, ``partitions`` (``orders-0``): only these. ``decode``: the
    schemas for decoding keys and values into columns in :meth:`read` and :meth:`latest`. ``spark`` None: this process
    does everything except DataFrames and cleanings beside the segments, which are refused; for a few hundred megabytes
    that is faster than starting a session.

    Nothing is cached: each call reads the directories again.
    """

    def __init__(
        self,
        spark: SparkSession | None,
        paths: Place | Iterable[Place],
        strategies: Mapping[str, StrategyText] | RulesOf | None = None,
        *,
        topics: Iterable[str] | None = None,
        partitions: Iterable[str | TopicPartition] | None = None,
        decode: Decode | None = None,
    ) -> None:
        self._spark = spark
        if spark is not None:
            use_own_python(spark)
        self._decode = decode
        places = [paths] if isinstance(paths, str | Path) else paths
        self._paths = tuple(str(path) for path in places)
        self._rules: RulesOf = strategies if callable(strategies) else Strategies.of(strategies or {}).rules
        self._topics = None if topics is None else frozenset([topics] if isinstance(topics, str) else topics)
        names = [partitions] if isinstance(partitions, str | TopicPartition) else partitions
        self._partitions = None if names is None else frozenset(map(_name, names))

    def found(self) -> list[Log]:
        """The logs, as they are listed now.

        Raises:
            ConfigError: a directory, topic or partition does not exist, or a partition exists twice. RefusedError: a
                partition is in the middle of a swap, and stays so.
            CleanerdError: a directory cannot be listed.
        """
        return self._found(list_complete)

    def _found(self, lister: Callable[[Path], Listing], *, internal: bool = True) -> list[Log]:
        options = Options(self._paths, (), topics=self._topics, partitions=self._partitions, internal=internal)
        return find_requested(options, self._rules, lister)

    def decoding(self, logs: Sequence[Log]) -> Decoding | None:
        """The decoding of ``logs``, with the readers' current schemas.

        Raises:
            ConfigError: a schema does not exist, or the topics have different ones.
            CleanerdError: a registry does not answer.
        """
        return None if self._decode is None else resolved(self._decode, {log.name.topic for log in logs})

    @property
    def session(self) -> SparkSession:
        """The session.

        Raises:
            ConfigError: there is none.
        """
        if self._spark is None:
            raise ConfigError("needs a Spark session", where="Logs", hint="Logs(spark, ...)")
        return self._spark

    @property
    def size_bytes(self) -> int:
        """Bytes in their segments; raises as :meth:`found`."""
        return size_of_all(self.found())

    def read(self, **options: object) -> DataFrame:
        """As ``spark.read.format("kafka-segments")`` with ``options`` (``view="raw"``), planned now.

        Raises:
            ConfigError: as :meth:`found` and :func:`~cleanerd.spark.register`.
        """
        from cleanerd.spark.source.data_source import KafkaSegments  # noqa: PLC0415 - needs pyspark

        register_source(self.session, KafkaSegments)
        found = self._found(list_complete, internal=False)
        keys = {topic: keys_of(self._rules(topic)) for topic in {log.name.topic for log in found}}
        names = ",".join(str(log.name) for log in found)
        reader = self.session.read.format("kafka-segments").options(strategies=json.dumps(keys), partitions=names)
        decode = {} if self._decode is None else self._decode.to_options()
        texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in options.items()}
        return reader.options(**{**decode, **texts}).load([str(path) for path in expanded(self._paths)])

    def latest(self, *, tombstones: bool = False, whole_log: bool = False) -> Latest:
        """The retained record of each key: the content of a table ``key -> value``."""
        return Latest(self._spark, self, tombstones=tombstones, whole_log=whole_log)

    def profile(
        self, *, clean_end_of: Callable[[Log], int | None] = known_clean_end, advance: Advance = ignore_progress
    ) -> Profiles:
        """Keys, versions and tombstones of each log, and what a cleaning would save.

        ``clean_end_of``: up to where a log was cleaned, None if unknown; by default Kafka's checkpoint, for topics with
        Kafka's rules.

        Raises:
            CleanerdError: as :meth:`found`, or a file cannot be read.
        """
        return Profiles(self, profile_logs(self._spark, self.found(), advance, clean_end_of=clean_end_of))

    def write_report(self, profiles: Sequence[Profile], target: Place) -> None:
        """Write ``profiles`` as a report: the new directory ``target`` with a page, JSON and Parquet.

        The page names the keys with the most records, which are read from these logs.

        Raises:
            ConfigError: ``target`` exists, or the package for charts is not installed.
            CleanerdError: as :meth:`found`, or it cannot be written.
        """
        now_ms = time.time_ns() // 1_000_000
        write_report(profiles, self.found(), Path(target), log_dirs=list(self._paths), now_ms=now_ms)

    def what_if(self, strategies: Iterable[str]) -> dict[str, Profiles]:
        """The profile of each log under each of ``strategies``, whatever its strategy is now.

        Raises:
            ConfigError: no such strategy.
            CleanerdError: as :meth:`profile`.
        """
        rules = {text: Strategies.of({}, text).rules for text in strategies}
        found = {log.name: log for log in self.found()}

        def clean_end_of(log: Log) -> int | None:
            return known_clean_end(found[log.name])  # it was cleaned by its current rules

        return {
            text: ReadableLogs(self._spark, self._paths, of, partitions=found).profile(clean_end_of=clean_end_of)
            for text, of in rules.items()
        }

    def compared(self, before: Place) -> tuple[list[AuditInputs], list[str]]:
        """The partitions that :meth:`audit` compares with ``before``, and those that it cannot; raises as it does."""
        after = expanded(self._paths)
        if len(after) != 1:
            raise ConfigError("an audit reads one log directory, and here are several", where=", ".join(self._paths))
        sides, notes = sides_of(path_of(before).absolute(), after[0], sorted(self._partitions or ()))
        wanted = self._topics
        return [each for each in sides if wanted is None or each.name.topic in wanted], notes

    def audit(
        self,
        before: Place,
        *,
        clean_below: int | Callable[[TopicPartition, KeyRules], int | None] | None = None,
        first_dirty: int = 0,
        log_start: int = 0,
        many_cleanings: bool = False,
        now_ms: int | None = None,
        examples: int = 10,
        digest_key: bytes | None = None,
        advance: Advance = ignore_progress,
        cleaned_before: Callable[[TopicPartition, KeyRules], int] = lambda _name, _rules: 0,
    ) -> AuditReport:
        """Whether this log directory is the result of a correct cleaning of ``before``, by any cleaner.

        ``before``: a copy, or a directory of ``--keep-replaced``. ``clean_below``: it is clean below; None: Kafka's
        checkpoint, for topics with Kafka's rules. ``many_cleanings``: several cleanings were in between.
        ``cleaned_before``: up to where it was once clean. If ``clean_below`` is lower, the records in between are not
        judged.

        Raises:
            ConfigError: nothing to compare, or more than one directory.
            CleanerdError: a file cannot be read.
        """
        compared, notes = self.compared(before)
        clean_end = (
            self._checkpoints
            if clean_below is None
            else clean_below
            if callable(clean_below)
            else lambda _name, _rules: clean_below
        )
        questions = []
        for sides in compared:
            rules = self._rules(sides.name.topic)
            is_hint = clean_below is None or callable(clean_below)
            end, once = clean_end(sides.name, rules), cleaned_before(sides.name, rules) if is_hint else 0
            questions.append(AuditQuestion(rules, end, first_dirty, log_start, many_cleanings, is_hint, once))
        key = new_digest_key() if digest_key is None else digest_key
        now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        judged = audit_sides(
            self._spark, compared, questions, now_ms=now, hash_key=key, examples=examples, advance=advance
        )
        return AuditReport(tuple(judged), tuple(notes), key)

    def compare_replicas(
        self,
        others: Place | Iterable[Place],
        *,
        clean_end_of: Callable[[Log], int | None] = known_clean_end,
        advance: Advance = ignore_progress,
        examples: int = EXAMPLES,
    ) -> ReplicaComparison:
        """Whether these logs and those in each of ``others``, of other brokers or times, have the same records.

        Differences by retention, cleanings at other moments and delete horizons are counted separately.
        ``clean_end_of``: up to where a replica was cleaned, None if unknown; by default Kafka's checkpoint, for topics
        with Kafka's rules. ``examples``: how many records of each kind of difference are named, with their keys.

        Raises:
            ConfigError: nothing to compare.
            CleanerdError: as :meth:`found`, or a file cannot be read.
        """
        places = [others] if isinstance(others, str | Path) else others
        theirs = [ReadableLogs(None, p, self._rules, topics=self._topics, partitions=self._partitions) for p in places]
        pairs, notes = pairs_of(self.found(), [logs.found() for logs in theirs])
        found = compare_logs(self._spark, pairs, clean_end_of=clean_end_of, advance=advance, examples=examples)
        return ReplicaComparison(tuple(found), tuple(notes))

    def find_keys(
        self, keys: bytes | Iterable[bytes], *, limit: int = 10, advance: Advance = ignore_progress
    ) -> Erasure:
        """All copies of ``keys``, in every file below the directories: live, replaced, kept, staged.

        Raises:
            ConfigError: a directory does not exist; no key is given, or one that is not bytes.
            OSError: one cannot be listed.
        """
        wanted = [keys] if isinstance(keys, bytes) else list(keys)
        other = [key for key in wanted if not isinstance(key, bytes)]
        if other or not wanted:
            what = f"{other[0]!r:.60} is not bytes" if other else "no key to find"
            raise ConfigError(what, where="find_keys", hint="[b'customer-4711']")
        return self.find_records([Term("key", key) for key in wanted], limit=limit, advance=advance)

    def find_records(self, terms: Sequence[Term], *, limit: int = 10, advance: Advance = ignore_progress) -> Erasure:
        """The records that match one of ``terms``: a key, a key prefix, bytes in a value.

        Searches as :meth:`find_keys`.

        Raises:
            ConfigError: a directory does not exist.
            OSError: one cannot be listed.
        """
        return search_records(
            self._spark, expanded(self._paths), terms,
            lambda topic: self._rules(topic) if topic else KAFKAS_RULES, limit=limit, advance=advance,
        )  # fmt: skip

    def _checkpoints(self, name: TopicPartition, rules: KeyRules) -> int | None:
        (after,) = expanded(self._paths)
        return read_surroundings(after, Findings()).of(CLEANER_CHECKPOINT, name) if rules == KAFKAS_RULES else None


class Latest:
    """The latest state of logs.

    ``tombstones``: include deleted keys. ``whole_log``: up to the end, acknowledged or not.
    """

    def __init__(self, spark: SparkSession | None, logs: ReadableLogs, *, tombstones: bool, whole_log: bool) -> None:
        self._spark = spark
        self._logs = logs
        self._tombstones = tombstones
        self._whole_log = whole_log

    def dataframe(self) -> DataFrame:
        """With the columns of the data source; raises as :meth:`ReadableLogs.found`."""
        bound = "end" if self._whole_log else "hw"
        return self._logs.read(view="latest", tombstones=self._tombstones, bound=bound)

    def write_parquet(self, target: Place, *, advance: Advance = ignore_progress) -> list[SnapshotResult]:
        """Write it to the new path or URL ``target``: a sub-directory per topic, and last the offsets in ``_cleanerd``.

        Raises:
            ConfigError: ``target`` exists; a high watermark is needed but unknown. CorruptionError: a log has
                unreadable bytes, so its state is unknown.
            CleanerdError: a file cannot be read.
        """
        logs = self._logs.found()
        decoding = self._logs.decoding(logs)
        text = str(target)
        if "://" not in text:
            if Path(text).exists():
                raise ConfigError(
                    "exists already", where=text, hint="name a new directory: a snapshot replaces nothing"
                )
            text = Path(text).absolute().as_uri()
        return write_snapshot(
            self._spark, logs, text,
            tombstones=self._tombstones, whole_log=self._whole_log, decoding=decoding, advance=advance,
        )  # fmt: skip

    def write_table(
        self,
        table: Delta | Iceberg | Place,
        *,
        replace: bool = False,
        advance: Advance = ignore_progress,
        large_bytes: int = LARGE_BYTES,
    ) -> list[SnapshotResult]:
        """Write a table, in one commit that also has its offsets. A path or URL: a Delta table.

        ``replace``: replace the table's content. Many tasks read a log of more than ``large_bytes``.

        Raises:
            ConfigError: the table exists and ``replace`` is not set; a high watermark is needed but unknown.
            RefusedError: it has other columns, or another writer changed it meanwhile.
            CorruptionError: a log has unreadable bytes, so its state is unknown.
            CleanerdError: a file cannot be read or written.
        """
        logs = self._logs.found()
        decoding = self._logs.decoding(logs)
        columns = _columns(decoding)
        done = write_table(
            self._spark, _target(table).open(columns), logs,
            tombstones=self._tombstones, whole_log=self._whole_log, replace_all=replace, decoding=decoding,
            advance=advance,
            large_bytes=large_bytes,
        )  # fmt: skip
        if decoding is not None:
            write_undecoded(_target(table), columns)
        return done

    def merge_into(
        self,
        table: Delta | Iceberg | Place,
        *,
        delete_retention_ms: int | Callable[[str], int] = DELETE_RETENTION_MS,
        advance: Advance = ignore_progress,
    ) -> list[Merged]:
        """Update a table of :meth:`write_table` with the new records of the logs, in one commit.

        ``delete_retention_ms``: the topics' ``delete.retention.ms``, or a function of the topic's name. A table that is
        older cannot be updated after a cleaning.

        Raises:
            ConfigError: the table does not exist; the whole log was requested; a high watermark is unknown.
            RefusedError: only the whole log has its latest state; or another writer changed the table meanwhile.
            CorruptionError: a log has bytes that cannot be read.
            CleanerdError: a file cannot be read or written.
        """
        if self._whole_log:
            raise ConfigError(
                "unacknowledged records may be missing next time", where="merge_into", hint="without whole_log"
            )
        given = delete_retention_ms
        logs = self._logs.found()
        decoding = self._logs.decoding(logs)
        columns = _columns(decoding)
        done = merge_into(
            self._spark, _target(table).open(columns), logs,
            retention_ms=given if callable(given) else lambda _topic: given,
            tombstones=self._tombstones, decoding=decoding, advance=advance,
        )  # fmt: skip
        if decoding is not None:
            write_undecoded(_target(table), columns)
        return done


def _columns(decoding: Decoding | None) -> pa.Schema:
    return ROWS if decoding is None else decoding.added_to(ROWS)


def _target(table: Delta | Iceberg | Place) -> Delta | Iceberg:
    return table if isinstance(table, Delta | Iceberg) else Delta(str(table))


def _name(partition: str | TopicPartition) -> TopicPartition:
    name = partition if isinstance(partition, TopicPartition) else parse_topic_partition_dir(partition)
    if name is None:
        raise ConfigError(f"{partition!r} is not of the form TOPIC-N", where="partitions")
    return name
