"""A step of a lifecycle that runs once."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Step(Generic[T]):
    """Runs once; later readers get the same result, or the same error."""

    def __init__(self, run: Callable[[Any], T]) -> None:
        self._run = run
        functools.update_wrapper(self, run)  # type: ignore[arg-type]

    def __get__(self, lifecycle: Any, owner: type[Any]) -> T:
        if self._run.__name__ not in lifecycle.done:
            try:
                lifecycle.done[self._run.__name__] = self._run(lifecycle)
            except Exception as error:  # noqa: BLE001 - raised again for every test that needs this step
                lifecycle.done[self._run.__name__] = error
        account: T | Exception = lifecycle.done[self._run.__name__]
        if isinstance(account, Exception):
            raise account
        return account
