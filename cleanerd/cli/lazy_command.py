"""Commands whose module is imported when they are called; before that only their command line is known."""

from __future__ import annotations

import functools
import gc
import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, cast


class LazyCommand:
    """A function that imports and calls another one, ``module:name``."""

    def __init__(self, where: str, declared: Callable[[], None]) -> None:
        functools.update_wrapper(self, declared)
        self._module, _, self._name = where.partition(":")

    def load(self) -> Callable[..., Any]:
        """Import the other function."""
        module = sys.modules.get(self._module) or _imported(self._module)
        return cast("Callable[..., Any]", getattr(module, self._name))

    def __call__(self, *values: Any, **named: Any) -> Any:
        return self.load()(*values, **named)


def _imported(name: str) -> ModuleType:
    """Import without garbage collection: imported modules stay, and searching them takes a tenth of an import."""
    collects = gc.isenabled()
    gc.disable()
    try:
        module = importlib.import_module(name)
        gc.freeze()
    finally:
        if collects:
            gc.enable()
    return module


def lazy_command(where: str) -> Callable[[Callable[[], None]], Callable[..., Any]]:
    """Decorates a function that only provides name and docstring; ``where`` names the implementation."""
    return functools.partial(LazyCommand, where)
