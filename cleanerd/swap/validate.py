"""Checks that the log still fits the plan, and that the staged files are unchanged (S-29, S-60, U-3, U-15)."""

from __future__ import annotations

import stat
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from cleanerd._kernel import crc32c
from cleanerd.cleaner.manifest import FileFact, Manifest, ManifestGroup, staged_name
from cleanerd.errors import StalePlanError, system_error
from cleanerd.format.index import OFFSET_ENTRY
from cleanerd.format.names import INDEX_SUFFIX, SEGMENT_SUFFIX, file_name, parse_file_name
from cleanerd.fsio.safe_open import close_quietly, raw_file, read_at
from cleanerd.fsio.small_file import unreadable
from cleanerd.humanize import human_ms
from cleanerd.swap.unfinished import refuse_unfinished

if TYPE_CHECKING:
    import os
    import uuid
    from collections.abc import Collection, Iterable

    from cleanerd.cleaner.plan import CleaningPlan
    from cleanerd.policy.transaction import AbortedTransactions
    from cleanerd.segments.segment import BatchWitness, Witness
    from cleanerd.swap.files import PartitionFiles

_CHUNK_BYTES: Final = 1 << 20
_CLOCKS_DIFFER_MS: Final = 300_000
"""Tolerance: a plan may be staged on one host and applied on another."""

# Enough bytes of a batch for its offset, size, magic and, with magic 2, CRC (F-1, F-2).
_FRAME_BYTES: Final = 21
_SIZE: Final = slice(8, 12)
_MAGIC: Final = 16
_CRC: Final = slice(17, 21)


@dataclass(frozen=True, slots=True)
class CurrentFacts:
    """The current facts, to compare with the manifest.

    ``bound``: the first uncleanable offset, computed now (S-01). ``now_ms``: the wall clock. ``aborted``: the
    transactions that began below the manifest's bound and were aborted, from the current indexes; None if no process
    can have changed them since.
    """

    topic_id: uuid.UUID | None
    directory_id: uuid.UUID | None
    log_start_offset: int
    bound: int
    strategy_fingerprint: str
    now_ms: int
    aborted: AbortedTransactions | None = None

    @classmethod
    def as_planned(cls, plan: CleaningPlan) -> CurrentFacts:
        """The facts of the plan, if only the files can have changed since it was made."""
        return cls(
            topic_id=plan.topic_id,
            directory_id=plan.directory_id,
            log_start_offset=plan.log_start_offset,
            bound=plan.first_uncleanable_offset,
            strategy_fingerprint=plan.fingerprint,
            now_ms=time.time_ns() // 1_000_000,
        )


def validate_plan(
    files: PartitionFiles,
    manifest: Manifest,
    facts: CurrentFacts,
    *,
    done: Collection[int] = (),
    linked: Collection[int] = (),
    checksums: bool = True,
) -> None:
    """Refuse the plan unless all its preconditions still hold. Reads only.

    ``done``: bases of this plan's groups that were swapped already; their outputs replace their sources (X-12).
    ``linked``: bases of segments that got a second name since, which only changes their ctime. ``checksums``: also
    compare the staged files' CRC-32C.

    Raises:
        StalePlanError: the log, its identity, its settings or the staged files changed, or the plan is too old (U-15).
        RefusedError: another process's replacement is unfinished in the directory (S-21).
        CleanerdError: a file cannot be read.
    """
    _check_facts(files, manifest, facts)
    names = files.names()
    refuse_unfinished(files, names)
    swapped = [group for group in manifest.groups if group.base in done]
    _check_aborted(files, manifest, facts.aborted, swapped)
    _check_bases(files, manifest, swapped, names)
    gone = {source for group in swapped for source in group.sources}
    for witness in manifest.witnesses:
        if witness.base not in gone:
            check_witness(files, witness, linked=witness.base in linked)
    for group in swapped:
        _check_swapped(files, group)
    for group in manifest.groups:
        if group.base not in done:
            _check_staged(files, manifest.plan, group, checksums=checksums)


def file_fact(files: PartitionFiles, name: str) -> FileFact:
    """Size and CRC-32C of the file ``name``.

    Raises:
        CleanerdError: the file cannot be read.
    """
    descriptor = files.open(name)
    with raw_file(descriptor, "rb") as file:
        size = 0
        crc = 0
        try:
            while chunk := file.read(_CHUNK_BYTES):
                crc = crc32c(np.frombuffer(chunk, np.uint8), crc)
                size += len(chunk)
        except OSError as error:
            raise system_error("cannot be read", files.where(name), error) from error
    return FileFact(bytes=size, crc32c=crc)


def has_fact(files: PartitionFiles, name: str, fact: FileFact) -> bool:
    """Whether ``name`` exists and is the file in ``fact``; reads it only if the size fits."""
    status = files.stat(name)
    return status is not None and status.st_size == fact.bytes and file_fact(files, name) == fact


def _check_facts(files: PartitionFiles, manifest: Manifest, facts: CurrentFacts) -> None:
    age_ms = facts.now_ms - manifest.created_ms
    reasons = {
        "the topic was created again": facts.topic_id != manifest.topic_id,
        "it is another log directory": facts.directory_id != manifest.directory_id,
        "the log start offset moved": facts.log_start_offset != manifest.log_start_offset,
        "the strategy changed": facts.strategy_fingerprint != manifest.strategy_fingerprint,
        # Not only below the last group: the retained record may be in an unchanged segment (U-3).
        f"cleanable up to offset {facts.bound} only, the plan needs {manifest.bound}": facts.bound < manifest.bound,
        f"the plan is {human_ms(age_ms)} old, limit {human_ms(manifest.max_age_ms)}": age_ms > manifest.max_age_ms,
        # With such a clock tombstones were removed too early, and the plan's age is unknown.
        f"the plan was made {human_ms(-age_ms)} ahead of the clock": age_ms < -_CLOCKS_DIFFER_MS,
    }
    for reason, holds in reasons.items():
        if holds:
            raise _stale(files, reason)


def _check_aborted(
    files: PartitionFiles, manifest: Manifest, found: AbortedTransactions | None, swapped: Collection[ManifestGroup]
) -> None:
    """The transaction indexes are unchanged (U-32): while a broker recovers, some are empty for a moment."""
    if found is None:
        return
    ours = {(group.base, group.end) for group in swapped}
    for witness in manifest.aborted:
        place = (witness.base, witness.end)
        if place not in ours and found.digest(*place) != witness.digest:
            raise _stale(files, "the transaction indexes name other aborted transactions than when it was made")


def _check_bases(
    files: PartitionFiles, manifest: Manifest, swapped: Collection[ManifestGroup], names: Iterable[str]
) -> None:
    """No segment appeared or disappeared between the first and the last witness."""
    if not manifest.witnesses:
        return
    expected = {witness.base for witness in manifest.witnesses}
    for group in swapped:
        expected = expected.difference(group.sources) | {group.base}
    first, last = manifest.witnesses[0].base, manifest.witnesses[-1].base
    # Names of segments sort like their bases, so names of thousands of others are not parsed.
    low, high = file_name(first, SEGMENT_SUFFIX), file_name(last, SEGMENT_SUFFIX)
    places = [parse_file_name(name) for name in names if low <= name <= high and name.endswith(SEGMENT_SUFFIX)]
    found = {place[0] for place in places if place is not None}
    changed = sorted(found ^ expected)
    if changed:
        raise _stale(files, f"segment {changed[0]} appeared or vanished")


def check_witness(files: PartitionFiles, witness: Witness, *, linked: bool = False) -> None:
    """Refuse a segment that is no longer the one that was read. ``linked``: ignore its ctime.

    Raises:
        StalePlanError: it was deleted or replaced.
        CleanerdError: it cannot be read.
    """
    name = file_name(witness.base, SEGMENT_SUFFIX)
    status = files.stat(name)
    if status is None:
        raise _stale(files, f"{name} vanished")
    ctime_ns = witness.ctime_ns if linked else status.st_ctime_ns
    found = (status.st_ino, status.st_size, status.st_mtime_ns, ctime_ns)
    if found != (witness.inode, witness.size, witness.mtime_ns, witness.ctime_ns):
        raise _stale(files, f"{name} changed")
    descriptor = files.open(name)
    try:
        same = _is_batch(descriptor, 0, witness.first_batch) and _is_batch(
            descriptor, _last_position(files, descriptor, witness), witness.last_batch
        )
    except OSError as error:
        raise unreadable("cannot be read", files.path / name, error) from error
    finally:
        close_quietly(descriptor)
    if not same:
        raise _stale(files, f"the batches of {name} changed")


def _check_swapped(files: PartitionFiles, group: ManifestGroup) -> None:
    name = file_name(group.base, SEGMENT_SUFFIX)
    status = files.stat(name)
    if status is None or status.st_size != group.files["log"].bytes:
        raise _stale(files, f"{name} was changed after this cleaning swapped it in")


def _check_staged(files: PartitionFiles, plan_id: str, group: ManifestGroup, *, checksums: bool) -> None:
    """Compare size, checksum, owner and mode (S-60) and modification time (S-59) of the staged files of ``group``."""
    sources = [files.stat(file_name(source, SEGMENT_SUFFIX)) for source in group.sources]
    owners = {_owner(status) for status in sources if status is not None}
    last = sources[-1]
    for kind, fact in group.files.items():
        name = staged_name(plan_id, group.base, kind)
        status = files.stat(name)
        if status is None or status.st_size != fact.bytes:
            raise _stale(files, f"{name} is missing or has another size")
        if _owner(status) not in owners:
            raise _stale(files, f"{name} has another owner or mode than the segments it replaces")
        # Java reads and sets whole milliseconds.
        if kind != "txnindex" and last is not None and status.st_mtime_ns // 10**6 != last.st_mtime_ns // 10**6:
            raise _stale(files, f"{name} has another modification time than the last segment it replaces")
        if checksums and file_fact(files, name) != fact:
            raise _stale(files, f"{name} has another checksum")


def _owner(status: os.stat_result) -> tuple[int, int, int]:
    """Owner, file type and permissions, without set-user-id and the like, which no output gets."""
    return status.st_uid, status.st_gid, stat.S_IFMT(status.st_mode) | status.st_mode & 0o777


def _last_position(files: PartitionFiles, descriptor: int, witness: Witness) -> int:
    """Where the last batch begins; -1 if the file does not end with one.

    The search begins at the last index entry; with a wrong index it begins at the start.
    """
    found = _walk(descriptor, _last_indexed_position(files, witness.base), witness.size)
    return found if found >= 0 else _walk(descriptor, 0, witness.size)


def _walk(descriptor: int, position: int, end: int) -> int:
    """The position of the last batch if whole batches from ``position`` on end exactly at ``end``; otherwise -1.

    Without an index all batches are read, in chunks.
    """
    last, start, chunk = -1, position, b""
    while position < end:
        at = position - start
        if at + _SIZE.stop > len(chunk):
            start, at, chunk = position, 0, read_at(descriptor, min(_CHUNK_BYTES, end - position), position)
        size = int.from_bytes(chunk[at + _SIZE.start : at + _SIZE.stop], "big", signed=True) + _SIZE.stop
        if len(chunk) < _SIZE.stop or size <= _SIZE.stop:
            return -1
        last, position = position, position + size
    return last if position == end else -1


def _last_indexed_position(files: PartitionFiles, base: int) -> int:
    """Position of the last entry of the offset index; 0 if there is none, or it is padding."""
    name = file_name(base, INDEX_SUFFIX)
    status = files.stat(name)
    if status is None or status.st_size < OFFSET_ENTRY.itemsize:
        return 0
    descriptor = files.open(name)
    try:
        last = (status.st_size // OFFSET_ENTRY.itemsize - 1) * OFFSET_ENTRY.itemsize
        entry = read_at(descriptor, OFFSET_ENTRY.itemsize, last)
    except OSError as error:
        raise unreadable("cannot be read", files.path / name, error) from error
    finally:
        close_quietly(descriptor)
    if len(entry) < OFFSET_ENTRY.itemsize:  # it was cut meanwhile
        return 0
    return max(int(np.frombuffer(entry, OFFSET_ENTRY)["position"][0]), 0)


def _is_batch(descriptor: int, position: int, expected: BatchWitness | None) -> bool:
    """Whether the batch at ``position`` is the witnessed one; the CRC is compared for magic 2 only."""
    if expected is None:
        return True
    frame = read_at(descriptor, _FRAME_BYTES, max(position, 0))
    if position < 0 or len(frame) < _FRAME_BYTES or int.from_bytes(frame[:8], "big", signed=True) != expected.offset:
        return False
    return frame[_MAGIC] < 2 or int.from_bytes(frame[_CRC], "big") == expected.crc


def _stale(files: PartitionFiles, reason: str) -> StalePlanError:
    return StalePlanError(f"the plan no longer fits: {reason}", where=str(files.path), hint="plan again")
