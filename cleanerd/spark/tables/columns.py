"""The columns of a table: those of a snapshot, and what decided between the records of a key."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

ROWS: Final = pa.schema([
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("timestamp", pa.timestamp("us", tz="UTC")),
    ("key", pa.binary()),
    ("value", pa.binary()),
    ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ("version", pa.int64()),
    ("is_tombstone", pa.bool_()),
])  # fmt: skip
"""``version``: by the topic's strategy, null for a record without one. The names are those of the data source."""


def same_columns(schema: pa.Schema) -> bool:
    """Whether a table of ``schema`` has these columns, in whatever words its format has for them."""
    return [(field.name, _plain(field.type)) for field in schema] == [(each.name, _plain(each.type)) for each in ROWS]


def _plain(kind: pa.DataType) -> str:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"list<{_plain(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return ", ".join(f"{kind.field(at).name} {_plain(kind.field(at).type)}" for at in range(kind.num_fields))
    return str(kind).removeprefix("large_").removesuffix("_view")
