"""The segments that a starting broker would load from a partition directory, by the rules of Kafka's ``LogLoader``.

Independent of cleanerd, in a few lines of plain Python.

1. ``.deleted`` and ``.cleaned`` files are removed.
2. ``.swap`` files at or above the lowest ``.cleaned`` base are removed.
3. A ``.swap`` segment replaces every segment from its base up to its last offset.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Final

from tests.support.log_dirs import batches_of

if TYPE_CHECKING:
    from pathlib import Path

_NAME: Final = re.compile(r"(\d{20})\.(log|index|timeindex|txnindex)(\.swap|\.cleaned|\.deleted)?")
_KINDS: Final = ("log", "index", "timeindex", "txnindex")

Segments = dict[int, dict[str, bytes]]
"""File content by kind ("log", "index", ..) and base offset."""


def as_loaded(directory: Path) -> Segments:
    """The files after a start on ``directory``, which is not changed."""
    found: dict[str, dict[int, dict[str, bytes]]] = {"": {}, ".swap": {}, ".cleaned": {}, ".deleted": {}}
    for path in directory.iterdir():
        name = _NAME.fullmatch(path.name)
        if name is not None:
            found[name[3] or ""].setdefault(int(name[1]), {})[name[2]] = path.read_bytes()
    lowest = min(found[".cleaned"], default=None)
    segments = found[""]
    swaps = {base: files for base, files in found[".swap"].items() if lowest is None or base < lowest}
    for base, files in sorted(swaps.items()):
        if "log" not in files:  # an index whose .log has its final name already
            segments.setdefault(base, {}).update(files)
            continue
        end = _end(base, files["log"])
        segments = {each: kept for each, kept in segments.items() if not base <= each < end}
        segments[base] = files
    return {base: segments[base] for base in sorted(segments) if "log" in segments[base]}


def records(segments: Segments) -> list[tuple[int, bytes | None, bytes | None, int]]:
    """Offset, key, value and time of every record, whatever its segment and batch; no markers.

    A second cleaning may group differently, and remove a marker that the first had to keep.
    """
    batches = [batch for base in sorted(segments) for batch in batches_of(segments[base]["log"])]
    return [
        (record.offset, record.key, record.value, record.timestamp)
        for batch in batches
        if not batch.header.is_control
        for record in batch.records
    ]


def leftovers(directory: Path) -> list[str]:
    """Names of unfinished swaps and stagings."""
    endings = (".swap", ".cleaned", ".deleted", ".kstage", ".tmp")
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.name.endswith(endings))


def _end(base: int, data: bytes) -> int:
    """The offset after the last batch of a segment of magic 2."""
    end, position = base, 0
    while position + 61 <= len(data):
        first, length = struct.unpack_from(">qi", data, position)
        (delta,) = struct.unpack_from(">i", data, position + 23)
        end = first + delta + 1
        position += 12 + length
    return end
