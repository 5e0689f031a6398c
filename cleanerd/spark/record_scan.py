"""The records of a segment as columns for Spark: the kernel decodes, hashes and digests; no Python object per record.

The facts about records are defined here as bits of ``flags``, so that the queries need neither offsets nor rules.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from cleanerd import _kernel
from cleanerd.errors import CorruptionError
from cleanerd.host.memory import worker_batch_bytes
from cleanerd.segments.chunks import ChunkResult
from cleanerd.verify.listing import NO_END, SegmentFile
from cleanerd.verify.records import HASH_KEY_BYTES, NO_HORIZON, horizons
from cleanerd.verify.rules import KAFKAS_RULES, KeyRules
from cleanerd.verify.transactions import InvisibleRanges
from cleanerd.verify.walk import Damage, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray


class RecordFact(IntFlag):
    """The facts about a record.

    ``VISIBLE``: consumers of committed records get it. ``OPEN``: its transaction had no end yet.

    ``MAY_GO``: a tombstone that a cleaning may have removed. ``BELOW``: below the end of the clean section;
    ``CLEANED``: that end is known; ``DIRTY``: not below its beginning. ``ATTRIBUTES``: the topic's rules depend on the
    attributes. ``ALONE``: a tombstone is removed only when no other record has its key (U-1). ``DAMAGED``: not a
    record.
    """

    BEFORE = 1
    AFTER = 2
    HAS_KEY = 4
    VISIBLE = 8
    OPEN = 16
    TOMBSTONE = 32
    MAY_GO = 64
    HAS_VERSION = 128
    BAD_VERSION = 256
    BELOW = 512
    CLEANED = 1024
    DIRTY = 2048
    ATTRIBUTES = 4096
    ALONE = 8192
    DAMAGED = 16384
    SEALED = 32768


FACTS: Final[dict[str, Any]] = {bit.name: int(bit) for bit in RecordFact if bit.name is not None}
"""The bits by name, for queries."""

SCHEMA: Final = pa.schema([
    ("part", pa.int32()),
    ("file", pa.int32()),
    ("offset", pa.int64()),
    ("key_high", pa.int64()),
    ("key_low", pa.int64()),
    ("version", pa.int64()),
    ("flags", pa.int32()),
    ("digest_high", pa.int64()),
    ("digest_low", pa.int64()),
    ("attributes", pa.int32()),
    ("size", pa.int32()),
    ("epoch", pa.int32()),
])  # fmt: skip
WITH_TIMESTAMP: Final = SCHEMA.append(pa.field("timestamp", pa.int64()))
"""The columns of :func:`scan` with timestamps: as a consumer sees them, -1 without one."""
KEYS: Final = pa.schema(list(SCHEMA)[:7])
"""The columns of :func:`scan` without contents, whose digests are not computed then."""
_POSITION_BITS: Final = 32


@dataclass(frozen=True, slots=True)
class SegmentWork:
    """One segment to read: the input of a task.

    ``part`` and ``file``: the caller's numbers. ``sides``: bits of :class:`RecordFact`; records from ``both_from`` on
    belong to both. ``hidden``: [n][3] producer, first offset, end of uncommitted data. ``clean_end`` and ``now_ms`` are
    None if unknown. From ``bound`` on nothing is visible. ``strict``: damaged bytes are an error.
    """

    part: int
    file: int
    segment: SegmentFile
    sides: int
    hash_key: bytes
    rules: KeyRules
    hidden: list[list[int]]
    both_from: int = NO_END
    log_start: int = 0
    bound: int = NO_END
    clean_end: int | None = None
    first_dirty: int = 0
    now_ms: int | None = None
    many_cleanings: bool = False
    strict: bool = False


def hidden_in(segment: SegmentFile, hidden: list[list[int]]) -> list[list[int]]:
    """The rows of ``hidden`` that overlap the segment."""
    return [row for row in hidden if row[1] < segment.end and row[2] > segment.base]


@dataclass(frozen=True, slots=True)
class _Decoded(ChunkResult):
    """A chunk and its digests, for :func:`walk`."""

    chunk: _kernel.Chunk
    digests: _kernel.Digests | None


def scan(work: SegmentWork, schema: pa.Schema = SCHEMA) -> Iterator[pa.RecordBatch]:
    """The data records of one :class:`SegmentWork`, then the bytes that are not records: rows of ``schema``.

    ``schema``: ``SCHEMA``, ``WITH_TIMESTAMP`` or ``KEYS``.

    A damaged place is a row with ``RecordFact.DAMAGED`` and a negative offset (:func:`place_of`). Checksums are
    verified.

    Raises:
        CorruptionError: there is one, and the work is ``strict``.
        CleanerdError: the file cannot be read.
    """
    segment = work.segment
    damages: list[int] = []

    def damaged(damage: Damage) -> None:
        if not segment.sealed and (damage.cut or damage.zeros):
            return
        if work.strict:
            raise CorruptionError(damage.reason, where=str(segment.path), position=damage.position)
        damages.append(damage.position)

    aborted = _ranges(work.hidden, lambda end: end != NO_END)
    opened = _ranges(work.hidden, lambda end: end == NO_END)
    decode = decoder(work.rules, work.hash_key, with_digests=schema is not KEYS)
    for _, decoded in walk(segment.path, segment.size_bytes, decode, damaged):
        yield _rows(work, decoded, aborted, opened, schema)
    if damages:
        yield _damage_rows(work, damages, schema)


def decoder(rules: KeyRules, hash_key: bytes, *, with_digests: bool) -> Callable[[NDArray[np.uint8], int], _Decoded]:
    """A function for :func:`walk` that decodes chunks; :func:`walk` reports undecodable ones."""

    def decode(data: NDArray[np.uint8], position: int) -> _Decoded:
        chunk = rules.decode(data, position, hash_key, worker_batch_bytes())
        if not with_digests:
            return _Decoded(chunk, None)
        whole = data[: chunk.consumed]
        digests = _kernel.content_digest(whole, position, hash_key=hash_key, max_unpacked=worker_batch_bytes())
        return _Decoded(chunk, digests)

    return decode


def _ranges(hidden: list[list[int]], wanted: Callable[[int], bool]) -> InvisibleRanges:
    return InvisibleRanges(np.array([row for row in hidden if wanted(row[2])], np.int64).reshape(-1, 3))


def _rows(
    work: SegmentWork, decoded: _Decoded, aborted: InvisibleRanges, opened: InvisibleRanges, schema: pa.Schema
) -> pa.RecordBatch:
    chunk, digests = decoded.chunk, decoded.digests
    batches, records = chunk.batches, chunk.records
    first = batches.first_record.astype(np.int64)
    batch = np.repeat(np.arange(len(batches)), first[1:] - first[:-1])
    is_data = ~((batches.magic == 2) & ((batches.attributes & 0x20) != 0))[batch]
    batch = batch[is_data]
    flags = _facts(work, chunk, batch, is_data, aborted, opened)
    version, _ = work.rules.versions(records)
    key = records.key_hash.reshape(-1, 2)
    count = len(batch)
    columns = [
        np.full(count, work.part, np.int32),
        np.full(count, work.file, np.int32),
        records.offset[is_data],
        key[is_data, 1].view(np.int64),
        key[is_data, 0].view(np.int64),
        version[is_data],
        flags,
    ]
    if digests is not None:
        digest = digests.digest.reshape(-1, 2)
        columns += [
            digest[is_data, 1].view(np.int64),
            digest[is_data, 0].view(np.int64),
            digests.attributes[is_data].astype(np.int32),
            digests.size[is_data].astype(np.int32),
            batches.leader_epoch[batch],
        ]
    if schema is WITH_TIMESTAMP:
        columns.append(records.timestamp[is_data])
    return pa.RecordBatch.from_arrays([pa.array(np.ascontiguousarray(each)) for each in columns], schema=schema)


def _facts(
    work: SegmentWork,
    chunk: _kernel.Chunk,
    batch: NDArray[np.intp],
    is_data: NDArray[np.bool_],
    aborted: InvisibleRanges,
    opened: InvisibleRanges,
) -> NDArray[np.int32]:
    """[n]: the facts about each data record; ``batch`` [n]: the row of its batch."""
    batches, records, rules = chunk.batches, chunk.records, work.rules
    offset, kernel_flags = records.offset[is_data], records.flags[is_data]
    is_open, is_aborted = opened.batches(batches)[batch], aborted.batches(batches)[batch]
    is_old = (batches.magic < 2)[batch]
    horizon = horizons(batches)[batch]
    tombstone = rules.tombstones(kernel_flags, is_old)
    _, has_version = rules.versions(records)
    now_ms = -1 if work.now_ms is None else work.now_ms
    # Later cleanings keep a batch's horizon (C-49). Batches without one may have got one since, and passed it.
    may_be_late = (horizon == NO_HORIZON) | (work.now_ms is None)
    late = is_old | ((horizon != NO_HORIZON) & (horizon <= now_ms)) | (work.many_cleanings & may_be_late)
    live = (offset >= work.log_start) & (offset < work.bound)
    clean_end = NO_END if work.clean_end is None else work.clean_end
    bits: list[tuple[RecordFact, NDArray[np.bool_] | bool]] = [
        (RecordFact.HAS_KEY, (kernel_flags & _kernel.FLAG_HAS_KEY) != 0),
        (RecordFact.VISIBLE, live & ~is_open & ~is_aborted),
        (RecordFact.OPEN, live & is_open),
        (RecordFact.TOMBSTONE, tombstone),
        (RecordFact.MAY_GO, tombstone & late & (not rules.keeps_tombstones_forever)),
        (RecordFact.HAS_VERSION, has_version[is_data]),
        (RecordFact.BAD_VERSION, (kernel_flags & _kernel.FLAG_BAD_VERSION) != 0),
        (RecordFact.BELOW, offset < clean_end),
        (RecordFact.CLEANED, work.clean_end is not None),
        (RecordFact.DIRTY, offset >= work.first_dirty),
        (RecordFact.ATTRIBUTES, rules.tombstone_mode == "flag"),
        (RecordFact.ALONE, rules.by_version and not work.many_cleanings),
        (RecordFact.SEALED, work.segment.sealed),
        (RecordFact.BEFORE | RecordFact.AFTER, offset >= work.both_from),
    ]
    flags = np.full(len(offset), work.sides, np.int32)
    for bit, mask in bits:
        flags |= np.where(mask, np.int32(bit), np.int32(0))
    return flags


def _damage_rows(work: SegmentWork, positions: list[int], schema: pa.Schema) -> pa.RecordBatch:
    count = len(positions)
    zeros = np.zeros(count, np.int64)
    offsets = -1 - ((work.file << _POSITION_BITS) | np.array(positions, np.int64))
    narrow = zeros.astype(np.int32)
    columns = [
        narrow + work.part, narrow + work.file, offsets, zeros, zeros, zeros,
        narrow + int(RecordFact.DAMAGED | work.sides),
        zeros, zeros, narrow, narrow, narrow, zeros,
    ]  # fmt: skip
    return pa.RecordBatch.from_arrays([pa.array(each) for each in columns[: len(schema)]], schema=schema)


def place_of(offset: int) -> tuple[int, int] | None:
    """The file's number and byte position in a negative offset; None for a real offset."""
    return None if offset >= 0 else divmod(-1 - offset, 1 << _POSITION_BITS)


_READ_NOW: Final = "could be read at a second try: the task had less memory, or the file was changed"


def reason_at(segment: SegmentFile, position: int) -> str:
    """Why the batch at byte ``position`` cannot be read: damaged, or too large for the memory (U-35)."""

    def damaged(damage: Damage) -> None:
        raise CorruptionError(damage.reason, where=str(segment.path), position=damage.position)

    decode = decoder(KAFKAS_RULES, bytes(HASH_KEY_BYTES), with_digests=True)
    try:
        next(walk(segment.path, segment.size_bytes, decode, damaged, start=position), None)
    except CorruptionError as error:
        return error.message
    return _READ_NOW


def other_damage(reported: Sequence[str], offsets: Iterable[int], files: Sequence[SegmentFile]) -> Iterator[str]:
    """The damage at ``offsets``, encoded as in :func:`place_of`, except places in ``reported``; ``files`` by number."""
    for place in map(place_of, offsets):
        if place is not None:
            number, position = place
            where = f"{files[number].path} at byte {position}: "
            if not any(text.startswith(where) for text in reported):
                yield where + reason_at(files[number], position)
