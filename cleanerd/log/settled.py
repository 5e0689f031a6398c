"""Checkpoints beside a running broker: read twice, the lower value counts (S-03).

After a truncation the high watermark on disk can be too high for a moment. Two readings that lie two checkpoint
intervals apart, and a log that did not get shorter in between, leave no room for that.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cleanerd.errors import CleanerdError
from cleanerd.log.partition import read_partition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cleanerd.format.names import TopicPartition
    from cleanerd.log.log_dir import LogDir

Ends = dict["TopicPartition", tuple[int, int]]
"""Base offset and size of the highest segment, by partition."""


def highest_segments(log_dir: LogDir) -> Ends:
    """Where every log ends now; partitions that cannot be read are left out."""
    ends: Ends = {}
    for name in log_dir.partitions:
        try:
            active = read_partition(log_dir, name).active
        except CleanerdError:
            continue  # whoever cleans it says why it cannot be read
        ends[name] = (active.base, active.size_bytes)
    return ends


def lower_of(first: LogDir, second: LogDir, before: Ends, after: Ends) -> LogDir:
    """``second`` with the lower offsets of both; 0, so that nothing is cleanable, where the log became shorter.

    A partition that was not there at the first reading has no offsets yet.
    """

    def lower(early: Mapping[TopicPartition, int], late: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {
            name: min(early.get(name, 0), offset) if before.get(name, (1 << 63, 0)) <= after.get(name, (-1, 0)) else 0
            for name, offset in late.items()
        }

    return replace(
        second,
        high_watermarks=lower(first.high_watermarks, second.high_watermarks),
        recovery_points=lower(first.recovery_points, second.recovery_points),
    )
