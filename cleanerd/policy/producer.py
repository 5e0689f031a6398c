"""The batches that producers' sequence numbers and epochs hang on (C-39.1, R192-1)."""

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

    ``data_offsets``: last offsets of the batches with a producer's last sequence, ascending int64.
    ``marker_producers`` and ``marker_epochs``: producers of whose epoch only markers are known, ascending by id and
    epoch. Where two views of a producer differ it has an epoch of each. ``known``: ids of all producers of which
    anything is known, expired ones too, ascending: a broker is asked for these.
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
        """Add another view's batches: of each producer its id, last data offset or None, and epoch."""
        data = set(self.data_offsets.tolist())
        markers = set(zip(self.marker_producers.tolist(), self.marker_epochs.tolist(), strict=True))
        for producer_id, last_data_offset, epoch in producers:
            if last_data_offset is None:
                markers.add((producer_id, epoch))
            else:
                data.add(last_data_offset)
        return LastRecords.of(data_offsets=data, marker_epochs=markers, known=self.known.tolist())

    def protected(self, batches: _kernel.Batches, *, ordered: bool = True) -> NDArray[np.intp]:
        """[k] rows: the batch stays, emptied if need be, because its producer's state hangs on it.

        It is the offset that is compared and not the sequence, because a producer may use one sequence many times
        (KAFKA-8335); an offset lies in one batch only, so the producer need not be compared as well. Of a producer
        that only markers are known of, control batches of its epoch stay. ``ordered``: their last offsets rise.
        """
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
    """[k] rows of which ``last_offset`` (ascending) is one of ``wanted`` (ascending)."""
    if len(last_offset) == 0 or len(wanted) == 0:
        return np.zeros(0, dtype=np.intp)
    # Nearly every chunk has none: search the few offsets in the batches, not the batches in the offsets.
    low = np.searchsorted(wanted, last_offset[0])
    high = np.searchsorted(wanted, last_offset[-1], side="right")
    rows = np.searchsorted(last_offset, wanted[low:high])
    result: NDArray[np.intp] = rows[last_offset[rows] == wanted[low:high]]
    return result
