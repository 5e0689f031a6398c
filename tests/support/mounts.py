"""File systems of a test's own. If none can be mounted the test is skipped: only root may."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def mounted(place: Path, *how: str) -> Iterator[Path]:
    """``place``, created if necessary, with a file system mounted by the arguments of ``mount``."""
    place.mkdir(parents=True, exist_ok=True)
    mount = ["mount", *how, str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("file systems cannot be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


@contextmanager
def tmpfs(place: Path, options: str) -> Iterator[Path]:
    """``place`` in memory, with options as "size=1m"."""
    with mounted(place, "-t", "tmpfs", "-o", options, "tmpfs"):
        yield place


@contextmanager
def ext4(place: Path, *, image_bytes: int, room_bytes: int) -> Iterator[Path]:
    """An ext4 in a file of ``image_bytes`` in a tmpfs of ``room_bytes``, both mounted below ``place``."""
    with tmpfs(place / "small", f"size={room_bytes}") as small:
        image = small / "image"
        with image.open("wb") as file:
            file.truncate(image_bytes)
        make = ["mkfs.ext4", "-q", "-O", "^has_journal", str(image)]
        if subprocess.run(make, check=False, capture_output=True).returncode:
            pytest.skip("no ext4 can be made here")
        with mounted(place / "disk", "-o", "loop", str(image)) as disk:
            yield disk
