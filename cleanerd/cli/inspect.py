"""``cleanerd inspect``: decode any file that a broker keeps, by its name. Reads only, also beside a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from cleanerd.cli.options import Common, common_options
from cleanerd.cli.output import Column
from cleanerd.cli.selecting import ExistingPath, strategy_option
from cleanerd.errors import CleanerdError
from cleanerd.inspect.directory import inspect_log_dir, inspect_partition
from cleanerd.inspect.kinds import KINDS, UnknownFileError, decoder_of
from cleanerd.inspect.report import Inspection, Selection, text_of, time_of
from cleanerd.inspect.strategy import topic_table, version_facts

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.cli.output import Output

DEFAULT_LIMIT: Final = 1000


@click.command("inspect")
@common_options
@click.argument("path", metavar="FILE_OR_DIR", type=ExistingPath())
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
@strategy_option("Partitions: count what timestamp or header:NAME finds in the records. Reads all of them.")
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
    try:
        look = KINDS[kind] if kind is not None else decoder_of(path)
    except UnknownFileError as error:
        raise click.UsageError(str(error)) from None
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
