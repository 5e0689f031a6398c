"""One log, one cleaning: the retained records, and those of a misread rule."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cleanerd.cleaner.survey import CleaningOptions
from tests.cleaner.driver import NAME, clean, config, resources
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import Record, encode_batch
from tests.support.stored_records import partition_records

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cleanerd.cleaner.result import CleaningResult

T = 1_700_000_000_000
NOW = T + 1_000_000
FLAG = 0x20
BY_HEADER: Mapping[str, object] = {"compaction_strategy": "header", "compaction_strategy_header": "version"}
BY_TIMESTAMP: Mapping[str, object] = {"compaction_strategy": "timestamp"}
FLAGGED: Mapping[str, object] = {"tombstone_mode": "flag"}
MARKED: Mapping[str, object] = {"tombstone_mode": "header", "tombstone_header": "deleted"}


def long(value: int) -> bytes:
    """As a producer writes a version."""
    return value.to_bytes(8, "big", signed=True)


def rec(
    key: str | None,
    *versions: int | bytes | None,
    value: str | None = "v",
    at: int = 0,
    flag: bool = False,
    marker: bytes | None = None,
    name: bytes = b"version",
) -> Record:
    """A record with a header for each of ``versions`` (numbers as longs), ``at`` ms after ``T``."""
    headers = tuple((name, long(each) if isinstance(each, int) else each) for each in versions)
    if marker is not None:
        headers = (*headers, (b"deleted", marker))
    return Record(
        None if key is None else key.encode(),
        None if value is None else value.encode(),
        T + at,
        headers=headers,
        attributes=FLAG if flag else 0,
    )


def batches(*records: Record, first: int = 0) -> bytes:
    """One batch per record, at consecutive offsets."""
    return b"".join(encode_batch([record], base_offset=first + row) for row, record in enumerate(records))


@dataclass(frozen=True, slots=True)
class Case:
    """``log`` has the segments below the active one, by base; it is cleaned from ``first_dirty`` up to ``up_to``.

    ``stays`` are the offsets of the retained data records, ``wrong`` those under the misread rule.
    """

    log: Mapping[int, bytes]
    stays: Sequence[int]
    wrong: Sequence[int]
    topic: Mapping[str, object] = field(default_factory=lambda: BY_HEADER)
    first_dirty: int | None = None
    up_to: int | None = None
    log_start: int | None = None
    aborted: Mapping[int, Sequence[tuple[int, int, int, int]]] = field(default_factory=dict)
    active: bytes = b""
    end: int = 100

    def run(self, root: Path, **with_resources: object) -> tuple[list[int], CleaningResult]:
        """Clean it; returns the offsets of the retained records below the active segment."""
        log_dir = make_log_dir(
            root / "logs",
            {
                NAME: Partition(
                    {**self.log, self.end: self.active}, aborted=self.aborted, log_start_offset=self.log_start
                )
            },
        )
        options = CleaningOptions(
            now_ms=NOW,
            force=True,
            from_start=self.first_dirty is None,
            first_dirty_offset=self.first_dirty,
            up_to_offset=self.up_to,
        )
        result = clean(log_dir, options, config(**self.topic), resources(**with_resources))  # type: ignore[arg-type]  # by name
        assert result.error is None, result.reason
        return offsets(log_dir / NAME, self.end), result


def offsets(partition: Path, end: int) -> list[int]:
    """Offsets of the data records below ``end``, of any format."""
    return [stored.record.offset for stored in partition_records(partition) if stored.record.offset < end]


def many_tombstones(count: int) -> dict[int, bytes]:
    """Tombstones past their horizon, every third with a superseded record; and then an active segment."""
    dead = [rec(f"k{number}", 9, value=None) for number in range(count)]
    losers = [rec(f"k{number}", 1) for number in range(0, count, 3)]
    return {
        0: encode_batch(dead, delete_horizon=NOW),
        count: batches(*losers, first=count),
        2 * count: b"",
    }
