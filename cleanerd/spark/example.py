"""Describes a wrong record: file, byte position, key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from cleanerd import _kernel
from cleanerd.errors import CorruptionError
from cleanerd.host.memory import worker_batch_bytes
from cleanerd.segments.batch_file import read_batches
from cleanerd.verify.records import records_in
from cleanerd.verify.walk import walk

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cleanerd.format.record import Record
    from cleanerd.verify.listing import SegmentFile

_PRESENT_KINDS: Final = frozenset({"stale", "resurrected", "duplicated", "altered", "invented", "no_key"})


@dataclass(frozen=True, slots=True)
class Example:
    """One finding. ``position`` is that of the batch in ``file``, ``record`` the record's number in it; -1: unknown."""

    kind: str
    offset: int
    file: str
    position: int
    record: int
    key: bytes | None
    what: str


@dataclass(frozen=True, slots=True)
class _Place:
    file: str
    position: int
    number: int
    record: Record


def find_examples(
    before: Sequence[SegmentFile], after: Sequence[SegmentFile], wanted: Sequence[tuple[str, int]]
) -> list[Example]:
    """The places of ``wanted`` (kind, offset): of wrong records in ``after``, of lost ones in ``before``.

    Raises:
        CleanerdError: a file cannot be read.
    """
    altered = {offset for kind, offset in wanted if kind == "altered"}
    now = _places(after, {offset for kind, offset in wanted if kind in _PRESENT_KINDS})
    then = _places(before, {offset for kind, offset in wanted if kind not in _PRESENT_KINDS} | altered)
    examples = []
    for kind, offset in wanted:
        place = (now if kind in _PRESENT_KINDS else then).get(offset)
        if place is None:
            examples.append(Example(kind, offset, "", -1, -1, None, "not found again"))
            continue
        what = _changed(place.record, then[offset].record) if kind == "altered" and offset in then else _brief(place)
        examples.append(Example(kind, offset, place.file, place.position, place.number, place.record.key, what))
    return examples


def find_differing(
    one: Sequence[SegmentFile], other: Sequence[SegmentFile], wanted: Sequence[tuple[str, int]]
) -> list[Example]:
    """The records of ``wanted`` (kind, offset) in two replicas: in one, or in both if they differ.

    Raises:
        CleanerdError: a file cannot be read.
    """
    offsets = {offset for _, offset in wanted}
    in_one, in_other = _places(one, offsets), _places(other, offsets)
    examples = []
    for kind, offset in wanted:
        places = [found[offset] for found in (in_one, in_other) if offset in found]
        if places:
            place, names = places[0], _different_fields(places[0].record, places[-1].record)
            what = f"only here, {_brief(place)}" if len(places) == 1 else "in both"
            what = f"in both, with another {names}" if names else what
            examples.append(Example(kind, offset, place.file, place.position, place.number, place.record.key, what))
    return examples


def _places(files: Sequence[SegmentFile], offsets: Iterable[int]) -> dict[int, _Place]:
    found: dict[int, _Place] = {}
    left = sorted(offsets)
    for file in files:
        mine = [offset for offset in left if file.base <= offset < file.end]
        if mine:
            _search_file(file, np.array(mine, np.int64), found)
    return found


def _search_file(
    file: SegmentFile, offsets: np.ndarray[tuple[int], np.dtype[np.int64]], found: dict[int, _Place]
) -> None:
    """Headers show which batches to decode; of a magic 1 wrapper, only the end."""
    previous = file.base - 1
    for _, batches in walk(file.path, file.size_bytes, _kernel.scan_headers, lambda _damage: None):
        first = np.where(
            batches.magic < 2, np.concatenate([[previous], batches.last_offset[:-1]]) + 1, batches.base_offset
        )
        previous = int(batches.last_offset[-1])
        at = np.searchsorted(offsets, first)
        holds = (at < len(offsets)) & (offsets[np.minimum(at, len(offsets) - 1)] <= batches.last_offset)
        for position in batches.position[holds]:
            _search_batch(file, int(position), {int(offset) for offset in offsets}, found)


def _search_batch(file: SegmentFile, position: int, offsets: set[int], found: dict[int, _Place]) -> None:
    try:
        stored = next(read_batches(file.path, start=position, cut_tail_ends=True, limit_bytes=worker_batch_bytes()))
        for number, record in enumerate(records_in(stored.data, position)):
            if record.offset in offsets and record.offset not in found:
                found[record.offset] = _Place(str(file.path), position, number, record)
    except (StopIteration, CorruptionError, OSError):
        return


def _changed(now: Record, then: Record) -> str:
    names = _different_fields(now, then)
    return f"another {names} than before" if names else "read it again: the file was changed"


def _different_fields(now: Record, then: Record) -> str:
    """For example ``value and headers``; empty if all fields are equal."""
    pairs = {
        "key": (now.key, then.key),
        "value": (now.value, then.value),
        "timestamp": (now.timestamp, then.timestamp),
        "headers": (now.headers, then.headers),
        "attributes": (now.attributes, then.attributes),
    }
    return " and ".join(name for name, (one, two) in pairs.items() if one != two)


def _brief(place: _Place) -> str:
    value = place.record.value
    return "null value" if value is None else f"value of {len(value)} bytes"
