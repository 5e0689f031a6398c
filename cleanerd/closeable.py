"""Closes at the end of a ``with`` block, for every package that opens files or connections."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self


class Closeable(ABC):
    """Enters as itself and leaves by ``close``, whatever happened in between."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> None:
        """Let go of what was opened; a second call does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
