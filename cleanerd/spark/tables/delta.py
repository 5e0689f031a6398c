"""A Delta table with delta-rs: one commit of its log adds and removes files that tasks wrote."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from cleanerd.errors import ConfigError, MachineError, RefusedError
from cleanerd.segments.remote import SEPARATOR, shown_url
from cleanerd.spark.tables.opened import OpenTable, TableFile, conflict
from cleanerd.spark.tables.place import PREFIX, DeltaPlace
from cleanerd.spark.tables.refusals import changed_by_another, partitioned
from cleanerd.spark.tables.remembered import PROPERTY, TableState

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cleanerd.spark.tables.files import WrittenFile

_STEPS: Final = (1, 100, None)
"""How many of the newest commits are searched for one of cleanerd's; None: all."""
_UNDONE: Final = "RESTORE"
_OF_URLS: Final = ("#", "?", "%")
"""Characters with which delta-rs writes a table but then finds no history or files."""
_LOG: Final = "_delta_log"
_ENTRY: Final = re.compile(r"[0-9]+\.json|.*\.parquet|_last_checkpoint|.*\.crc")
"""The entry in the log of a table with a commit. A process killed in the first commit leaves other files, or none."""


class DeltaOpen(OpenTable):
    """See :class:`OpenTable`; ``table`` is None if there is none yet."""

    def __init__(self, root: str, columns: pa.Schema, table: DeltaTable | None) -> None:
        self._root = root
        self.columns = columns
        self._table = table
        self.place = DeltaPlace(root)
        self.where = shown_url(root) if SEPARATOR in root else root

    @classmethod
    def at(cls, uri: str, columns: pa.Schema) -> DeltaOpen:
        """The table at ``uri``; raises as :meth:`Delta.open`."""
        root = unquote(uri.removeprefix("file://")) if uri.startswith("file://") else uri
        root = root if SEPARATOR in root else os.path.abspath(root)
        where = shown_url(root) if SEPARATOR in root else root
        if SEPARATOR not in root and any(each in root for each in _OF_URLS):
            raise ConfigError(
                f"delta-rs takes {' '.join(_OF_URLS)} in a path for parts of a URL",
                where=where,
                hint="name another directory",
            )
        with _translated_errors("cannot be read", where):
            try:
                return cls(root, columns, DeltaTable(root, without_files=False))
            except TableNotFoundError:
                found = cls(root, columns, None)
        strange = [name for name in DeltaPlace(root).names() if name != _LOG and not name.startswith(PREFIX)]
        strange += [f"{_LOG}/{name}" for name in DeltaPlace(root).names(_LOG) if _ENTRY.fullmatch(name)]
        if strange:
            raise ConfigError(
                f"is not a Delta table, and contains {strange[0]}",
                where=where,
                hint="name a new directory, or a Delta table",
            )
        return found

    @property
    def exists(self) -> bool:
        """Whether it has a commit."""
        return self._table is not None

    @property
    def _table_now(self) -> DeltaTable:
        assert self._table is not None  # noqa: S101 - the caller asked
        return self._table

    def schema(self) -> pa.Schema:
        """Its columns, as Arrow names them."""
        with _translated_errors("cannot be read", self.where):
            return pa.schema(self._table_now.schema().to_arrow())

    def stored_state(self) -> TableState | None:
        """From cleanerd's newest commit, unless the table was restored to an earlier version since."""
        searched, changed = None, ""
        for limit in _STEPS:
            with _translated_errors("cannot be read", self.where):
                commits = self._table_now.history(limit)
            for commit in commits:
                version, operation = commit["version"], commit.get("operation")
                text = commit.get(PROPERTY)
                if isinstance(text, str):
                    if changed:
                        raise changed_by_another(changed, self.where)
                    return TableState.from_text(text, self.where)
                if operation == _UNDONE:
                    return None
                if not changed and (searched is None or version < searched):
                    searched = version
                    changed = f"{operation}, version {version}" if self._changes_rows(version) else ""
        return None

    def _changes_rows(self, version: int) -> bool:
        """Whether a commit does more than move the same rows to other files."""
        path = f"{_LOG}/{version:020d}.json"
        with self.place.reading(path) as file, _translated_errors("cannot be read", f"{self.where}/{path}"):
            actions = [json.loads(line) for line in file.read().splitlines()]
            return any(each.get(kind, {}).get("dataChange", False) for each in actions for kind in ("add", "remove"))

    def require_ours(self) -> None:
        """Also refuses partitioning, which cleanerd's files do not support."""
        super().require_ours()
        if self._table_now.metadata().partition_columns:
            raise partitioned(self.where)

    def files(self) -> list[TableFile]:
        """By the table's log."""
        mapping = self._table_now.metadata().configuration.get("delta.columnMapping.mode", "none")
        with _translated_errors("cannot be read", self.where):
            may_have = "deletionVectors" in (self._table_now.protocol().reader_features or ())
            vectors = pa.table(self._table_now.deletion_vectors()) if may_have else ()
            adds = pa.table(self._table_now.get_add_actions())
        if mapping != "none" or len(vectors):
            raise RefusedError(
                "another writer left deletion vectors or mapped columns there",
                where=self.where,
                hint="have that writer rewrite its files without them, or name a new table",
            )
        wanted = [name for name in ("path", "size_bytes", "min", "max") if name in adds.column_names]
        return [
            TableFile(row["path"], row["size_bytes"], row.get("min") or {}, row.get("max") or {})
            for row in adds.select(wanted).to_pylist()
        ]

    def commit(self, added: Sequence[WrittenFile], removed: Sequence[TableFile], remember: TableState) -> None:
        """Commit one version of the table after the one that was read; raises if another writer was faster."""
        now_ms = time.time_ns() // 1_000_000
        # A second writer has to begin again, because the files that it read have changed.
        properties = CommitProperties(custom_metadata={PROPERTY: remember.to_text()}, max_commit_retries=0)
        adds = [_add(each, now_ms) for each in added]
        schema = Schema.from_arrow(self.columns)
        with _translated_errors("cannot be written", self.where):
            if self._table is None:
                create_table_with_add_actions(self._root, schema, adds, mode="error", commit_properties=properties)
            else:
                removes = [RemoveAction(each.path, True, now_ms, each.handle) for each in removed]
                self._table.create_write_transaction([*adds, *removes], "append", schema, commit_properties=properties)


def _add(written: WrittenFile, now_ms: int) -> AddAction:
    nulls = dict.fromkeys(written.least, 0)
    stats = {"numRecords": written.rows, "minValues": written.least, "maxValues": written.most, "nullCount": nulls}
    return AddAction(
        path=written.path,
        size=written.size_bytes,
        partition_values={},
        modification_time=now_ms,
        data_change=True,
        stats=json.dumps(stats),
    )


@contextlib.contextmanager
def _translated_errors(what: str, where: str) -> Iterator[None]:
    """Translate exceptions of delta-rs."""
    try:
        yield
    except CommitFailedError as error:
        raise conflict(where) from error
    except TableNotFoundError:
        raise
    except (DeltaError, OSError, ValueError) as error:
        if "already exists" in str(error):
            raise conflict(where) from error
        text = str(error).split("\n", maxsplit=1)[0].partition("?")[0][:300]
        raise MachineError(f"{what}: {text}", where=where) from error
