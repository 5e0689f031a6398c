"""Fixtures of the tests of settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    """A settings file that does not exist yet."""
    return tmp_path / "c.toml"
