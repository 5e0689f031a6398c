"""Task 3: rewrites one group's sources by keep bits into a staged segment, with the local engine's code.

Each attempt stages in its own directory; the driver moves the files of successful ones.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cleanerd.cleaner.cleaner import NoProgress, rewrite_members, verify_members
from cleanerd.cleaner.index import ChunkDecoding
from cleanerd.cleaner.rewrite import GroupTooLargeError, LargeBatches
from cleanerd.cleaner.tombstone_guard import removed_tombstone_keys
from cleanerd.format.names import file_name
from cleanerd.spark.decisions import StoredDecision, removed_bits, with_bits
from cleanerd.spark.plan import plan_of, readers_of
from cleanerd.spark.rows import Row, error_row, result_row
from cleanerd.spark.scan import DEFINITE
from cleanerd.spark.work import AttemptStaging, new_attempt, write_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cleanerd.cleaner.decide import SegmentDecision
    from cleanerd.cleaner.manifest import StagedGroup
    from cleanerd.cleaner.plan import CleaningPlan
    from cleanerd.cleaner.stage import Staging
    from cleanerd.segments.pool import ReaderPool


@dataclass(frozen=True, slots=True)
class StagedByTask:
    """A group that an executor staged: its attempt's directory, batches that are too large, and the duration."""

    group: StagedGroup
    attempt: str
    large: LargeBatches
    seconds: float

    @property
    def names(self) -> list[str]:
        """Names of the files of the group's output."""
        return [file_name(self.group.base, f".{kind}") for kind in self.group.kinds()]


def rewrite(packed: bytes, reserve_bytes: int, groups: Sequence[tuple[int, Sequence[StoredDecision]]]) -> Iterator[Row]:
    """Stage groups, each with its number and its segments' decisions: :class:`StagedByTask`.

    For a group that would be too large the result is the position of the source that does not fit.
    """
    plan = plan_of(packed)
    with readers_of(plan) as pool:
        for number, decisions in groups:
            try:
                staged = _staged(plan, pool, reserve_bytes, decisions)
            except DEFINITE as error:
                yield error_row(error)
                return
            yield result_row(number, staged)


def _staged(
    plan: CleaningPlan, pool: ReaderPool, reserve_bytes: int, decisions: Sequence[StoredDecision]
) -> StagedByTask | int:
    members = [with_bits(plan, each) for each in decisions]
    attempt = new_attempt()
    started = time.monotonic()
    directory = pool.reader.directory
    with AttemptStaging(plan, directory, attempt=attempt, reserve_bytes=reserve_bytes) as staging:
        try:
            group, large = stage_group(plan, pool, staging, members)
        except GroupTooLargeError as error:
            staging.discard()
            return error.source
        except BaseException:
            staging.discard()
            raise
    return StagedByTask(group, attempt, large, time.monotonic() - started)


def stage_group(
    plan: CleaningPlan, pool: ReaderPool, staging: Staging, members: Sequence[SegmentDecision]
) -> tuple[StagedGroup, LargeBatches]:
    """Rewrite and verify one group. Returns also the batches that are too large."""
    written = rewrite_members(plan, pool, staging, members, NoProgress())
    verify_members(pool, staging, members, written)
    return staging.finish(members, written), written.large


def write_removed_keys(packed: bytes, segments: Sequence[tuple[int, str]]) -> Iterator[Row]:
    """The key hashes of removed tombstones, one file per segment; given by the names of their bitmaps."""
    plan = plan_of(packed)
    attempt = new_attempt()
    with readers_of(plan) as pool:
        decoder = ChunkDecoding(plan, pool, lambda _: None)
        for segment, bits in segments:
            source = plan.sources[segment]
            try:
                hashes = removed_tombstone_keys(decoder, source, removed_bits(plan, bits))
                data = b"".join(each.astype("<u8").tobytes() for each in hashes)
            except DEFINITE as error:
                yield error_row(error)
                return
            name = write_file(plan, f"{source.base:020d}.{attempt}.keys", data)
            yield result_row(segment, name)
