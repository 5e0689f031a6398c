"""The quarantine of a partition that could not be cleaned, and when it ends (OP-10)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cleanerd.format.names import parse_file_name
from cleanerd.state.cleaner_checkpoint import LastSegment, PartitionState, StateStore, segment_at

if TYPE_CHECKING:
    from cleanerd.errors import CleanerdError
    from cleanerd.segments.log_dir import LogDir
    from cleanerd.segments.partition import PartitionLog

_POSITION: Final = " at byte "


def quarantined(
    reason: str, error: CleanerdError | None, log: PartitionLog, before: PartitionState | None
) -> PartitionState:
    """The state of a partition that ``error`` puts into quarantine; its cleanerd checkpoint does not change."""
    state = PartitionState(None, None, None) if before is None else before
    return replace(state, quarantine=reason, quarantined_segment=_segment_of(error, log))


def cause_and_fixes(reason: str) -> tuple[str, list[str]]:
    """The parts of an error's text, ``cause (fix; fix)``."""
    depth = 0
    for at in reversed(range(len(reason) if reason.endswith(")") else 0)):
        depth += {")": 1, "(": -1}.get(reason[at], 0)
        if not depth:
            return reason[:at].rstrip(), reason[at + 1 : -1].split("; ")
    return reason, []


def is_outdated(state: PartitionState, log: PartitionLog) -> bool:
    """Whether the quarantined segment was repaired, cleaned or deleted since.

    Then the fault may be fixed, so the partition is tried again.
    """
    about = state.quarantined_segment
    return state.quarantine is not None and about is not None and segment_at(log, about.base) != about


def forget_quarantine(store: StateStore, log_dir: LogDir, log: PartitionLog) -> None:
    """End the quarantine: the fault is fixed, although the checkpoint is unchanged."""
    state = store.load(log_dir, log)
    if state is not None and (state.quarantine is not None or state.retry is not None):
        store.save(log_dir, log, replace(state, quarantine=None, retry=None, quarantined_segment=None))


def _segment_of(error: CleanerdError | None, log: PartitionLog) -> LastSegment | None:
    """The segment that ``error`` names by any of its files; not the active one, which changes with every record."""
    if error is None or error.where is None:
        return None
    path = Path(error.where.partition(_POSITION)[0])
    parsed = parse_file_name(path.name)
    if parsed is None or path.parent != log.path or parsed[0] == log.active.base:
        return None
    return segment_at(log, parsed[0])
