"""The cost of Kafka's own cleaner for a copy of a generated log (U-30)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cleanerd_lab.bench.generate import BASE_TIMESTAMP_MS
from tests.kafka.judge import Round

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd_lab.bench.generate import MadeLog
    from tests.kafka.answers import Cleaned
    from tests.kafka.judge import Judge

KAFKA_MAP_BYTES: Final = 128 * 1024 * 1024
"""Kafka's default for ``log.cleaner.dedupe.buffer.size``, and cleanerd's."""


def kafkas_clean(
    judge: Judge, log: MadeLog, work_dir: Path, *, copied: bool = False, map_bytes: int = KAFKA_MAP_BYTES
) -> Cleaned:
    """Make Kafka clean a copy of ``log``; the answer has the CPU time of its thread and of its whole process.

    ``copied``: the copy is in ``work_dir`` already.
    """
    (answer,) = judge.clean(
        work_dir / log.partition_dir.name,
        [Round(now_ms=BASE_TIMESTAMP_MS + log.records)],
        source=None if copied else log.partition_dir,
        config={"segment.bytes": str(log.segment_bytes)},
        map_bytes=map_bytes,
        repeat=1,
    )
    # Its map must have room for all keys, as cleanerd's.
    assert answer.map_messages_read == log.records
    return answer
