"""The result of a cleaning: one value for table, JSON and logs."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from pydantic import ConfigDict

from cleanerd.errors import Cause, CleanerdError, RefusedError, ReportedError, worst_exit_code
from cleanerd.format.names import TopicPartition  # noqa: TC001 - pydantic resolves the annotation
from cleanerd.state.document import validated

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cleanerd.cleaner.cleaner import Cleaning
    from cleanerd.cleaner.survey import Survey

Outcome = Literal["cleaned", "staged", "unchanged", "skipped", "refused", "quarantined", "failed", "busy"]


@dataclass(frozen=True, slots=True)
class RemovedRecords:
    """The number of removed records, by reason."""

    superseded: int = 0
    tombstone: int = 0
    aborted: int = 0
    no_key: int = 0
    marker: int = 0

    @property
    def total(self) -> int:
        return self.superseded + self.tombstone + self.aborted + self.no_key + self.marker


@dataclass(frozen=True, slots=True)
class CleaningResult:
    """One partition after ``clean``.

    Bytes and segments are those of the whole log below the active segment, before and after; ``active_bytes`` is that
    one's size. ``error`` is set if an error prevented the cleaning, and its cause determines ``outcome``
    (``errors.CONSEQUENCES``); then segments and bytes are those of the groups that were swapped before.
    ``segments_rewritten``: replaced sources; ``groups``: the segments that replaced them. ``tombstones_waiting``:
    retained although past their horizon (U-1, U-4). ``tombstones_kept``: all retained ones in the cleaned range, and
    markers whose transaction has no batch left; None: not counted. ``malformed_versions``, ``without_version`` (R280-6;
    the former included) and ``nulls_without_flag`` (R87-3) are counts of the dirty part: each record counts in one
    cleaning. ``map_utilization``: entries by room of the offset map. ``next_purge_ms``: when the next
    retained tombstones or markers reach their delete horizon. ``bytes_read`` and ``bytes_written`` are those of the
    rewrite. ``is_partial``: it ended early so that other partitions can run, and the next one continues at
    ``end_offset`` (D-11).
    """

    name: TopicPartition
    log_dir: str
    outcome: Outcome
    reason: str = ""
    strategy: str = "offset"
    first_dirty_offset: int = -1
    end_offset: int = -1
    records_read: int = 0
    records_kept: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    active_bytes: int = 0
    segments_before: int = 0
    segments_after: int = 0
    segments_rewritten: int = 0
    groups: int = 0
    removed: RemovedRecords = field(default_factory=RemovedRecords)
    tombstones_waiting: int = 0
    tombstones_kept: int | None = None
    malformed_versions: int = 0
    without_version: int = 0
    nulls_without_flag: int = 0
    far_future_timestamps: int = 0
    passes: int = 0
    map_utilization: float = 0.0
    next_purge_ms: int | None = None
    bytes_read: int = 0
    bytes_written: int = 0
    is_partial: bool = False
    seconds: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    error: CleanerdError | None = None

    __pydantic_config__ = ConfigDict(arbitrary_types_allowed=True, allow_inf_nan=False)

    @property
    def is_done(self) -> bool:
        """Whether the partition was cleaned or had nothing to do."""
        return self.outcome in _DONE

    @property
    def moved_on(self) -> bool:
        """Whether the broker changed the log during each attempt, which is not a failure."""
        return self.error is not None and self.error.moved_on

    @classmethod
    def of_error(cls, name: TopicPartition, log_dir: str, error: CleanerdError) -> Self:
        """A partition that was not cleaned because of ``error``."""
        return cls(name, log_dir, error.consequence.outcome, str(error), error=error.without_frames())

    @classmethod
    def from_json(cls, name: TopicPartition, document: Mapping[str, Any]) -> Self:
        """The result from :meth:`to_json`, of this release or of another one with other fields.

        Raises:
            TypeError, ValueError: it is not such a document.
        """
        # Another program may have written it: validate it here instead of when the result is shown.
        text = json.dumps({**document, "name": asdict(name), "error": None}).encode()
        found = validated(cls, text)
        if any(abs(number) >= 2**63 for number in (*_numbers(found), *_numbers(found.removed))):
            raise ValueError("a number in it is larger than any count")
        cause = document.get("cause")
        return found if cause is None else replace(found, error=ReportedError(found.reason, cause=Cause(cause)))

    def to_json(self) -> dict[str, Any]:
        """The entry of ``clean --json``."""
        return {
            "topic": self.name.topic,
            "partition": self.name.partition,
            "log_dir": self.log_dir,
            "outcome": self.outcome,
            "reason": self.reason,
            "cause": None if self.error is None else str(self.error.cause),
            "strategy": self.strategy,
            "first_dirty_offset": self.first_dirty_offset,
            "end_offset": self.end_offset,
            "records_read": self.records_read,
            "records_kept": self.records_kept,
            "bytes_before": self.bytes_before,
            "bytes_after": self.bytes_after,
            "active_bytes": self.active_bytes,
            "segments_before": self.segments_before,
            "segments_after": self.segments_after,
            "segments_rewritten": self.segments_rewritten,
            "groups": self.groups,
            "removed": {
                "superseded": self.removed.superseded,
                "tombstone": self.removed.tombstone,
                "aborted": self.removed.aborted,
                "no_key": self.removed.no_key,
                "marker": self.removed.marker,
            },
            "tombstones_waiting": self.tombstones_waiting,
            "tombstones_kept": self.tombstones_kept,
            "malformed_versions": self.malformed_versions,
            "without_version": self.without_version,
            "nulls_without_flag": self.nulls_without_flag,
            "far_future_timestamps": self.far_future_timestamps,
            "passes": self.passes,
            "map_utilization": round(self.map_utilization, 6),
            "next_purge_ms": self.next_purge_ms,
            "bytes_read": self.bytes_read,
            "bytes_written": self.bytes_written,
            "is_partial": self.is_partial,
            "seconds": {name: round(value, 6) for name, value in self.seconds.items()},
            "notes": list(self.notes),
        }


_DONE: Final = frozenset({"cleaned", "staged", "unchanged"})


def exit_code(
    results: Sequence[CleaningResult], failures: Sequence[CleanerdError] = (), *, must_do_some: bool = False
) -> int:
    """The process exit code for several partitions; log directories that failed count like partitions that failed.

    A log that changed is not a failure; with ``must_do_some`` it is one if no partition was cleaned.
    """
    some_done = any(result.is_done for result in results)
    counts = must_do_some and not some_done
    failed = [result.error for result in results if result.error is not None and (counts or not result.moved_on)]
    codes = {error.exit_code for error in (*failed, *failures)}
    return worst_exit_code(codes, some_done=some_done)


def _numbers(values: CleaningResult | RemovedRecords) -> Iterator[int]:
    found = (getattr(values, field.name) for field in fields(values))
    return (value for value in found if isinstance(value, int))


def untouched(found: Survey, log_dir: str) -> CleaningResult:
    """The result before the cleaning."""
    refused = found.verdict is not None and found.verdict.is_refusal
    return CleaningResult(
        found.log.name,
        log_dir,
        "refused" if refused else "skipped",
        found.refusal,
        strategy=found.config.compaction_strategy,
        first_dirty_offset=found.bounds.first_dirty_offset,
        end_offset=found.end_offset,
        notes=found.notes,
        error=RefusedError(found.refusal, where=str(found.log.name)) if refused else None,
    )


def cleaning_result(
    found: Survey, log_dir: str, cleaning: Cleaning, *, outcome: Outcome, swap_seconds: float = 0.0
) -> CleaningResult:
    """The result of decision and rewrite."""
    decision, totals = cleaning.decision, cleaning.totals
    before = sum(segment.size_bytes for segment in found.log.segments[:-1])

    def total(name: str) -> int:
        return sum(map(attrgetter(name), decision.segments))

    purge, begun = decision.next_purge, total("horizons_begun")
    is_too_large = 0 < begun <= totals.large.without_horizon

    return CleaningResult(
        found.log.name,
        log_dir,
        outcome,
        strategy=found.config.compaction_strategy,
        first_dirty_offset=found.bounds.first_dirty_offset,
        end_offset=found.end_offset,
        records_read=total("records"),
        records_kept=total("kept"),
        bytes_before=before,
        bytes_after=before - totals.bytes_read + totals.bytes_written,
        active_bytes=found.log.segments[-1].size_bytes,
        segments_before=len(found.log.segments) - 1,
        segments_after=len(found.log.segments) - 1 - totals.sources + totals.groups,
        segments_rewritten=totals.sources,
        groups=totals.groups,
        tombstones_waiting=total("waiting"),
        tombstones_kept=total("tombstones_kept"),
        malformed_versions=decision.oddities.malformed_versions,
        without_version=decision.oddities.without_version,
        nulls_without_flag=decision.oddities.nulls_without_flag,
        far_future_timestamps=decision.oddities.far_future,
        removed=RemovedRecords(
            superseded=total("superseded"),
            tombstone=total("expired_tombstones"),
            aborted=total("aborted"),
            no_key=total("keyless"),
            marker=total("markers"),
        ),
        passes=decision.passes,
        map_utilization=decision.map_utilization,
        next_purge_ms=purge.without_new_ms if is_too_large else purge.at_ms,
        bytes_read=totals.bytes_read,
        bytes_written=totals.bytes_written,
        seconds={
            "index": decision.index_seconds,
            "decide": decision.decide_seconds,
            "rewrite": totals.rewrite_seconds,
            "swap": swap_seconds,
        },
        notes=(*found.notes, *cleaning.plan.notes, *cleaning.notes()),
    )
