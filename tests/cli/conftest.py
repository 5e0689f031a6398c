"""Fixtures of most command-line tests: a log directory and a user at a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cleanerd.resolution import checkpoint_pair
from tests.cleaner.driver import scratch
from tests.cli.clean_log_dirs import Shell

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def root() -> Iterator[Path]:
    """An empty directory."""
    with scratch() as path:
        yield path


@pytest.fixture
def kept(root: Path) -> Path:
    """For --keep-replaced."""
    (root / "kept").mkdir()
    return root / "kept"


@pytest.fixture
def shell(root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    """Command lines, without the waiting."""
    # Hundreds of calls would wait ten seconds each.
    monkeypatch.setattr(checkpoint_pair, "SETTLE_SECONDS", 0)
    return Shell(root, capsys, monkeypatch)
