"""Runs tasks in a session or in this process, and tracks the files that they write."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cleanerd.errors import RefusedError
from cleanerd.spark.task_runner import Worker, results, results_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from cleanerd.spark.tables.files import WrittenFile
    from cleanerd.spark.tables.opened import OpenTable, TableFile
    from cleanerd.spark.tables.remembered import TableState
    from cleanerd.spark.values.decoding import Decoding


class Tasks:
    """Work for the tasks of a session or, without one, for this process; and the files written so far."""

    def __init__(self, session: SparkSession | None, table: OpenTable, decoding: Decoding | None) -> None:
        self._session = session
        self._table = table
        self.place = table.place
        self.how = {"place": table.place, "columns": table.columns, "decoding": decoding}
        self._made: set[str] = set()
        self._may_be_named = False

    def run(self, worker: Worker, items: Iterable[tuple[int, dict[str, Any]]]) -> list[dict[str, Any]]:
        """The results of ``worker`` for each of ``items``: bytes to read, and the work."""
        placed = [(size, {**item, **self.how}) for size, item in items]
        return [self._note(summary) for summary in results(self._session, placed, worker)]

    def run_on(self, frame: DataFrame) -> list[dict[str, Any]]:
        return [self._note(summary) for summary in results_in(frame)]

    def _note(self, summary: dict[str, Any]) -> dict[str, Any]:
        self._made |= {each.path for each in summary["files"]}
        return summary

    def drop(self, paths: Iterable[str]) -> None:
        """Remove files that no commit will name."""
        for path in paths:
            self.place.remove(path)
            self._made.discard(path)

    def commit(self, added: Sequence[WrittenFile], removed: Sequence[TableFile], remember: TableState) -> None:
        """Make the commit, as :meth:`OpenTable.commit` does."""
        self._may_be_named = True
        self._table.commit(added, removed, remember)

    @contextmanager
    def cleaning_up(self) -> Iterator[None]:
        """Delete the files after an exception, unless a commit may name them: without an answer that is unknown."""
        try:
            yield
        except BaseException as error:
            if not self._may_be_named or isinstance(error, RefusedError):
                self.drop(list(self._made))
            raise
