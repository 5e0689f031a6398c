"""A fault injector at the seam of `apply`: the i-th change of a file fails, or ends everything (U-29)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from cleanerd.apply.files import Operation, PartitionFiles

if TYPE_CHECKING:
    from pathlib import Path


class FailingFiles(PartitionFiles):
    """The real thing, whose change number ``failing`` (from 0; -1: none) fails with ``errno`` and is not done.

    ``done`` lists what was done. ``lasting``: every later change fails as well, like a disk that has gone read-only.
    """

    def __init__(self, path: Path, failing: int = -1, errno: int = 0, *, lasting: bool = False) -> None:
        super().__init__(path)
        self.done: list[Operation] = []
        self._failing = failing
        self._errno = errno
        self._lasting = lasting
        self._count = -1

    def _system_call(self, operation: Operation) -> None:
        self._count += 1
        if self._count == self._failing or (self._lasting and 0 <= self._failing < self._count):
            raise OSError(self._errno, os.strerror(self._errno))
        super()._system_call(operation)
        self.done.append(operation)
