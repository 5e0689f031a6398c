"""Stores the estimates of reclaimable bytes over a restart, in ``savings.json`` of the state directory.

The file is written regularly and when the daemon ends. If it is unreadable, the estimates are made again. An estimate
is used only if the log is exactly the same.
"""

from __future__ import annotations

import time
import uuid  # noqa: TC003 - pydantic resolves the annotation
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from cleanerd.daemon.work.job import JobReclaimable  # noqa: TC001 - as uuid
from cleanerd.format.names import TopicPartition
from cleanerd.state.document import Document

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from cleanerd.daemon.partition_scan import Key, PartitionScan
    from cleanerd.daemon.registry.partition_entry import PartitionEntry

    Write = Callable[[Callable[[], str], Callable[[str], None]], None]

EVERY_SECONDS: Final = 600.0
FILE_NAME: Final = "savings.json"
_MAX_NUMBER: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class _Saving:
    log_dir: str
    topic: str
    partition: int
    topic_id: uuid.UUID | None
    fingerprint: str
    saving: JobReclaimable

    def numbers(self) -> Iterator[int]:
        yield self.partition
        for part in (self.saving, self.saving.closed, self.saving.estimate):
            if part is not None:
                yield from (value for value in asdict(part).values() if isinstance(value, int))


@dataclass(frozen=True, slots=True)
class _SavingsFile:
    savings: tuple[_Saving, ...]


def _check(file: _SavingsFile) -> None:
    for each in file.savings:
        if not all(0 <= number <= _MAX_NUMBER for number in each.numbers()):
            raise ValueError("a number in it is out of range")
        found = each.saving.estimate
        if found is not None and (found.method == "guess" or not found.low <= found.bytes <= found.high):
            raise ValueError("a guess is kept, or bounds are out of order")


_DOCUMENT: Final = Document(FILE_NAME, _SavingsFile, check=_check)


class EstimateCache:
    """The earlier daemon's estimates; used by the event loop only.

    ``write`` as in ``TrendRing``: it runs its first argument, and calls the second with the result.
    """

    def __init__(self, state_dir: Path, write: Write, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._state_dir = state_dir
        self._write = write
        self.warnings: list[str] = []
        known = _DOCUMENT.load(state_dir, self.warnings)
        entries = () if known is None else known.savings
        self._kept = {(each.log_dir, TopicPartition(each.topic, each.partition)): each for each in entries}
        self._saved_at = self._clock()

    def recall(self, key: Key, scan: PartitionScan) -> JobReclaimable | None:
        """The estimate for a log at its first scan; None if the log has changed."""
        known = self._kept.pop(key, None)
        if known is None or (known.topic_id, known.fingerprint) != (scan.topic_id, scan.fingerprint):
            return None
        saving = known.saving
        return saving if saving.is_of(scan) and saving.closed == scan.closed else None

    def save(self, partitions: Iterable[PartitionEntry], *, now: bool = False) -> None:
        """Store the estimates if it is time, or ``now``."""
        if not now and self._clock() - self._saved_at < EVERY_SECONDS:
            return
        self._saved_at = self._clock()
        entries = tuple(
            _Saving(
                entry.path,
                entry.name.topic,
                entry.name.partition,
                entry.scan.topic_id,
                entry.scan.fingerprint,
                entry.saving,
            )
            for entry in partitions
            if entry.saving is not None and entry.scan is not None and entry.saving.is_of(entry.scan)
        )
        # Encoding thousands of them takes a moment, and no request should wait for that.
        self._write(lambda: _DOCUMENT.try_write(self._state_dir, _SavingsFile(entries)), lambda _problem: None)
