"""Checks offset and time index of a segment by the results of lookups (F-6, F-7).

Kafka 3 writes an entry per append, Kafka 4 per batch, a recovery at byte intervals. All of these are right if no lookup
starts after its target, so that is checked.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import numpy as np

from cleanerd.errors import CorruptionError
from cleanerd.format.index import OFFSET_ENTRY, TIME_ENTRY, read_offset_index, read_time_index
from cleanerd.format.names import INDEX_SUFFIX, TIMEINDEX_SUFFIX
from cleanerd.host.memory import facts_bytes
from cleanerd.verify.kinds import FindingKind
from cleanerd.verify.listing import bytes_of, size_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from cleanerd.verify.finding import Findings
    from cleanerd.verify.segment import BatchColumns, SegmentFacts

ENTRY_COPIES: Final = 8
"""Memory for comparing an index, in multiples of its size: the file, and some numbers per entry."""

_BELOW_ALL = np.iinfo(np.int64).min


def check_indexes(facts: SegmentFacts, batches: BatchColumns, findings: Findings) -> None:
    """Check ``.index`` and ``.timeindex`` beside the segment.

    Raises:
        CleanerdError: they cannot be read.
    """
    entries = _load(facts, INDEX_SUFFIX, FindingKind.OFFSET_INDEX_WRONG, read_offset_index, findings)
    if entries is not None:
        _check_offset_index(facts, batches, entries, findings)
    entries = _load(facts, TIMEINDEX_SUFFIX, FindingKind.TIME_INDEX_WRONG, read_time_index, findings)
    if entries is not None:
        _check_time_index(facts, batches, entries, findings)


def _load(
    facts: SegmentFacts,
    suffix: str,
    kind: FindingKind,
    read: Callable[[bytes, str], NDArray[np.void]],
    findings: Findings,
) -> NDArray[np.void] | None:
    path = facts.file.companion(suffix)
    if _is_too_large(path):
        what = f"was not compared with its segment: it is larger than fits in {facts_bytes()} bytes of memory"
        findings.error(FindingKind.NOT_VERIFIED, str(path), what)
        return None
    data = bytes_of(path)
    if data is None:
        if facts.file.size_bytes and facts.file.path.name.endswith(".log"):
            findings.warning(
                FindingKind.INDEX_MISSING, str(path), "is missing; the broker makes a new one when it starts"
            )
        return None
    try:
        entries = read(data, str(path))
    except CorruptionError as error:
        findings.error(kind, str(path), error.message, position=error.position)
        return None
    if not facts.file.sealed and size_of(facts.file.path) > facts.file.size_bytes:
        # A broker appends to it: later bytes are not checked.
        entries = entries[entries["relative_offset"] < facts.end_offset - facts.file.base]
    return entries


def _is_too_large(path: Path) -> bool:
    """Whether comparing it takes more memory than there is; False if it is missing or cannot be read."""
    try:
        return os.stat(path, follow_symlinks=False).st_size * ENTRY_COPIES > facts_bytes()
    except OSError:
        return False


def _check_offset_index(
    facts: SegmentFacts, batches: BatchColumns, entries: NDArray[np.void], findings: Findings
) -> None:
    name = str(facts.file.companion(INDEX_SUFFIX))
    offsets = entries["relative_offset"].astype(np.int64) + facts.file.base
    positions = entries["position"].astype(np.int64)
    rows = np.searchsorted(batches.position, positions)
    known = np.minimum(rows, max(len(batches) - 1, 0))
    starts = (batches.position[known] == positions) if len(batches) else np.zeros(len(entries), np.bool_)
    # If the segment is damaged, an entry may refer to a batch that could not be read.
    reached = positions < facts.file.size_bytes if facts.whole else np.zeros(len(entries), np.bool_)
    reached |= positions >= facts.file.size_bytes
    largest_before = np.concatenate([[_BELOW_ALL], np.maximum.accumulate(batches.last)])
    skips = starts & (largest_before[rows] >= offsets)
    beyond = offsets >= batches.end_offset if facts.whole else np.zeros(len(entries), np.bool_)
    for entry in np.flatnonzero(~starts & reached):
        what = f"no batch starts at byte {positions[entry]}"
        _report(findings, FindingKind.OFFSET_INDEX_WRONG, name, entry, OFFSET_ENTRY, offsets, what)
    for entry in np.flatnonzero(skips):
        what = f"a lookup of {offsets[entry]} starts at byte {positions[entry]}, behind the batch with that offset"
        _report(findings, FindingKind.OFFSET_INDEX_WRONG, name, entry, OFFSET_ENTRY, offsets, what)
    for entry in np.flatnonzero(beyond):
        what = f"the segment ends at offset {batches.end_offset - 1}"
        _report(findings, FindingKind.OFFSET_INDEX_WRONG, name, entry, OFFSET_ENTRY, offsets, what)


def _check_time_index(
    facts: SegmentFacts, batches: BatchColumns, entries: NDArray[np.void], findings: Findings
) -> None:
    if not facts.whole:
        return  # the largest timestamp is unknown
    name = str(facts.file.companion(TIMEINDEX_SUFFIX))
    offsets = entries["relative_offset"].astype(np.int64) + facts.file.base
    times = entries["timestamp"].astype(np.int64)
    largest = np.concatenate([[_BELOW_ALL], np.maximum.accumulate(batches.max_timestamp)])
    holders = np.searchsorted(batches.last, offsets)
    beyond = holders >= len(batches)
    so_far = largest[np.minimum(holders + 1, len(batches))]
    for entry in np.flatnonzero(beyond):
        what = f"the segment ends at offset {batches.end_offset - 1}"
        _report(findings, FindingKind.TIME_INDEX_WRONG, name, entry, TIME_ENTRY, offsets, what)
    for entry in np.flatnonzero(~beyond & (so_far != times)):
        what = f"says the largest timestamp up to there is {times[entry]}, but it is {so_far[entry]}"
        _report(findings, FindingKind.TIME_INDEX_WRONG, name, entry, TIME_ENTRY, offsets, what)
    for entry in np.flatnonzero(~beyond & (so_far == times) & (largest[holders] >= times)):
        what = f"timestamp {times[entry]} occurs in an earlier batch, which a lookup skips"
        _report(findings, FindingKind.TIME_INDEX_WRONG, name, entry, TIME_ENTRY, offsets, what)
    highest = int(largest[-1])
    # An entry of time 0 at the base offset looks like padding.
    last = int(times[-1]) if len(times) else 0 if highest == 0 else -1
    if facts.file.sealed and highest >= 0 and last < highest:  # H-25
        what = f"ends with {last}, the segment's largest timestamp is {highest}: retention would take it for older"
        findings.error(FindingKind.TIME_INDEX_UNFINISHED, name, what, position=len(entries) * TIME_ENTRY.itemsize)


def _report(
    findings: Findings,
    kind: FindingKind,
    name: str,
    entry: np.intp,
    dtype: np.dtype[np.void],
    offsets: NDArray[np.int64],
    what: str,
) -> None:
    findings.error(
        kind,
        name,
        f"entry {entry} (offset {offsets[entry]}): {what}",
        position=int(entry) * dtype.itemsize,
        offset=int(offsets[entry]),
    )
