"""A running broker with a partition of very many small segments, and a broker with very many partitions' checkpoints.

The broker would need minutes to roll that many, so the segments are put into its directory while it is stopped.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from cleanerd.segments.log_dir import HIGH_WATERMARK_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from tests.live.load import create_topics
from tests.support.log_dirs import read_checkpoint, snapshot_bytes, write_checkpoint, write_segment
from tests.support.logs import Record, encode_batch

if TYPE_CHECKING:
    from cleanerd_lab.demo.broker import Broker

TOPIC: Final = "many"
RECORDS: Final = 3
VALUE_BYTES: Final = 60
CHECKPOINT: Final = "cleaner-offset-checkpoint"


def put_segments(broker: Broker, count: int, *, segment_bytes: int = 100 << 20) -> None:
    """Give the running ``broker`` a topic whose one partition has ``count`` segments of three records; it is restarted.

    One record of a segment is superseded, one supersedes, one has a unique key. Segments of ``segment_bytes`` could
    hold them all, so only the limit of sources ends a group.
    """
    create_topics(broker, [TOPIC], segment_bytes=segment_bytes)
    (directory,) = (path for log_dir in broker.log_dirs if (path := log_dir / f"{TOPIC}-0").is_dir())
    broker.stop()
    for path in directory.iterdir():
        if path.name[:20].isdigit():
            path.unlink()
    now_ms = time.time_ns() // 1_000_000 - 3_600_000
    for number in range(count):
        base = number * RECORDS
        keys = (b"h%d" % (number % 500), b"s%d" % (number // 2), b"o%d" % number)
        records = [Record(key=key, value=b"v" * VALUE_BYTES, timestamp=now_ms + number) for key in keys]
        (directory / f"{base:020d}.snapshot").write_bytes(snapshot_bytes([]))
        write_segment(directory, base, encode_batch(records, base_offset=base))
    end = count * RECORDS
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    for name in (HIGH_WATERMARK_CHECKPOINT, RECOVERY_POINT_CHECKPOINT):
        path = directory.parent / name
        write_checkpoint(path, read_checkpoint(path) | {f"{TOPIC}-0": end})
    broker.start()


def put_checkpoints(broker: Broker, count: int) -> None:
    """Add ``count`` lines to the cleaner's checkpoint of every log directory; the broker is restarted."""
    broker.stop()
    for log_dir in broker.log_dirs:
        path = log_dir / CHECKPOINT
        known = read_checkpoint(path) if path.exists() else {}
        write_checkpoint(path, known | {f"other-topic-{number}-0": 1_000_000 + number for number in range(count)})
    broker.start()
