"""The result of an inspection: facts and tables, as text and as JSON."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from cleanerd.errors import CleanerdError, CorruptionError

Row = Mapping[str, object]

PREVIEW_CHARACTERS: Final = 60
"""Limit of characters of a key or value in a table; JSON has more."""

JSON_VALUE_BYTES: Final = 65536
"""Limit of bytes of a key or value in JSON."""


@dataclass(frozen=True, slots=True)
class RowSelection:
    """The rows to show. ``limit``: rows per table, None for all; offsets are inclusive."""

    records: bool = False
    limit: int | None = None
    from_offset: int | None = None
    to_offset: int | None = None

    def includes(self, first: int, last: int) -> bool:
        """Whether an offset from ``first`` to ``last`` is wanted."""
        return (self.from_offset is None or last >= self.from_offset) and not self.is_past(first)

    def is_past(self, offset: int) -> bool:
        return self.to_offset is not None and offset > self.to_offset


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of the text table and how it reads a row."""

    title: str
    text: Callable[[Row], str]
    right: bool = False


def number(title: str, key: str) -> TableColumn:
    """A right-aligned column with the row's ``key``."""
    return TableColumn(title, lambda row: text_of(row[key]), right=True)


def text_column(title: str, key: str) -> TableColumn:
    return TableColumn(title, lambda row: text_of(row[key]))


def moment(title: str, key: str) -> TableColumn:
    """A column with the row's ``key``, a time in ms."""
    return TableColumn(title, lambda row: time_of(row[key]))


@dataclass(slots=True)
class ReportTable:
    """Rows of one kind: JSON-able values by name. Rows above the limit are counted, but not stored."""

    name: str
    columns: tuple[TableColumn, ...]
    limit: int | None = None
    rows: list[Row] = field(default_factory=list)
    omitted: int = 0

    @property
    def is_full(self) -> bool:
        """Whether another row would only be counted."""
        return self.limit is not None and len(self.rows) >= self.limit

    def add(self, row: Row) -> None:
        """Append a row, or count it."""
        if self.is_full:
            self.omitted += 1
        else:
            self.rows.append(row)


@dataclass(slots=True)
class Inspection:
    """The result for one file or directory. ``error``: why decoding stopped, or the first of several damages."""

    path: str
    kind: str
    facts: dict[str, object] = field(default_factory=dict)
    tables: list[ReportTable] = field(default_factory=list)
    error: CleanerdError | None = None

    def as_json(self) -> dict[str, object]:
        """The object that ``--json`` prints."""
        document: dict[str, object] = {"path": self.path, "kind": self.kind, **self.facts}
        for table in self.tables:
            document[table.name] = table.rows
            if table.omitted:
                document[f"{table.name}_omitted"] = table.omitted
        if self.error is not None:
            position = self.error.position if isinstance(self.error, CorruptionError) else -1
            document["error"] = {"message": self.error.message, "where": self.error.where, "position": position}
        return document


def text_of(value: object) -> str:
    """A value as text."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case list() | tuple():
            return ", ".join(text_of(each) for each in value) or "-"
        case Mapping():
            return " ".join(f"{name}={text_of(each)}" for name, each in value.items()) or "-"
        case _:
            return str(value)


def time_of(value: object) -> str:
    """A time in ms as text: UTC; ``-`` for none."""
    if not isinstance(value, int) or value < 0:
        return "-"
    try:
        return datetime.fromtimestamp(value / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{value % 1000:03d}Z"
    except (OverflowError, ValueError, OSError):
        return f"{value} ms"


def bytes_fields(name: str, data: bytes | None) -> dict[str, object]:
    """A key or value for JSON: text if it is UTF-8, else ``<name>_base64``; ``<name>_bytes``: its size, -1 for null."""
    if data is None:
        return {name: None, f"{name}_bytes": -1}
    size = len(data)
    try:
        text: str | None = data.decode("utf-8")
    except UnicodeDecodeError:
        text = None
    if text is not None and size <= JSON_VALUE_BYTES:
        return {name: text, f"{name}_bytes": size}
    packed = base64.b64encode(data[:JSON_VALUE_BYTES]).decode("ascii")
    fields: dict[str, object] = {name: None, f"{name}_base64": packed, f"{name}_bytes": size}
    return {**fields, f"{name}_cut": True} if size > JSON_VALUE_BYTES else fields


def preview(name: str) -> Callable[[Row], str]:
    """Short text of the fields that :func:`bytes_fields` made for ``name``."""

    def text(row: Row) -> str:
        size = row[f"{name}_bytes"]
        if size == -1:
            return "null"
        content = row[name]
        if not isinstance(content, str):
            packed = str(row[f"{name}_base64"])
            content = "0x" + base64.b64decode(packed[: PREVIEW_CHARACTERS // 3 * 4]).hex()
        content = content.replace("\n", "\\n").replace("\t", "\\t")
        if len(content) > PREVIEW_CHARACTERS or row.get(f"{name}_cut"):
            return f"{content[:PREVIEW_CHARACTERS]}... ({size} bytes)"
        return content

    return text
