"""A fault injector at the seam of `apply`: the i-th change of a file fails, or ends everything (U-29)."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from cleanerd.swap.files import FileOperation, PartitionFiles

if TYPE_CHECKING:
    from pathlib import Path


class FailingFiles(PartitionFiles):
    """The real thing, whose change number ``failing`` (from 0; -1: none) fails with ``errno`` and is not done.

    ``done`` lists what was done. ``lasting``: every later change fails as well, like a disk that has gone read-only.
    """

    def __init__(self, path: Path, failing: int = -1, errno: int = 0, *, lasting: bool = False) -> None:
        super().__init__(path)
        self.done: list[FileOperation] = []
        self._failing = failing
        self._errno = errno
        self._lasting = lasting
        self._count = -1

    def _system_call(self, operation: FileOperation) -> None:
        self._count += 1
        if self._count == self._failing or (self._lasting and 0 <= self._failing < self._count):
            raise OSError(self._errno, os.strerror(self._errno))
        super()._system_call(operation)
        self.done.append(operation)


class Killed(BaseException):
    """The process is gone: not even its own tidying up happens."""


class Injector:
    """Lets so many changes of files pass; the next one fails, once, or it and all later ones never happen."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = -1
        self.kills = False
        self.happened = False
        real = PartitionFiles._system_call

        def call(files: PartitionFiles, operation: FileOperation) -> None:
            if self.left == 0:
                self.happened = True
                if self.kills:
                    raise Killed
                self.left = -1
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            self.left -= self.left > 0
            real(files, operation)

        # The one seam for changes of a broker's files, far below what a test calls.
        monkeypatch.setattr(PartitionFiles, "_system_call", call)

    def arm(self, after: int, *, kills: bool) -> None:
        """``after`` so many changes from now."""
        self.left, self.kills, self.happened = after, kills, False

    def disarm(self) -> None:
        """All is well again."""
        self.left = -1


@pytest.fixture
def injector(monkeypatch: pytest.MonkeyPatch) -> Injector:
    """Not armed."""
    return Injector(monkeypatch)
