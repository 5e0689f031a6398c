"""A segment as brokers before KAFKA-5413 could write it: its offsets span more than any index can hold (C-67)."""

from __future__ import annotations

from typing import Final

from tests.support.log_dirs import Partition
from tests.support.logs import BASE_TIMESTAMP_MS, Record, encode_batch, encode_marker, keyed_batch

SPAN: Final = 2**31
NOW_MS: Final = BASE_TIMESTAMP_MS + 1_000_000
END: Final = 4 * SPAN
PIECES: Final = (0, SPAN, 2 * SPAN + 50)
"""The base offsets of the segments into which the first one has to be split."""
PRODUCER: Final = 7
ABORTED: Final = ((PRODUCER, 110, 111, 110), (PRODUCER, SPAN + 8, SPAN + 9, SPAN + 8))
"""Two transactions, one in the first and one in the second of them."""


def keyed(base: int, *entries: tuple[str, str | None]) -> bytes:
    """A batch with today's time."""
    return keyed_batch(base, entries, timestamp=NOW_MS - 1000)


def aborted(base: int, key: bytes, sequence: int) -> bytes:
    """A record at ``base``, and behind it the marker that aborts it."""
    record = Record(key=key, value=b"x", timestamp=NOW_MS - 1000)
    data = encode_batch(
        [record],
        base_offset=base,
        transactional=True,
        producer_id=PRODUCER,
        producer_epoch=0,
        base_sequence=sequence,
    )
    return data + encode_marker(base + 1, commit=False, producer_id=PRODUCER, timestamp=NOW_MS - 1000)


def overflowed(*, transactions: bool = True) -> Partition:
    """Segment 0 spans more than 2^32 offsets; 3 * 2^31 supersedes a record in each of its parts.

    Then the active one.
    """
    early, late = (aborted(110, b"t", 0), aborted(SPAN + 8, b"t", 1)) if transactions else (b"", b"")
    first = keyed(0, ("a", "1"), ("b", "1")) + keyed(100, ("c", "1")) + early + keyed(SPAN - 1, ("e", "1"))
    second = keyed(SPAN, ("a", "2")) + late + keyed(SPAN + 100, ("f", "1"), ("g", "1"))
    third = keyed(2 * SPAN + 50, ("d", "1"), ("b", "2"))
    last = keyed(3 * SPAN, ("c", "9"), ("f", "9"), ("d", "9"))
    return Partition(
        {0: first + second + third, 3 * SPAN: last, END: keyed(END, ("z", "1"))},
        aborted={0: ABORTED} if transactions else {},
        index_interval_bytes=1,
        mtime_ms=BASE_TIMESTAMP_MS,
    )
