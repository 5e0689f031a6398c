"""U-90: digests of a log's latest state at grid offsets, which do not depend on cleanings.

One pass fills the offset map with the whole log, and stores the winners at each grid offset. Another pass adds up the
digests of those records. The log is read as its plan says, but up to the high watermark.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from cleanerd import _kernel
from cleanerd.cleaner.index import FIRST_DIRTY_ORDINAL, ChunkDecoding, DirtyIndex
from cleanerd.cleaner.map_size import MapPass, MapUse, with_map
from cleanerd.cleaner.marker_check import corrected_by_markers
from cleanerd.cleaner.metadata_budget import MetadataBudget
from cleanerd.cleaner.plan import CleaningPlan, Source
from cleanerd.cleaner.planning import make_plan
from cleanerd.errors import RefusedError
from cleanerd.policy.state_digest import DIGEST_BITS, StateDigest, digest_sum, grid_offsets, grid_start
from cleanerd.segments.producers import read_producers
from cleanerd.segments.torn_tail import loaded_aborted, recovered_aborted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from cleanerd.cleaner.resources import Resources
    from cleanerd.cleaner.survey import CleaningOptions, Survey
    from cleanerd.segments.log_dir import LogDir
    from cleanerd.segments.partition import PartitionLog
    from cleanerd.segments.reading import SegmentReader

NO_TOPIC_ID: Final = bytes(16)
"""The key of the digests if topics have no id; otherwise it is the topic's id, equal on all replicas."""


def state_digests(
    log_dir: LogDir,
    found: Survey,
    resources: Resources,
    options: CleaningOptions,
    *,
    advance: Callable[[int], None] = lambda _: None,
) -> tuple[StateDigest, ...]:
    """The digests of the log at its grid offsets, ascending; empty if no offset can be compared.

    Empty also below the first record whose key has an earlier one: the log may be a copy of a cleaned one. Under a
    version strategy a deleted log start gives none, because records that lost to deleted ones are unknown.

    Raises:
        CleanerdError: as a cleaning; also if offsets are not ascending (U-45), or the keys need too many passes (D-11).
    """
    log = found.log
    with replace(resources, workers=1).readers(str(log.path)) as pool:
        end, grid = _grid(log_dir, found, pool.reader)
        if not grid:
            return ()
        plan = make_plan(log_dir, found, resources, options, pool.reader)
        if plan.rules.versioned and log.log_start_offset > 0:
            return ()
        plan = _whole_log(plan, log_dir, log, pool.reader, (*end, grid[-1]))
        states = [_State(log.log_start_offset, offset) for offset in grid]

        def walk(plan: CleaningPlan) -> tuple[DirtyIndex, int]:
            decoder = ChunkDecoding(plan, pool, advance)
            return with_map(plan, lambda use: _walk(plan, decoder, use, states))

        index, known_from = walk(plan)
        edges = (edge for segment in index.evidence for edge in segment.marker_edges())
        corrected = corrected_by_markers(plan, pool.reader, edges)
        if corrected is not None:
            index, known_from = walk(replace(plan, aborted=corrected.aborted))
        if any(segment.disorder for segment in index.evidence):
            raise RefusedError("offsets do not rise, so replicas cannot be compared", where=plan.path)
        states = [state for state in states if state.end_offset >= known_from]
        _add_up(plan, pool.reader, index, states, advance)
    return tuple(state.result() for state in states)


def _grid(log_dir: LogDir, found: Survey, reader: SegmentReader) -> tuple[tuple[int, int], list[int]]:
    """The common end of all replicas' logs (position in the active segment, offset), and the grid offsets below.

    The end is the high watermark. The grid ends at the last stable offset: all transactions below it are decided.
    """
    log = found.log
    position, end = 0, log.active.base
    for batches in reader.headers_until_damage(log.active):
        count = int(np.searchsorted(batches.last_offset, log.high_watermark))
        position += int(batches.size[:count].sum())
        end = int(batches.last_offset[count - 1]) + 1 if count else end
        if count < len(batches):
            break
    torn_from = None if log_dir.clean_shutdown else log.recovery_point
    first_open = read_producers(log, reader, below=log.high_watermark, torn_from=torn_from).first_open_offset()
    stable = min(end, log.high_watermark, *([] if first_open is None else [first_open]))
    low = max(log.active.base, found.proven_offset, log.cleaner_offset or 0, log.log_start_offset + 1)
    return (position, end), grid_offsets(low, stable)


def _whole_log(
    plan: CleaningPlan, log_dir: LogDir, log: PartitionLog, reader: SegmentReader, ends: tuple[int, int, int]
) -> CleaningPlan:
    """A plan for the log from its start to the last grid offset; markers count up to the high watermark."""
    position, log_end, last = ends
    sources = [Source(segment, log.end_of(row)) for row, segment in enumerate(log.segments[:-1])]
    sources.append(Source(replace(log.active, size_bytes=position, is_active=False), max(log_end, log.active.base + 1)))
    if log_dir.clean_shutdown:
        aborted = loaded_aborted(log, reader, last)
    else:
        aborted = recovered_aborted(log, reader, last, below=log.high_watermark)
    return replace(
        plan,
        sources=tuple(source for source in sources if source.end > log.log_start_offset),
        uncleanable=(),
        torn_from=None,
        proven_offset=log.log_start_offset,
        unproven_below=log.log_start_offset,
        first_dirty_offset=log.log_start_offset,
        end_offset=last,
        first_uncleanable_offset=last,
        decided_offset=log_end,
        aborted=aborted,
        map_dir="",
    )


@dataclass(slots=True)
class _State:
    """The state at ``end_offset``; ``winners``: a bitmap by ordinal from FIRST_DIRTY_ORDINAL on."""

    log_start_offset: int
    end_offset: int
    begin_offset: int = -1
    first_ordinal: int = 0
    winners: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))
    total: int = 0
    keys: int = 0

    def __post_init__(self) -> None:
        self.begin_offset = grid_start(self.log_start_offset, self.end_offset)

    def note_start(self, offsets: NDArray[np.int64], first_ordinal: int) -> None:
        """Skip winners below ``begin_offset``: ``first_ordinal`` becomes the first one that counts."""
        below = int(np.searchsorted(offsets, self.begin_offset))
        if below:
            self.first_ordinal = first_ordinal - FIRST_DIRTY_ORDINAL + below

    def add_winners(self, bits: NDArray[np.uint64]) -> None:
        """Add the winners of another shard."""
        if len(bits) > len(self.winners):
            self.winners = np.concatenate([self.winners, np.zeros(len(bits) - len(self.winners), np.uint64)])
        self.winners[: len(bits)] |= bits

    def rows_of(self, ordinal: int, count: int) -> NDArray[np.bool_]:
        """[count] bool: the records from ``ordinal`` on, a multiple of 64, that won and count."""
        words = self.winners[ordinal // 64 : (ordinal + count + 63) // 64]
        rows = np.zeros(count, np.bool_)
        bits = _bits(words, min(count, 64 * len(words)))
        rows[: len(bits)] = bits
        rows[: min(max(self.first_ordinal - ordinal, 0), count)] = False
        return rows

    def result(self) -> StateDigest:
        return StateDigest(self.begin_offset, self.end_offset, f"{self.total:032x}", self.keys)


class _GridPass:
    """The keys of one pass, with the winners at each grid offset.

    ``repeated_from``: the first record whose key has an earlier record; None: there is none. No earlier cleaning, by
    any broker, has covered it, because it would have removed one of the two.
    """

    def __init__(self, map_pass: MapPass, states: Sequence[_State]) -> None:
        self._map_pass = map_pass
        self._states = states
        self._passed = 0
        self._ordinals = 0
        self.repeated_from: int | None = None

    def add_dirty(self, chunk: _kernel.Chunk, first_ordinal: int, mask: NDArray[np.bool_]) -> None:
        """As in ``MapPass``; a chunk that contains a grid offset is added in parts."""
        offsets = chunk.records.offset
        self._note_repeated(chunk, mask)
        for state in self._states:
            state.note_start(offsets, first_ordinal)
        while self._passed < len(self._states) and len(offsets):
            end = self._states[self._passed].end_offset
            if offsets[-1] < end:
                break
            row = int(np.searchsorted(offsets, end))
            below = mask.copy()
            below[row:] = False
            self._map_pass.add_dirty(chunk, first_ordinal, below)
            self._ordinals = first_ordinal - FIRST_DIRTY_ORDINAL + row
            self._pass()
            mask = mask.copy()
            mask[:row] = False
        self._map_pass.add_dirty(chunk, first_ordinal, mask)
        self._ordinals = first_ordinal - FIRST_DIRTY_ORDINAL + len(offsets)

    def _note_repeated(self, chunk: _kernel.Chunk, mask: NDArray[np.bool_]) -> None:
        if self.repeated_from is not None:
            return
        hashes = chunk.records.key_hash
        rows = np.flatnonzero(mask)
        is_known = self._map_pass.offset_map.contains(
            hashes, mask, shard=self._map_pass.shard, shards=self._map_pass.shards
        )[rows]
        words = hashes[2 * rows]
        order = np.argsort(words, kind="stable")
        is_known[order[1:][words[order[1:]] == words[order[:-1]]]] = True
        if is_known.any():
            self.repeated_from = int(chunk.records.offset[rows[is_known][0]])

    def finish(self) -> None:
        """Close the remaining grid offsets: the log has no record at or above them."""
        while self._passed < len(self._states):
            self._pass()

    def _pass(self) -> None:
        bits = self._map_pass.offset_map.winners(FIRST_DIRTY_ORDINAL, self._ordinals)
        self._states[self._passed].add_winners(bits)
        self._passed += 1


def _walk(plan: CleaningPlan, decoder: ChunkDecoding, use: MapUse, states: Sequence[_State]) -> tuple[DirtyIndex, int]:
    """Fill the map with the whole log, shard by shard; returns also the first offset with a known state.

    Without a repeated key another broker may have cleaned all of it, and only the last state is known.
    """
    index, known_from = DirtyIndex(plan, MetadataBudget(plan)), states[-1].end_offset
    for state in states:
        state.winners = np.zeros(0, np.uint64)
    for key_pass in use.passes:
        if not isinstance(key_pass, MapPass):
            raise TypeError("keys on disk, although the plan names no directory")
        noting = _GridPass(key_pass, states)
        index.build(decoder, noting)
        noting.finish()
        known_from = min(known_from, known_from if noting.repeated_from is None else noting.repeated_from)
    return index, known_from


def _add_up(
    plan: CleaningPlan,
    reader: SegmentReader,
    index: DirtyIndex,
    states: Sequence[_State],
    advance: Callable[[int], None],
) -> None:
    """Read the winners again, and add their digests to their states."""
    hash_key = NO_TOPIC_ID if plan.topic_id is None else plan.topic_id.bytes

    def digests_of(data: NDArray[np.uint8], position: int) -> _kernel.Digests:
        return _kernel.content_digest(data, position, hash_key=hash_key, max_unpacked=plan.max_unpacked_bytes)

    for evidence, first_ordinal in zip(index.evidence, index.first_ordinals, strict=True):
        ordinal = first_ordinal - FIRST_DIRTY_ORDINAL
        values = ~_bits(evidence.tombstone.words(), evidence.records)
        rows = [state.rows_of(ordinal, evidence.records) & values for state in states]
        if not any(each.any() for each in rows):
            continue
        record = 0
        for found in reader.chunks(evidence.source.segment, digests_of):
            following = record + len(found)
            digests = found.digest.reshape(-1, 2)
            for state, mask in zip(states, rows, strict=True):
                counted = mask[record:following]
                state.total = (state.total + digest_sum(digests[counted])) % (1 << DIGEST_BITS)
                state.keys += int(np.count_nonzero(counted))
            record = following
            advance(found.consumed)


def _bits(words: NDArray[np.uint64], count: int) -> NDArray[np.bool_]:
    """[count] bool: the first bits of a bitmap."""
    return np.unpackbits(words.astype("<u8").view(np.uint8), count=count, bitorder="little").astype(np.bool_)
