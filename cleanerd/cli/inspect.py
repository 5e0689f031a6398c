"""``cleanerd inspect``: decode any file that a broker keeps, by its name. Reads only, also beside a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cleanerd.cli.output import Column, Output
from cleanerd.errors import CleanerdError
from cleanerd.inspection.directory import inspect_log_dir, inspect_partition
from cleanerd.inspection.kinds import KINDS, UnknownFileError, decoder_of
from cleanerd.inspection.report import Inspection, RowSelection, text_of, time_of
from cleanerd.inspection.strategy import topic_table, version_facts

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.cli.options import Common


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
    """Run ``cleanerd inspect``; its options are in ``reading_commands.py``."""
    selection = RowSelection(
        records=rows == "records", limit=limit or None, from_offset=from_offset, to_offset=to_offset
    )
    if kind is not None and path.is_dir():
        raise click.UsageError("--as is for files")
    try:
        decode = KINDS[kind] if kind is not None else decoder_of(path)
    except UnknownFileError as error:
        raise click.UsageError(str(error)) from None
    if strategy is not None and decode is not inspect_partition:
        raise click.UsageError("--strategy is for partitions' directories")
    try:
        found = decode(path, selection)
        if decode is inspect_log_dir:
            found.tables.append(topic_table(path, common.load_settings(), selection))
        if strategy is not None and found.error is None:
            found.facts |= version_facts(path, *strategy, common.load_settings())
    except CleanerdError as error:
        if common.output.as_json:
            _show(common.output, Inspection(str(path), "damaged", error=error))
        raise
    _show(common.output, found)
    if found.error is not None:
        raise found.error
    return 0


def _show(output: Output, found: Inspection) -> None:
    if output.as_json:
        output.json(found.as_json())
        return
    output.line(f"{found.path}: {found.kind}")
    width = max((len(name) for name in found.facts), default=0)
    for name, value in found.facts.items():
        text = time_of(value) if name.endswith(("_ms", "timestamp")) else text_of(value)
        output.line(f"  {name.replace('_', ' '):<{width}}  {text}")
    for table in found.tables:
        output.line()
        if not table.rows:
            output.line(f"no {table.name.replace('_', ' ')}")
            continue
        columns = [Column(column.title, right=column.right) for column in table.columns]
        output.table(columns, [[column.text(row) for column in table.columns] for row in table.rows])
        if table.omitted:
            output.line(f"... and {table.omitted} more; --limit shows more of them, 0 all")
