"""``cleanerd spark clean --output``: a cleaned copy of archives, and what is told of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cleanerd.cli.cleaning_options import options_from, remember_time
from cleanerd.cli.results import tell, tell_notes
from cleanerd.cli.scope import (
    select_in,
    tell_of_server_properties,
    tell_warnings,
    tell_what_is_missing,
)
from cleanerd.spark.archive.run import Told, clean_archive
from cleanerd.words import counted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from cleanerd.cli.options import Common
    from cleanerd.cli.output import Output
    from cleanerd.spark.archive.look import Looked


def archive_all(
    common: Common, session: SparkSession | None, log_dirs: tuple[Path, ...], place: Path, **given: Any
) -> int:
    """Write what the cleaning options ask for to ``place``, and tell; returns the exit code."""
    output = common.output
    settings = common.load_settings()
    wanted = select_in(given["partitions"], log_dirs)
    options = options_from(given, output, settings)
    tell_of_server_properties(output, settings)
    told = Told(output.note, output.warning, lambda looked: _tell_looked(output, looked))
    with output.progress("archive") as advance:
        found = clean_archive(session, log_dirs, place, settings, wanted, options, told=told, advance=advance)
    remember_time(settings)
    for result in found.results:
        tell_notes(output, result)
    tell(output, found.results, found.failures, more={"manifest": found.manifest})
    left = [str(result.name) for result in found.results if result.error is not None]
    if found.manifest is None:
        output.warning(f"{place}: nothing was cleaned, so no archive was written")
    elif left:
        output.warning(f"{found.manifest}: not in the archive, as they could not be cleaned: {_some(left)}")
    else:
        output.note(f"{found.manifest}: the archive is complete")
    return found.exit_code


def _tell_looked(output: Output, looked: Looked) -> None:
    tell_what_is_missing(output, looked.facts, looked.copy.place)
    tell_warnings(output, looked.configs)
    if looked.not_compacted:
        left = [str(name) for name in looked.not_compacted]
        output.note(f"{looked.copy.place}: not in the archive, as not known to be compacted: {_some(left)}")


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
    return f"{counted(len(names), 'partition')} ({shown})"
