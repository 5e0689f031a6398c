"""The acknowledged records of a live test, and which of them consumers may and must find."""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection


class Place(NamedTuple):
    """A partition, as clients name it."""

    topic: str
    partition: int


class Written(NamedTuple):
    """A record that was acknowledged."""

    key: bytes
    value: bytes | None
    timestamp_ms: int


@dataclass
class Ledger:
    """Shared by writers and readers; every method takes the lock.

    ``starts``: DeleteRecords removed everything below. ``unplaced``: keys with a record acknowledged without an offset,
    as for a retry of a batch that the broker had already stored.
    """

    records: dict[Place, dict[int, Written]] = field(default_factory=lambda: defaultdict(dict))
    aborted: dict[Place, set[int]] = field(default_factory=lambda: defaultdict(set))
    newest: dict[Place, dict[bytes, int]] = field(default_factory=lambda: defaultdict(dict))
    starts: dict[Place, int] = field(default_factory=dict)
    unplaced: dict[Place, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    problems: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, place: Place, offset: int | None, record: Written, *, aborted: bool = False) -> None:
        """Add an acknowledged record, of a transaction together with its end."""
        with self._lock:
            if offset is None or offset < 0:
                self.unplaced[place].add(record.key)
                return
            self.records[place][offset] = record
            if aborted:
                self.aborted[place].add(offset)
            elif self.newest[place].get(record.key, self.starts.get(place, 0) - 1) < offset:
                self.newest[place][record.key] = offset

    def cut(self, place: Place, start: int) -> None:
        """DeleteRecords is about to remove everything below: these records may be missing from now on."""
        with self._lock:
            self.starts[place] = start
            newest = self.newest[place].items()
            self.newest[place] = {key: offset for key, offset in newest if offset >= start}

    def is_cut(self, place: Place, offset: int) -> bool:
        """Whether DeleteRecords removed it."""
        with self._lock:
            return offset < self.starts.get(place, 0)

    def expected(self, place: Place) -> dict[bytes, int]:
        """The latest committed offset by key: it, or a later one, must be readable from now on (D-08)."""
        with self._lock:
            return dict(self.newest[place])

    def at(self, place: Place, offset: int) -> Written | None:
        """The record acknowledged at this offset."""
        with self._lock:
            return self.records[place].get(offset)

    def forget(self, place: Place, below: int, kept: Collection[int]) -> None:
        """Below an offset, look up only ``kept`` and the latest record of every key from now on."""
        with self._lock:
            newest = set(self.newest[place].values())
            records = self.records[place].items()
            self.records[place] = {at: each for at, each in records if at >= below or at in kept or at in newest}

    def places(self, place: Place) -> frozenset[int]:
        """Offsets of acknowledged records."""
        with self._lock:
            return frozenset(self.records[place])

    def complain(self, problem: str) -> None:
        """Record a violation."""
        with self._lock:
            self.problems.append(problem)

    @property
    def count(self) -> int:
        """Number of acknowledged records."""
        with self._lock:
            return sum(map(len, self.records.values()))
