"""The data source without a session: the calls that Spark would make, split after split, and rows as dictionaries."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import CaseInsensitiveDict

from cleanerd.spark.source.columns import TYPES
from cleanerd.spark.source.data_source import KafkaSegments
from cleanerd.spark.source.decoded import types_of
from cleanerd.spark.source.options import options_from

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pyspark.sql.types import StructType

EVERYTHING = ",".join(name for name in TYPES if name != "damaged")


def schema_of(columns: Iterable[str]) -> StructType:
    """The schema that Spark would make of our text, which needs a session."""
    return types_of(columns, None)


def read_splits(path: Path | str | Sequence[str], **options: Any) -> list[list[dict[str, Any]]]:
    """The rows per split, as tasks would return them: splits and reader go through a pickle."""
    given = {name: value if isinstance(value, str) else json.dumps(value) for name, value in options.items()}
    given |= {"paths": json.dumps(list(path))} if isinstance(path, (list, tuple)) else {"path": str(path)}
    texts = CaseInsensitiveDict(given)
    source = KafkaSegments(texts)
    reader = source.reader(schema_of(options_from(texts).columns))
    splits = reader.partitions()
    found = []
    for split in splits:
        task_reader, task_split = pickle.loads(pickle.dumps((reader, split)))  # noqa: S301 our own
        batches = list(task_reader.read(task_split))
        for batch in batches:
            batch.validate(full=True)
        found.append([_plain(row) for batch in batches for row in batch.to_pylist()])
    return found


def read_rows(path: Path | str | Sequence[str], **options: Any) -> list[dict[str, Any]]:
    """All rows, in the order of the splits."""
    return [row for split in read_splits(path, **options) for row in split]


def offsets(path: Path | str | Sequence[str], **options: Any) -> list[int]:
    """The offsets alone."""
    return [row["offset"] for row in read_rows(path, columns="offset", **options)]


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Times in ms, as Kafka has them; -1 for none."""
    if "timestamp" in row:
        row["timestamp"] = -1 if row["timestamp"] is None else round(row["timestamp"].timestamp() * 1000)
    if row.get("headers") is not None:
        row["headers"] = tuple((each["key"], each["value"]) for each in row["headers"])
    return row
