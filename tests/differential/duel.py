"""Kafka's cleaner and cleanerd on a copy of the same log each, compared after every cleaning.

cleanerd runs completely, from the log directory's lock to the swap; only the clock is given. Each side continues with
its own result. Segment borders may come to differ. So a cleaning that ends inside a segment is compared only while they
are equal: its end decides how far tombstones beyond it get their horizon (C-48).
"""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cleanerd.cleaner.cleaner import Cleaning
from cleanerd.cleaner.planning import make_plan
from cleanerd.cleaner.resources import Resources
from cleanerd.cleaner.survey import CleaningOptions, survey
from cleanerd.config.topic_config import read_key, resolve_topic_config
from cleanerd.errors import CleanerdError
from cleanerd.format.checkpoint import read_offset_checkpoint, write_offset_checkpoint
from cleanerd.format.names import TopicPartition
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.state.cleaner_checkpoint import StateStore
from cleanerd.swap.lock import LogDirLock
from cleanerd.swap.round import clean_partition
from cleanerd.swap.session import LockedDir
from tests.cleaner.driver import Silent
from tests.differential.behaves import assert_alike
from tests.differential.history import History, Turn
from tests.differential.releases import INDEXES_BY_WRITE, kept_end
from tests.kafka.judge import Cleaned, Comparison, Dump, Judge, Loaded, Producer, ReadBatch, Round, ToLoad

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cleanerd.cleaner.result import CleaningResult
    from cleanerd.config.topic_config import TopicConfig

NAME = TopicPartition("t", 0)
META_PROPERTIES = "version=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\nnode.id=1\ndirectory.id=MkU3OEVBNTcwNTJENDM2Qg\n"
SLOT_BYTES = 24
NO_OFFSET = -1
NO_EPOCH = -1
NEVER_MS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """One cleaning by both. ``before`` and ``after`` are Kafka's decoding of *Kafka's* copy.

    ``our_digest`` covers names and bytes of cleanerd's ``.log`` files after the cleaning. ``equal_segments`` is the
    number of written segments that equal Kafka's byte for byte, indexes included. ``queries`` is the number of queries
    that Kafka's classes answered about both (U-37).
    """

    turn: Turn
    kafka: Cleaned
    ours: CleaningResult
    comparison: Comparison
    before: Dump
    after: Dump
    our_digest: str
    equal_segments: int
    queries: int

    def offsets(self, *, after: bool = True) -> set[int]:
        """The offsets of the records that Kafka retained, or found."""
        return {record.offset for record in (self.after if after else self.before).records}

    def dropped(self) -> set[int]:
        """The offsets of the records that Kafka removed."""
        return self.offsets(after=False) - self.offsets()

    def emptied(self) -> set[int]:
        """The base offsets of the batches that Kafka kept without their records."""
        had = {batch.base for batch in self.before.batches if batch.count}
        return {batch.base for batch in self.after.batches if not batch.count and batch.base in had}

    def gone(self) -> set[int]:
        """The base offsets of the batches that Kafka removed completely."""
        return {batch.base for batch in self.before.batches} - {batch.base for batch in self.after.batches}

    def markers(self) -> set[int]:
        """The offsets of markers that still have a meaning after the cleaning."""
        return {batch.base for batch in self.after.batches if batch.control and batch.count}

    def aborted(self) -> list[tuple[int, int, int]]:
        """Producer, first and last offset of the aborted transactions in the indexes after the cleaning."""
        return [entry[:3] for segment in self.after.segments for entry in segment.txn_index or ()]

    def horizons(self) -> dict[int, int]:
        """Delete horizon by base offset, of the batches that have one after the cleaning."""
        return {b.base: b.delete_horizon for b in self.after.batches if b.delete_horizon is not None}


def play(judge: Judge, work: Path, history: History) -> list[Outcome]:
    """Run all turns of a history and assert after each that cleanerd's result equals Kafka's; empty if there are none.

    A random history may have no turn: all of it may be above an open transaction.
    """
    if not history.turns:
        return []
    duel = _Duel(judge, work, history)
    return list(duel.turns())


def prepare(log_dir: Path) -> None:
    """Make ``log_dir`` the log directory of a stopped broker."""
    (log_dir / "meta.properties").write_text(META_PROPERTIES)
    (log_dir / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')


def put_checkpoint(log_dir: Path, name: str, offset: int) -> None:
    """Write one of Kafka's checkpoint files for the partition."""
    (log_dir / name).write_bytes(write_offset_checkpoint({NAME: offset}))


def clean_ours(
    log_dir: Path,
    store: StateStore,
    history: History,
    turn: Turn,
    *,
    up_to_offset: int | None = None,
    convert_legacy: bool = True,
) -> CleaningResult:
    """Clean once like ``cleanerd clean --force``; ``convert_legacy`` as for a broker of 4.0 or later."""
    end = history.end_offset(turn)
    put_checkpoint(log_dir, "recovery-point-offset-checkpoint", end)
    put_checkpoint(
        log_dir,
        "replication-offset-checkpoint",
        end if turn.first_uncleanable_offset is None else turn.first_uncleanable_offset,
    )
    if history.log_start_offset:
        put_checkpoint(log_dir, "log-start-offset-checkpoint", history.log_start_offset)
    settings = {"cleanup.policy": "compact", "retention.ms": "-1", **history.config}
    config = resolve_topic_config(
        NAME.topic,
        overrides={key: read_key(key, value, "test") for key, value in settings.items()},
        topic_configs=None,
        assume_delegated=True,
    )
    resources = Resources(
        map_bytes=history.map_bytes,
        map_load=0.85,
        chunk_bytes=history.chunk_bytes,
        max_unpacked_bytes=1 << 30,
        disk_reserve_bytes=0,
        producer_id_expiration_ms=history.producer_expiration_ms,
        lease_required=False,
        convert_legacy=convert_legacy,
    )
    options = CleaningOptions(now_ms=turn.now_ms, force=True, from_start=turn.from_start, up_to_offset=up_to_offset)
    with LogDirLock.acquire(log_dir, settle_seconds=0) as lock:
        locked = LockedDir(read_log_dir(log_dir), lock, store, resources)
        planned_bytes = _planned_output(locked, config, options)
        result = clean_partition(locked, NAME, config, options, Silent())
    if result.outcome == "cleaned" and not any("split into" in note for note in result.notes):
        assert result.bytes_written == planned_bytes, "U-54: an exact plan"
    assert store.warnings == []
    return result


def _planned_output(locked: LockedDir, config: TopicConfig, options: CleaningOptions) -> int | None:
    """The bytes of all segments that an exact plan would write; None if it refuses the cleaning."""
    resources = locked.resources
    try:
        found = survey(locked.log_dir, NAME, config, locked.store, options)
        with resources.readers(str(found.log.path)) as pool:
            cleaning = Cleaning(make_plan(locked.log_dir, found, resources, options, pool.reader), pool, Silent())
            cleaning.decide()
            return sum(after for _, after in cleaning.output_sizes())
    except CleanerdError:
        return None


class _Duel:
    def __init__(self, judge: Judge, work: Path, history: History) -> None:
        self._judge = judge
        self._history = history
        self._full = work / "full" / str(NAME)
        self._theirs = work / "theirs" / str(NAME)
        self._ours = work / "ours" / str(NAME)
        self._before = work / "before" / str(NAME)
        self._work = work
        self._store = StateStore(work / "state")
        self._ends: set[tuple[int, int]] = set()

    def turns(self) -> Iterator[Outcome]:
        history = self._history
        # Small segments are for the cleaners: otherwise the maker would roll at unplanned places.
        made = {key: value for key, value in history.config.items() if key == "index.interval.bytes"}
        end = self._judge.make(
            self._full,
            history.segments,
            now_ms=history.turns[0].now_ms,
            config=made,
            producer_expiration_ms=NEVER_MS,
        )
        # An empty last segment may begin above the end; a broker that loads it begins there.
        assert end <= history.end_offset(Turn()), "the history differs from its definition"
        self._theirs.mkdir(parents=True)
        self._ours.mkdir(parents=True)
        prepare(self._ours.parent)
        dirty = max(history.log_start_offset, history.segments[0].base)
        present = 0
        for number, turn in enumerate(history.turns):
            if turn.first_dirty_offset is not None:
                assert number == 0, "only the first turn finds a checkpoint that no round has written"
                dirty = turn.first_dirty_offset
                put_checkpoint(self._ours.parent, "cleaner-offset-checkpoint", dirty)
            visible = len(history.visible(turn))
            self._append(present, visible)
            present = visible
            if turn.swapped:
                self._swap()
            outcome = self._turn(turn, self._start(turn, dirty))
            if outcome is None:
                return
            dirty = outcome.kafka.end_offset
            yield outcome
            if self._holds_a_marker(outcome):
                return

    def _holds_a_marker(self, outcome: Outcome) -> bool:
        """A transaction's data batch that only cleanerd keeps, as a group's end (U-13), keeps its marker (C-37).

        Without the marker a broker would treat the transaction as open. From here on cleanerd's log lags behind
        Kafka's.
        """
        if not outcome.comparison.additions:
            return False
        kept = {base for base, _ in outcome.comparison.additions}
        return any(b.base in kept and b.transactional and not b.control for b in self._judge.dump(self._ours).batches)

    def _swap(self) -> None:
        """Exchange the logs: cleanerd did not clean its new one, so Kafka's checkpoint counts."""
        shutil.rmtree(self._store.root, ignore_errors=True)
        aside = self._work / "aside"
        self._ours.rename(aside)
        self._theirs.rename(self._ours)
        aside.rename(self._theirs)

    def _start(self, turn: Turn, dirty: int) -> int:
        if turn.from_start:
            return max(self._history.log_start_offset, self._history.segments[0].base)
        return dirty

    def _append(self, first: int, end: int) -> None:
        """Create the segments ``first .. end`` of the history on both sides, the last one active."""
        if first == end:
            return
        segments = self._history.segments
        limit = segments[end].base if end < len(segments) else None
        for source in self._full.iterdir():
            stem = source.name.partition(".")[0]
            if stem.isdigit():
                # the snapshot at the end of the last segment has the base of the next one in its name
                at_end = limit is not None and int(stem) >= limit
                if at_end or int(stem) < segments[first].base:
                    continue
            for target in (self._theirs, self._ours):
                shutil.copy2(source, target / source.name)

    def _turn(self, turn: Turn, dirty: int) -> Outcome | None:
        """Both clean; None if followers would refuse Kafka's result.

        They would because of a batch that cleanerd does not make (U-95).
        """
        judge, history = self._judge, self._history
        before = judge.dump(self._theirs)
        shutil.copytree(self._ours, self._before)
        kafka = self._clean_theirs(turn, dirty)
        up_to = None if turn.map_keys is None else kafka.end_offset
        ours = clean_ours(
            self._ours.parent,
            self._store,
            history,
            turn,
            up_to_offset=up_to,
            convert_legacy=not judge.jars.profile.startswith("3."),
        )
        assert ours.error is None, str(ours.error)
        assert ours.outcome in {"cleaned", "unchanged"}, f"{ours.outcome}: {ours.reason}"
        comparison = judge.compare(self._theirs, self._ours, source=self._before)
        if comparison.differences and self._grown_too_large(self._theirs, before):
            # recompressed by another library, a batch may grow without a horizon
            assert all(batch.codec != "none" for batch in self._grown_too_large(self._ours, before))
            return None
        assert comparison.differences == (), "\n".join(comparison.differences)
        found = judge.lookups(self._ours)
        assert found.problems == (), "\n".join(found.problems)
        self._same_numbers(kafka, ours, dirty)
        equal_segments = self._same_index_bytes()
        assert _transactions(self._ours) == _transactions(self._theirs), "the transaction indexes differ"
        self._same_loads(turn, comparison)
        # A later cleaning may leave such a batch unchanged: its segment had no other record to remove.
        self._ends |= kept_end(judge.jars.profile, before, comparison, kafka.end_offset)
        where = {"ours": self._ours, "before": self._before, "theirs": self._theirs}
        queries = assert_alike(judge, history, turn, **where, ends=self._ends)
        shutil.rmtree(self._before)
        after = judge.dump(self._theirs)
        return Outcome(turn, kafka, ours, comparison, before, after, digest(self._ours), equal_segments, queries)

    def _grown_too_large(self, directory: Path, before: Dump) -> list[ReadBatch]:
        """The v2 batches that have grown above ``segment.bytes``."""
        limit = int(self._history.config.get("segment.bytes", 1 << 30))
        small = {batch.base for batch in before.batches if batch.size <= limit and batch.magic == 2}
        found = self._judge.dump(directory, records=False).batches
        return [batch for batch in found if batch.size > limit and batch.base in small]

    def _clean_theirs(self, turn: Turn, dirty: int) -> Cleaned:
        history = self._history
        # twice the slots at half the load: exactly as many keys as the turn says, and never a full table
        room = {} if turn.map_keys is None else {"map_bytes": 2 * turn.map_keys * SLOT_BYTES, "load_factor": 0.5}
        (cleaned,) = self._judge.clean(
            self._theirs,
            [Round(turn.now_ms, dirty, turn.limit_offset, turn.first_uncleanable_offset)],
            config=history.config,
            io_buffer_bytes=history.io_buffer_bytes,
            log_start_offset=history.log_start_offset,
            producer_expiration_ms=history.producer_expiration_ms,
            **room,  # type: ignore[arg-type]  # int and float
        )
        return cleaned

    def _same_numbers(self, kafka: Cleaned, ours: CleaningResult, dirty: int) -> None:
        """The checkpoint equals Kafka's end offset, and cleanerd's reported figures are right."""
        path = self._ours.parent / "cleaner-offset-checkpoint"
        assert read_offset_checkpoint(path.read_bytes(), str(path)) == {NAME: kafka.end_offset}
        assert (ours.first_dirty_offset, ours.end_offset) == (dirty, kafka.end_offset)
        # Kafka does not count records in batches that it drops unread: aborted data and expired markers (C-39.3).
        assert 0 <= ours.records_read - kafka.messages_read <= ours.removed.aborted + ours.removed.marker
        assert ours.records_kept == kafka.messages_written
        assert ours.removed.no_key == kafka.invalid_messages_read
        assert ours.removed.total == ours.records_read - ours.records_kept

    def _same_index_bytes(self) -> int:
        """F-6/7.1: if a segment equals Kafka's byte for byte, so do its indexes.

        Returns the number of such segments.
        """
        equal = 0
        if self._judge.jars.profile in INDEXES_BY_WRITE:
            return equal
        for path in self._ours.glob("*.log"):
            their = self._theirs / path.name
            # an empty segment without appends may lack its indexes
            if not path.stat().st_size or not their.exists() or their.read_bytes() != path.read_bytes():
                continue
            for suffix in (".index", ".timeindex"):
                assert path.with_suffix(suffix).read_bytes() == their.with_suffix(suffix).read_bytes(), (
                    f"{path.with_suffix(suffix).name} differs"
                )
            before = self._before / path.name
            equal += not before.exists() or before.read_bytes() != path.read_bytes()
        return equal

    def _same_loads(self, turn: Turn, comparison: Comparison) -> None:
        """A broker starts normally on the result; without snapshots it finds the same producers.

        After each segment a replay forgets producers whose data is older than 24 days, the longest expiration. So a
        producer may also be as in the log before, where it has more segments than Kafka's result.
        """
        started, ours, theirs, before = self._load(turn)
        for loaded in (started, ours, theirs):
            assert loaded.error is None, f"{loaded.error}: {loaded.message}"
            assert loaded.log_end_offset == self._history.end_offset(turn)
        ours_by_id = {producer.producer_id: producer for producer in ours.producers}
        theirs_by_id = {producer.producer_id: producer for producer in theirs.producers}
        before_by_id = {producer.producer_id: producer for producer in before.producers}
        closed = self._of_closing_batches(comparison)
        for producer in self._living(started, turn):
            found, their = ours_by_id.get(producer.producer_id), theirs_by_id.get(producer.producer_id)
            if producer.producer_id in closed and found and their and found.coordinator_epoch == NO_EPOCH:
                their = replace(their, coordinator_epoch=NO_EPOCH)
            # A shrunken batch may make a producer seem older than it was: equally in both.
            if found != their:
                assert found == before_by_id.get(producer.producer_id)
                continue
            # A replay does not find facts that only an emptied marker had (F-10): equally in both.
            if producer.last_offset != NO_OFFSET:
                assert found is None or _identity(found) == _identity(producer)
        assert list(self._ours.glob("*.swap")) == []
        assert not (self._ours / ".kstage").exists()

    def _of_closing_batches(self, comparison: Comparison) -> set[int]:
        """The producers whose coordinator epoch a replay may forget (U-13).

        Kafka drops a batch that ends a group, cleanerd keeps it without a time. If a segment ends there, a replay drops
        the producer by that time. Its next batch restores everything but the coordinator epoch of an earlier marker,
        which Kafka forgets as well once that marker is removed.
        """
        kept = {base for base, _ in comparison.additions}
        data = (batch for batch in self._judge.dump(self._ours).batches if not batch.control) if kept else ()
        return {batch.producer_id for batch in data if batch.base in kept and batch.max_timestamp <= 0}

    def _load(self, turn: Turn) -> list[Loaded]:
        scratch = self._work / "load"
        bare = {"ours": self._ours, "theirs": self._theirs, "before": self._before}
        for name, source in bare.items():
            shutil.copytree(source, scratch / name / str(NAME), ignore=shutil.ignore_patterns("*.snapshot"))
        shutil.copytree(self._ours, scratch / "started" / str(NAME))
        log_start = self._history.log_start_offset
        started = [ToLoad(str(scratch / "started" / str(NAME)), clean_shutdown=True, log_start_offset=log_start)]
        # The others from the very beginning: the replay below the log start depends on segment borders. Expiration is
        # off: a replay forgets a producer with old data, even if a recent marker restored it.
        replayed = [ToLoad(str(scratch / name / str(NAME)), clean_shutdown=False, log_start_offset=0) for name in bare]
        loaded = [
            *self._load_all(started, turn, self._history.producer_expiration_ms),
            *self._load_all(replayed, turn, NEVER_MS),
        ]
        shutil.rmtree(scratch)
        return loaded

    def _load_all(self, logs: list[ToLoad], turn: Turn, producer_expiration_ms: int) -> list[Loaded]:
        return self._judge.load(
            logs,
            now_ms=turn.now_ms,
            config={key: value for key, value in self._history.config.items() if key == "index.interval.bytes"},
            producer_expiration_ms=producer_expiration_ms,
        )

    def _living(self, loaded: Loaded, turn: Turn) -> list[Producer]:
        """The producers that have not expired; a replay of the log ignores that, a snapshot does not (F-10)."""
        oldest = turn.now_ms - self._history.producer_expiration_ms
        return [
            producer
            for producer in loaded.producers
            if producer.timestamp > oldest or producer.txn_first_offset != NO_OFFSET
        ]


def _identity(producer: Producer) -> tuple[int, int, int, int, int]:
    return (
        producer.epoch,
        producer.last_sequence,
        producer.last_offset,
        producer.offset_delta,
        producer.txn_first_offset,
    )


def _transactions(directory: Path) -> bytes:
    """All transaction indexes of a partition, concatenated: segment borders do not matter."""
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.txnindex")))


def digest(directory: Path) -> str:
    """Names and bytes of all ``.log`` files of a partition."""
    sha = hashlib.sha256()
    for path in sorted(directory.glob("*.log")):
        sha.update(path.name.encode())
        sha.update(hashlib.sha256(path.read_bytes()).digest())
    return sha.hexdigest()
