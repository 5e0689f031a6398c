"""An Iceberg table with pyiceberg: one snapshot adds and removes files that tasks wrote."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.catalog import load_catalog
from pyiceberg.conversions import from_bytes
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationException,
)
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.snapshots import Operation, ancestors_of
from pyiceberg.types import IntegerType, StringType

from cleanerd.errors import CleanerdError, ConfigError, MachineError, RefusedError
from cleanerd.spark.tables.opened import OpenTable, TableFile, conflict
from cleanerd.spark.tables.place import IcebergPlace
from cleanerd.spark.tables.refusals import changed_by_another, partitioned
from cleanerd.spark.tables.remembered import PROPERTY, TableState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from cleanerd.spark.tables.files import WrittenFile

_NEVER: Final = "0"


class IcebergOpen(OpenTable):
    """See :class:`OpenTable`. ``table``: the table, or the one that its first transaction ``making`` creates."""

    def __init__(self, where: str, columns: pa.Schema, table: Table, making: Transaction | None) -> None:
        self.where = where
        self.columns = columns
        self._table = table
        self._making = making
        self.place = IcebergPlace(table.location(), dict(table.io.properties))

    @classmethod
    def named(cls, name: str, catalog: str, columns: pa.Schema) -> IcebergOpen:
        """The table of that name; raises as :meth:`Iceberg.open`."""
        where = f"table {name} of catalog {catalog}"
        namespace, _, own = name.rpartition(".")
        if not namespace or not own:
            raise ConfigError(f"{name!r} is not of the form NAMESPACE.NAME", where="--table")
        try:
            known = load_catalog(catalog)
        except Exception as error:
            raise ConfigError(
                f"the catalog {catalog} cannot be opened: {_line(error)}",
                where="pyiceberg",
                hint="~/.pyiceberg.yaml or PYICEBERG_CATALOG__NAME__URI define it",
            ) from error
        with _translated_errors("cannot be read", where):
            try:
                return cls(where, columns, known.load_table(name), None)
            except NoSuchTableError:
                known.create_namespace_if_not_exists(namespace)
                making = known.create_table_transaction(name, schema=columns)
                return cls(where, columns, making._table, making)  # noqa: SLF001 - it says where files go

    @property
    def exists(self) -> bool:
        """Whether the catalog has it."""
        return self._making is None

    def schema(self) -> pa.Schema:
        """Its columns, as Arrow names them."""
        return self._table.schema().as_arrow()

    def stored_state(self) -> TableState | None:
        """From cleanerd's newest snapshot among the ancestors of the current one."""
        changed = ""
        for snapshot in ancestors_of(self._table.current_snapshot(), self._table.metadata):
            text = None if snapshot.summary is None else snapshot.summary.additional_properties.get(PROPERTY)
            if text is not None and changed:
                raise changed_by_another(changed, self.where)
            if text is not None:
                return TableState.from_text(text, self.where)
            operation = None if snapshot.summary is None else snapshot.summary.operation
            if operation != Operation.REPLACE:
                name = "an unknown operation" if operation is None else operation.value
                changed = changed or f"{name}, snapshot {snapshot.snapshot_id}"
        return None

    def require_ours(self) -> None:
        super().require_ours()
        if len(self._table.spec().fields):
            raise partitioned(self.where)

    def files(self) -> list[TableFile]:
        """The files of its manifests."""
        with _translated_errors("cannot be read", self.where):
            found = list(self._table.scan().plan_files())
        if any(each.delete_files for each in found):
            raise RefusedError(
                "another writer left delete files there",
                where=self.where,
                hint="rewrite its data files without them, or name a new table",
            )
        schema = self._table.schema()
        kinds = {"topic": StringType(), "partition": IntegerType()}
        fields = [(schema.find_field(name).field_id, name, kind) for name, kind in kinds.items()]

        def bounds(of: Mapping[int, bytes] | None) -> dict[str, Any]:
            values = of or {}
            return {name: from_bytes(kind, values[number]) for number, name, kind in fields if number in values}

        return [
            TableFile(each.file.file_path, each.file, bounds(each.file.lower_bounds), bounds(each.file.upper_bounds))
            for each in found
        ]

    def commit(self, added: Sequence[WrittenFile], removed: Sequence[TableFile], remember: TableState) -> None:
        """One snapshot on top of the one that was read, or none."""
        transaction = self._table.transaction() if self._making is None else self._making
        if self._making is None:
            # Per process: a second writer has to begin again, because the files that it read have changed.
            self._table.metadata.properties[TableProperties.COMMIT_NUM_RETRIES] = _NEVER
        with _translated_errors("cannot be written", self.where), transaction:
            if transaction.table_metadata.name_mapping() is None:
                mapping = transaction.table_metadata.schema().name_mapping.model_dump_json()
                transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})
            properties = {PROPERTY: remember.to_text()}
            with transaction.update_snapshot(snapshot_properties=properties).overwrite() as snapshot:
                for old in removed:
                    snapshot.delete_data_file(old.handle)
                for new in added:
                    file = parquet_file_to_data_file(self._table.io, transaction.table_metadata, new.path)
                    snapshot.append_data_file(file)


@contextlib.contextmanager
def _translated_errors(what: str, where: str) -> Iterator[None]:
    """Translate exceptions of pyiceberg and its catalogs."""
    try:
        yield
    except (CleanerdError, NoSuchTableError):
        raise
    except (CommitFailedException, ValidationException, TableAlreadyExistsError) as error:
        raise conflict(where) from error
    except Exception as error:
        raise MachineError(f"{what}: {_line(error)}", where=where) from error


def _line(error: Any) -> str:
    return str(error).strip().split("\n", maxsplit=1)[0].partition("?")[0][:300]
