"""The batches that producers' sequence numbers hang on (C-39.1, R192-1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def protected(
    producer_id: NDArray[np.int64], last_offset: NDArray[np.int64], last_data_offsets: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """[b] bool: the batch holds an active producer's last sequence, so it stays, emptied if need be.

    ``last_data_offsets`` is ascending. It is the offset that is compared and not the sequence, because a producer may
    use one sequence many times (KAFKA-8335); an offset lies in one batch only, so the producer need not be compared
    as well.
    """
    result = np.zeros(len(last_offset), dtype=np.bool_)
    if len(last_offset) == 0 or len(last_data_offsets) == 0:
        return result
    # Nearly every chunk holds none: look for the few offsets in the batches, not for the batches in the offsets.
    low = np.searchsorted(last_data_offsets, last_offset[0])
    high = np.searchsorted(last_data_offsets, last_offset[-1], side="right")
    wanted = last_data_offsets[low:high]
    rows = np.searchsorted(last_offset, wanted)
    found = rows[last_offset[rows] == wanted]
    result[found] = producer_id[found] >= 0
    return result
