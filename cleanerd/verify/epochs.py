"""Compares the leader epochs of batches with ``leader-epoch-checkpoint`` (F-9)."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from cleanerd.errors import CorruptionError
from cleanerd.format.checkpoint import EpochStart, read_epoch_checkpoint
from cleanerd.segments.partition import LEADER_EPOCHS
from cleanerd.verify.kinds import FindingKind
from cleanerd.verify.listing import bytes_of

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from cleanerd import _kernel
    from cleanerd.verify.finding import Findings

_UNKNOWN: Final = -1


def read_epochs(directory: Path, findings: Findings) -> list[EpochStart]:
    """The checkpoint of a partition directory; empty if it is missing or damaged.

    Raises:
        CleanerdError: it cannot be read.
    """
    path = directory / LEADER_EPOCHS
    name = str(path)
    try:
        starts = read_epoch_checkpoint(bytes_of(path) or b"", name)
    except CorruptionError as error:
        findings.error(FindingKind.LEADER_EPOCHS_WRONG, name, error.message, position=error.position)
        return []
    for before, after in pairwise(starts):
        if after.epoch <= before.epoch or after.start_offset < before.start_offset:
            what = f"epoch {after.epoch} from offset {after.start_offset} follows {before.epoch} from "
            findings.error(
                FindingKind.LEADER_EPOCHS_WRONG, name, f"{what}{before.start_offset}", offset=after.start_offset
            )
            return []
    return starts


class Epochs:
    """Collects the leader epochs of a log's batches."""

    def __init__(self, directory: Path, starts: list[EpochStart], findings: Findings) -> None:
        self._checkpoint = str(directory / LEADER_EPOCHS)
        self._findings = findings
        self._largest = _UNKNOWN
        self._epochs = np.array([start.epoch for start in starts], np.int64)
        self._starts = np.array([start.start_offset for start in starts], np.int64)
        self._reported: set[int] = set()

    def add(self, batches: _kernel.Batches, file: str) -> None:
        """Add the next batches, from ``file``. Epoch -1 is unknown: such batches were converted from v0 or v1."""
        rows = np.flatnonzero((batches.magic == 2) & (batches.leader_epoch >= 0))
        if not len(rows):
            return
        epochs = batches.leader_epoch[rows].astype(np.int64)
        so_far = np.maximum.accumulate(np.concatenate([[self._largest], epochs]))
        for at in np.flatnonzero(epochs < so_far[:-1]):
            offset, position = int(batches.base_offset[rows[at]]), int(batches.position[rows[at]])
            what = f"the batch at offset {offset} has leader epoch {epochs[at]}, one before it has {so_far[at]}"
            self._findings.error(FindingKind.LEADER_EPOCHS_WRONG, file, what, position=position, offset=offset)
        self._largest = int(so_far[-1])
        if len(self._starts):
            self._compare(batches.base_offset[rows], epochs)
            self._compare(batches.last_offset[rows], epochs)  # epochs do not begin inside a batch

    def _compare(self, offsets: NDArray[np.int64], epochs: NDArray[np.int64]) -> None:
        at = np.searchsorted(self._starts, offsets, side="right") - 1
        expected = self._epochs[np.maximum(at, 0)]
        for row in np.flatnonzero((at >= 0) & (expected != epochs)):
            epoch = int(epochs[row])
            if epoch in self._reported:
                continue
            self._reported.add(epoch)
            what = f"says epoch {expected[row]} for offset {offsets[row]}, the batch there has {epoch}"
            self._findings.error(FindingKind.LEADER_EPOCHS_WRONG, self._checkpoint, what, offset=int(offsets[row]))
        for row in np.flatnonzero((at < 0) & np.isin(epochs, self._epochs)):
            epoch = int(epochs[row])
            start = int(self._starts[np.searchsorted(self._epochs, epoch)])
            # Before the first entry the checkpoint was truncated with the log start; a missing later epoch is a fault.
            if epoch in self._reported or start == int(self._starts[0]):
                continue
            self._reported.add(epoch)
            what = f"epoch {epoch} starts at {start}, the log has a batch of it at {offsets[row]}"
            self._findings.error(FindingKind.LEADER_EPOCHS_WRONG, self._checkpoint, what, offset=int(offsets[row]))
