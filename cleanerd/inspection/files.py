"""Inspection of the small files: indexes, snapshots, checkpoints, identities, JSON."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any

from cleanerd.errors import CleanerdError, CorruptionError
from cleanerd.format.checkpoint import read_epoch_checkpoint, read_offset_checkpoint
from cleanerd.format.index import (
    OFFSET_ENTRY,
    TIME_ENTRY,
    TXN_ENTRY,
    read_offset_index,
    read_time_index,
    read_txn_index,
)
from cleanerd.format.meta import read_meta_properties, read_partition_metadata
from cleanerd.format.names import uuid_to_base64
from cleanerd.format.snapshot import read_snapshot
from cleanerd.fsio.plain_file import read_plain
from cleanerd.inspection.report import Inspection, ReportTable, RowSelection, moment, number, text_column

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray


def inspect_offset_index(path: Path, base: int, selection: RowSelection) -> Inspection:
    """Entries of an ``.index`` file with absolute offsets; ``base`` is the segment's (F-6)."""
    table = ReportTable("entries", (number("offset", "offset"), number("position", "position")), selection.limit)

    def add(entry: Any) -> None:
        offset = base + int(entry["relative_offset"])
        if selection.includes(offset, offset):
            table.add({"offset": offset, "position": int(entry["position"])})

    return _inspect_index(path, "offset index", OFFSET_ENTRY, read_offset_index, add, table)


def inspect_time_index(path: Path, base: int, selection: RowSelection) -> Inspection:
    """Entries of a ``.timeindex`` file with absolute offsets (F-7)."""
    table = ReportTable("entries", (moment("time", "timestamp"), number("offset", "offset")), selection.limit)

    def add(entry: Any) -> None:
        offset = base + int(entry["relative_offset"])
        if selection.includes(offset, offset):
            table.add({"timestamp": int(entry["timestamp"]), "offset": offset})

    return _inspect_index(path, "time index", TIME_ENTRY, read_time_index, add, table)


def inspect_txn_index(path: Path, _base: int, selection: RowSelection) -> Inspection:
    """Aborted transactions of a ``.txnindex`` file (F-8)."""
    names = ("producer_id", "first_offset", "last_offset", "last_stable_offset")
    columns = tuple(number(name.replace("_", " "), name) for name in names)
    table = ReportTable("aborted_transactions", columns, selection.limit)

    def add(entry: Any) -> None:
        if selection.includes(int(entry["first_offset"]), int(entry["last_offset"])):
            table.add({name: int(entry[name]) for name in names})

    return _inspect_index(path, "transaction index", TXN_ENTRY, read_txn_index, add, table)


def _inspect_index(
    path: Path,
    kind: str,
    entry: np.dtype[np.void],
    read: Callable[[bytes, str], NDArray[np.void]],
    add: Callable[[Any], None],
    table: ReportTable,
) -> Inspection:
    """Decode the entries up to the first damaged one."""
    data = read_plain(path)
    error: CleanerdError | None = None
    try:
        entries = read(data, str(path))
    except CorruptionError as caught:
        error = caught
        entries = read(data[: caught.position // entry.itemsize * entry.itemsize], str(path))
    for each in entries:
        add(each)
    facts: dict[str, object] = {"entries_in_use": len(entries), "size_bytes": len(data)}
    rest = len(data) - len(entries) * entry.itemsize
    if error is None and rest:
        facts["partial_entry_bytes" if entry is TXN_ENTRY else "zero_tail_bytes"] = rest
    return Inspection(str(path), kind, facts, [table], error)


def inspect_snapshot(path: Path, base: int, selection: RowSelection) -> Inspection:
    """The producers of a ``.snapshot`` file (F-10); ``base`` is the offset in its name."""
    columns = (
        number("producer id", "producer_id"),
        number("epoch", "producer_epoch"),
        number("last sequence", "last_sequence"),
        number("last offset", "last_offset"),
        number("offset delta", "offset_delta"),
        moment("time", "timestamp"),
        number("coordinator epoch", "coordinator_epoch"),
        number("open transaction from", "current_txn_first_offset"),
    )
    table = ReportTable("producers", columns, selection.limit)
    entries = read_snapshot(read_plain(path), str(path))
    for entry in entries:
        table.add({name: int(entry[name]) for name in entries.dtype.names or ()})
    facts: dict[str, object] = {"valid_below_offset": base, "producers_known": len(entries)}
    return Inspection(str(path), "producer snapshot", facts, [table])


def inspect_offset_checkpoint(path: Path, selection: RowSelection) -> Inspection:
    """Offsets per partition (F-11)."""
    columns = (text_column("topic", "topic"), number("partition", "partition"), number("offset", "offset"))
    table = ReportTable("offsets", columns, selection.limit)
    offsets = read_offset_checkpoint(read_plain(path), str(path))
    for name, offset in sorted(offsets.items()):
        table.add({"topic": name.topic, "partition": name.partition, "offset": offset})
    return Inspection(str(path), "offset checkpoint", {"partitions": len(offsets)}, [table])


def inspect_epoch_checkpoint(path: Path, selection: RowSelection) -> Inspection:
    """A ``leader-epoch-checkpoint``: epochs and where each begins (F-9)."""
    table = ReportTable("epochs", (number("epoch", "epoch"), number("start offset", "start_offset")), selection.limit)
    epochs = read_epoch_checkpoint(read_plain(path), str(path))
    for each in epochs:
        table.add({"epoch": each.epoch, "start_offset": each.start_offset})
    return Inspection(str(path), "leader epoch checkpoint", {"leader_epochs": len(epochs)}, [table])


def inspect_meta_properties(path: Path) -> Inspection:
    """``meta.properties``: the owner of the log directory; only the four known keys are shown."""
    meta = read_meta_properties(read_plain(path), str(path))
    return Inspection(
        str(path),
        "identity of a log directory",
        {
            "version": meta.version,
            "cluster_id": meta.cluster_id,
            "node_id": meta.node_id,
            "directory_id": None if meta.directory_id is None else uuid_to_base64(meta.directory_id),
        },
    )


def inspect_partition_metadata(path: Path) -> Inspection:
    """``partition.metadata``: the topic's id."""
    topic_id = read_partition_metadata(read_plain(path), str(path))
    return Inspection(str(path), "identity of a partition", {"topic_id": uuid_to_base64(topic_id)})


def inspect_clean_shutdown(path: Path) -> Inspection:
    """``.kafka_cleanshutdown``: only its existence matters; older brokers leave it empty."""
    if not read_plain(path).strip():
        return Inspection(str(path), "mark of a clean shutdown")
    return Inspection(str(path), "mark of a clean shutdown", {"content": _read_json(path)})


def inspect_lock(path: Path) -> Inspection:
    """``.lock``: an empty file; only the kernel knows whether it is held."""
    return Inspection(str(path), "lock of a log directory", {"size_bytes": len(read_plain(path))})


def inspect_json(path: Path, kind: str) -> Inspection:
    """A JSON file: the top-level values as facts, lists of objects as tables."""
    document = _read_json(path)
    if not isinstance(document, dict):
        return Inspection(str(path), kind, {"content": document})
    found = Inspection(str(path), kind)
    for name, value in document.items():
        if isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
            found.tables.append(_table_of(name, value))
        else:
            found.facts[name] = value
    return found


def _table_of(name: str, rows: list[dict[str, Any]]) -> ReportTable:
    keys = list(dict.fromkeys(key for row in rows for key in row))
    columns = tuple(moment(key, key) if key.endswith("_ms") else text_column(key, key) for key in keys)
    return ReportTable(name, columns, rows=[{key: row.get(key) for key in keys} for row in rows])


def _read_json(path: Path) -> Any:
    data = read_plain(path)
    try:
        return json.loads(data)
    except UnicodeDecodeError as error:
        raise CorruptionError("not UTF-8 text", where=str(path), position=error.start) from None
    except json.JSONDecodeError as error:
        position = len(error.doc[: error.pos].encode("utf-8", "replace"))
        raise CorruptionError(f"no JSON: {error.msg}", where=str(path), position=position) from None
    except RecursionError:
        raise CorruptionError("JSON nested too deeply", where=str(path), position=0) from None


def inspect_journal(path: Path, selection: RowSelection) -> Inspection:
    """The journal of a swap: lines with a CRC-32 at the end; a torn line is ignored, and its size is shown."""
    table = ReportTable("lines", (text_column("line", "line"), text_column("counts", "whole")), selection.limit)
    for line in read_plain(path).splitlines():
        text, _, crc = line.rpartition(b" ")
        whole = bool(text) and crc == b"%08x" % zlib.crc32(text)
        table.add({"line": text.decode("ascii", "replace") if whole else f"{len(line)} bytes", "whole": whole})
    facts: dict[str, object] = {"line_count": len(table.rows) + table.omitted}
    return Inspection(str(path), "journal of a swap", facts, [table])
