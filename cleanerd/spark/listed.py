"""Lists a log directory for readers, so that no record is missed silently.

A swap removes the old segments and renames the new one in two steps. A listing in between has neither, and would miss
their records. A reader that ignores a damaged checkpoint of log starts would read deleted records.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from cleanerd.errors import CorruptionError, RefusedError
from cleanerd.format.names import DELETED_SUFFIX, SEGMENT_SUFFIX, SWAP_SUFFIX, parse_file_name
from cleanerd.segments.log_dir import LOG_START_CHECKPOINT
from cleanerd.segments.remote import RemotePath
from cleanerd.verify.finding import Findings
from cleanerd.verify.listing import Listing, list_partition
from cleanerd.verify.log_dir import Surroundings, read_surroundings

TRIES: Final = 20
PAUSE_SECONDS: Final = 0.1
"""Interval of listings: a broker swaps in milliseconds, so a state that lasts two seconds is an interrupted one."""


def surroundings_of(log_dir: Path) -> Surroundings:
    """The checkpoints of a log directory, with known log starts.

    Raises:
        CorruptionError: the checkpoint of log starts cannot be read: a broker takes the directory offline for this.
        CleanerdError: a file cannot be read.
    """
    around = read_surroundings(log_dir, Findings())
    if LOG_START_CHECKPOINT not in around.offsets:
        raise CorruptionError(
            "is damaged: where logs start, and so which records were deleted, is not known",
            where=str(log_dir / LOG_START_CHECKPOINT),
            hint="copy it again; without the file logs start with their first segments",
        )
    return around


def list_complete(path: Path) -> Listing:
    """List the partition directory ``path`` while no swap is half done there.

    Raises:
        RefusedError: a swap is half done, and stays so.
        CleanerdError: it cannot be listed.
    """
    for number in range(TRIES):
        listing = list_partition(path)
        if not _is_between(listing):
            return listing
        if isinstance(path, RemotePath):
            break  # a copy: no process works there
        if number < TRIES - 1:
            time.sleep(PAUSE_SECONDS)
    raise RefusedError(
        "a cleaning was cut off during a swap: which records there are, only the broker's next start settles",
        where=str(path),
        hint="start the broker once, or copy the directory again",
    )


def _is_between(listing: Listing) -> bool:
    """Whether old segments may be missing while the new one lacks its name."""
    found = [parsed for each in listing.leftovers if (parsed := parse_file_name(each.name)) is not None]
    waiting = [base for base, suffix in found if suffix == SEGMENT_SUFFIX + SWAP_SUFFIX]
    if not waiting:
        return False
    gone = [base for base, suffix in found if suffix == SEGMENT_SUFFIX + DELETED_SUFFIX and base >= min(waiting)]
    return bool(gone) or not set(waiting) <= {segment.base for segment in listing.segments}
