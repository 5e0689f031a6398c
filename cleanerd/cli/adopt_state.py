"""``cleanerd adopt-state``: declares that a copy of a log directory replaces the original (U-46)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from cleanerd.errors import CleanerdError, RefusedError, machine_error
from cleanerd.humanize import counted
from cleanerd.segments.log_dir import LogDir, partition_names, read_log_dir
from cleanerd.segments.partition import PartitionLog, read_partition
from cleanerd.state.cleaner_checkpoint import StateStore
from cleanerd.state.places import is_there

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cleanerd.cli.options import Common


def adopt_state(common: Common, log_dir: Path, *, original: str | None) -> int:
    """Run ``cleanerd adopt-state``; its command line is in ``cleaning_commands.py``."""
    store = StateStore(common.load_settings().daemon.cleanerd_state_dir)
    found = read_log_dir(log_dir)
    try:
        name, path = _source(store, found, original)
        kept, lost = store.adopt(found, _logs(common, found), name)
    except OSError as error:
        raise machine_error(error)(f"cannot be read or written: {error.strerror}", where=str(store.root)) from error
    if common.output.as_json:
        common.output.json({"log_dir": str(log_dir), "original": path, "kept": kept, "lost": lost})
        return 0
    common.output.line(f"{log_dir} has the state of {path}: {counted(kept, 'partition')} stay clean as far as they are")
    if lost:
        common.output.warning(
            f"{counted(lost, 'partition')} will be cleaned from the start: a cleaned segment has another size or time "
            "than in the original (copy with cp -a or rsync -a)"
        )
    common.output.note("restart the daemon, if one runs: it has read the state already")
    return 0


def _source(store: StateStore, log_dir: LogDir, original: str | None) -> tuple[str, str]:
    """The name and the path of the place whose state ``log_dir`` gets.

    Raises:
        RefusedError: there is no such place, or several, or it is in use, or ``log_dir`` has state already.
        OSError: the state directory cannot be read.
    """
    where = str(log_dir.path)
    if any(store.directory(log_dir).glob("*.json")):
        raise RefusedError(
            "it has its own state already",
            where=where,
            hint=f"to replace it, stop the daemon and remove {store.directory(log_dir)}",
        )
    places = store.places.gone_to(log_dir.place, None if original is None else os.path.realpath(original))
    known = ", ".join(sorted(each.place.path for each in places.values()))
    if not places:
        raise RefusedError(
            f"{store.root} knows no log directory that it can be a copy of",
            where=where,
            hint="name the original's place with --from, and the state directory with --set cleanerd.state.dir=DIR",
        )
    if len(places) > 1:
        raise RefusedError(f"it can be a copy of {known}", where=where, hint="choose one with --from")
    ((name, before),) = places.items()
    if is_there(before.place, log_dir.place):
        raise RefusedError(
            f"its original is still at {known}, so it may be a trial",
            where=where,
            hint="unmount or rename the original first",
        )
    return name, known


def _logs(common: Common, log_dir: LogDir) -> Iterator[PartitionLog]:
    """The partitions that can be read."""
    for name in partition_names(log_dir.path):
        try:
            yield read_partition(log_dir, name)
        except CleanerdError as error:
            common.output.warning(str(error))
