"""Validation of outside data: a pydantic adapter for each type, built at its first use.

Building one takes milliseconds, and most commands need none of them.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeVar

from pydantic import Field, TypeAdapter

from cleanerd.format.names import MAX_OFFSET

T = TypeVar("T")

Offset = Annotated[int, Field(ge=0, le=MAX_OFFSET)]
"""An offset in a log, or the size of a file in bytes."""
Long = Annotated[int, Field(ge=-MAX_OFFSET - 1, le=MAX_OFFSET)]
"""Java's long."""

_BUILT: Final[dict[Any, TypeAdapter[Any]]] = {}


def adapter_of(kind: type[T]) -> TypeAdapter[T]:
    """The adapter that reads, validates and writes a ``kind``: the same one each time."""
    if kind not in _BUILT:
        _BUILT[kind] = TypeAdapter(kind)  # two threads may do this at once, with equal results
    return _BUILT[kind]
