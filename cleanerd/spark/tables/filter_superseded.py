"""Compares a file of the table with new records, in a task: which of its rows stay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cleanerd.spark.tables.files import read_columns, without, write_rows
from cleanerd.spark.tables.latest import stored_of
from cleanerd.spark.task_runner import result_row

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from cleanerd.spark.logs import Log
    from cleanerd.spark.tables.place import FilesPlace

_WHERE: Final = ["topic", "partition", "offset"]
_COLUMNS: Final = ["key", "version", "offset", "is_tombstone"]


def sift(item: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
    """Rewrite a file of the table without superseded rows; returns nothing if there are none.

    ``changes``: by partition the files with the ``new`` retained records, deleted keys too; its ``log_start``; the
    ``log`` in which a tombstone of the table must exist to be retained. Returns the number of ``replaced``
    rows, of those ``below`` the log start, by partition, the new ``files``, and the offsets of superseded new records:
    ``beaten``.

    Raises:
        CleanerdError: a file cannot be read or written.
    """
    place, path, columns = item["place"], item["path"], item["columns"]
    where = read_columns(place, path, _WHERE)
    topic, partition = where.column("topic"), where.column("partition").to_numpy()
    offset = where.column("offset").to_numpy()
    drop = np.zeros(len(where), np.bool_)
    what: pa.Table | None = None
    replaced: dict[str, int] = {}
    below: dict[str, int] = {}
    beaten: dict[str, list[int]] = {}
    for name, change in item["changes"].items():
        mine = pc.equal(topic, change["topic"]).to_numpy(zero_copy_only=False) & (partition == change["partition"])
        if not mine.any():
            continue
        old = mine & (offset < change["log_start"])
        below[name] = int(old.sum())
        drop |= old
        if not change["new"]:
            continue
        if what is None:
            what = read_columns(place, path, _COLUMNS)
        rows = np.flatnonzero(mine & ~old)
        lost, wins = _compare(what.take(pa.array(rows)), _read_new(place, change["new"]), change["log"])
        drop[rows[lost]] = True
        replaced[name] = int(lost.sum())
        beaten[name] = wins.tolist()
    files = []
    if drop.any():
        files = write_rows(place, without(place, path, drop, columns), columns)
    yield result_row({
        "path": path,
        "changed": bool(drop.any()),
        "replaced": replaced,
        "below": {name: count for name, count in below.items() if count},
        "beaten": {name: offsets for name, offsets in beaten.items() if offsets},
        "files": files,
    })  # fmt: skip


def _read_new(place: FilesPlace, paths: Sequence[str]) -> pa.Table:
    return pa.concat_tables([read_columns(place, path, _COLUMNS) for path in paths])


@dataclass(frozen=True, slots=True)
class _Ranks:
    """[n] each: the fields that decide between the records of a key."""

    has_version: NDArray[np.bool_]
    version: NDArray[np.int64]
    offset: NDArray[np.int64]

    @classmethod
    def of(cls, table: pa.Table) -> _Ranks:
        version = table.column("version")
        present = pc.is_valid(version).to_numpy(zero_copy_only=False)
        return cls(present, pc.fill_null(version, 0).to_numpy(), table.column("offset").to_numpy())

    def above(self, other: _Ranks) -> NDArray[np.bool_]:
        """[n]: this rank is higher."""
        more = (self.version > other.version) | ((self.version == other.version) & (self.offset > other.offset))
        above: NDArray[np.bool_] = (self.has_version & ~other.has_version) | (
            (self.has_version == other.has_version) & more
        )
        return above


def _compare(old: pa.Table, new: pa.Table, log: Log) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """[n]: the row of ``old`` is superseded; and the offsets of ``new`` records that an old one supersedes."""
    lost = np.zeros(len(old), np.bool_)
    at = pc.index_in(old.column("key"), value_set=new.column("key").combine_chunks())
    both = pc.is_valid(at).to_numpy(zero_copy_only=False)
    if not both.any():
        return lost, np.zeros(0, np.int64)
    there = old.filter(pa.array(both))
    rival = new.take(pc.drop_null(at))
    beats = _Ranks.of(there).above(_Ranks.of(rival))
    deleted = there.column("is_tombstone").to_numpy(zero_copy_only=False)
    # A tombstone that the log has removed wins nothing any more, as in a current snapshot.
    winning_tombstones = np.flatnonzero(beats & deleted)
    if len(winning_tombstones):
        offsets = there.column("offset").to_numpy()[winning_tombstones]
        order = np.argsort(offsets, kind="stable")
        stored = np.zeros(len(winning_tombstones), np.bool_)
        stored[order] = stored_of(log, offsets[order])
        beats[winning_tombstones[~stored]] = False
    lost[both] = ~beats
    return lost, rival.column("offset").to_numpy()[beats]
