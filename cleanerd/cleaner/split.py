"""A segment whose offsets no index can hold, cut into segments that indexes can hold (C-67, KAFKA-6264).

Brokers before KAFKA-5413 wrote segments that span more than 2^31 - 1 offsets. Kafka's cleaner splits such a segment,
gives up, and cleans in its next attempt; cleanerd does the same. Batches are copied unchanged; only the file boundaries
are new. Each new segment is filled until a batch does not fit, and begins with the base offset of its first batch. The
first one keeps the base of its source, because a loader that finishes the swap removes all files between the first and
the last new one, and that must include the old one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cleanerd import _kernel
from cleanerd.cleaner.chunk_rows import RewriteStart
from cleanerd.cleaner.rewrite import SourcePartRewrite, TargetSegment, WrittenSegment
from cleanerd.cleaner.verify import verify_staged
from cleanerd.errors import CorruptionError
from cleanerd.format.index import TXN_ENTRY, read_txn_index
from cleanerd.format.names import SEGMENT_SUFFIX, TXNINDEX_SUFFIX, file_name
from cleanerd.policy.grouping import MAX_RELATIVE_OFFSET
from cleanerd.segments.pool import PartReader
from cleanerd.segments.same_file import read_companion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from cleanerd.cleaner.decide import SegmentDecision
    from cleanerd.cleaner.manifest import FileFact, FileKind
    from cleanerd.cleaner.plan import CleaningPlan, Source
    from cleanerd.cleaner.stage import Staging
    from cleanerd.segments.reading import SegmentReader


@dataclass(frozen=True, slots=True)
class SplitPiece:
    """A part of the source that becomes a segment: file positions ``start`` to ``end``.

    ``records`` and ``last_offset`` are those of its batches; 0 and -1 if there are none.
    """

    base: int
    start: int
    end: int
    records: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class StagedPiece:
    """One of the new segments, its files written, fsynced, verified and named as the segment's will be."""

    base: int
    files: dict[FileKind, FileFact]


def stage_pieces(
    plan: CleaningPlan,
    reader: SegmentReader,
    member: SegmentDecision,
    staging: Staging,
    progress: Callable[[int], None],
    most_bytes: int | None = None,
) -> list[StagedPiece]:
    """Write the segment of ``member`` as several segments of about ``most_bytes``, ascending, with unchanged batches.

    Raises:
        CorruptionError: a batch is damaged, or spans more offsets than a segment can.
        CleanerdError: no space, or what was written reads back differently. The log is unchanged.
    """
    source = member.source
    pieces = list(_pieces(reader, source, plan.max_unpacked_bytes, most_bytes or source.segment.size_bytes))
    entries = _aborted(reader.path, source, [piece.base for piece in pieces])
    plan = replace(plan, convert_legacy=False)
    copies = np.full(len(member.actions), _kernel.ACTION_COPY, dtype=np.uint8)
    copier = SourcePartRewrite(plan, member, copies, 0, RewriteStart(0, 0, 0))
    staged = []
    for piece, aborted in zip(pieces, entries, strict=True):
        with staging.log_file(piece.base, piece.end - piece.start) as output:
            target = TargetSegment(plan, piece.base, output)
            until = replace(source.segment, size_bytes=piece.end)
            for copied in reader.gathered(until, copier.begin, start=piece.start):
                target.append(copied)
                progress(copied.consumed)
        written = target.finish(aborted)
        _verify(reader, staging, piece, written)
        files = staging.dressed(written, source.segment, source.segment.mtime_ns)
        staged.append(StagedPiece(piece.base, files))
    return staged


def _verify(reader: SegmentReader, staging: Staging, piece: SplitPiece, written: WrittenSegment) -> None:
    expected = replace(written, log_bytes=piece.end - piece.start)
    with reader.for_directory(staging.path, staging.directory) as beside:
        verify_staged(
            PartReader([beside]),
            staging.staged_segment(piece.base),
            expected,
            records=piece.records,
            last_offset=piece.last_offset,
        )


def _pieces(reader: SegmentReader, source: Source, max_unpacked_bytes: int, most_bytes: int) -> Iterator[SplitPiece]:
    """Where to cut, by the first and last offset of every batch.

    Raises:
        CorruptionError: a batch is damaged, or spans more offsets than a segment can.
    """

    def headers(data: NDArray[np.uint8], position: int) -> _kernel.Batches:
        # Where a v0 or v1 wrapper begins is known only after decompressing it.
        return _kernel.decode_chunk(data, position, max_unpacked=max_unpacked_bytes).batches

    piece = SplitPiece(source.base, 0, 0, 0, -1)
    for batches in reader.chunks(source.segment, headers):
        counts = np.diff(batches.first_record)
        columns = (batches.position, batches.size, batches.base_offset, batches.last_offset, counts)
        for position, size, first, last, records in zip(*(column.tolist() for column in columns), strict=True):
            full = piece.end > piece.start and position + size - piece.start > most_bytes
            if last - piece.base > MAX_RELATIVE_OFFSET or (full and first > piece.last_offset):
                yield piece
                piece = SplitPiece(first, position, position, 0, -1)
                if last - first > MAX_RELATIVE_OFFSET:
                    raise CorruptionError(
                        f"a batch spans the offsets {first} to {last}, more than any segment can hold",
                        where=f"{reader.path}/{file_name(source.base, SEGMENT_SUFFIX)}",
                        position=position,
                    )
            piece = SplitPiece(piece.base, piece.start, position + size, piece.records + records, last)
    yield piece


def _aborted(path: str, source: Source, bases: list[int]) -> list[bytes]:
    """The entries of the source's transaction index, each with the piece that its marker is in."""
    name = Path(path, file_name(source.base, TXNINDEX_SUFFIX))
    has_any = TXNINDEX_SUFFIX in source.segment.suffixes
    data = read_companion(Path(path), source.segment, TXNINDEX_SUFFIX) if has_any else None
    entries = np.zeros(0, TXN_ENTRY) if data is None else read_txn_index(data, str(name), in_any_order=True)
    entries = np.sort(entries, order="last_offset", kind="stable")
    rows = np.searchsorted(bases, entries["last_offset"].astype(np.int64), side="right") - 1
    return [entries[np.maximum(rows, 0) == row].tobytes() for row in range(len(bases))]
