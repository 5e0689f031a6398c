"""Undo a cleaning: restore the segments of ``--keep-replaced``, offline, under the log directory's lock (S-40).

::

    recover -> is everything as the cleaning left it? -> stage the kept segments (links) -> are the markers of their
    transactions in the log? -> restore both checkpoints -> per group, descending: restore -> forget

The checkpoint is restored *before* the segments: too low costs work, too high would hide duplicates (S-50).
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from cleanerd.cleaner.manifest import STAGING, staged_name, staging_path
from cleanerd.cleaner.plan import new_plan_id
from cleanerd.cleaner.switch import rules_of_fingerprint
from cleanerd.config.fingerprint import KAFKAS_FINGERPRINT
from cleanerd.errors import CleanerdError, RefusedError, StalePlanError, as_cleanerd_error
from cleanerd.format.adapters import adapter_of
from cleanerd.format.batch import CONTROL, TRANSACTIONAL
from cleanerd.format.control import ControlType
from cleanerd.fsio.state_files import DAMAGE, UnreadableState
from cleanerd.humanize import counted
from cleanerd.segments.kernel_errors import translated_kernel_errors
from cleanerd.segments.partition import PartitionLog, read_partition
from cleanerd.segments.reading import SegmentReader
from cleanerd.segments.segment import Segment
from cleanerd.state.cleaner_checkpoint import CleanerdCheckpoint, LastSegment
from cleanerd.state.other_places import rules_of
from cleanerd.swap.checkpoint import write_cleaner_checkpoint
from cleanerd.swap.enter import enter_partition
from cleanerd.swap.files import PartitionFiles
from cleanerd.swap.group_swap import final_name, finish_plan
from cleanerd.swap.hidden_writes import Place, hidden_writes
from cleanerd.swap.journal import Journal
from cleanerd.swap.kept_place import delete_kept, open_kept, require_removable
from cleanerd.swap.kept_segments import FileIdentity, KeptEntry, KeptGroup, KeptSegments
from cleanerd.swap.recover import abandon, rollback_on_error
from cleanerd.swap.restore import RestoredSegment, RestoreGroup, RestorePlan, restore_group, write_restore
from cleanerd.swap.signals import signals_wait
from cleanerd.swap.unfinished import refuse_unfinished
from cleanerd.swap.validate import file_fact, has_fact

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cleanerd._kernel import Batches
    from cleanerd.format.names import TopicPartition
    from cleanerd.segments.log_dir import LogDir
    from cleanerd.swap.session import LockedDir


@dataclass(frozen=True, slots=True)
class UndoResult:
    """One partition after ``undo``.

    ``segments`` and bytes are those of the replaced part, before and after. ``earlier``: how many earlier cleanings can
    still be undone. A cleaning that planned again counts several times.
    """

    name: TopicPartition
    log_dir: str
    plan: str
    outcome: Literal["undone", "unchanged", "refused"]
    reason: str = ""
    segments_before: int = 0
    segments_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    earlier: int = 0
    error: CleanerdError | None = None

    @classmethod
    def refused(cls, log_dir: LogDir, entry: KeptEntry, error: CleanerdError) -> Self:
        """The result for an entry that is not undone, and why."""
        return cls(entry.name, str(log_dir.path), entry.plan, "refused", str(error), error=error.without_frames())

    def to_json(self) -> dict[str, Any]:
        """The entry of ``undo --json``."""
        return {
            "topic": self.name.topic,
            "partition": self.name.partition,
            "log_dir": self.log_dir,
            "plan": self.plan,
            "outcome": self.outcome,
            "reason": self.reason,
            "segments_before": self.segments_before,
            "segments_after": self.segments_after,
            "bytes_before": self.bytes_before,
            "bytes_after": self.bytes_after,
            "earlier": self.earlier,
        }


def undo_cleaning(
    locked: LockedDir,
    undoable: KeptSegments,
    entry: KeptEntry,
    *,
    keep_replaced: Path | None = None,
    hide_later: bool = False,
) -> UndoResult:
    """Undo one cleaning and return the result; only a signal or a bug raises.

    ``keep_replaced``: the operator's path, which replaces the entry's. ``hide_later``: undo although it hides records
    that were written since (S-52).
    """
    where = str(locked.log_dir.path)
    try:
        with translated_kernel_errors(where):
            return _undo(locked, undoable, entry, keep_replaced, hide_later=hide_later)
    except (CleanerdError, OSError) as caught:
        return UndoResult.refused(locked.log_dir, entry, as_cleanerd_error(caught, where))


def _undo(
    locked: LockedDir, undoable: KeptSegments, entry: KeptEntry, named: Path | None, *, hide_later: bool
) -> UndoResult:
    name, where = entry.name, str(locked.log_dir.path)
    with ExitStack() as stack, PartitionFiles(locked.log_dir.path / str(name)) as files:
        enter_partition(locked, files)
        place = stack.enter_context(open_kept(entry, locked.log_dir.path, named))
        if place is not None:
            require_removable(place, entry)
        log = read_partition(locked.log_dir, name)
        groups = groups_in_place(files, log, entry)
        if not groups:
            _set_rules_back(locked, log, entry)
            _forget(locked, undoable, entry, place)
            return UndoResult(
                name, where, entry.plan, "unchanged", "the segments from before the cleaning are in place"
            )
        _refuse_if_cleaned_again(locked, log, entry)
        plan_id = new_plan_id()
        with rollback_on_error(partial(abandon, files)):
            plan = _stage(files, plan_id, entry, groups, place)
            _require_markers(locked, files, log, entry, plan)
            if not hide_later:
                _refuse_hiding(locked, files, log, entry, plan)
            _set_back(locked, log, entry)
            journal = Journal(files, plan_id)
            refuse_unfinished(files, files.names())  # U-34
            for group in plan.groups:
                with signals_wait():
                    restore_group(files, plan_id, group, journal, locked.lock)
        finish_plan(files, plan_id)
        _set_rules_back(locked, log, entry)
        _forget(locked, undoable, entry, place)
    return UndoResult(
        name,
        where,
        entry.plan,
        "undone",
        segments_before=len(groups),
        segments_after=sum(len(group.segments) for group in groups),
        bytes_before=sum(group.output_log.bytes for group in groups),
        bytes_after=sum(segment.files["log"].bytes for group in groups for segment in group.segments),
    )


def groups_in_place(files: PartitionFiles, log: PartitionLog, entry: KeptEntry) -> list[KeptGroup]:
    """The groups of ``entry`` whose output is in the log; the others were never swapped, or were undone.

    Raises:
        StalePlanError: a file that the cleaning covered has changed since.
    """
    if log.topic_id != entry.topic_id:
        raise _stale(log, "the topic was created again")
    last = max(entry.sources)
    found = {s.base: FileIdentity(s.size_bytes, s.inode, s.mtime_ns) for s in log.segments if s.base <= last}
    expected = dict(entry.sources)
    groups = [group for group in entry.groups if group.output_log.is_of(found.get(group.base))]
    for group in groups:
        for segment in group.segments:
            del expected[segment.base]
        expected[group.base] = found[group.base]
    changed = sorted(base for base in found.keys() | expected.keys() if found.get(base) != expected.get(base))
    if changed:
        if changed[0] not in found and changed[0] < log.log_start_offset:
            reason = f"the broker deleted segment {changed[0]}: the log begins at offset {log.log_start_offset} now"
            raise _stale(log, reason)
        how = "added" if changed[0] not in expected else "changed" if changed[0] in found else "deleted"
        raise _stale(log, f"segment {changed[0]} was {how} after the cleaning")
    if log.active.base <= last:
        raise _stale(log, "the log was truncated")
    for group in groups:
        if not has_fact(files, final_name(group.base, "log"), group.output["log"]):
            raise _stale(log, f"segment {group.base} has another checksum")
    return groups


def entries_of(undoable: KeptSegments, log_dir: LogDir) -> list[KeptEntry]:
    """The cleanings of the log directory that can be undone; of each partition the newest first.

    Raises:
        CleanerdError: ``trash/`` cannot be read.
    """
    newest: list[KeptEntry] = []
    for entry in undoable.entries():
        if undoable.is_of(entry, log_dir):
            # The clock may have been set back since. The files are better evidence: a later cleaning found an earlier
            # one's outputs.
            rests = (row for row, later in enumerate(newest) if _rests_on(later, entry))
            newest.insert(max(rests, default=-1) + 1, entry)
    return newest


def _rests_on(later: KeptEntry, entry: KeptEntry) -> bool:
    """Whether ``later`` began with the output of ``entry``."""
    if later.name != entry.name:
        return False
    found = ((group.output_log, later.sources.get(group.base)) for group in entry.groups)
    return any(
        source is not None and source.inode == identity.inode and identity.is_of(source) for identity, source in found
    )


def _refuse_if_cleaned_again(locked: LockedDir, log: PartitionLog, entry: KeptEntry) -> None:
    """Refuse if a later cleaning could have removed a tombstone that hides restored records."""
    if (log.cleaner_offset or 0) > entry.end_offset:
        raise _stale(log, f"it was cleaned again: Kafka's checkpoint is at offset {log.cleaner_offset}")
    state = locked.store.load(locked.log_dir, log)
    point = None if state is None else state.cleanerd_checkpoint
    if point is not None and point.offset > entry.end_offset:
        raise _stale(log, f"it was cleaned again, up to offset {point.offset}")
    above = None if point is None else _later_segment(point, entry)
    if above is not None:
        # The marker of aborted data below may be removed without a moved checkpoint (--first-dirty).
        raise _stale(log, f"it was cleaned again: segment {above.base} was replaced after it")
    end = max(group.end for group in entry.groups)
    if not locked.log_dir.clean_shutdown and log.recovery_point < end:
        raise _stale(log, f"the broker was not stopped cleanly, and the recovery point is below {end}")


def _later_segment(point: CleanerdCheckpoint, entry: KeptEntry) -> LastSegment | None:
    """The segment above the range of ``entry`` that a later cleaning wrote, if any."""
    before, output = _point(entry.cleanerd_checkpoint), point.last_output
    known = None if before is None else before.last_output
    return output if output is not None and output != known and output.base > max(entry.sources) else None


@dataclass(slots=True)
class _Returning:
    """Producers whose transactional data would be restored, by id with its first offset; no marker seen so far."""

    open: dict[int, int]

    def walk(self, batches: Batches, *, is_kept: bool) -> Iterator[tuple[int, int, int, bool]]:
        """Process the next batches of the log; yields (producer, first offset, marker, whether it is an ABORT)."""
        types, attributes = batches.control_type, batches.attributes
        is_marker = (types == ControlType.COMMIT) | (types == ControlType.ABORT)
        is_data = ((attributes & (TRANSACTIONAL | CONTROL)) == TRANSACTIONAL) & is_kept
        for row in np.flatnonzero(is_marker | is_data).tolist():
            producer, offset = int(batches.producer_id[row]), int(batches.base_offset[row])
            if is_data[row]:
                self.open.setdefault(producer, offset)
            elif producer in self.open:
                yield producer, self.open.pop(producer), offset, int(types[row]) == ControlType.ABORT


def _require_markers(
    locked: LockedDir, files: PartitionFiles, log: PartitionLog, entry: KeptEntry, plan: RestorePlan
) -> None:
    """Refuse if the log no longer has the marker of a transaction that would be restored (S-40).

    A marker is removed when its transaction has no batch left. Data restored without it would stay open indefinitely,
    or the producer's next marker would end it: aborted data as committed. Only a marker above the sources can be
    missing, because nothing below has changed. The entry shows whether it was a COMMIT or an ABORT; only the log shows
    that it exists.

    Raises:
        StalePlanError: so it is.
        CleanerdError: the log or a kept segment cannot be read.
    """
    last = max(entry.sources)
    kept = {segment.base: segment for group in plan.groups for segment in _staged_segments(files, plan.plan, group)}
    below = {segment.base: segment for segment in log.segments if min(kept) <= segment.base <= last}
    found = _Returning({})
    staging = str(files.path / staging_path(plan.plan))
    with SegmentReader.open(str(log.path)) as reader, SegmentReader.open(staging) as staged:
        for base in sorted(kept.keys() | below.keys()):
            one, segment = (staged, kept[base]) if base in kept else (reader, below[base])
            for batches in one.headers(segment):
                for _ in found.walk(batches, is_kept=base in kept):
                    pass  # as before the cleaning
        headers = reader.headers if locked.log_dir.clean_shutdown else reader.headers_until_damage
        for segment in log.segments:
            if segment.base <= last or not found.open:
                continue
            for batches in headers(segment):
                for producer, first, marker, is_abort in found.walk(batches, is_kept=False):
                    _require_matching_marker(log, entry, producer, first, marker, is_abort=is_abort)
    for producer, first in found.open.items():
        _require_matching_marker(log, entry, producer, first, None, is_abort=False)


def _require_matching_marker(
    log: PartitionLog, entry: KeptEntry, producer: int, first: int, marker: int | None, *, is_abort: bool
) -> None:
    """Check that ``marker``, the first above the sources, ends the data of ``producer`` from ``first`` on.

    None: there is none.
    """
    aborted_at = min((at for producer_id, _, at in entry.aborted if producer_id == producer), default=None)
    if marker is not None and (marker == aborted_at if is_abort else aborted_at is None):
        return
    own = "COMMIT marker" if aborted_at is None else f"ABORT marker (offset {aborted_at})"
    marker_text = (
        f"the {own} of producer {producer}, whose data at offset {first} would come back, is no longer in the log"
    )
    raise _stale(log, marker_text)


def _refuse_hiding(
    locked: LockedDir, files: PartitionFiles, log: PartitionLog, entry: KeptEntry, plan: RestorePlan
) -> None:
    """Refuse if a restored tombstone would hide records that were written since (S-52).

    Raises:
        RefusedError: it would, or the rules of the cleaning cannot be read.
        CleanerdError: the log or a kept segment cannot be read.
    """
    text = rules_of(locked.store, locked.log_dir, log, locked.store.load(locked.log_dir, log))
    hint = "undo --hide-later undoes it nevertheless"
    if isinstance(text, UnreadableState):
        raise RefusedError(f"whether records written since would be hidden is unknown: {text}", hint=hint)
    rules = rules_of_fingerprint(KAFKAS_FINGERPRINT if text is None else text)
    if not rules.versioned:
        return
    last = max(entry.sources)
    kept = [segment for group in plan.groups for segment in _staged_segments(files, plan.plan, group)]
    below = [segment for segment in log.segments if segment.base <= last]
    above = [segment for segment in log.segments if segment.base > last]
    staging = str(files.path / staging_path(plan.plan))
    with SegmentReader.open(str(log.path)) as reader, SegmentReader.open(staging) as staged:
        later = Place(reader, above, torn=not locked.log_dir.clean_shutdown)
        offsets = hidden_writes(Place(staged, kept), Place(reader, below), later, rules, locked.resources)
    if len(offsets):
        what = (
            f"a tombstone of a higher version would come back and hide {counted(len(offsets), 'record')} written since"
        )
        raise RefusedError(
            f"cannot be undone: {what}, the first at offset {offsets.min()}",
            where=str(log.path),
            hint=f"{hint}; write them again with a higher version, or the next cleaning removes them",
        )


def _staged_segments(files: PartitionFiles, plan_id: str, group: RestoreGroup) -> Iterator[Segment]:
    for segment in group.segments:
        status = files.stat(staged_name(plan_id, segment.base, "log"))
        if status is None:
            raise CleanerdError("the staged log vanished", where=str(files.path))
        yield Segment.from_stat(segment.base, status, frozenset(), sealed=True)


def _stage(
    files: PartitionFiles, plan_id: str, entry: KeptEntry, groups: list[KeptGroup], place: PartitionFiles | None
) -> RestorePlan:
    """Link the kept files into the staging directory; write ``restore.json`` last."""
    directory = staging_path(plan_id)
    if not files.is_directory(STAGING):
        files.mkdir(STAGING)
        files.fsync_directory()
    files.mkdir(directory)
    files.fsync_directory(STAGING)
    if place is None:
        raise StalePlanError("is missing", where=entry.kept, hint="it cannot be undone")
    kept = f"{entry.plan}/{entry.name}"
    restored = [
        RestoreGroup(group.base, group.end, tuple(_stage_group(files, place, kept, plan_id, group)))
        for group in sorted(groups, key=lambda group: group.base, reverse=True)
    ]
    plan = RestorePlan(plan_id, tuple(restored))
    files.fsync_directory(directory)
    write_restore(files, plan)
    return plan


def _stage_group(
    files: PartitionFiles, place: PartitionFiles, kept: str, plan_id: str, group: KeptGroup
) -> list[RestoredSegment]:
    segments = []
    for segment in group.segments:
        facts = {}
        for kind, identity in segment.files.items():
            name = f"{kept}/{final_name(segment.base, kind)}"
            status = place.stat(name)
            if status is None or FileIdentity.of(status) != identity:
                raise StalePlanError(
                    "is missing or was changed since it was kept", where=place.where(name), hint="it cannot be undone"
                )
            facts[kind] = file_fact(place, name)
            files.link_from(place, name, staged_name(plan_id, segment.base, kind))
        segments.append(RestoredSegment(segment.base, facts))
    return segments


def _set_back(locked: LockedDir, log: PartitionLog, entry: KeptEntry) -> None:
    """Restore the cleanerd checkpoint, then Kafka's checkpoint, to the values before the cleaning.

    The rules stay those of the cleaning until it is undone completely (U-6), since a killed undo is partial.

    Raises:
        CleanerdError: one of them cannot be written; then nothing is restored.
    """
    state = locked.store.load(locked.log_dir, log)
    known = len(locked.store.warnings)
    if state is not None:
        restored = replace(
            state,
            cleanerd_checkpoint=_point(entry.cleanerd_checkpoint),
            last_result=None,
            next_purge_ms=None,
            removal_known_below=None,
            rules=state.cleaned_by,
        )
        locked.store.save(locked.log_dir, log, restored)
    if len(locked.store.warnings) > known:
        raise CleanerdError(
            "the cleanerd checkpoint cannot be set back", where=str(locked.store.root), hint="make it writable"
        )
    if log.cleaner_offset is not None:
        before = log.log_start_offset if entry.checkpoint is None else entry.checkpoint
        with locked.checkpoint_lock:
            write_cleaner_checkpoint(locked.log_dir.path, log.name, min(before, log.cleaner_offset))


def _set_rules_back(locked: LockedDir, log: PartitionLog, entry: KeptEntry) -> None:
    """The cleaning is undone, so restore its rules before. If that fails, a later change needs a confirmation."""
    state = locked.store.load(locked.log_dir, log)
    if (
        state is not None
        and state.rules != entry.rules
        and state.cleanerd_checkpoint == _point(entry.cleanerd_checkpoint)
    ):
        locked.store.save(locked.log_dir, log, replace(state, rules=entry.rules))


def _point(document: dict[str, Any] | None) -> CleanerdCheckpoint | None:
    try:
        return None if document is None else adapter_of(CleanerdCheckpoint).validate_python(document)
    except DAMAGE:
        return None  # this only costs work


def _forget(locked: LockedDir, undoable: KeptSegments, entry: KeptEntry, place: PartitionFiles | None) -> None:
    """Delete the kept names, then the entry. The restored files are the same inodes."""
    if place is not None:
        delete_kept(place, entry, locked.log_dir.path)
    undoable.remove(entry)


def _stale(log: PartitionLog, reason: str) -> StalePlanError:
    return StalePlanError(
        f"cannot be undone: {reason}", where=str(log.path), hint="the kept segments stay where they are"
    )
