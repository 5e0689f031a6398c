"""The shape of a value by its schema: an Arrow type, and the conversion from a library's result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, TypeAlias

import pyarrow as pa

from cleanerd.spark.values.schemas import UndecodableError

Convert: TypeAlias = "Callable[[Any], Any] | None"
"""Converts a library's value to one for Arrow; None: no conversion. It is not called for nulls.

Raises:
    UndecodableError: it is not a value of the type.
"""

UTC_MICROS: Final = pa.timestamp("us", tz="UTC")
LOCAL_MICROS: Final = pa.timestamp("us")
MOST_DIGITS: Final = 38
"""Spark's limit of a decimal's digits."""
MOST_TEXT_DIGITS: Final = 4000
"""Limit of digits of a decimal as text: Python converts no longer ones, but a schema may name any number."""

MOST_NODES: Final = 10_000
"""Limit of fields and types of a schema, counted at each use: small types can refer to each other very often."""
MOST_LEVELS: Final = 64


@dataclass(frozen=True, slots=True)
class ColumnShape:
    """``kind``: the type of the column, or of a field in it."""

    kind: pa.DataType
    convert: Convert = None


class Budget:
    """A schema's limits of fields and levels; ``label``: its name in messages."""

    def __init__(self, label: str) -> None:
        self.label = label
        self._nodes = 0
        self._within: list[str] = []

    def spend(self) -> None:
        """Count one more node.

        Raises:
            UndecodableError: there are too many.
        """
        self._nodes += 1
        if self._nodes > MOST_NODES:
            raise UndecodableError(f"{self.label}: more than {MOST_NODES} fields")

    def enter(self, name: str) -> None:
        """Enter a named type, until :meth:`leave`.

        Raises:
            UndecodableError: it is recursive, or too deep.
        """
        if name in self._within:
            raise UndecodableError(f"{self.label}: {name} contains itself, which no column can")
        if len(self._within) >= MOST_LEVELS:
            raise UndecodableError(f"{self.label}: more than {MOST_LEVELS} levels")
        self._within.append(name)

    def leave(self) -> None:
        """Leave the type again."""
        self._within.pop()


def record_shape(name: str, fields: Mapping[str, ColumnShape]) -> ColumnShape:
    """A struct, from a mapping by name. One without fields becomes true, because tables have no empty structs.

    Raises:
        UndecodableError: two fields have names that differ in case only, which Spark treats as equal.
    """
    if not fields:
        return ColumnShape(pa.bool_(), lambda _value: True)
    seen: dict[str, str] = {}
    for each in fields:
        other = seen.setdefault(each.lower(), each)
        if other != each:
            raise UndecodableError(f"{name} has fields {other} and {each}, which Spark treats as equal")
    work = [(each, shape.convert) for each, shape in fields.items() if shape.convert is not None]
    kind = pa.struct([pa.field(each, shape.kind) for each, shape in fields.items()])
    if not work:
        return ColumnShape(kind)

    def convert(value: Any) -> Any:
        changed = dict(value)  # a default is the same object for all records
        for each, change in work:
            found = value.get(each)
            if found is not None:
                changed[each] = change(found)
        return changed

    return ColumnShape(kind, convert)


def list_shape(item: ColumnShape) -> ColumnShape:
    """A list of ``item``."""
    change = item.convert
    if change is None:
        return ColumnShape(pa.list_(item.kind))
    return ColumnShape(pa.list_(item.kind), lambda value: [None if each is None else change(each) for each in value])


def map_shape(item: ColumnShape, key: pa.DataType | None = None) -> ColumnShape:
    """A map to ``item``, from a dictionary; its keys are text by default."""
    change = item.convert

    def convert(value: Any) -> Any:
        if change is None:
            return list(value.items())
        return [(name, None if each is None else change(each)) for name, each in value.items()]

    return ColumnShape(pa.map_(pa.string() if key is None else key, item.kind), convert)


def micros_shape(factor: int, *, divide: bool = False, kind: pa.DataType = UTC_MICROS) -> ColumnShape:
    """A time from a count: ``factor`` microseconds each, or with ``divide``, ``factor`` counts per microsecond."""

    def convert(value: int) -> int:
        found = value // factor if divide else value * factor
        if not -(2**63) <= found < 2**63:
            raise UndecodableError(f"{value} is beyond all times in microseconds")
        return found

    return ColumnShape(kind, None if factor == 1 else convert)


def decimal_shape(precision: int, scale: int) -> ColumnShape:
    """A decimal from its unscaled bytes, big-endian; as text if it has more digits than Spark supports.

    Raises:
        UndecodableError: it has more than :data:`MOST_TEXT_DIGITS`.
    """
    if precision > MOST_TEXT_DIGITS:
        raise UndecodableError(f"a decimal of more than {MOST_TEXT_DIGITS} digits makes no column")
    as_text = precision > MOST_DIGITS

    def convert(value: bytes) -> Any:
        number = int.from_bytes(value, "big", signed=True)
        if abs(number) >= 10**precision:
            raise UndecodableError(f"a decimal of more than {precision} digits")
        found = Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))
        return format(found, "f") if as_text else found

    return ColumnShape(pa.string() if as_text else pa.decimal128(precision, scale), convert)
