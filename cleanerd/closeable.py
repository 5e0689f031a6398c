"""Closes objects at the end of a ``with`` block, for every package that opens files or connections."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Closeable(ABC):
    """A context manager that returns itself and always calls ``close``."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> None:
        """Release opened resources; a second call does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()
