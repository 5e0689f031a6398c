"""Kafka's cleaner and ours on a copy of the same log each, and everything that has to agree after every round.

Ours is the real thing from the log directory's lock to the swap; only the clock is given. Each side goes on with what
it made of the log. Segment borders may come to differ; that is why a round that ends early, inside a segment, is
compared only while they do not: how far tombstones beyond the end get their horizon depends on where it ends (C-48).
"""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cleanerd.cleaner.resources import Resources
from cleanerd.cleaner.survey import CleaningOptions
from cleanerd.config.topic_config import read_key, resolve_topic_config
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

NAME = TopicPartition("t", 0)
META_PROPERTIES = "version=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\nnode.id=1\ndirectory.id=MkU3OEVBNTcwNTJENDM2Qg\n"
SLOT_BYTES = 24
NO_OFFSET = -1
NO_EPOCH = -1
NEVER_MS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """One round of both. ``before`` and ``after`` are what Kafka's decoders read in *Kafka's* copy.

    ``our_digest`` covers names and bytes of our ``.log`` files after the round; ``equal_segments`` is how many of
    those that the round wrote are as Kafka's, byte for byte, their indexes too. ``queries`` is how many questions
    Kafka's classes answered about both (U-37).
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
        """The offsets of the records that Kafka left, or found."""
        return {record.offset for record in (self.after if after else self.before).records}

    def dropped(self) -> set[int]:
        """The offsets of the records that Kafka took."""
        return self.offsets(after=False) - self.offsets()

    def emptied(self) -> set[int]:
        """The base offsets of the batches that Kafka left without their records."""
        had = {batch.base for batch in self.before.batches if batch.count}
        return {batch.base for batch in self.after.batches if not batch.count and batch.base in had}

    def gone(self) -> set[int]:
        """The base offsets of the batches of which Kafka left nothing."""
        return {batch.base for batch in self.before.batches} - {batch.base for batch in self.after.batches}

    def markers(self) -> set[int]:
        """The offsets of the markers that still say something after the round."""
        return {batch.base for batch in self.after.batches if batch.control and batch.count}

    def aborted(self) -> list[tuple[int, int, int]]:
        """Producer, first and last offset of the aborted transactions in the indexes after the round."""
        return [entry[:3] for segment in self.after.segments for entry in segment.txn_index or ()]

    def horizons(self) -> dict[int, int]:
        """Base offset to delete horizon, of the batches that have one after the round."""
        return {b.base: b.delete_horizon for b in self.after.batches if b.delete_horizon is not None}


def play(judge: Judge, work: Path, history: History) -> list[Outcome]:
    """Play all turns of a history and assert after each that ours is as Kafka's; nothing when there is none.

    A random history may have no turn: all of it lies beyond an open transaction.
    """
    if not history.turns:
        return []
    duel = _Duel(judge, work, history)
    return list(duel.turns())


def prepare(log_dir: Path) -> None:
    """Make ``log_dir`` a log directory of a broker that was stopped."""
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
    """One round of ours, as ``cleanerd clean --force`` does it; ``convert_legacy`` as for a broker of 4.0 or later."""
    end = history.end_offset(turn)
    put_checkpoint(log_dir, "recovery-point-offset-checkpoint", end)
    put_checkpoint(log_dir, "replication-offset-checkpoint", end if turn.bound_offset is None else turn.bound_offset)
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
        result = clean_partition(locked, NAME, config, options, Silent())
    assert store.warnings == []
    return result


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
        # Small segments are for the cleaners: the maker would roll where nobody asked for it.
        made = {key: value for key, value in history.config.items() if key == "index.interval.bytes"}
        end = self._judge.make(
            self._full,
            history.segments,
            now_ms=history.turns[0].now_ms,
            config=made,
            producer_expiration_ms=NEVER_MS,
        )
        # An empty last segment may begin beyond the end; a broker that loads it begins there.
        assert end <= history.end_offset(Turn()), "the history is not what its author thinks it is"
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
        """A transaction's data batch that ours alone has, because it ends a group (U-13), keeps its marker (C-37).

        Without the marker a broker would take the transaction for open. So from here on ours is behind Kafka's.
        """
        if not outcome.comparison.additions:
            return False
        kept = {base for base, _ in outcome.comparison.additions}
        return any(b.base in kept and b.transactional and not b.control for b in self._judge.dump(self._ours).batches)

    def _swap(self) -> None:
        """What Kafka's cleaner made is ours from now on: nobody of us has cleaned it, so Kafka's checkpoint counts."""
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
        """Let the segments ``first .. end`` of the history come into being on both sides, the last one active."""
        if first == end:
            return
        segments = self._history.segments
        limit = segments[end].base if end < len(segments) else None
        for source in self._full.iterdir():
            stem = source.name.partition(".")[0]
            if stem.isdigit():
                # The snapshot at the end of the last segment carries the base of the one that is not there yet.
                at_end = limit is not None and int(stem) >= limit
                if at_end or int(stem) < segments[first].base:
                    continue
            for target in (self._theirs, self._ours):
                shutil.copy2(source, target / source.name)

    def _turn(self, turn: Turn, dirty: int) -> Outcome | None:
        """Both clean; None if followers would refuse what Kafka made, as ours has no such batch (U-95)."""
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
            # Recompressed by another library, a batch may grow without a horizon.
            assert all(batch.codec != "none" for batch in self._grown_too_large(self._ours, before))
            return None
        assert comparison.differences == (), "\n".join(comparison.differences)
        found = judge.lookups(self._ours)
        assert found.problems == (), "\n".join(found.problems)
        self._same_numbers(kafka, ours, dirty)
        equal_segments = self._same_index_bytes()
        assert _transactions(self._ours) == _transactions(self._theirs), "the transaction indexes differ"
        self._same_loads(turn, comparison)
        # A later round may leave such a batch where it is: its segment had nothing else to lose.
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
        # Twice the slots at half the load: as many keys as the turn says, and never a full table.
        room = {} if turn.map_keys is None else {"map_bytes": 2 * turn.map_keys * SLOT_BYTES, "load_factor": 0.5}
        (cleaned,) = self._judge.clean(
            self._theirs,
            [Round(turn.now_ms, dirty, turn.limit_offset, turn.bound_offset)],
            config=history.config,
            io_buffer_bytes=history.io_buffer_bytes,
            log_start_offset=history.log_start_offset,
            producer_expiration_ms=history.producer_expiration_ms,
            **room,  # type: ignore[arg-type]  # int and float
        )
        return cleaned

    def _same_numbers(self, kafka: Cleaned, ours: CleaningResult, dirty: int) -> None:
        """The checkpoint is Kafka's end offset, and what we say that we did is what was done."""
        path = self._ours.parent / "cleaner-offset-checkpoint"
        assert read_offset_checkpoint(path.read_bytes(), str(path)) == {NAME: kafka.end_offset}
        assert (ours.first_dirty_offset, ours.end_offset) == (dirty, kafka.end_offset)
        # Kafka does not count what lies in batches that it drops unread: aborted data and spent markers (C-39.3).
        assert 0 <= ours.records_read - kafka.messages_read <= ours.removed.aborted + ours.removed.marker
        assert ours.records_kept == kafka.messages_written
        assert ours.removed.no_key == kafka.invalid_messages_read
        assert ours.removed.total == ours.records_read - ours.records_kept

    def _same_index_bytes(self) -> int:
        """F-6/7.1: where a segment came out byte for byte as Kafka's, so do its indexes. Returns how many."""
        equal = 0
        if self._judge.jars.profile in INDEXES_BY_WRITE:
            return equal
        for path in self._ours.glob("*.log"):
            their = self._theirs / path.name
            # An empty segment that nobody has appended to may not have indexes yet.
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
        """A broker starts on it as if nothing had happened; without snapshots it finds the same producers."""
        started, ours, theirs = self._load(turn)
        for loaded in (started, ours, theirs):
            assert loaded.error is None, f"{loaded.error}: {loaded.message}"
            assert loaded.log_end_offset == self._history.end_offset(turn)
        ours_by_id = {producer.producer_id: producer for producer in ours.producers}
        theirs_by_id = {producer.producer_id: producer for producer in theirs.producers}
        closed = self._of_closing_batches(comparison)
        for producer in self._living(started, turn):
            found, their = ours_by_id.get(producer.producer_id), theirs_by_id.get(producer.producer_id)
            if producer.producer_id in closed and found and their and found.coordinator_epoch == NO_EPOCH:
                their = replace(their, coordinator_epoch=NO_EPOCH)
            # A shrunken batch may make a producer look older than it was: equally in both.
            assert found == their
            # What only an emptied marker knew, a replay does not find (F-10): equally in both.
            if producer.last_offset != NO_OFFSET:
                assert found is None or _identity(found) == _identity(producer)
        assert list(self._ours.glob("*.swap")) == []
        assert not (self._ours / ".kstage").exists()

    def _of_closing_batches(self, comparison: Comparison) -> set[int]:
        """The producers whose coordinator epoch a replay may forget (U-13).

        Kafka drops a batch that ends a group, ours keeps it without a time. Where a segment ends there, a replay drops
        the producer by that time. Its next batch brings all of it back but the coordinator epoch of an earlier marker,
        which Kafka forgets as well once that marker is gone.
        """
        kept = {base for base, _ in comparison.additions}
        data = (batch for batch in self._judge.dump(self._ours).batches if not batch.control) if kept else ()
        return {batch.producer_id for batch in data if batch.base in kept and batch.max_timestamp <= 0}

    def _load(self, turn: Turn) -> list[Loaded]:
        scratch = self._work / "load"
        bare = {"ours": self._ours, "theirs": self._theirs}
        for name, source in bare.items():
            shutil.copytree(source, scratch / name / str(NAME), ignore=shutil.ignore_patterns("*.snapshot"))
        shutil.copytree(self._ours, scratch / "started" / str(NAME))
        log_start = self._history.log_start_offset
        started = [ToLoad(str(scratch / "started" / str(NAME)), clean_shutdown=True, log_start_offset=log_start)]
        # The others from the very beginning: what is replayed below the log start depends on segment borders. And
        # nobody expires: a replay forgets one whose data is old, though a marker of today made it known again.
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
        """The producers that have not expired; a replay of the log does not look at that, a snapshot does (F-10)."""
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
    """All transaction indexes of a partition, one behind the other: where segments end does not matter."""
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.txnindex")))


def digest(directory: Path) -> str:
    """Names and bytes of all ``.log`` files of a partition."""
    sha = hashlib.sha256()
    for path in sorted(directory.glob("*.log")):
        sha.update(path.name.encode())
        sha.update(hashlib.sha256(path.read_bytes()).digest())
    return sha.hexdigest()
