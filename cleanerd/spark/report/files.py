"""Writes a report: a new directory with the page, and its figures."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from cleanerd.errors import ConfigError, system_error
from cleanerd.humanize import as_utf8
from cleanerd.spark.new_directory import exists_already, make_new_directory
from cleanerd.spark.report.page import hottest, page
from cleanerd.spark.report.topics import by_topic

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cleanerd.spark.logs import Log
    from cleanerd.spark.profile import Profile

PAGE: Final = "profile.html"
JSON: Final = "profile.json"
PARQUET: Final = "profile.parquet"

_ROWS: Final = pa.list_(pa.struct([("least", pa.int64()), ("keys", pa.int64())]))
_SHARES: Final = pa.list_(pa.int64())
_NUMBER: Final = pa.int64()
_SCHEMA: Final = pa.schema([
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("strategy", pa.string()),
    *((name, _NUMBER) for name in (
        "segments", "stored_bytes", "records", "bytes", "active", "unseen", "no_key", "keys", "superseded",
        "superseded_bytes", "tombstones", "deleted_keys", "unversioned", "misversioned",
    )),
    ("records_a_key", _SHARES),
    ("bytes_a_key", _SHARES),
    ("overtaken", _NUMBER),
    ("keys_by_records", _ROWS),
    ("keys_by_missing", _ROWS),
    ("hot_keys", pa.list_(pa.struct([("records", _NUMBER), ("bytes", _NUMBER), ("offset", _NUMBER)]))),
    ("dirty_bytes", _NUMBER),
    ("dirty_since_ms", _NUMBER),
    ("written_span_ms", _NUMBER),
    ("written", pa.list_(pa.struct([("begin_ms", _NUMBER), ("records", _NUMBER)]))),
    ("saved_bytes", _NUMBER),
    ("superseded_share", pa.float64()),
    ("dirty_share", pa.float64()),
    ("damaged", pa.list_(pa.string())),
    ("elsewhere", _NUMBER),
    ("sampled_bytes", _NUMBER),
    ("repacked_bytes", _NUMBER),
    ("wrong_time", pa.string()),
])  # fmt: skip


def require_new(target: Path, draws: str = "matplotlib") -> None:
    """Check that a report can be made, with the package that ``draws``.

    Raises:
        ConfigError: the target exists, or the package is not installed.
    """
    if os.path.lexists(target):
        raise exists_already(target)
    if importlib.util.find_spec(draws) is None:
        raise ConfigError(f"not installed: {draws}", hint="pip install '/path/to/cleanerd-VERSION.whl[spark]'")


def write_report(
    profiles: Sequence[Profile], logs: Sequence[Log], target: Path, *, log_dirs: Sequence[str], now_ms: int
) -> None:
    """Create the directory ``target`` with PAGE, JSON and PARQUET; removed again after an exception.

    ``logs``: the profiled logs, from which the keys with the most records are read.

    Raises:
        ConfigError: see :func:`require_new`.
        CleanerdError: it cannot be written.
    """
    require_new(target)
    from cleanerd.spark.report.pictures import pictures  # noqa: PLC0415 - what draws is slow to start

    topics = by_topic(profiles)
    keys = hottest(profiles, {log.name: log for log in logs})
    text = page(topics, pictures(topics, now_ms), keys, log_dirs=log_dirs, now_ms=now_ms)
    documents = [each.document() for each in profiles]
    made_at = datetime.fromtimestamp(now_ms / 1000, UTC).isoformat()
    make_new_directory(target)
    try:
        pq.write_table(profile_table(profiles), target / PARQUET, compression="zstd")
        whole = {"made_at": made_at, "log_dirs": list(log_dirs), "partitions": documents}
        (target / JSON).write_text(json.dumps(whole) + "\n", encoding="utf-8")
        (target / PAGE).write_text(as_utf8(text), encoding="utf-8")
    except BaseException as error:
        shutil.rmtree(target, ignore_errors=True)
        if isinstance(error, OSError):
            raise system_error("cannot be written", str(target), error) from error
        raise


def profile_table(profiles: Sequence[Profile]) -> pa.Table:
    """A row per partition, with the fields of :meth:`Profile.document`."""
    names = {
        "keys_by_records": ("least", "keys"),
        "keys_by_missing": ("least", "keys"),
        "written": ("begin_ms", "records"),
    }
    rows = [
        {
            **{name: _structs(value, names[name]) if name in names else value for name, value in each.items()},
            "damaged": [as_utf8(text) for text in each["damaged"]],
        }
        for each in (profile.document() for profile in profiles)
    ]
    return pa.Table.from_pylist(rows, schema=_SCHEMA)


def _structs(rows: Sequence[Sequence[int]], names: tuple[str, str]) -> list[dict[str, int]]:
    return [dict(zip(names, row, strict=True)) for row in rows]
