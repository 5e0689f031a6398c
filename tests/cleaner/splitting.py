"""Cleanings that stop between the split of a segment and the cleaning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleanerd.cleaner.survey import CleaningOptions
from cleanerd.errors import CleanerdError
from cleanerd.swap import round as one_round
from tests.cleaner.driver import clean, config
from tests.support.overflow import NOW_MS

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def force() -> CleaningOptions:
    return CleaningOptions(now_ms=NOW_MS, force=True, from_start=True)


def enough(*_arguments: object) -> None:
    """Replaces the cleaning."""
    raise CleanerdError("enough")


def only_split(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop between the split and the cleaning, as Kafka does."""
    with monkeypatch.context() as patch:
        patch.setattr(one_round, "_execute", enough)
        assert "enough" in clean(root, force(), config(index_interval_bytes=1)).reason
