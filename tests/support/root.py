"""Tests about two users: one owns the files, and somebody else comes along. Only root can be both."""

from __future__ import annotations

import os
from typing import Final

import pytest

needs_root: Final = pytest.mark.skipif(
    os.geteuid() != 0, reason="needs root: it works with files and processes of another user"
)
