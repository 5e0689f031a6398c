"""Keys on their way to their shards: blocks of hash, record number and version, each from one split for one shard.

Before the shuffle the records of a split compete with each other (the combiner), so that one per key is left. That is
correct because the order (has a version, version, number) is total, so that a maximum of maxima is the maximum.
"""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from cleanerd._kernel import Chunk, OffsetMap
from cleanerd.cleaner.map_size import (
    MAP_ENTRY_BYTES,
    MIN_MAP_BYTES,
    MIN_VERSIONED_MAP_BYTES,
    VERSIONED_ENTRY_BYTES,
)
from cleanerd.cleaner.tombstone_guard import bools
from cleanerd.spark.rows import Row, pack, unpack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from cleanerd.policy.rules import Rules
    from cleanerd.spark.plan import SegmentSplit, Sizes

COMBINER_LOAD: Final = 0.7
SPOOL_BYTES: Final = 16 << 20
"""Limit of record numbers that a shard keeps in memory; further ones go to a file."""


class KeyRows(NamedTuple):
    """``hashes`` [2k], ``numbers`` [k] of the records in their split; ``versions`` and ``present`` [k] or None."""

    hashes: NDArray[np.uint64]
    numbers: NDArray[np.uint32]
    versions: NDArray[np.int64] | None = None
    present: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        """The number of keys, not of fields."""
        return len(self.numbers)

    def at(self, rows: NDArray[Any]) -> KeyRows:
        """A selection: ``rows`` are indexes or a mask."""
        return KeyRows(
            self.hashes.reshape(-1, 2)[rows].reshape(-1),
            self.numbers[rows],
            None if self.versions is None else self.versions[rows],
            None if self.present is None else self.present[rows],
        )

    def to_bytes(self) -> bytes:
        """The payload of a row."""
        columns: dict[str, NDArray[Any]] = {"hashes": self.hashes, "numbers": self.numbers}
        if self.versions is not None and self.present is not None:
            columns["versions"] = self.versions
            if not self.present.all():
                columns["present"] = self.present.view(np.uint8)
        return pack({}, columns)

    @classmethod
    def of_bytes(cls, payload: bytes) -> KeyRows:
        """The reverse of :meth:`to_bytes`."""
        _, columns = unpack(payload)
        numbers = columns["numbers"]
        if "versions" not in columns:
            return cls(columns["hashes"], numbers)
        present = columns["present"].view(np.bool_) if "present" in columns else np.ones(len(numbers), np.bool_)
        return cls(columns["hashes"], numbers, columns["versions"], present)


class KeyBlocks:
    """The keys of one split, sent as rows of one ``kind``. ``combine``: send only the best record of each key."""

    def __init__(
        self, rules: Rules, sizes: Sizes, split: SegmentSplit, kind: int, *, combine: bool, versions: bool
    ) -> None:
        self._rules = rules
        self._sizes = sizes
        self._split = split
        self._kind = kind
        self._combine = combine
        self._versions = versions
        self._waiting: list[KeyRows] = []
        self._count = 0
        self._block = 0

    def put(self, chunk: Chunk, first_number: int, mask: NDArray[np.bool_]) -> Iterator[Row]:
        """Add the records of ``mask`` [n] of the next chunk, whose first record has the number ``first_number``."""
        rows = np.flatnonzero(mask)
        if not len(rows):
            return
        records = chunk.records
        versions, present = self._rules.ranking.versions(records) if self._versions else (None, None)
        keys = KeyRows(
            records.key_hash.reshape(-1, 2)[rows].reshape(-1),
            (rows + first_number).astype(np.uint32),
            None if versions is None else versions[rows],
            None if present is None else present[rows],
        )
        self._waiting.append(keys)
        self._count += len(keys)
        if self._count >= self._sizes.combined_records:
            yield from self.flush()

    def flush(self) -> Iterator[Row]:
        """The waiting values, as rows."""
        if not self._waiting:
            return
        keys = _joined(self._waiting)
        self._waiting, self._count = [], 0
        if self._combine:
            keys = combined(keys)
        shards = self._sizes.shards
        starts = [0, len(keys)]
        if shards > 1:
            shard = shard_of(keys.hashes, shards)
            keys = keys.at(np.argsort(shard, kind="stable"))
            starts = [0, *np.cumsum(np.bincount(shard, minlength=shards)).tolist()]
        for target in range(shards):
            for start in range(starts[target], starts[target + 1], self._sizes.block_records):
                rows = np.arange(start, min(start + self._sizes.block_records, starts[target + 1]))
                payload = keys.at(rows).to_bytes()
                yield Row(target, self._kind, self._split.segment, self._split.number, self._block, payload)
                self._block += 1


def shard_of(hashes: NDArray[np.uint64], shards: int) -> NDArray[np.uint16]:
    """[k]: the shard of the keys with ``hashes`` [2k]. This is the kernel's rule, so maps need not check it."""
    shard: NDArray[np.uint16] = (((hashes[::2] >> np.uint64(32)) * np.uint64(shards)) >> np.uint64(32)).astype(
        np.uint16
    )
    return shard


def combined(keys: KeyRows) -> KeyRows:
    """The retained record of each key, in the same order."""
    versioned = keys.versions is not None
    entry_bytes = VERSIONED_ENTRY_BYTES if versioned else MAP_ENTRY_BYTES
    least = MIN_VERSIONED_MAP_BYTES if versioned else MIN_MAP_BYTES
    memory_bytes = int(len(keys) * entry_bytes / COMBINER_LOAD) + least
    offset_map = OffsetMap(memory_bytes, load=COMBINER_LOAD, versions=versioned)
    everything = np.ones(len(keys), dtype=np.bool_)
    offset_map.put_max(keys.hashes, 0, everything, version=keys.versions, has_version=keys.present)
    return keys.at(bools(offset_map.winners(0, len(keys)), 0, len(keys)))


def _joined(waiting: list[KeyRows]) -> KeyRows:
    if len(waiting) == 1:
        return waiting[0]
    columns = zip(*waiting, strict=True)
    return KeyRows(*(None if column[0] is None else np.concatenate(column) for column in columns))  # type: ignore[arg-type]


def bits_row(kind: int, of: Row, numbers: NDArray[np.uint32]) -> Row:
    """Records by their ascending ``numbers`` in the split of ``of``, as bits or numbers, whichever is smaller."""
    first = int(numbers[0]) // 64 * 64
    span = int(numbers[-1]) - first + 1
    if span <= 32 * len(numbers):
        payload = pack({"first": first}, {"words": bitmap_of(numbers - np.uint32(first), span)})
    else:
        payload = pack({}, {"numbers": numbers})
    return Row(of.segment, kind, of.segment, of.split, of.block, payload)


def set_bits(flags: NDArray[np.bool_], first: int, payload: bytes) -> None:
    """Set the records of :func:`bits_row` in ``flags`` [records of the segment]; the split begins at ``first``."""
    numbers, columns = unpack(payload)
    if "numbers" in columns:
        flags[columns["numbers"].astype(np.int64) + first] = True
        return
    words = columns["words"]
    start = first + numbers["first"]
    count = min(64 * len(words), len(flags) - start)
    flags[start : start + count] |= bools(words, 0, count)


def bitmap_of(numbers: NDArray[Any], count: int) -> NDArray[np.uint64]:
    """A bitmap of ``count`` bits with those of ``numbers`` set."""
    flags = np.zeros(-(-count // 64) * 64, dtype=np.bool_)
    flags[numbers] = True
    return bitmap_of_flags(flags)


def bitmap_of_flags(flags: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """A bitmap with a bit per element of ``flags``."""
    padded = flags if len(flags) % 64 == 0 else np.concatenate([flags, np.zeros(-len(flags) % 64, np.bool_)])
    return np.packbits(padded, bitorder="little").view("<u8").astype(np.uint64)


class NumberSpool:
    """The record numbers of a shard's blocks, in the order of their ordinals, for the time after the competition.

    A row of a block has the ordinal of the block's first row plus its place; the first ones are multiples of 64.
    """

    def __init__(self, first_ordinal: int, *, hashes: bool = False, spool_bytes: int = SPOOL_BYTES) -> None:
        """``hashes``: store these as well. ``spool_bytes``: more goes to disk."""
        self._hashes = hashes
        self._file = tempfile.SpooledTemporaryFile(spool_bytes, dir=_local_dir())  # noqa: SIM115 - closed by close()
        self._blocks: list[tuple[Row, int, int]] = []
        self.first_ordinal = first_ordinal
        self.next_ordinal = first_ordinal

    def add(self, row: Row, keys: KeyRows) -> int:
        """Store the block; returns its first ordinal."""
        ordinal = self.next_ordinal
        self._blocks.append((row._replace(payload=b""), ordinal, len(keys)))
        self._file.write(keys.numbers.tobytes())
        if self._hashes:
            self._file.write(keys.hashes.tobytes())
        self.next_ordinal += -(-len(keys) // 64) * 64
        return ordinal

    def replay(self) -> Iterator[tuple[Row, int, KeyRows]]:
        """Each block's row without its payload, its first ordinal, its numbers (and hashes)."""
        self._file.seek(0)
        for row, ordinal, count in self._blocks:
            numbers = np.frombuffer(self._file.read(4 * count), np.uint32)
            data = self._file.read(16 * count) if self._hashes else b""
            yield row, ordinal, KeyRows(np.frombuffer(data, np.uint64), numbers)

    def winners(self, offset_map: OffsetMap, kind: int) -> Iterator[Row]:
        """Rows of the records whose ordinals the map has."""
        words = offset_map.winners(self.first_ordinal, self.next_ordinal - self.first_ordinal)
        for row, ordinal, keys in self.replay():
            won = keys.numbers[bools(words, ordinal - self.first_ordinal, len(keys))]
            if len(won):
                yield bits_row(kind, row, won)

    def close(self) -> None:
        self._file.close()


def _local_dir() -> str | None:
    """The directory where Spark lets its workers write."""
    names = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
    return names[0] or None
