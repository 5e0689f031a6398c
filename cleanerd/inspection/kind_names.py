"""The values of ``inspect --as``. Their decoders are in ``kinds.py``, which takes long to import."""

from __future__ import annotations

from typing import Final

KIND_NAMES: Final = (
    "checkpoint",
    "clean-shutdown",
    "epochs",
    "index",
    "journal",
    "json",
    "lock",
    "meta",
    "metadata",
    "metadata-snapshot",
    "partition-metadata",
    "segment",
    "snapshot",
    "timeindex",
    "txnindex",
)
"""Ascending, as they are shown."""
