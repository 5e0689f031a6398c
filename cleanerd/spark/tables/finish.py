"""A file of new winners, made one of the table by a task: without those that lost, and the deleted keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cleanerd.spark.tables.columns import columns_from
from cleanerd.spark.tables.files import read_columns, without, write_rows
from cleanerd.spark.tables.latest import telling
from cleanerd.spark.tables.place import place_from

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from cleanerd.spark.task_runner import Item


def finish(item: Item) -> Iterator[pa.RecordBatch]:
    """Rewrite the file ``path`` without the offsets ``beaten`` and, unless ``keep_deleted``, without tombstones.

    Returns the new ``files`` and the number of additionally removed tombstones (``deleted``).

    Raises:
        CleanerdError: a file cannot be read or written.
    """
    place, path = place_from(item["place"]), item["path"]
    table = read_columns(place, path, ["offset", "is_tombstone"])
    drop = np.isin(table.column("offset").to_numpy(), np.array(item["beaten"], np.int64))
    if not item["keep_deleted"]:
        drop |= table.column("is_tombstone").to_numpy(zero_copy_only=False)
    columns = columns_from(item["columns"])
    files = write_rows(place, without(place, path, drop, columns), columns)
    yield telling({"path": path, "files": [each.to_item() for each in files]})
