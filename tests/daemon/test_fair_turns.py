"""No partition occupies the only worker while others wait (D-11, D-12)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.daemon.service import COMPACT, assignments, broker, serve, until
from tests.support.log_dirs import Partition
from tests.support.logs import Record, encode_batch
from tests.swap.live_round import content
from tests.swap.offline_round import NOW, two_groups

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.daemon.service import Service
    from cleanerd.daemon.view import DaemonView

KEYS = 120_000
"""Two and a half times the keys that the daemon's smallest map holds."""

DAY_MS = 86_400_000


def tiny_keys() -> Partition:
    """Written a day before the small ones, so it is always overdue for longer than these."""
    data = b"".join(
        encode_batch(
            [Record(b"%d" % (base + n), b"", NOW - DAY_MS, offset_delta=n) for n in range(4000)], base_offset=base
        )
        for base in range(0, KEYS, 4000)
    )
    return Partition({0: data, KEYS: b""})


def cleanings(view: DaemonView) -> list[str]:
    """The partitions, in the order of their cleanings."""
    return [f"{each.topic}-{each.partition}" for each in reversed(view.history)]


def turns_of(root: Path, *settings: str) -> list[str]:
    """The turns of one worker with the smallest offset map, for one partition of many keys and three small ones."""
    small = {f"orders-{n}": two_groups() for n in (1, 2, 3)}
    with broker(root, {"orders-0": tiny_keys(), **small}) as agent:
        agent.settings |= {"max.compaction.lag.ms": "1", "min.cleanable.dirty.ratio": "1"}

        async def story(service: Service) -> None:
            await until(
                "all are clean",
                lambda: sorted(p.first_dirty_offset for p in service.view().partitions) == [8, 8, 8, KEYS],
            )
            assert not [p.name for p in service.view().partitions if p.quarantine]

        reported = [COMPACT, "log.cleaner.threads=1", "log.cleaner.dedupe.buffer.size=1048577"]
        reported += ["cleanerd.map.max.bytes=0", *settings]
        service = serve([*assignments(root), *reported], story)
    assert len(content(root)) == KEYS
    return cleanings(service.view())


def test_small_partitions_are_cleaned_between_two_parts_of_a_large_one(root: Path) -> None:
    """D-11: the large one is first each time, and each cleaning of it makes one pass."""
    turns = turns_of(root, "cleanerd.passes.bytes=0")
    assert turns[0] == "orders-0"
    assert sorted(turns[1:4]) == ["orders-1", "orders-2", "orders-3"]
    assert set(turns[4:]) == {"orders-0"}
    assert len(turns) >= 6


def test_a_partition_that_takes_few_passes_is_cleaned_at_once(root: Path) -> None:
    """U-20: within the limit a cleaning makes several passes."""
    turns = turns_of(root)
    assert turns[0] == "orders-0"
    assert len(turns) == 4
