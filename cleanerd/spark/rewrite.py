"""Task 3: rewrites one group's sources by keep bits into a staged segment, with the local engine's code.

Each attempt stages in its own directory; the driver moves the files of successful ones.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cleanerd.cleaner.cleaner import NoProgress, stage_group
from cleanerd.cleaner.index import ChunkDecoding
from cleanerd.cleaner.manifest import FileFact, StagedGroup
from cleanerd.cleaner.rewrite import GroupTooLargeError
from cleanerd.cleaner.tombstone_guard import removed_tombstone_keys
from cleanerd.format.names import file_name
from cleanerd.spark.decisions import removed_bits, stored_decision
from cleanerd.spark.plan import plan_of, readers_of
from cleanerd.spark.rows import RESULT, Row, error_row
from cleanerd.spark.scan import DEFINITE
from cleanerd.spark.work import AttemptStaging, new_attempt, write_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cleanerd.cleaner.plan import CleaningPlan
    from cleanerd.segments.pool import ReaderPool


@dataclass(frozen=True, slots=True)
class StagedByTask:
    """A group that an executor staged: its attempt's directory, and how many batches are too large."""

    group: StagedGroup
    attempt: str
    oversized: int

    @property
    def names(self) -> list[str]:
        """Names of the files of the group's output."""
        return [file_name(self.group.base, f".{kind}") for kind in self.group.kinds()]

    @classmethod
    def of_json(cls, summary: Mapping[str, Any]) -> StagedByTask:
        """From the summary of :func:`rewrite`."""
        files = {kind: FileFact(*fact) for kind, fact in summary["files"].items()}
        group = StagedGroup(summary["base"], summary["end"], tuple(summary["sources"]), files)
        return cls(group, summary["attempt"], summary["oversized"])


def rewrite(
    packed: bytes, reserve_bytes: int, groups: Sequence[tuple[int, Sequence[Mapping[str, Any]]]]
) -> Iterator[Row]:
    """Stage groups: each with its number and its segments' decisions from the driver."""
    plan = plan_of(packed)
    with readers_of(plan) as pool:
        for number, decisions in groups:
            try:
                summary = _staged(plan, pool, reserve_bytes, decisions)
            except DEFINITE as error:
                yield error_row(error)
                return
            yield Row(0, RESULT, number, payload=json.dumps(summary).encode())


def _staged(
    plan: CleaningPlan, pool: ReaderPool, reserve_bytes: int, decisions: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    members = [stored_decision(plan, summary, bits=True) for summary in decisions]
    attempt = new_attempt()
    started = time.monotonic()
    directory = pool.reader.directory
    with AttemptStaging(plan, directory, attempt=attempt, reserve_bytes=reserve_bytes) as staging:
        try:
            group, oversized = stage_group(plan, pool, staging, members, NoProgress())
        except GroupTooLargeError as error:
            staging.discard()
            return {"too_large": error.source}
        except BaseException:
            staging.discard()
            raise
    return group_summary(group, attempt, oversized, time.monotonic() - started)


def group_summary(group: StagedGroup, attempt: str, oversized: int, seconds: float) -> dict[str, Any]:
    """A staged group for the driver, which parses it with :meth:`StagedByTask.of_json`."""
    return {
        "attempt": attempt,
        "base": group.base,
        "end": group.end,
        "sources": group.sources,
        "files": {kind: (fact.bytes, fact.crc32c) for kind, fact in group.files.items()},
        "oversized": oversized,
        "seconds": seconds,
    }


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
            yield Row(0, RESULT, segment, payload=json.dumps({"keys": name}).encode())
