"""The directory of the power cuts: in memory."""

from __future__ import annotations

from tests.differential.conftest import work

__all__ = ["work"]
