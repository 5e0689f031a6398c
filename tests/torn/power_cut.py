"""The state of a log after a power cut while a broker was writing it.

Below the recovery point everything is on the disk. The broker flushes log, indexes, transaction index and snapshot of a
rolled segment, then the directory, then moves the recovery point (``UnifiedLog.roll``, ``LocalLog.flush``). Its
checkpoint files are replaced whole. Of every other file a prefix exists, perhaps followed by zeros, and the name of a
file that was never flushed may be missing.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cleanerd.format.index import TXN_ENTRY

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from tests.torn.random_log import RandomLog

INDEXES = (".index", ".timeindex")


@dataclass(frozen=True, slots=True)
class Cut:
    """The checkpoints' values; ``recovering``: the broker was killed once more during its recovery."""

    recovery_point: int
    high_watermark: int
    log_start_offset: int
    recovering: bool


def cut_power(rng: random.Random, log: RandomLog, path: Path) -> Cut:
    """Tear the files of the partition directory ``path``, which has all of ``log``."""
    bases = [segment.base for segment in log.segments]
    places = sorted({0, *log.borders, *bases})
    point = rng.choice((*bases[1:], *bases[-2:], rng.choice(places), rng.choice(places[len(places) // 2 :])))
    markers = [place for place in places if place > 0]
    marker = rng.choice((log.end_offset, log.end_offset, max(point, markers[-1] if markers else 0), rng.choice(places)))
    recovering = rng.random() < 0.25
    first = max(row for row, base in enumerate(bases) if base <= point)
    _tear_first(rng, path, bases[first], point, recovering=recovering)
    for base in bases[first + 1 :]:
        _tear(rng, path, base)
    unusable = rng.random() < 0.15
    for snapshot in sorted(path.glob("*.snapshot")):
        if unusable:
            snapshot.write_bytes(
                b"damaged"
            )  # lost in another way than by the power cut: then only the log shows the state
        elif int(snapshot.stem) > point:
            _lose(rng, snapshot)
    start = rng.choice(places[: len(places) // 2]) if rng.random() < 0.2 else 0
    return Cut(point, marker, min(start, point, marker), recovering)


def tear_alike(full: Path, torn: Path, path: Path) -> None:
    """Remove from ``path``, a copy of ``full``, everything that ``torn`` has lost."""
    for file in sorted(full.iterdir()):
        lost, kept = torn / file.name, path / file.name
        if not lost.exists():
            kept.unlink(missing_ok=True)
        elif lost.read_bytes() != file.read_bytes():
            kept.write_bytes(lost.read_bytes())


def _tear_first(rng: random.Random, path: Path, base: int, point: int, *, recovering: bool) -> None:
    """The segment that contains the recovery point: its data below it and its names are on the disk."""
    stem = path / f"{base:020d}"
    _keep(rng, stem.with_suffix(".log"), least=_position(stem.with_suffix(".log"), point))
    for suffix in INDEXES:
        # Kafka creates those of an empty segment on demand.
        if stem.with_suffix(suffix).exists():
            _keep(rng, stem.with_suffix(suffix))
    index = stem.with_suffix(".txnindex")
    if not index.exists():
        return
    entries = np.frombuffer(index.read_bytes(), TXN_ENTRY)
    flushed = int(np.count_nonzero(entries["last_offset"] < point))
    if recovering:
        # Its recovery begins with an empty index, and adds the entries one by one.
        index.write_bytes(entries[: rng.randint(0, len(entries))].tobytes())
    else:
        _keep(rng, index, least=flushed * TXN_ENTRY.itemsize)


def _tear(rng: random.Random, path: Path, base: int) -> None:
    """A segment without any flushed data."""
    stem = path / f"{base:020d}"
    _lose(rng, stem.with_suffix(".log"), missing=0.1)
    for suffix in (*INDEXES, ".txnindex"):
        if stem.with_suffix(suffix).exists():
            # Kafka often refuses a log with a segment without an offset index.
            _lose(rng, stem.with_suffix(suffix), missing=0.02 if suffix == ".index" else 0.2)


def _lose(rng: random.Random, file: Path, missing: float = 0.2) -> None:
    if rng.random() < missing:
        file.unlink()
    else:
        _keep(rng, file)


def _keep(rng: random.Random, file: Path, least: int = 0) -> None:
    """A prefix of at least ``least`` bytes, and perhaps zeros."""
    data = file.read_bytes()
    kept = rng.choice((least, len(data), rng.randint(least, len(data)), rng.randint(least, len(data))))
    size = rng.choice((kept, kept, len(data), rng.randint(kept, len(data))))
    file.write_bytes(data[:kept] + bytes(size - kept))


def _position(log: Path, offset: int) -> int:
    """Position of the batch with ``offset``."""
    data = log.read_bytes()
    position = 0
    while position < len(data):
        base, length = struct.unpack_from(">qi", data, position)
        if base >= offset:
            break
        position += 12 + length
    return position
