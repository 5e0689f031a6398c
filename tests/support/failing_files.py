"""A fault injector below `apply`: the i-th change of a file fails, or ends the process (U-29)."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from cleanerd.swap.files import FileOperation, PartitionFiles

if TYPE_CHECKING:
    from pathlib import Path


class FailingFiles(PartitionFiles):
    """Changes files, except that change number ``failing`` (from 0; -1: none) fails with ``errno`` and is not done.

    ``done`` has the completed changes. ``lasting``: every later change fails as well, as on a disk that became
    read-only.
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
    """The process is killed: not even its own cleanup happens."""


class Injector:
    """Lets this many changes of files pass; then the next one fails, or it and all later ones never happen."""

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

        # The one interface for changes of a broker's files, far below the functions that a test calls.
        monkeypatch.setattr(PartitionFiles, "_system_call", call)

    def arm(self, after: int, *, kills: bool) -> None:
        """Fail after this many changes from now on."""
        self.left, self.kills, self.happened = after, kills, False

    def disarm(self) -> None:
        """All is well again."""
        self.left = -1


@pytest.fixture
def injector(monkeypatch: pytest.MonkeyPatch) -> Injector:
    """An injector that is not armed."""
    return Injector(monkeypatch)
