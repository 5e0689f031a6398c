"""What this version knows how to clean. Everything else is refused, never mis-cleaned."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cleanerd.format.batch import CONTROL, TRANSACTIONAL

if TYPE_CHECKING:
    from cleanerd import _kernel


def unsupported(batches: _kernel.Batches) -> str | None:
    """Why a partition with these batches is quarantined, or None."""
    legacy = batches.magic < 2
    if legacy.any():
        row = int(np.argmax(legacy))
        return (
            f"batch at offset {batches.base_offset[row]} has message format v{batches.magic[row]}: "
            "this version cleans v2 batches only"
        )
    transactional = (batches.attributes & (TRANSACTIONAL | CONTROL)) != 0
    if transactional.any():
        row = int(np.argmax(transactional))
        return (
            f"batch at offset {batches.base_offset[row]} is transactional: "
            "this version cleans non-transactional data only"
        )
    return None
