"""What this version knows how to clean. Everything else is refused, never mis-cleaned."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

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
    return None
