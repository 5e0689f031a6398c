"""The decoded chunks of a split, with the selection of the view."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from cleanerd import _kernel
from cleanerd.errors import CorruptionError
from cleanerd.host.memory import worker_batch_bytes
from cleanerd.segments.same_file import changed, require_unchanged
from cleanerd.spark.listed import list_complete
from cleanerd.spark.source.options import ALL, LATEST, RAW
from cleanerd.spark.source.rows import DecodedBatches, SourceRows, by_record, damage_row
from cleanerd.spark.source.visible import Markers, control_batches
from cleanerd.verify.walk import Damage, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from numpy.typing import NDArray

    from cleanerd.segments.segment import StatResult
    from cleanerd.spark.source.plan import LogRange, SegmentPiece, TaskSplit
    from cleanerd.verify.listing import SegmentFile
    from cleanerd.verify.rules import KeyRules

_OF_VERSIONS: Final = frozenset({"version", "is_tombstone"})


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options for tasks."""

    view: str
    skip_damage: bool
    tombstones: bool
    map_bytes: int


class SourceReading:
    """The decoded chunks of a split, with the selection of the view."""

    def __init__(self, split: TaskSplit, how: ReadOptions, schema: pa.Schema) -> None:
        self._split = split
        self._how = how
        self._schema = schema
        self._damages: list[pa.RecordBatch] = []
        self.wants_headers = how.view == LATEST or bool(_OF_VERSIONS & set(schema.names))
        self._wants_hidden = how.view not in (ALL, RAW) or "visible" in schema.names

    def damages(self) -> Iterator[pa.RecordBatch]:
        """Rows for damaged places found since the last call, if the column ``damaged`` is read."""
        damages, self._damages = self._damages, []
        yield from damages

    def rows(self, hash_key: bytes | None = None) -> Iterator[SourceRows]:
        """The chunks one by one; a chunk's bytes are valid until the next step. ``hash_key``: with hashes of the keys.

        Raises:
            CorruptionError, SegmentChangedError, CleanerdError: as :func:`read_split`.
        """
        skip = self._how.skip_damage
        markers = [Markers(reach.acknowledged, skip_damage=skip) for reach in self._split.reaches]
        for piece in self._split.pieces:
            reach = self._split.reaches[piece.reach]
            places = _Places(piece.segment, self._damage_handler(piece, reach))
            for decoded in self._chunks(piece, reach, hash_key):
                batches = decoded.chunk.batches
                wrong = places.wrong(batches)
                hidden = None
                if self._wants_hidden:
                    hidden = markers[piece.reach].hidden(batches, piece.segment, decoded.position + decoded.consumed)
                keep = self._keep(decoded, hidden, reach)
                if wrong.any():
                    keep &= ~by_record(batches, wrong)
                yield SourceRows(decoded, keep, hidden, reach, piece.segment)
                if places.last_base >= reach.end:
                    break

    def _keep(self, decoded: DecodedBatches, hidden: NDArray[np.bool_] | None, reach: LogRange) -> NDArray[np.bool_]:
        batches, offset = decoded.chunk.batches, decoded.chunk.records.offset
        keep = (offset >= reach.begin) & (offset < reach.end)
        if self._how.view == RAW:
            return keep
        gone = control_batches(batches)
        if hidden is not None and self._how.view != ALL:
            gone = gone | hidden
        if gone.any():
            keep &= ~by_record(batches, gone)
        return keep

    def _chunks(self, piece: SegmentPiece, reach: LogRange, hash_key: bytes | None) -> Iterator[DecodedBatches]:
        segment, rules = piece.segment, reach.rules
        call = decoder(rules if self.wants_headers else None, hash_key)

        def same(found: StatResult) -> None:
            require_unchanged(found, piece.witness, str(segment.path))

        for data, decoded in walk(
            segment.path, piece.stop, call, self._damage_handler(piece, reach), start=piece.start, check=same
        ):
            yield DecodedBatches(decoded.chunk, data, decoded.position)

    def _damage_handler(self, piece: SegmentPiece, reach: LogRange) -> Callable[[Damage], None]:
        segment = piece.segment

        def damaged(damage: Damage) -> None:
            if damage.cut and piece.stop < segment.size_bytes:
                reason = f"the offset index says that a batch begins at byte {piece.stop}, but none does"
                raise CorruptionError(
                    reason,
                    where=str(segment.path),
                    position=damage.position,
                    hint="splitBytes above the segment's size",
                )
            if not segment.sealed and (damage.cut or damage.zeros):
                return
            if not self._how.skip_damage:
                raise CorruptionError(damage.reason, where=str(segment.path), position=damage.position)
            if "damaged" in self._schema.names:
                self._damages.append(damage_row(self._schema, reach, segment, damage.position, damage.reason))

        return damaged


class _Places:
    """Checks that the batches of a segment are in order and have offsets of their segment, which no checksum covers.

    A copy that was made during a swap may contain a new segment beside its old source: each is valid by itself, and
    both would be returned.
    """

    def __init__(self, segment: SegmentFile, damaged: Callable[[Damage], None]) -> None:
        self._segment = segment
        self._damaged = damaged
        self._last = segment.base - 1
        self.last_base = -1

    def wrong(self, batches: _kernel.Batches) -> NDArray[np.bool_]:
        """[b]: the batch does not follow the one before it, or overlaps the next segment: damage.

        Raises:
            SegmentChangedError: the segment does not exist any more.
        """
        beyond = batches.last_offset >= self._segment.end
        before = np.concatenate([[self._last], np.where(beyond, -1, batches.last_offset)[:-1]])
        wrong: NDArray[np.bool_] = beyond | (batches.base_offset <= before)
        for row in np.flatnonzero(wrong).tolist():
            self._report(batches, row, int(before[row]), beyond=bool(beyond[row]))
        right = np.flatnonzero(~wrong)
        if len(right):
            self._last = int(batches.last_offset[right[-1]])
            self.last_base = int(batches.base_offset[right[-1]])
        return wrong

    def _report(self, batches: _kernel.Batches, row: int, before: int, *, beyond: bool) -> None:
        segment, base = self._segment, int(batches.base_offset[row])
        why = f"the batch at offset {base} does not lie after {before}, which is before it in the file"
        if beyond:
            if segment.end not in {each.base for each in list_complete(segment.path.parent).segments}:
                raise changed("it replaces several segments now", str(segment.path))
            last = int(batches.last_offset[row])
            why = f"the batch at offset {base} ends at {last}, and the next segment begins at {segment.end}"
        self._damaged(Damage(int(batches.position[row]), base, why, int(batches.size[row])))


def decoder(rules: KeyRules | None, hash_key: bytes | None) -> Callable[[NDArray[np.uint8], int], DecodedBatches]:
    """A function that decodes chunks and verifies checksums, with the headers that ``rules`` need."""

    def decode(data: NDArray[np.uint8], position: int) -> DecodedBatches:
        chunk = _kernel.decode_chunk(
            data,
            position,
            hash_key=hash_key,
            version_header=None if rules is None else rules.header,
            version_encoding="long" if rules is None else rules.encoding,
            tombstone_header=None if rules is None else rules.tombstone_header,
            max_unpacked=worker_batch_bytes(),
        )
        return DecodedBatches(chunk, data, position)

    return decode
