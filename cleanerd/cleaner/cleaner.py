"""One cleaning, from the index to the staged segments.

::

    index     dirty segments            -> offset map        which ordinal won each key
    decide    all segments + the map    -> keep bits         one bit per record, one action per batch
    group     outcomes                  -> groups            neighbours that become one segment
    rewrite   a group + its bits        -> its new log       in the staging directory
    verify    the new log               -> a staged segment  read back, completed with indexes, flushed

``swap/round.py`` calls these steps, and swaps each group in before it rewrites the next (U-16), so that a cleaning
needs extra disk space for one group only. Nothing here touches a file that a broker may read.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from cleanerd.cleaner.decide import Decision, SegmentDecision, decide
from cleanerd.cleaner.index import ChunkDecoding
from cleanerd.cleaner.map_size import SIZING, MapSizing
from cleanerd.cleaner.rewrite import GroupTooLargeError, LargeBatches, rewrite_group
from cleanerd.cleaner.stage import Staging
from cleanerd.cleaner.tombstone_guard import removed_tombstone_keys
from cleanerd.cleaner.verify import verify_staged
from cleanerd.errors import LogGrowsError, SegmentGrowsError
from cleanerd.humanize import counted, human_bytes
from cleanerd.policy.grouping import (
    MAX_RELATIVE_OFFSET,
    MAX_SOURCES,
    Group,
    RecordlessRun,
    group,
    split,
)
from cleanerd.policy.tombstone import new_horizon_ms

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from cleanerd.cleaner.log_file import LogFile
    from cleanerd.cleaner.manifest import StagedGroup
    from cleanerd.cleaner.plan import CleaningPlan
    from cleanerd.cleaner.rewrite import WrittenSegment
    from cleanerd.segments.pool import ReaderPool


class CleaningStopped(BaseException):
    """Raised by a :class:`Progress` to end a cleaning between two chunks; the log stays valid."""


class Progress(Protocol):
    """Receives a cleaning's progress: for a progress bar, and to stop it (:class:`CleaningStopped`)."""

    def phase(self, name: str, total_bytes: int) -> None:
        """A phase of about ``total_bytes`` begins."""

    def advance(self, done_bytes: int) -> None:
        """``done_bytes`` more bytes were read."""

    def wrote(self, done_bytes: int) -> None:
        """``done_bytes`` more bytes were staged."""


class NoProgress:
    """A :class:`Progress` that ignores all calls."""

    def phase(self, name: str, total_bytes: int) -> None: ...

    def advance(self, done_bytes: int) -> None: ...

    def wrote(self, done_bytes: int) -> None: ...


@dataclass(slots=True)
class WrittenTotals:
    """What a cleaning wrote, and the time for that with verification."""

    groups: int = 0
    sources: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    large: LargeBatches = field(default_factory=LargeBatches)
    rewrite_seconds: float = 0.0


class Cleaning:
    """Carries out one plan up to staged files.

    ``most_sources``: larger groups are cut; the caller may change it between groups. ``may_grow``: clean even if the
    log only becomes larger.
    """

    def __init__(self, plan: CleaningPlan, pool: ReaderPool, progress: Progress, sizing: MapSizing = SIZING) -> None:
        self.plan = plan
        self._sizing = sizing
        self.totals = WrittenTotals()
        self.pool = pool
        self.progress = progress
        self.most_sources = MAX_SOURCES
        self.may_grow = False
        self._decision: Decision | None = None
        self._groups: tuple[Group, ...] | None = None
        self._pending: list[Group] = []
        self._recordless = RecordlessRun(())
        self._written: WrittenSegment | None = None
        self._output_sizes: tuple[tuple[int, int], ...] | None = None

    def decide(self) -> Decision:
        """Index and decide. Call it first: the other methods use the decision.

        Raises:
            UnsupportedLogError, CorruptionError, TooManyPassesError, CleanerdError: see ``decide``.
        """
        self.progress.phase("index and decide", sum(s.segment.size_bytes for s in self.plan.sources))
        self._decision = decide(self.plan, ChunkDecoding(self.plan, self.pool, self.progress.advance), self._sizing)
        return self._decision

    @property
    def decision(self) -> Decision:
        if self._decision is None:
            raise AssertionError("nothing is decided yet")
        return self._decision

    def notes(self) -> tuple[str, ...]:
        """Notes for the operator about the log and the decision."""
        decision = self.decision
        return (
            *(note for note in (decision.map_note, decision.index_note, decision.disorder_note) if note),
            *self._oversize_note(),
            *self._legacy_note(),
            *self._no_drop_note(),
            *self._strategy_notes(),
        )

    def _oversize_note(self) -> tuple[str, ...]:
        count, most = self.totals.large.oversized, self.plan.max_message_bytes
        return (f"{count} rewritten batches are larger than max.message.bytes {most}",) if count else ()

    def _strategy_notes(self) -> list[str]:
        decision, rules = self.decision, self.plan.rules
        oddities = decision.oddities
        waiting = sum(segment.waiting for segment in decision.segments)
        notes = [] if not decision.guard_note else [decision.guard_note]
        if waiting and rules.versioned and rules.tombstone_guard == "forever":
            notes.append(f"{waiting} tombstones past their delete horizon stay (tombstone.guard=forever)")
        elif waiting and not rules.versioned and self.plan.proven_offset < self.plan.first_dirty_offset:
            notes.append(
                f"{waiting} tombstones past their delete horizon stay: --first-dirty skips offsets "
                f"{self.plan.proven_offset} to {self.plan.first_dirty_offset - 1}, where older values may be"
            )
        elif waiting and not rules.versioned and not decision.guard_note:
            notes.append(
                f"{waiting} tombstones past their delete horizon stay: Kafka's checkpoint says the log is clean "
                f"below offset {self.plan.unproven_below}, but it has another record of their key there "
                "(clean --from-start removes both)"
            )
        elif waiting and not decision.guard_note:
            notes.append(
                f"{waiting} tombstones past their delete horizon stay for now: the log has another record of their key"
            )
        if oddities.without_version:
            malformed = f", {oddities.describe_malformed()}" if oddities.malformed_versions else ""
            notes.append(
                f"{oddities.without_version} dirty records have no version in header {rules.header!r}{malformed}: any "
                "record with a version wins over them"
            )
        if oddities.far_future:
            notes.append(
                f"{oddities.far_future} dirty records have a timestamp more than an hour in the future: each wins its "
                "key until that time"
            )
        if oddities.nulls_without_flag:
            notes.append(
                f"{oddities.nulls_without_flag} dirty records have a null value and no tombstone flag: they are kept "
                "like values"
            )
        return notes

    def _legacy_note(self) -> tuple[str, ...]:
        """What the cleaning does with message formats v0 and v1, if there are any."""
        count = sum(segment.legacy_batches for segment in self.decision.segments)
        if not count:
            return ()
        form = "those that are rewritten become v2" if self.plan.convert_legacy else "they keep their format"
        parts = (
            f"{count} batches have message format v0 or v1: {form} (cleanerd.broker.version). The age of their "
            "tombstones is that of their segments' modification times"
        )
        return (parts,)

    def _no_drop_note(self) -> tuple[str, ...]:
        """Why segments are rewritten without removing a record, if so; possible with ``--cleanable-to``."""
        segments = self.decision.segments
        rewritten = [segments[row] for rows in self.groups() for row in rows]
        if not rewritten or any(each.kept < each.records for each in segments):
            return ()
        started = sum(each.horizons_begun for each in rewritten)
        if started and new_horizon_ms(self.plan.now_ms, self.plan.delete_retention_ms) < 0:
            why = (
                "by delete.retention.ms tombstones never expire, and their batches are rewritten each time, as by Kafka"
            )
        elif started:
            why = f"in {counted(started, 'batch')}, tombstones and markers get their delete horizon, for later removal"
        else:
            why = "small segments are merged, or empty batches and old transaction markers are removed"
        return (f"no record is removed this time, but {counted(len(rewritten), 'segment', 'is')} rewritten: {why}",)

    def overflowed(self) -> list[SegmentDecision]:
        """Segments to rewrite whose offsets do not fit an index: they are split first (C-67).

        Each is a group of its own and retains its last batch, so it always overflows.
        """
        segments = self.decision.segments
        rewritten = [segments[row] for rows in self.groups() for row in rows]
        return [each for each in rewritten if each.outcome.last_offset - each.source.base > MAX_RELATIVE_OFFSET]

    def groups(self) -> list[Group]:
        """Which sources become one segment; sources in no group are not rewritten."""
        if self._groups is None:
            outcomes = [segment.outcome for segment in self.decision.segments]
            self._groups = tuple(group(outcomes, self.plan.limits))
        return list(self._groups)

    def output_sizes(self) -> list[tuple[int, int]]:
        """The bytes of each group's sources and of its output, as a cleaning would write it (U-54).

        Everything is rewritten without being stored, because a batch's new size depends on recompression. If a segment
        is split first, its output is an estimate.

        Raises:
            CorruptionError, CleanerdError: as :meth:`rewrite`.
        """
        if self._output_sizes is None:
            waiting, sizes, segments = self.groups(), [], self.decision.segments
            self.progress.phase("rewrite", sum(segments[row].source.segment.size_bytes for r in waiting for row in r))
            split_first = {each.source.base for each in self.overflowed()}
            while waiting:
                rows = waiting.pop(0)
                members = [segments[row] for row in rows]
                if members[0].source.base in split_first:
                    # No output can hold its offsets: each part gets a plan of its own.
                    sizes.append((members[0].source.segment.size_bytes, members[0].outcome.output_bytes))
                    continue
                try:
                    written = rewrite_group(self.plan, self.pool, members, _NoOutput(), self.progress.advance)
                except GroupTooLargeError as error:
                    waiting[:0] = self.parts(rows, error.source)
                    continue
                except SegmentGrowsError:
                    # The output is larger than this limit, so it will be cut and cleaned in parts.
                    after = self.plan.limits.most_bytes
                else:
                    after = written.log_bytes
                sizes.append((sum(each.source.segment.size_bytes for each in members), after))
            self._output_sizes = tuple(sizes)
        return list(self._output_sizes)

    def saved_bytes(self) -> int:
        """By how many bytes the log shrinks; below 0 if it grows."""
        return sum(before - after for before, after in self.output_sizes())

    @property
    def is_for_saving(self) -> bool:
        """Whether it removes only superseded records and records without a key, and sets no horizon."""
        return not any(
            each.expired_tombstones or each.aborted or each.markers or each.horizons_begun
            for each in self.decision.segments
        )

    def staging(self, reserve_bytes: int, *, lasting: bool = True) -> Staging:
        """Where this plan's groups are written, leaving ``reserve_bytes`` free. ``lasting``: see `Staging`."""
        return Staging(self.plan, self.pool.reader.directory, reserve_bytes=reserve_bytes, lasting=lasting)

    def pending_groups(self) -> Iterator[Group]:
        """The groups to rewrite, ascending: :meth:`groups`, and the parts of those that are cut.

        A group of more than ``most_sources`` is cut here (U-36, D-02), one with too large an output by :meth:`rewrite`.
        """
        self._pending = self.groups()
        segments = self.decision.segments
        self._recordless = RecordlessRun([segment.outcome.has_records for segment in segments])
        to_read_bytes = sum(segments[row].source.segment.size_bytes for rows in self._pending for row in rows)
        self.progress.phase("rewrite", to_read_bytes)
        while self._pending:
            group = self._pending.pop(0)
            if len(group) > (most := self._recordless.sources_at_once(group, self.most_sources)):
                self._cut(group, most)
            else:
                yield group

    def members(self, group: Group) -> list[SegmentDecision]:
        """The decisions about the sources of ``group``."""
        return [self.decision.segments[row] for row in group]

    def rewrite(self, group: Group, staging: Staging) -> bool:
        """Write the new log of ``group``. False: it would be too large, so parts of the group are pending instead.

        Raises:
            UnsupportedLogError, CorruptionError, CleanerdError: it cannot be written; nothing is left of it.
        """
        started = time.monotonic()
        try:
            self._written = rewrite_members(self.plan, self.pool, staging, self.members(group), self.progress)
        except GroupTooLargeError as error:
            self._cut(group, error.source)
            return False
        self.totals.rewrite_seconds += time.monotonic() - started
        return True

    def verify(self, group: Group, staging: Staging) -> StagedGroup:
        """Read back what :meth:`rewrite` wrote, and check it; then add its indexes and flush all of it.

        Raises:
            CorruptionError, CleanerdError: it cannot be used.
            LogGrowsError: see :meth:`refuse_growth`.
        """
        written, self._written = self._written, None
        if written is None:
            raise AssertionError("nothing was rewritten")
        started, members = time.monotonic(), self.members(group)
        verify_members(self.pool, staging, members, written)
        staged = staging.finish(members, written)
        self._require_saving(staged, members)
        self.count(staged, members, written.large, time.monotonic() - started)
        self._recordless.add(group)
        return staged

    def _require_saving(self, staged: StagedGroup, members: Sequence[SegmentDecision]) -> None:
        """Refuse to make the log larger when the cleaning only saves space (U-54).

        This is checked at the first group: once a group is swapped in, the others must follow.

        Raises:
            LogGrowsError: the log would be larger, and nothing else is gained.
        """
        before = sum(member.source.segment.size_bytes for member in members)
        if not self.totals.groups and staged.files["log"].bytes > before:
            self.refuse_growth()

    def refuse_growth(self) -> None:
        """Raises LogGrowsError: the log would be larger, and nothing else is gained (U-54)."""
        if self.may_grow or not self.is_for_saving:
            return
        if (grown := -self.saved_bytes()) > 0:
            raise LogGrowsError(
                f"a cleaning would make the log {human_bytes(grown)} larger: its batches cannot be compressed as well "
                "again",
                where=self.plan.path,
                hint="--force cleans it anyway",
            )

    def _cut(self, group: Group, source: int) -> None:
        """Take the parts of ``group`` next, see :meth:`parts`."""
        self._pending[:0] = self.parts(group, source)

    def parts(self, rows: Group, source: int) -> list[Group]:
        """The parts of a group that is too large: cut before its row number ``source`` (U-17)."""
        segments = self.decision.segments
        parts = split(rows, rows[source])
        return [part for part in parts if len(part) > 1 or segments[part[0]].outcome.changed]

    def removed_tombstone_keys(self) -> Iterator[NDArray[np.uint64]]:
        """[2k] each: key hashes of removed tombstones whose key has no other record (U-1), in log order."""
        decoder = ChunkDecoding(self.plan, self.pool, lambda _: None)
        for each in self.decision.segments:
            if each.removed_tombstones is not None:
                yield from removed_tombstone_keys(decoder, each.source, each.removed_tombstones)

    def count(
        self, staged: StagedGroup, members: Sequence[SegmentDecision], large: LargeBatches, seconds: float
    ) -> None:
        """Add a group to the totals."""
        self.totals.groups += 1
        self.totals.sources += len(members)
        self.totals.bytes_read += sum(member.source.segment.size_bytes for member in members)
        self.totals.bytes_written += staged.files["log"].bytes
        self.totals.large += large
        self.totals.rewrite_seconds += seconds


def rewrite_members(
    plan: CleaningPlan, pool: ReaderPool, staging: Staging, members: Sequence[SegmentDecision], progress: Progress
) -> WrittenSegment:
    """Write the new log of one group; its indexes are only in the result.

    Raises:
        GroupTooLargeError: see ``rewrite_group``; nothing is left of it.
        UnsupportedLogError, CorruptionError, CleanerdError: it cannot be written.
    """
    expected_bytes = sum(member.outcome.output_bytes for member in members)
    with staging.log_file(members[0].source.base, expected_bytes) as output:
        return rewrite_group(plan, pool, members, _ProgressFile(output, progress), progress.advance)


def verify_members(
    pool: ReaderPool, staging: Staging, members: Sequence[SegmentDecision], written: WrittenSegment
) -> None:
    """Read the new log of one group back, and check it against the decision. Raises as ``verify_staged``."""
    with pool.for_directory(staging.path, staging.directory) as readers:
        verify_staged(
            readers,
            staging.staged_segment(written.base),
            written,
            records=sum(member.kept for member in members),
            last_offset=[member.last_written_offset for member in members if len(member.actions)][-1],
            ordered=all(member.ordered for member in members),
        )


class _NoOutput:
    """An output that is only measured."""

    def lead(self) -> NDArray[np.uint8] | None:
        return None

    def write(self, block: NDArray[np.uint8], lead_bytes: int = 0) -> None:
        """Ignore the bytes: the caller adds up the sizes."""


class _ProgressFile:
    """A staged file that reports its growth."""

    def __init__(self, output: LogFile, progress: Progress) -> None:
        self._output = output
        self._progress = progress

    def lead(self) -> NDArray[np.uint8] | None:
        return self._output.lead()

    def write(self, block: NDArray[np.uint8], lead_bytes: int = 0) -> None:
        self._output.write(block, lead_bytes)
        self._progress.wrote(len(block) - lead_bytes)
