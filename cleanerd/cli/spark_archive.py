"""``cleanerd spark clean --output``: a cleaned copy of archives, and its report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cleanerd.cli.cleaning_options import options_from, save_time
from cleanerd.cli.results import print_notes, print_results
from cleanerd.cli.scope import note_missing_configs, note_server_properties, print_config_warnings, select_in
from cleanerd.humanize import counted
from cleanerd.spark.archive.run import ArchiveEvents, clean_archive

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from cleanerd.cli.options import Common
    from cleanerd.cli.output import Output
    from cleanerd.spark.archive.directory_copy import ArchivePlan


def archive_all(
    common: Common, session: SparkSession | None, log_dirs: tuple[Path, ...], place: Path, **given: Any
) -> int:
    """Write the selected partitions to ``place``, and report; returns the exit code."""
    output = common.output
    settings = common.load_settings()
    wanted = select_in(given["partitions"], log_dirs)
    options = options_from(given, output, settings)
    note_server_properties(output, settings)
    events = ArchiveEvents(output.note, output.warning, lambda plan: _print_planned(output, plan))
    with output.progress("archive") as advance:
        found = clean_archive(session, log_dirs, place, settings, wanted, options, events=events, advance=advance)
    save_time(settings)
    for result in found.results:
        print_notes(output, result)
    print_results(output, found.results, found.failures, more={"manifest": found.manifest})
    left = [str(result.name) for result in found.results if result.error is not None]
    if found.manifest is None:
        output.warning(f"{place}: nothing was cleaned, so no archive was written")
    elif left:
        output.warning(f"{found.manifest}: not in the archive, as they could not be cleaned: {_some(left)}")
    else:
        output.note(f"{found.manifest}: the archive is complete")
    return found.exit_code


def _print_planned(output: Output, planned: ArchivePlan) -> None:
    note_missing_configs(output, planned.facts, planned.copy.place)
    print_config_warnings(output, planned.configs)
    if planned.not_compacted:
        left = [str(name) for name in planned.not_compacted]
        output.note(f"{planned.copy.place}: not in the archive, as not known to be compacted: {_some(left)}")


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
    return f"{counted(len(names), 'partition')} ({shown})"
