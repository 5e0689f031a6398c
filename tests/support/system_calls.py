"""System calls that fail, or return less, at a test's request."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


def system_call(monkeypatch: pytest.MonkeyPatch, name: str, call: Callable[..., Any]) -> None:
    """Replace ``os.NAME`` by ``call`` from now on."""
    monkeypatch.setattr(os, name, call)  # no disk fails, no call is refused to root, and nothing changes on demand
