"""Logs that grow between two merges into a table, and the table's expected contents then."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from cleanerd.spark.logs import find_logs
from cleanerd.spark.tables.merge import merge_into
from cleanerd.verify.rules import KAFKAS_RULES, KeyRules
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import Record, encode_batch, encode_marker

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.spark.logs import Log
    from cleanerd.spark.tables.merge import Merged
    from tests.spark.tables import Tables

DAY_MS = 86_400_000
BY_HEADER = KeyRules(strategy="header", header=b"version")
IDS = {"orders": uuid.UUID(int=7), "users": uuid.UUID(int=8)}


class Growing:
    """Partitions that grow: one record per batch, one segment per four offsets."""

    def __init__(self, root: Path, *names: str) -> None:
        self.path = root / "logs"
        self._logs: dict[str, dict[int, bytes]] = {name: {} for name in names}
        self._ends = dict.fromkeys(names, 0)
        self.ids = dict(IDS)
        self._written = 0

    def add(self, name: str, *records: Record, **batch: Any) -> None:
        for record in records:
            self._append(name, encode_batch([record], base_offset=self._ends[name], **batch))

    def put(self, name: str, **values: str | None) -> None:
        self.add(name, *(Record(key.encode(), None if v is None else v.encode()) for key, v in values.items()))

    def end_transaction(self, name: str, producer_id: int, *, commit: bool) -> None:
        self._append(name, encode_marker(self._ends[name], commit=commit, producer_id=producer_id))

    def drop(self, name: str, base: int, data: bytes) -> None:
        """The rest of a segment after a cleaning."""
        self._logs[name][base] = data

    def _append(self, name: str, data: bytes) -> None:
        end = self._ends[name]
        base = end - end % 4
        self._logs[name][base] = self._logs[name].get(base, b"") + data
        self._ends[name] = end + 1

    def write(self, **partition: Any) -> list[Log]:
        """Write all of it, replacing the earlier log."""
        self._written += 1
        path = self.path.with_name(f"logs-{self._written}")
        made = {
            name: Partition(
                segments or {0: b""},
                high_watermark=self._ends[name],
                topic_id=self.ids[name.rpartition("-")[0]],
                **partition,
            )
            for name, segments in self._logs.items()
        }
        make_log_dir(path, made)
        return find_logs([path], (), lambda _topic: KAFKAS_RULES)


def merged(tables: Tables, logs: list[Log], **options: Any) -> list[Merged]:
    return merge_into(None, tables.target.open(), logs, retention_ms=lambda _topic: DAY_MS, **options)


def values(tables: Tables) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for row in tables.rows():
        found.setdefault(f"{row['topic']}-{row['partition']}", {})[row["key"].decode()] = row["value"].decode()
    return found
