"""The options that say what to clean and how far: what ``plan``, ``clean`` and ``stage`` share (cli.md)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cleanerd.cleaner.survey import Wishes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def wishes_from(options: Mapping[str, Any]) -> Wishes:
    """The cleaning options of a command line.

    Raises:
        click.UsageError: two of them contradict.
    """
    if options["from_start"] and options["first_dirty"] is not None:
        raise click.UsageError("--first-dirty and --from-start exclude each other")
    now_ms = options["now_ms"]
    return Wishes(
        now_ms=time.time_ns() // 1_000_000 if now_ms is None else now_ms,
        force=options["force"],
        first_dirty_offset=options["first_dirty"],
        from_start=options["from_start"],
        up_to_offset=options["up_to"],
        unclean=options["unclean"],
    )


def cleaning_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--partition --force --first-dirty --from-start --now-ms --up-to --unclean --keep-replaced`` (cli.md)."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


_OPTIONS = (
    click.option(
        "--partition", "partitions", multiple=True, metavar="TOPIC-N", help="Only this partition. Repeatable."
    ),
    click.option("--force", is_flag=True, help="Whatever min.cleanable.dirty.ratio says."),
    click.option("--first-dirty", type=click.IntRange(min=0), metavar="OFFSET", help="Instead of the checkpoint's."),
    click.option("--from-start", is_flag=True, help="The whole log counts as dirty."),
    click.option(
        "--now-ms", type=click.IntRange(min=0), metavar="MS", help="The time for every horizon. Default: the clock."
    ),
    click.option(
        "--up-to", type=click.IntRange(min=0), metavar="OFFSET", help="Clean less far; never above the bound."
    ),
    click.option(
        "--unclean", is_flag=True, help="The broker was not stopped cleanly: clean what lies below the recovery point."
    ),
    click.option(
        "--keep-replaced",
        "kept",
        metavar="DIR",
        type=click.Path(path_type=Path),
        help="Keep what is replaced in DIR (same file system, outside of every log directory) for cleanerd undo.",
    ),
)
