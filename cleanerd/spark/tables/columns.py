"""The columns of a table: those of a snapshot, and the fields that decide between the records of a key."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from cleanerd.spark.state_rows import STATE

ROWS: Final = pa.schema([*STATE, pa.field("version", pa.int64()), pa.field("is_tombstone", pa.bool_())])
"""``version``: by the topic's strategy, null for a record without one. The names are those of the data source."""


def other_columns(schema: pa.Schema, ours: pa.Schema) -> list[str]:
    """Names of columns that differ between a table of ``schema`` and ours, whatever the format's names of types are."""
    theirs, own = ({field.name: _plain(field.type) for field in each} for each in (schema, ours))
    differ = [name for name in {**own, **theirs} if own.get(name) != theirs.get(name)]
    return differ or ([] if schema.names == ours.names else ["their order"])


def _plain(kind: pa.DataType) -> str:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"list<{_plain(kind.value_type)}>"
    if pa.types.is_struct(kind):
        fields = (f"{kind.field(at).name} {_plain(kind.field(at).type)}" for at in range(kind.num_fields))
        return f"struct<{', '.join(fields)}>"
    if pa.types.is_map(kind):
        return f"map<{_plain(kind.key_type)}, {_plain(kind.item_type)}>"
    return str(kind).removeprefix("large_").removesuffix("_view")
