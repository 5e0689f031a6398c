"""The options that select what to clean and how far, shared by ``plan``, ``clean`` and ``stage``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cleanerd.cli.options import now_option
from cleanerd.cli.selecting import partition_option

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cleanerd.cleaner.survey import CleaningOptions
    from cleanerd.cli.output import Output
    from cleanerd.config.load import Settings


def options_from(given: Mapping[str, Any], output: Output, settings: Settings) -> CleaningOptions:
    """The cleaning options of a command line, with a note if the clock is not trusted (U-42).

    Raises:
        click.UsageError: two of them contradict each other.
    """
    from cleanerd.cleaner.survey import CleaningOptions  # noqa: PLC0415 - NumPy
    from cleanerd.state.last_time import read_clock  # noqa: PLC0415

    if given["from_start"] and given["first_dirty"] is not None:
        raise click.UsageError("give --first-dirty or --from-start, not both")
    now_ms, doubt_ms = given["now_ms"], 0
    if now_ms is None:
        warnings: list[str] = []
        clock = read_clock(settings.daemon.cleanerd_state_dir, warnings)
        observed = clock.observe()
        for warning in (*warnings, *([f"{observed}; --now-ms sets the time"] if observed else [])):
            output.warning(warning)
        now_ms, doubt_ms = clock.read_ms()
    return CleaningOptions(
        now_ms=now_ms,
        clock_doubt_ms=doubt_ms,
        force=given["force"],
        first_dirty_offset=given["first_dirty"],
        from_start=given["from_start"],
        up_to_offset=given["cleanable_to"],
        unclean=given["unclean"],
        change_strategy=given.get("change_strategy", False),
        waits_for_replicas=given["now_ms"] is None or given.get("wait_for_replicas", False),
        ignored_replicas=frozenset(given.get("ignored_replicas", ())),
    )


def save_time(settings: Settings) -> None:
    """Store the time for the next cleaning, if the state directory exists."""
    from cleanerd.state.last_time import read_clock, save_time  # noqa: PLC0415

    state_dir = settings.daemon.cleanerd_state_dir
    if state_dir.is_dir():
        save_time(state_dir, read_clock(state_dir, []).last())


def cleaning_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that select what to clean, how far, and at which time."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


_OPTIONS = (
    partition_option,
    click.option("--force", is_flag=True, help="Clean although the dirty ratio is below min.cleanable.dirty.ratio."),
    click.option(
        "--first-dirty",
        type=click.IntRange(min=0),
        metavar="OFFSET",
        help="Clean from this offset, not from the checkpoint's.",
    ),
    click.option("--from-start", is_flag=True, help="Treat the whole log as dirty."),
    now_option,
    click.option(
        "--cleanable-to",
        type=click.IntRange(min=0),
        metavar="OFFSET",
        help="Clean up to this offset; never above the first uncleanable one.",
    ),
    click.option(
        "--unclean", is_flag=True, help="The broker was not stopped cleanly: clean the log below the recovery point."
    ),
    click.option(
        "--change-strategy",
        is_flag=True,
        help="Clean by another strategy than the last cleaning. plan shows what that changes.",
    ),
    click.option(
        "--ignore-replica",
        "ignored_replicas",
        type=click.IntRange(min=0),
        multiple=True,
        metavar="BROKER",
        help="Tombstones do not wait for this broker, which never returns. Repeatable. If it returns after all, "
        "move its directories of these partitions aside before it starts, or deleted keys come back.",
    ),
    click.option("--wait-for-replicas", is_flag=True, hidden=True, help="Also with --now-ms."),
    click.option(
        "--keep-replaced",
        "kept",
        metavar="DIR",
        type=click.Path(path_type=Path, readable=False),
        help="Keep the replaced segments in DIR for cleanerd undo: same file system, outside every log directory.",
    ),
)
