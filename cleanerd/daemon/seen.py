"""What a partition's directory was when it was looked at: whether it is to be looked at anew is told by that."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from cleanerd.format.names import DELETED_SUFFIX, SEGMENT_SUFFIX, file_name

if TYPE_CHECKING:
    from cleanerd.broker.reading import PartitionReading
    from cleanerd.daemon.partition_look import PartitionLook
    from cleanerd.log.partition import PartitionLog
    from cleanerd.log.topic_config import TopicConfig
    from cleanerd.settings import Settings

LOOK_ANYWAY_MS: Final = 600_000
"""Every partition is looked at so often whatever its directory's time says."""

Listed = frozenset[tuple[str, int]]
"""Names and inodes of what lies there but is not about to be deleted."""


@dataclass(slots=True)
class Seen:
    """What a partition was when it was last looked at.

    ``files`` is :func:`number_of` what was listed, ``active`` where its log ended: base offset and bytes. ``settled``:
    only a change there, or time (``again_ms``), can change the answer. ``jobs_ended``: how many had when a job saw it
    at its end; what a look tells that was asked for before counts for nothing. ``settings``: those that such a job went
    by, None for the looks' own.
    """

    mtime_ns: int
    files: int
    config: TopicConfig | None
    mode: str
    settled: bool
    again_ms: int
    active: tuple[int, int] | None
    jobs_ended: int = 0
    settings: Settings | None = None

    @classmethod
    def of(
        cls,
        look: PartitionLook,
        reading: PartitionReading,
        config: TopicConfig | None,
        mode: str,
        *,
        changed_ns: int,
        files: int,
    ) -> Self:
        """What ``look``, which was made of ``reading``, was made of."""
        again_ms = look.looked_ms + LOOK_ANYWAY_MS + hash(look.name) % (LOOK_ANYWAY_MS // 4)
        if look.again_ms is not None:
            again_ms = min(again_ms, look.again_ms)
        active = reading.log.active
        settled = look.settled and reading.settled
        return cls(changed_ns, files, config, mode, settled, again_ms, (active.base, active.size_bytes))


def mtime_ns(path: str) -> int:
    """When a name in the directory changed last; -1 when it cannot be asked."""
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return -1


def listed(path: str) -> Listed | None:
    """What lies in the directory; None when it cannot be listed."""
    try:
        with os.scandir(path) as entries:
            return frozenset([(each.name, each.inode()) for each in entries if not each.name.endswith(DELETED_SUFFIX)])
    except OSError:
        return None


def number_of(found: Listed | None) -> int:
    """A number for it; another one when a file came, went or was replaced."""
    return -1 if found is None else hash(found)


def shows(found: Listed, log: PartitionLog) -> bool:
    """Whether the directory holds the segments of ``log``, no other ones and no more."""
    segments = {(file_name(segment.base, SEGMENT_SUFFIX), segment.inode) for segment in log.segments}
    return segments == {each for each in found if each[0].endswith(SEGMENT_SUFFIX)}
