"""``cleanerd inspect``: decode any file that a broker keeps, by its name. Reads only, also beside a broker."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from cleanerd.cli import inspect_files as files
from cleanerd.cli.inspect_directory import (
    inspect_log_dir,
    inspect_metadata_directory,
    inspect_partition,
    is_metadata_directory,
)
from cleanerd.cli.inspect_report import Inspection, Selection
from cleanerd.cli.inspect_segment import holds_metadata, inspect_batches
from cleanerd.cli.inspect_strategy import topic_table, version_facts
from cleanerd.cli.options import Common, common_options, parse_strategy
from cleanerd.errors import CleanerdError
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
from cleanerd.log.log_dir import CLEAN_SHUTDOWN, META_PROPERTIES
from cleanerd.log.partition import LEADER_EPOCHS, PARTITION_METADATA

if TYPE_CHECKING:
    from collections.abc import Callable

DEFAULT_LIMIT: Final = 1000
_STATE_SUFFIXES: Final = (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX, ".part", ".tmp")

KINDS: Final[dict[str, Callable[[Path, Selection], Inspection]]] = {
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
"""What ``--as`` takes, and who decodes it."""

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


@click.command("inspect")
@common_options
@click.argument("path", metavar="FILE_OR_DIR", type=click.Path(exists=True, path_type=Path))
@click.option("--batches", "rows", flag_value="batches", default=True, help="Segments: a row per batch (the default).")
@click.option("--records", "rows", flag_value="records", help="Segments: a row per record.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=DEFAULT_LIMIT,
    show_default=True,
    metavar="N",
    help="At most N rows a table; 0 for all.",
)
@click.option("--from-offset", type=click.IntRange(min=0), metavar="OFFSET", help="Nothing below this offset.")
@click.option("--to-offset", type=click.IntRange(min=0), metavar="OFFSET", help="Nothing above this offset.")
@click.option(
    "--strategy",
    metavar="STRATEGY",
    callback=lambda _context, _option, text: None if text is None else parse_strategy(text),
    help="Partitions: count what timestamp or header:NAME finds in the records. Reads all of them.",
)
@click.option("--as", "kind", type=click.Choice(sorted(KINDS)), help="What the file is, when its name does not say.")
def inspect(
    common: Common,
    path: Path,
    *,
    rows: str,
    limit: int,
    from_offset: int | None,
    to_offset: int | None,
    strategy: tuple[str, str] | None,
    kind: str | None,
) -> int:
    """Decode any file that a broker keeps: segments, indexes, snapshots, checkpoints, KRaft metadata.

    A partition's directory gives a table of its segments, a log directory tables of its partitions and topics. Damaged
    files are decoded as far as it goes; then the error names the byte (exit code 5). Of the cluster's metadata only
    settings about logs and their cleaning are shown.
    """
    selection = Selection(records=rows == "records", limit=limit or None, from_offset=from_offset, to_offset=to_offset)
    if kind is not None and path.is_dir():
        raise click.UsageError("--as is for files")
    look = KINDS[kind] if kind is not None else _look_for(path)
    if strategy is not None and look is not inspect_partition:
        raise click.UsageError("--strategy is for partitions' directories")
    try:
        found = look(path, selection)
        if look is inspect_log_dir:
            found.tables.append(topic_table(path, common.load_settings(), selection))
        if strategy is not None and found.error is None:
            found.facts |= version_facts(path, *strategy, common.load_settings())
    except CleanerdError as error:
        if common.output.as_json:
            Inspection(str(path), "damaged", error=error).show(common.output)
        raise
    found.show(common.output)
    if found.error is not None:
        raise found.error
    return 0


def _look_for(path: Path) -> Callable[[Path, Selection], Inspection]:
    """Who decodes ``path``, by its name, or for directories by what is in them."""
    if path.is_dir():
        return _look_for_directory(path)
    kind = _kind_of(path)
    if kind is None:
        raise click.UsageError(f"{path.name!r} is no name of a broker's file; --as KIND says what it is")
    return KINDS[kind]


def _look_for_directory(path: Path) -> Callable[[Path, Selection], Inspection]:
    if is_metadata_directory(path):
        return inspect_metadata_directory
    if (path / META_PROPERTIES).exists():
        return inspect_log_dir
    if any((parsed := parse_file_name(name)) and parsed[1] == SEGMENT_SUFFIX for name in os.listdir(path)):
        return inspect_partition
    raise click.UsageError(f"{str(path)!r} has neither segments nor a {META_PROPERTIES}")


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
    """The base offset in the file's name; 0 when there is none."""
    name = path.name
    for suffix in _STATE_SUFFIXES:
        name = name.removesuffix(suffix)
    parsed = parse_file_name(name)
    return 0 if parsed is None else parsed[0]
