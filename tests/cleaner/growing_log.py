"""A random log that grows and is cleaned in turns."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from cleanerd.cleaner.survey import CleaningOptions
from tests.cleaner.driver import NAME, config, resources
from tests.cleaner.random_log import NOW_MS, LogMaker
from tests.support.log_dirs import (
    HIGH_WATERMARKS,
    RECOVERY_POINTS,
    Partition,
    make_log_dir,
    read_segments,
    snapshot_bytes,
    write_checkpoint,
    write_segment,
)

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.cleaner.resources import Resources
    from cleanerd.config.topic_config import TopicConfig

EXPIRATION_MS = 60_000
INTERVAL_BYTES = 200


class GrowingLog:
    """A log that grows and is cleaned in turns."""

    def __init__(self, root: Path, seed: int, segments: int, batches: int) -> None:
        self.pick = random.Random(seed)
        self.path = root / "logs"
        self.now_ms = NOW_MS
        self.maker = LogMaker(seed)
        self.retention_ms = self.pick.choice((1, 400, 100_000))
        logs = {}
        for _ in range(segments):
            base = self.maker.offset
            logs[base] = self.maker.segment(self.pick.randint(1, batches), self.now_ms)
            self.maker.skip(self.pick.choice((0, 0, 5)))
        self.active = max(logs)
        make_log_dir(self.path, {NAME: Partition(logs, index_interval_bytes=INTERVAL_BYTES)})
        self.set_ends()

    @property
    def partition(self) -> Path:
        return self.path / NAME

    def grow(self, batches: int) -> None:
        """Roll, and write some more; sometimes the broker leaves a producer snapshot as it does when it rolls."""
        self.now_ms += self.pick.choice((1, 300, 40_000))
        for _ in range(self.pick.randint(1, 2)):
            self.active = self.maker.offset
            if self.pick.random() < 0.5:
                snapshot = self.partition / f"{self.active:020d}.snapshot"
                snapshot.write_bytes(snapshot_bytes(list(self.maker.producers.values())))
            data = self.maker.segment(self.pick.randint(1, batches), self.now_ms)
            write_segment(self.partition, self.active, data, interval_bytes=INTERVAL_BYTES)
        self.set_ends()

    def set_ends(self) -> None:
        """High watermark and recovery point: usually the log end, sometimes in the middle of the log."""
        self.bound = self.active
        for name in (HIGH_WATERMARKS, RECOVERY_POINTS):
            offset = self.maker.offset if self.pick.random() < 0.8 else self.pick.randint(0, self.maker.offset)
            write_checkpoint(self.path / name, {NAME: offset})
            bases = [base for base in read_segments(self.partition) if base <= offset]
            self.bound = min(self.bound, bases[-1])

    def protected(self) -> set[int]:
        """Last data offsets of the producers that a broker would still know."""
        alive = (p for p in self.maker.producers.values() if self.now_ms - p.timestamp_ms < EXPIRATION_MS)
        return {producer.last_offset for producer in alive}

    def options(self) -> CleaningOptions:
        """Random options of a cleaning."""
        kind = self.pick.choice(("next", "next", "from start", "first dirty", "up to", "both"))
        first = self.pick.randint(0, self.bound) if kind in ("first dirty", "both") else None
        return CleaningOptions(
            now_ms=self.now_ms,
            force=True,
            tombstone_removal=kind
            in ("next", "from start", "first dirty"),  # otherwise the stored state of the log decides (R534-6)
            from_start=kind == "from start",
            first_dirty_offset=first,
            up_to_offset=self.pick.randint(first or 0, self.bound) if kind in ("up to", "both") else None,
        )

    def topic(self, least_segment_bytes: int = 200) -> TopicConfig:
        """Segment limits from tiny to large."""
        return config(
            segment_bytes=self.pick.choice((least_segment_bytes, 700, 3000, 1 << 20)),
            segment_index_bytes=self.pick.choice((24, 1 << 16)),
            index_interval_bytes=INTERVAL_BYTES,
            delete_retention_ms=self.retention_ms,
        )

    def resources(self) -> Resources:
        return resources(
            expiration_ms=EXPIRATION_MS,
            chunk_bytes=self.pick.choice((64, 1000, 65536)),
            map_bytes=1,
            map_load=self.pick.choice((0.002, 0.85)),
        )
