"""``cleanerd top``: what the running daemon does, live, in a terminal."""

from __future__ import annotations

import math
import os
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import click

from cleanerd.cli.options import Common, common_options
from cleanerd.cli.output import Column, fitting, printable, widths_of
from cleanerd.cli.status import PARTITION_COLUMNS, headline, partition_row
from cleanerd.daemon.control_client import find_control_socket, send_request
from cleanerd.errors import RefusedError
from cleanerd.humanize import human_bytes, human_ms

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from rich.console import Group
    from rich.table import Table

ROWS = 30
_REASON_CHARS = 24
REASON_LINES = 3
"""How many lines a reason takes at most, so that other partitions stay on the screen."""
_ORDER = {
    "cleaning": 0,
    "queued": 1,
    "quarantined": 2,
    "refused": 3,
    "paused": 4,
    "staged": 5,
    "idle": 6,
    "excluded": 7,
}


def _a_number(_context: click.Context, _option: click.Parameter, seconds: float) -> float:
    """Refuse ``nan``, which passes every comparison with a limit."""
    if math.isnan(seconds):
        raise click.BadParameter("nan is not a number of seconds")
    return seconds


@click.command("top")
@common_options
@click.option(
    "--seconds",
    type=click.FloatRange(min=0.1, max=86_400),
    default=1.0,
    metavar="N",
    callback=_a_number,
    help="Seconds between updates. Default: 1.",
)
@click.option("--frames", type=click.IntRange(min=1), metavar="N", help="End after N updates. Default: at Ctrl-C.")
def top(common: Common, seconds: float, frames: int | None) -> None:
    """Show running cleanings with their progress, and the partitions with most to do, until Ctrl-C."""
    if common.output.as_json or not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        raise RefusedError("top needs a terminal that can draw", hint="cleanerd status --json")
    socket = find_control_socket(common.load_settings())
    common.output.live(_frames(socket, frames), seconds=seconds)


def _frames(socket: Path, count: int | None) -> Iterator[Group]:
    left = count
    while left is None or left > 0:
        yield frame(send_request(socket, "status"))
        left = None if left is None else left - 1


def frame(view: Mapping[str, Any]) -> Group:
    """One frame for a status."""
    from rich.console import Group  # noqa: PLC0415 - 60 ms that other commands do not need
    from rich.text import Text  # noqa: PLC0415

    parts: list[Text | Table] = [Text(printable(headline(view)), style="bold"), Text(), _running(view)]
    partitions = sorted(
        view["partitions"], key=lambda each: (_ORDER[each["state"]], -(each["dirty_bytes"] or 0), each["topic"])
    )
    rows = [[printable(cell) for cell in partition_row(each, view["made_ms"])] for each in partitions[:ROWS]]
    for row in rows:
        row[-1] = textwrap.shorten(row[-1], REASON_LINES * _REASON_CHARS, placeholder=" ...")
    # The reason continues on further lines, in the width that the other columns leave.
    columns = [*PARTITION_COLUMNS[:-1], Column("why" + " " * _REASON_CHARS)]
    used = fitting(columns, widths_of(columns, rows), shutil.get_terminal_size().columns)
    table = _table([PARTITION_COLUMNS[at].title for at in used])
    for row in rows:
        table.add_row(*(Text(row[at]) for at in used))
    parts += [Text(), table]
    if len(partitions) > ROWS:
        parts.append(Text(f"and {len(partitions) - ROWS} more: cleanerd status"))
    parts += [Text(f"warning: {printable(warning)}", style="yellow") for warning in view["warnings"][-3:]]
    return Group(*parts)


def _running(view: Mapping[str, Any]) -> Table:
    from rich.text import Text  # noqa: PLC0415

    table = _table(["cleaning", "because of", "phase", "done", "of", "for"])
    for job in view["running"]:
        done, total = job["done_bytes"], job["total_bytes"]
        share = f"{100 * done // total} %" if total else ""
        cells = [
            f"{job['topic']}-{job['partition']}", job["trigger"], job["phase"], share, human_bytes(total),
            human_ms(max(0, view["made_ms"] - job["started_ms"])),
        ]  # fmt: skip
        table.add_row(*(Text(printable(cell)) for cell in cells))
    return table


def _table(titles: list[str]) -> Table:
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=None, pad_edge=False)
    for title in titles:
        table.add_column(title, no_wrap=title != "why", header_style="bold")
    return table
