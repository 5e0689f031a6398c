"""An open table: the common part of the formats."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cleanerd.errors import RefusedError
from cleanerd.spark.tables.files import WrittenFile, other_columns
from cleanerd.spark.values.decode_options import EXTRA

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from cleanerd.format.names import TopicPartition
    from cleanerd.spark.tables.place import FilesPlace
    from cleanerd.spark.tables.remembered import TableState


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file in the table's last commit. ``handle``: what its format needs to remove it.

    ``least`` and ``most``: bounds of topic and partition of its rows, if its writer stored them.
    """

    path: str
    handle: Any
    least: Mapping[str, Any]
    most: Mapping[str, Any]

    def may_hold(self, name: TopicPartition) -> bool:
        """Whether it may have rows of a partition."""
        for column, value in (("topic", name.topic), ("partition", name.partition)):
            least, most = self.least.get(column), self.most.get(column)
            if (least is not None and value < least) or (most is not None and value > most):
                return False
        return True


class OpenTable(ABC):
    """A table at its last commit, or one to be created."""

    columns: pa.Schema
    """The columns to write: :data:`~cleanerd.spark.tables.columns.ROWS`, and decoded ones."""
    place: FilesPlace
    where: str
    """Its name in messages."""

    @property
    @abstractmethod
    def exists(self) -> bool:
        """Whether it has a commit."""

    @abstractmethod
    def schema(self) -> pa.Schema:
        """Its columns, as Arrow names them."""

    @abstractmethod
    def stored_state(self) -> TableState | None:
        """The state of our last commit, if the table is that version or follows from it; None if unknown.

        Raises:
            ConfigError: it cannot be read.
            RefusedError: another writer changed rows since.
            CleanerdError: the table cannot be read.
        """

    @abstractmethod
    def files(self) -> list[TableFile]:
        """Its files.

        Raises:
            RefusedError: another writer left files that cleanerd cannot rewrite.
            CleanerdError: the table cannot be read.
        """

    @abstractmethod
    def commit(self, added: Sequence[WrittenFile], removed: Sequence[TableFile], remember: TableState) -> None:
        """Commit atomically; the first commit creates the table.

        Raises:
            RefusedError: another writer has committed since this table was opened.
            CleanerdError: it cannot be written.
        """

    def require_ours(self) -> None:
        """Check that the table has the columns to write.

        Raises:
            RefusedError: it has others, or is partitioned.
        """
        differ = other_columns(self.schema(), self.columns)
        if differ:
            of_values = any(name in EXTRA for name in differ)
            raise RefusedError(
                f"the table has other columns than a snapshot has: {', '.join(differ)}",
                where=self.where,
                hint="name a new table"
                + (", or the version of the schema that it was made with (--value-schema)" if of_values else ""),
            )


def conflict(where: str) -> RefusedError:
    """The error after another writer's commit."""
    return RefusedError(
        "another writer changed the table at the same time; cleanerd changed nothing",
        where=where,
        hint="run it again: it continues from the table's state then",
    )
