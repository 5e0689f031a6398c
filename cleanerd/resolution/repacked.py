"""Whether the batches of a log become larger when a cleaning compresses them again (OP-23).

A cleaning compresses rebuilt batches at the codec's default level. If a producer compresses better, batches grow
although records are removed. A sample of batches at the beginning of segments shows it.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from cleanerd import _kernel
from cleanerd.errors import CleanerdError
from cleanerd.format.batch import CODEC_MASK, CONTROL
from cleanerd.humanize import human_bytes
from cleanerd.verify.walk import read_batch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

SAMPLE_BYTES: Final = 256 << 10
"""How much of a segment is read; larger batches are ignored."""
SEGMENTS: Final = 8
UNREADABLE: Final = (CleanerdError, _kernel.CorruptLogError, ValueError)
_BATCHES: Final = 4
_MAX_UNPACKED: Final = 16 << 20
_NOTABLE: Final = 0.01


@dataclass(frozen=True, slots=True)
class Repacked:
    """The bytes of compressed batches, before and after compressing all of their records again."""

    before_bytes: int = 0
    after_bytes: int = 0

    def __add__(self, other: Repacked) -> Repacked:
        return Repacked(self.before_bytes + other.before_bytes, self.after_bytes + other.after_bytes)

    @property
    def note(self) -> str:
        """A note for the operator; empty if batches do not become notably larger."""
        grown = self.after_bytes - self.before_bytes
        if grown <= _NOTABLE * self.before_bytes:
            return ""
        return (
            f"batches become {grown / self.before_bytes:.0%} larger when a cleaning compresses them again, as their "
            f"producer compresses better ({human_bytes(self.before_bytes)} tried): a cleaning saves less by that, and "
            "one that would make the log larger is refused"
        )


def repacked_sample(files: Sequence[tuple[Path, int]]) -> Repacked:
    """A sample of batches from segments, each given with its size in bytes."""
    chosen = {round(row) for row in np.linspace(0, len(files) - 1, SEGMENTS)} if files else set()
    return sum((repacked_beginning(*files[row]) for row in sorted(chosen)), Repacked())


def repacked_beginning(path: Path, size_bytes: int) -> Repacked:
    """The first batches of a segment; empty if it cannot be read, which other checks report."""
    with contextlib.suppress(*UNREADABLE):
        return repacked(*beginning(path, size_bytes))
    return Repacked()


def beginning(path: Path, size_bytes: int) -> tuple[NDArray[np.uint8], _kernel.Batches]:
    """The first bytes of a segment, and the batches in them. Raises one of ``UNREADABLE``."""
    data = read_batch(path, 0, min(size_bytes, SAMPLE_BYTES))
    return data, _kernel.scan_headers(data, 0)


def repacked(data: NDArray[np.uint8], batches: _kernel.Batches) -> Repacked:
    """As :func:`repacked_beginning`, for what :func:`beginning` read. Raises one of ``UNREADABLE``."""
    counts = np.diff(batches.first_record)
    compressed = (batches.magic == 2) & ((batches.attributes & CODEC_MASK) != 0) & ((batches.attributes & CONTROL) == 0)
    before = after = 0
    for row in np.flatnonzero(compressed & (counts > 0))[:_BATCHES].tolist():
        start, size = int(batches.position[row]), int(batches.size[row])
        keep = np.full((int(counts[row]) + 63) // 64, ~np.uint64(0), np.uint64)
        rebuild = np.array([_kernel.ACTION_REBUILD], np.uint8)
        written = _kernel.rewrite_chunk(data[start : start + size], 0, keep, 0, rebuild, max_unpacked=_MAX_UNPACKED)
        before, after = before + size, after + len(written.data)
    return Repacked(before, after)
