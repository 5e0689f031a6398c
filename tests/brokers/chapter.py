"""A part of a story that is told once."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Chapter(Generic[T]):
    """Runs once; later readers get the same account, or the same error."""

    def __init__(self, tell: Callable[[Any], T]) -> None:
        self._tell = tell
        functools.update_wrapper(self, tell)  # type: ignore[arg-type]

    def __get__(self, story: Any, owner: type[Any]) -> T:
        if self._tell.__name__ not in story.told:
            try:
                story.told[self._tell.__name__] = self._tell(story)
            except Exception as error:  # noqa: BLE001 - told again to whoever needs this chapter
                story.told[self._tell.__name__] = error
        account: T | Exception = story.told[self._tell.__name__]
        if isinstance(account, Exception):
            raise account
        return account
