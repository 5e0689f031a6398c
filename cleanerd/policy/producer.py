"""The batches that hold producers' last sequence numbers and epochs, which a cleaning retains (C-39.1, R192-1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cleanerd.format.batch import CONTROL

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from cleanerd import _kernel


@dataclass(frozen=True, slots=True)
class LastRecords:
    """The last known batches of each active producer.

    ``data_offsets``: last offsets of the batches with a producer's last sequence, ascending int64. ``marker_producers``
    and ``marker_epochs``: producers with only markers and their epochs, ascending by both. A producer whose views
    differ has an epoch from each. ``known``: ids of all known producers, also of expired ones, ascending. The broker is
    queried for these.
    """

    data_offsets: NDArray[np.int64]
    marker_producers: NDArray[np.int64]
    marker_epochs: NDArray[np.int64]
    known: NDArray[np.int64]

    @classmethod
    def of(
        cls, *, data_offsets: Iterable[int], marker_epochs: Iterable[tuple[int, int]], known: Iterable[int] = ()
    ) -> LastRecords:
        """From plain numbers in any order; ``marker_epochs`` are (producer id, epoch)."""
        markers = sorted(marker_epochs)
        return cls(
            np.array(sorted(data_offsets), dtype=np.int64),
            np.array([producer for producer, _ in markers], dtype=np.int64),
            np.array([epoch for _, epoch in markers], dtype=np.int64),
            np.array(sorted(known), dtype=np.int64),
        )

    def also(self, producers: Iterable[tuple[int, int | None, int]]) -> LastRecords:
        """Add batches that another source knows: per producer its id, last data offset or None, and epoch."""
        data = set(self.data_offsets.tolist())
        markers = set(zip(self.marker_producers.tolist(), self.marker_epochs.tolist(), strict=True))
        for producer_id, last_data_offset, epoch in producers:
            if last_data_offset is None:
                markers.add((producer_id, epoch))
            else:
                data.add(last_data_offset)
        return LastRecords.of(data_offsets=data, marker_epochs=markers, known=self.known.tolist())

    def protected(self, batches: _kernel.Batches, *, ordered: bool = True) -> NDArray[np.intp]:
        """[k] rows of batches that are retained, if necessary without records, because they hold a producer's state.

        Offsets are compared instead of sequences, because a producer may use a sequence many times (KAFKA-8335). An
        offset is in one batch only, so the producer need not be compared as well. Of a producer with markers only,
        control batches of its epoch are retained. ``ordered``: the last offsets are ascending.
        """
        if len(self.data_offsets) + len(self.marker_producers) == 0:
            return np.zeros(0, dtype=np.intp)
        if ordered:
            found = _rows_at(batches.last_offset, self.data_offsets)
        else:
            found = np.flatnonzero(np.isin(batches.last_offset, self.data_offsets))
        found = found[batches.producer_id[found] >= 0]
        if len(self.marker_producers):
            rows = np.flatnonzero((batches.attributes & CONTROL) != 0)
            stays = np.zeros(len(rows), dtype=np.bool_)
            first = np.searchsorted(self.marker_producers, batches.producer_id[rows])
            end = np.searchsorted(self.marker_producers, batches.producer_id[rows], side="right")
            for step in range(int((end - first).max(initial=0))):
                place = np.minimum(first + step, len(self.marker_epochs) - 1)
                stays |= (first + step < end) & (self.marker_epochs[place] == batches.producer_epoch[rows])
            found = np.concatenate([found, rows[stays]])
        return found


def _rows_at(last_offset: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.intp]:
    """[k] rows whose ``last_offset`` (ascending) is in ``wanted`` (ascending)."""
    if len(last_offset) == 0 or len(wanted) == 0:
        return np.zeros(0, dtype=np.intp)
    # Nearly every chunk has none, so search the few offsets in the batches.
    low = np.searchsorted(wanted, last_offset[0])
    high = np.searchsorted(wanted, last_offset[-1], side="right")
    rows = np.searchsorted(last_offset, wanted[low:high])
    result: NDArray[np.intp] = rows[last_offset[rows] == wanted[low:high]]
    return result
