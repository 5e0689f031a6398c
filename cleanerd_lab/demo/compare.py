"""Compares what consumers read after the cleaning with the acknowledged records. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cleanerd_lab.demo.reading import ConsumedPartition
    from cleanerd_lab.demo.traffic import AcknowledgedTopic


@dataclass(frozen=True, slots=True)
class ReadersComparison:
    """One reader's records of one topic, compared with acknowledged ones; every count but the first two should be 0.

    ``wrong_records``: not acknowledged with this offset, key and value. ``wrong_keys``: keys whose last value or
    deletion differs from the last acknowledged one. ``repeated_keys``: keys that occur more than once below
    ``first_dirty_offset``. ``short_of_end``: offsets between the reader's position and the end of the log.
    """

    topic: str
    client: str
    records: int
    keys: int
    wrong_records: int
    wrong_keys: int
    repeated_keys: int
    short_of_end: int

    @property
    def good(self) -> bool:
        """Whether every record and every key is right, and all was read."""
        return self.wrong_records == self.wrong_keys == self.repeated_keys == self.short_of_end == 0


def compare(written: AcknowledgedTopic, read: ConsumedPartition, first_dirty_offset: int) -> ReadersComparison:
    """Compare a whole reading of a topic whose log is clean below ``first_dirty_offset``.

    A key whose tombstone was removed may be missing: for a reader it is deleted either way.
    """
    expected = written.last_values()
    found = {key: value for _, (key, value) in sorted(read.records.items())}
    wrong_keys = sum(
        found.get(key) != value if value is not None else found.get(key) is not None for key, value in expected.items()
    )
    clean = [key for offset, (key, _) in read.records.items() if offset < first_dirty_offset]
    return ReadersComparison(
        topic=written.topic,
        client=read.client,
        records=len(read.records),
        keys=len(expected),
        wrong_records=sum(written.records.get(offset) != record for offset, record in read.records.items()),
        wrong_keys=wrong_keys,
        repeated_keys=len(clean) - len(set(clean)),
        short_of_end=read.end_offset - read.position,
    )


@dataclass(frozen=True, slots=True)
class WrongKeys:
    """Keys with an unexpected value: a different one, one for a deleted key, or none for a live key."""

    other_value: int = 0
    deleted_but_back: int = 0
    live_but_gone: int = 0

    @property
    def keys(self) -> int:
        return self.other_value + self.deleted_but_back + self.live_but_gone


def wrong_keys(expected: Mapping[bytes, bytes | None], found: Mapping[bytes, bytes | None]) -> WrongKeys:
    """Compare key by key; None or no entry is a deleted key. An unexpected one counts as returned."""
    other_value = deleted_but_back = live_but_gone = 0
    for key in expected.keys() | found.keys():
        wanted, got = expected.get(key), found.get(key)
        if wanted == got:
            continue
        deleted_but_back += wanted is None
        live_but_gone += got is None
        other_value += wanted is not None and got is not None
    return WrongKeys(other_value, deleted_but_back, live_but_gone)
