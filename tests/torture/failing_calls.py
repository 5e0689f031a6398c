"""Calls of ``os`` that fail in this process."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest


@contextmanager
def fails(monkeypatch: pytest.MonkeyPatch, name: str) -> Iterator[list[str]]:
    """Every call of ``os.NAME`` in the block fails; its arguments are noted."""
    requests: list[str] = []

    def call(*_arguments: object, **_options: object) -> object:
        requests.append(name)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, name, call)
        yield requests
