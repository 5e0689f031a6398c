"""The question that ``clean`` asks before it begins: how much would be cleaned, and how; none without work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleanerd.broker.mode import choose_mode
from cleanerd.errors import CleanerdError
from cleanerd.humanize import counted, human_bytes
from cleanerd.resolution.checkpoint_pair import FirstReadings
from cleanerd.resolution.log_dirs import configured_log_dirs
from cleanerd.resolution.partitions import partitions_of
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.state.cleaner_checkpoint import StateStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from cleanerd.cleaner.survey import CleaningOptions, Survey
    from cleanerd.cli.output import Output
    from cleanerd.config.load import Settings
    from cleanerd.resolution.selection import PartitionSelection


def clean_question(
    output: Output,
    settings: Settings,
    paths: Sequence[Path],
    wanted: PartitionSelection,
    options: CleaningOptions,
    *,
    live: bool,
) -> str | None:
    """``Clean 3 partitions (10.6 MiB, live)?``; None when there is nothing to clean.

    Costs a listing of each partition. Unreadable ones are left out: the cleaning reports them.
    """
    found = list(_to_clean(output, settings, paths, wanted, options, live=live))
    if not found:
        return None
    what = str(found[0].log.name) if len(found) == 1 else counted(len(found), "partition")
    size = sum(segment.size_bytes for survey in found for segment in survey.log.segments)
    return f"Clean {what} ({human_bytes(size)}{', live' if live else ''})?"


def _to_clean(
    output: Output,
    settings: Settings,
    paths: Sequence[Path],
    wanted: PartitionSelection,
    options: CleaningOptions,
    *,
    live: bool,
) -> Iterator[Survey]:
    store = StateStore(settings.daemon.cleanerd_state_dir, keeps_damaged=True)
    first, configured = FirstReadings(), configured_log_dirs(settings)
    for path in paths:
        others = [other for other in paths if other != path]
        try:
            log_dir = read_log_dir(path)
            choice = choose_mode(log_dir, [*others, *configured], settings.daemon.cleanerd_agent_socket)
            if choice.mode != ("live" if live else "offline"):
                continue  # it is refused
            with partitions_of(settings, log_dir, others, choice, output.note, first) as partitions:
                for target in partitions.targets(wanted):
                    try:
                        found = partitions.read(target.name).survey(store, options)
                    except (CleanerdError, OSError):
                        continue
                    if found.to_clean:
                        yield found
        except CleanerdError:
            continue
