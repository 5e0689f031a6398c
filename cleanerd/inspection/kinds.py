"""The kinds of files, the decoder of each, and the file names by which a kind is recognised."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from cleanerd.format.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    SEGMENT_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIMEINDEX_SUFFIX,
    TXNINDEX_SUFFIX,
    parse_file_name,
)
from cleanerd.inspection import files
from cleanerd.inspection.directory import (
    inspect_log_dir,
    inspect_metadata_directory,
    inspect_partition,
    is_metadata_directory,
)
from cleanerd.inspection.segment import holds_metadata, inspect_batches
from cleanerd.segments.log_dir import CLEAN_SHUTDOWN, META_PROPERTIES
from cleanerd.segments.partition import LEADER_EPOCHS, PARTITION_METADATA

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cleanerd.inspection.report import Inspection, RowSelection

_STATE_SUFFIXES: Final = (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX, ".part", ".tmp")

KINDS: Final[dict[str, Callable[[Path, RowSelection], Inspection]]] = {
    "segment": lambda path, selection: (
        inspect_batches(path, "metadata log", selection, metadata=True)
        if holds_metadata(path, guess=False)
        else inspect_batches(path, "segment", selection, metadata=False)
    ),
    "metadata": lambda path, selection: inspect_batches(path, "metadata log", selection, metadata=True),
    "metadata-snapshot": lambda path, selection: inspect_batches(path, "metadata snapshot", selection, metadata=True),
    "index": lambda path, selection: files.inspect_offset_index(path, _base(path), selection),
    "timeindex": lambda path, selection: files.inspect_time_index(path, _base(path), selection),
    "txnindex": lambda path, selection: files.inspect_txn_index(path, _base(path), selection),
    "snapshot": lambda path, selection: files.inspect_snapshot(path, _base(path), selection),
    "checkpoint": files.inspect_offset_checkpoint,
    "epochs": files.inspect_epoch_checkpoint,
    "meta": lambda path, _selection: files.inspect_meta_properties(path),
    "partition-metadata": lambda path, _selection: files.inspect_partition_metadata(path),
    "clean-shutdown": lambda path, _selection: files.inspect_clean_shutdown(path),
    "json": lambda path, _selection: files.inspect_json(path, path.name),
    "lock": lambda path, _selection: files.inspect_lock(path),
    "journal": files.inspect_journal,
}
"""The values of ``--as``, and their decoders."""

_BY_NAME: Final = {
    LEADER_EPOCHS: "epochs",
    META_PROPERTIES: "meta",
    PARTITION_METADATA: "partition-metadata",
    CLEAN_SHUTDOWN: "clean-shutdown",
    "quorum-state": "json",
    ".lock": "lock",
    "journal": "journal",
}
_BY_SUFFIX: Final = {
    INDEX_SUFFIX: "index",
    TIMEINDEX_SUFFIX: "timeindex",
    TXNINDEX_SUFFIX: "txnindex",
    SNAPSHOT_SUFFIX: "snapshot",
    ".checkpoint": "metadata-snapshot",
    ".json": "json",
}


class UnknownFileError(ValueError):
    """Neither a file's name nor a directory's content shows its kind."""


def decoder_of(path: Path) -> Callable[[Path, RowSelection], Inspection]:
    """The decoder of ``path``, by its name, or by a directory's content.

    Raises:
        UnknownFileError: no broker has such a file or directory.
    """
    if path.is_dir():
        return _decoder_of_directory(path)
    kind = _kind_of(path)
    if kind is None:
        raise UnknownFileError(f"{path.name!r} is not the name of a broker's file; --as KIND names its kind")
    return KINDS[kind]


def _decoder_of_directory(path: Path) -> Callable[[Path, RowSelection], Inspection]:
    if is_metadata_directory(path):
        return inspect_metadata_directory
    if (path / META_PROPERTIES).exists():
        return inspect_log_dir
    if any((parsed := parse_file_name(name)) and parsed[1] == SEGMENT_SUFFIX for name in os.listdir(path)):
        return inspect_partition
    raise UnknownFileError(f"{str(path)!r} has neither segments nor a {META_PROPERTIES}")


def _kind_of(path: Path) -> str | None:
    name = path.name
    for suffix in _STATE_SUFFIXES:
        name = name.removesuffix(suffix)
    if name.endswith(SEGMENT_SUFFIX):
        return "metadata" if holds_metadata(path) else "segment"
    if name in _BY_NAME:
        return _BY_NAME[name]
    if name.endswith("-offset-checkpoint"):
        return "checkpoint"
    return next((kind for suffix, kind in _BY_SUFFIX.items() if name.endswith(suffix)), None)


def _base(path: Path) -> int:
    """The base offset in the file's name; 0 if there is none."""
    name = path.name
    for suffix in _STATE_SUFFIXES:
        name = name.removesuffix(suffix)
    parsed = parse_file_name(name)
    return 0 if parsed is None else parsed[0]
