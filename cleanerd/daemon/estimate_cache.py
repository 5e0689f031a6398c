"""The estimates of reclaimable bytes, kept over a restart in ``savings.json`` of the state directory.

Written now and then and when the daemon ends. Nothing depends on it: an unreadable file is ignored and estimates are
made again. An estimate is used only if the log is the same to the byte.
"""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from cleanerd.cleaner.reclaimable import Reclaimable
from cleanerd.daemon.work.job import JobReclaimable
from cleanerd.format.names import TopicPartition
from cleanerd.fsio.state_files import entries_of, require_format, try_write
from cleanerd.state.cleaner_checkpoint import LastSegment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from cleanerd.daemon.partition_scan import Key, PartitionScan
    from cleanerd.daemon.registry.partition_entry import PartitionEntry

    Write = Callable[[Callable[[], str], Callable[[str], None]], None]
    _Entry = tuple[Key, uuid.UUID | None, str, JobReclaimable]

EVERY_SECONDS: Final = 600.0
FILE_NAME: Final = "savings.json"
_FORMAT: Final = 1
_MAX_NUMBER: Final = 2**63 - 1
_METHODS: Final = frozenset({"exact", "sample"})


class EstimateCache:
    """Those of the daemon before; called by the daemon's event loop alone.

    ``write`` as with ``TrendRing``: it executes its first argument, and calls the second with the result.
    """

    def __init__(self, state_dir: Path, write: Write, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._path = state_dir / FILE_NAME
        self._write = write
        self.warnings: list[str] = []
        self._kept = {key: (topic, rules, saving) for key, topic, rules, saving in entries_of(
            self._path, _read, self.warnings)}  # fmt: skip
        self._saved_at = self._clock()

    def recall(self, key: Key, look: PartitionScan) -> JobReclaimable | None:
        """The estimate for a log at its first scan; None unless it is still the same log."""
        topic_id, fingerprint, saving = self._kept.pop(key, (None, "", None))
        if saving is None or (topic_id, fingerprint) != (look.topic_id, look.fingerprint):
            return None
        return saving if saving.is_of(look) and saving.closed == look.closed else None

    def save(self, partitions: Iterable[PartitionEntry], *, now: bool = False) -> None:
        """Write down what is known, if it is time, or ``now``."""
        if not now and self._clock() - self._saved_at < EVERY_SECONDS:
            return
        self._saved_at = self._clock()
        entries = [
            ((tracked.path, tracked.name), tracked.look.topic_id, tracked.look.fingerprint, tracked.saving)
            for tracked in partitions
            if tracked.saving is not None and tracked.look is not None and tracked.saving.is_of(tracked.look)
        ]
        # Thousands of them take a moment in JSON, and no request should wait for that.
        self._write(lambda: try_write(self._path, _written(entries)), lambda _problem: None)


def _written(entries: Iterable[_Entry]) -> bytes:
    """The other way round: ``_read``."""
    savings = [
        {
            "log_dir": log_dir,
            "topic": name.topic,
            "partition": name.partition,
            "topic_id": None if topic_id is None else str(topic_id),
            "fingerprint": fingerprint,
            "saving": asdict(saving),
        }
        for (log_dir, name), topic_id, fingerprint, saving in entries
    ]
    return json.dumps({"format": _FORMAT, "savings": savings}).encode()


def _read(data: bytes) -> list[_Entry]:
    """Raises: one of ``DAMAGE``."""
    document = json.loads(data)
    require_format(document, _FORMAT)
    return [_entry(each) for each in document["savings"]]


def _entry(document: dict[str, Any]) -> _Entry:
    name = TopicPartition(str(document["topic"]), _number(document["partition"]))
    topic_id = None if document["topic_id"] is None else uuid.UUID(document["topic_id"])
    return (str(document["log_dir"]), name), topic_id, str(document["fingerprint"]), _saving(document["saving"])


def _saving(document: dict[str, Any]) -> JobReclaimable:
    estimate, closed = document.pop("estimate"), document.pop("closed")
    found = None
    if estimate is not None:
        method = estimate.pop("method")
        if method not in _METHODS:
            raise ValueError(f"its method is {method!r}")
        found = Reclaimable(method=method, **_numbers(estimate))
        if not 0 <= found.low <= found.bytes <= found.high:
            raise ValueError("its bounds are out of order")
    last = None if closed is None else LastSegment(**_numbers(closed))
    return JobReclaimable(**_numbers(document), estimate=found, closed=last)


def _numbers(document: dict[str, Any]) -> dict[str, int]:
    return {name: _number(value) for name, value in document.items()}


def _number(value: object) -> int:
    if type(value) is not int or not 0 <= value <= _MAX_NUMBER:
        raise ValueError("it is made of whole numbers")
    return value
