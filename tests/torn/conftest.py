"""Where the power is cut: in memory."""

from __future__ import annotations

from tests.differential.conftest import work

__all__ = ["work"]
