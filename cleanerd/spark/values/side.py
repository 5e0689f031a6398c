"""The side table: undecodable keys and values, with place and reason."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from cleanerd.spark.values.decode_options import SOURCES, error_name

SIDE: Final = pa.schema([
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("column", pa.string()),
    ("bytes", pa.binary()),
    ("reason", pa.string()),
])  # fmt: skip
"""Columns of the side table. ``column``: key or value. ``bytes``: its complete content in the log."""


def undecoded_rows(batch: pa.RecordBatch, topic: str | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of the side table from ``batch``; ``topic``: the topic of all rows, if they have no such column."""
    for source in SOURCES:
        name = error_name(source)
        if name not in batch.schema.names:
            continue
        found = batch.filter(pc.is_valid(batch.column(name)))
        if len(found):
            topics = pa.repeat(pa.scalar(topic), len(found)) if topic is not None else found.column("topic")
            columns = [
                topics.cast(pa.string()),
                found.column("partition").cast(pa.int32()),
                found.column("offset"),
                pa.repeat(pa.scalar(source), len(found)),
                found.column(source).cast(pa.binary()),
                found.column(name).cast(pa.string()),
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=SIDE)
