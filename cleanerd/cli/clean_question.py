"""The question that ``clean`` asks before it begins: how much would be cleaned, and how. No work, no question."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleanerd.errors import CleanerdError
from cleanerd.humanize import counted, human_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cleanerd.cleaner.survey import Survey
    from cleanerd.cli.each_dir import CleaningRequest


def clean_question(request: CleaningRequest, *, live: bool) -> str | None:
    """For example ``Clean 3 partitions (10.6 MiB, live)?``; None if there is nothing to clean.

    Costs a listing of each partition. Unreadable ones are left out, because the cleaning reports them.
    """
    found = list(_to_clean(request, live=live))
    if not found:
        return None
    what = str(found[0].log.name) if len(found) == 1 else counted(len(found), "partition")
    size = sum(segment.size_bytes for survey in found for segment in survey.log.segments)
    return f"Clean {what} ({human_bytes(size)}{', live' if live else ''})?"


def _to_clean(request: CleaningRequest, *, live: bool) -> Iterator[Survey]:
    store = request.store.read_only()
    for session in request.opened[0]:
        try:
            choice = session.choose_mode()
            if choice.mode != ("live" if live else "offline"):
                continue  # the cleaning will be refused
            with session.partitions(choice, request.output.note, request.first) as partitions:
                for target in partitions.targets(request.wanted):
                    try:
                        found = partitions.read(target.name).survey(store, request.options)
                    except (CleanerdError, OSError):
                        continue
                    if found.to_clean:
                        yield found
        except CleanerdError:
            continue
