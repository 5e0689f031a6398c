"""Keys on disk, for a log with more keys than its offset map holds (U-43): one pass instead of one per shard.

The pass over the log writes a row for each record that competes: key hash, ordinal, version. The hash assigns each row
to a shard. Then the shards are decided one by one with the map in memory, their rows in the order of the log. So the
result is the same as with passes, and the cost is proportional to the records.

Every failure here is a :class:`KeyFileError`, whose text is for the operator; the keys are then read in several passes,
with the same result.

* The file has no name and mode 0600: nothing is left after a kill, and no other user can read it.

* It has a size limit and respects the disk reserve.

* A fault of the disk must not decide about records: this process remembers a checksum of each run of rows.
"""

from __future__ import annotations

import errno
import os
import secrets
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

import numpy as np

from cleanerd._kernel import Chunk, KeyRows, OffsetMap, crc32c
from cleanerd.cleaner.index import FIRST_DIRTY_ORDINAL, ChunkDecoding, Contest, Winners
from cleanerd.cleaner.write_times import WriteTimes
from cleanerd.fsio.mounts import IN_MEMORY, file_system_of
from cleanerd.fsio.safe_open import close_quietly, open_trusted_directory, read_at, write_all
from cleanerd.humanize import human_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from cleanerd.cleaner.plan import CleaningPlan

MODE: Final = 0o600
RESERVE_PART: Final = 10
"""One part in this many of the disk stays free, if ``cleanerd.disk.reserve`` is not set."""

MOST_ROWS: Final = 1 << 18
LEAST_ROWS_OF_SHARD: Final = 256
"""Rows are collected until a shard has about this many, even with little memory; at most MOST_ROWS otherwise."""

MOST_SPLITS: Final = 12
"""How often a shard that does not fit the map is halved at most; each half reads its rows again."""

ROOM_CHECKED_BYTES: Final = 64 * 1024 * 1024
"""The free space is checked each time so many bytes were written."""

_NAMELESS: Final = os.O_TMPFILE | os.O_RDWR | os.O_EXCL | os.O_CLOEXEC
_NOT_NAMELESS: Final = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT})
"""Errors of file systems that cannot create a file without a name. If the directory is missing, the next call fails."""

_ORDINAL: Final = np.uint64((1 << 63) - 1)


class KeyFileError(Exception):
    """Keys cannot be stored on disk, or the file is unusable; the text says why."""


def row_bytes(plan: CleaningPlan) -> int:
    """The bytes of one record's row."""
    return 32 if plan.rules.versioned else 24


def over_limit(plan: CleaningPlan) -> str:
    """Why the file exceeds its limit, in words."""
    return f"more than {human_bytes(plan.map_file_bytes)} (cleanerd.map.max.bytes)"


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Rows that were written together: shard ``n`` has the bytes ``ends[n]`` to ``ends[n + 1]`` of the file."""

    ends: NDArray[np.int64]
    crcs: tuple[int, ...]


class KeyFile:
    """The keys of one pass in an open file, by ``shards``.

    ``map_bytes``: memory of the map, and of the rows until they are written. ``rows_read`` and ``bytes_written`` count
    for the statistics.
    """

    def __init__(self, plan: CleaningPlan, descriptor: int, map_bytes: int, shards: int) -> None:
        self._plan = plan
        self._descriptor = descriptor
        self._map_bytes = map_bytes
        self._shards = shards
        self._row_bytes = row_bytes(plan)
        room = max(min(map_bytes // (2 * self._row_bytes), MOST_ROWS), LEAST_ROWS_OF_SHARD * shards)
        self._rows = KeyRows(room, versions=plan.rules.versioned)
        self._stretches: list[_Stretch] = []
        self._dirty_stretches = -1
        self._room_checked_at = 0
        self.bytes_written = 0
        self.rows_read = 0

    def add_dirty(self, chunk: Chunk, first_ordinal: int, mask: NDArray[np.bool_]) -> None:
        """Store the dirty records of ``mask`` [n]."""
        self._add(chunk, first_ordinal, mask)

    def add_clean(self, chunk: Chunk, first_ordinal: int, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Store the clean records of ``mask`` [n], after all dirty ones. Returns all False: :meth:`decide` knows."""
        if self._dirty_stretches < 0:
            self._write()
            self._dirty_stretches = len(self._stretches)
        self._add(chunk, first_ordinal, mask)
        return np.zeros(len(mask), dtype=np.bool_)

    def decide(self, _decoder: ChunkDecoding, contest: Contest) -> Winners:
        """Decide all shards.

        Raises:
            KeyFileError: the rows cannot be read as they were written.
        """
        self._write()
        decided = _ShardDecisions(self._plan, contest, self._map_bytes)
        stretches = self._stretches
        clean_from = len(stretches) if self._dirty_stretches < 0 else self._dirty_stretches
        for shard in range(self._shards):
            self._decide_shard(decided, (stretches[:clean_from], stretches[clean_from:]), shard, shard, self._shards)
        return decided.winners()

    def _decide_shard(
        self, decided: _ShardDecisions, stretches: tuple[Sequence[_Stretch], ...], part: int, shard: int, shards: int
    ) -> None:
        """Decide one shard, which is in part ``part`` of the file; in two halves if its keys do not fit the map."""
        dirty, clean = stretches
        if not decided.add_dirty(self._read(dirty, part), shard, shards):
            if shards >= self._shards << MOST_SPLITS:
                raise KeyFileError("the keys are not dealt out evenly")
            for half in (2 * shard, 2 * shard + 1):
                self._decide_shard(decided, stretches, part, half, 2 * shards)
            return
        decided.add_clean(self._read(clean, part), shard, shards)
        if decided.keeps_times:
            decided.take_over(chain(self._read(dirty, part), self._read(clean, part)), shard, shards)
        decided.take_winners()

    def _add(self, chunk: Chunk, first_ordinal: int, mask: NDArray[np.bool_]) -> None:
        records, rules = chunk.records, self._plan.rules
        version, present = rules.ranking.versions(records) if rules.versioned else (None, None)
        done = 0
        while True:
            done += self._rows.add(
                records.key_hash[2 * done :],
                first_ordinal + done,
                mask[done:],
                version=None if version is None else version[done:],
                has_version=None if present is None else present[done:],
            )
            if done == len(mask):
                return
            self._write()

    def _write(self) -> None:
        """Write the collected rows at the end of the file."""
        if not len(self._rows):
            return
        rows, counts = self._rows.deal(self._shards)
        data = rows.view(np.uint8)
        ends = np.concatenate([[0], np.cumsum(counts.astype(np.int64) * self._row_bytes)])
        self._require_room(len(data))
        try:
            write_all(self._descriptor, rows.data.cast("B"))
        except OSError as error:
            raise _failed(error) from error
        crcs = tuple(crc32c(data[start:end]) for start, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True))
        self._stretches.append(_Stretch(ends + self.bytes_written, crcs))
        self.bytes_written += len(data)

    def _require_room(self, more_bytes: int) -> None:
        wanted = self.bytes_written + more_bytes
        if wanted > self._plan.map_file_bytes:
            raise KeyFileError(f"they need {over_limit(self._plan)}")
        if wanted > self._room_checked_at:
            require_room(self._descriptor, ROOM_CHECKED_BYTES, self._plan.map_reserve_bytes)
            self._room_checked_at = wanted + ROOM_CHECKED_BYTES

    def _read(self, stretches: Sequence[_Stretch], part: int) -> Iterator[NDArray[np.uint64]]:
        """The rows of one part of the file, in log order."""
        for stretch in stretches:
            start, end = stretch.ends[part : part + 2].tolist()
            if start == end:
                continue
            try:
                data = read_at(self._descriptor, end - start, start)
            except OSError as error:
                raise _failed(error) from error
            words = np.frombuffer(data, dtype=np.uint8)
            if len(words) != end - start or crc32c(words) != stretch.crcs[part]:
                raise KeyFileError("the bytes that were written there cannot be read back")
            self.rows_read += len(words) // self._row_bytes
            yield words.view(np.uint64)


class _ShardDecisions:
    """Decides one shard after the other with the map; has the bitmaps of all."""

    def __init__(self, plan: CleaningPlan, contest: Contest, map_bytes: int) -> None:
        self._versioned = plan.rules.versioned
        self._width = row_bytes(plan) // 8
        self._map = OffsetMap(map_bytes, load=plan.map_load, versions=self._versioned)
        self._contest = contest
        self.keeps_times = plan.rules.keeps_write_time and bool(contest.contestants)
        self._times = WriteTimes(contest.contestants)
        self._dirty = _no_bits(contest.dirty_ordinals)
        self._clean = _no_bits(contest.clean_ordinals)
        self._held = _no_bits(contest.clean_ordinals)
        self._entries = 0
        self._fullest = 0

    def add_dirty(self, stretches: Iterator[NDArray[np.uint64]], shard: int, shards: int) -> bool:
        """Put a shard's dirty rows into the map; False: it is full."""
        self._map.clear()
        return all(
            self._map.put_rows(rows, shard=shard, shards=shards) == len(rows) // self._width for rows in stretches
        )

    def add_clean(self, stretches: Iterator[NDArray[np.uint64]], shard: int, shards: int) -> None:
        """Compare the clean rows with the map (C-45.3, R280-10)."""
        for rows in stretches:
            met = self._map.meet_rows(rows, shard=shard, shards=shards)
            ordinals = rows[2 :: self._width][met] & _ORDINAL
            np.bitwise_or.at(self._held, ordinals // 64, np.uint64(1) << ordinals % 64)

    def take_over(self, stretches: Iterator[NDArray[np.uint64]], shard: int, shards: int) -> None:
        """Pass the write times of superseded records on to the winners (U-65)."""
        for rows in stretches:
            columns = rows.reshape(-1, self._width)
            hashes = np.ascontiguousarray(columns[:, :2]).reshape(-1)
            winners = self._map.ordinals(hashes, np.ones(len(columns), dtype=np.bool_), shard=shard, shards=shards)
            self._times.take_over((columns[:, 2] & _ORDINAL).astype(np.int64), winners)

    def take_winners(self) -> None:
        """Store the winners, after all records of the shard have competed."""
        self._map.mark_winners(FIRST_DIRTY_ORDINAL, self._contest.dirty_ordinals, self._dirty)
        if self._versioned:
            self._map.mark_winners(0, self._contest.clean_ordinals, self._clean)
        self._entries += len(self._map)
        self._fullest = max(self._fullest, len(self._map))

    def winners(self) -> Winners:
        """The bitmaps, after every shard."""
        return Winners(
            dirty=self._dirty,
            clean=self._clean if self._versioned else None,
            held=self._held,
            entries=self._entries,
            utilization=self._fullest / max(1, self._map.capacity),
        )


def _no_bits(count: int) -> NDArray[np.uint64]:
    return np.zeros((count + 63) // 64, dtype=np.uint64)


def require_room(descriptor: int, wanted_bytes: int, reserve_bytes: int | None) -> None:
    """Refuse a disk that has no room for ``wanted_bytes`` besides ``reserve_bytes``, by default a tenth of the disk.

    Raises:
        KeyFileError: there is less.
    """
    try:
        disk = os.fstatvfs(descriptor)
    except OSError as error:
        raise _failed(error) from error
    reserve = disk.f_blocks * disk.f_frsize // RESERVE_PART if reserve_bytes is None else reserve_bytes
    room = max(disk.f_bavail * disk.f_frsize - reserve, 0)
    if wanted_bytes > room:
        raise KeyFileError(f"{human_bytes(wanted_bytes)} are needed and {human_bytes(room)} may be taken")


@contextmanager
def opened(place: str) -> Iterator[int]:
    """The descriptor of a file in the directory ``place`` that disappears when it is closed.

    Raises:
        KeyFileError: it cannot be created, or the file system is in memory.
    """
    try:
        descriptor = _nameless(place)
    except OSError as error:
        raise _failed(error) from error
    try:
        kind = file_system_of(descriptor)
        if kind in IN_MEMORY:
            raise KeyFileError(f"{kind} is memory itself")
        yield descriptor
    finally:
        close_quietly(descriptor)


def _failed(error: OSError) -> KeyFileError:
    return KeyFileError(error.strerror or str(error))


def _nameless(place: str) -> int:
    try:
        return os.open(place, _NAMELESS, MODE)
    except OSError as error:
        if error.errno not in _NOT_NAMELESS:
            raise
    directory = open_trusted_directory(place)
    try:
        name = f".cleanerd-keys-{secrets.token_hex(8)}"
        descriptor = os.open(
            name, os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_RDWR | os.O_CLOEXEC, MODE, dir_fd=directory
        )
        try:
            os.unlink(name, dir_fd=directory)
        except BaseException:
            close_quietly(descriptor)
            raise
        return descriptor
    finally:
        close_quietly(directory)
