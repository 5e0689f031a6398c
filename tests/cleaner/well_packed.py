"""Batches that become larger when they are compressed again."""

from __future__ import annotations

import random
import zlib

from tests.support.logs import BASE_TIMESTAMP_MS, Record, encode_batch, encode_record, keyed_batch

NOW = BASE_TIMESTAMP_MS + 1_000_000


def packed_better(base: int, rows: list[tuple[bytes, bytes]], *, level: int = 9) -> bytes:
    """A batch that gzip's default level makes larger."""
    records = [Record(key, value, NOW - 1000) for key, value in rows]
    plain = b"".join(encode_record(record, offset_delta=row, timestamp_delta=0) for row, record in enumerate(records))
    packer = zlib.compressobj(level, zlib.DEFLATED, 31)
    packed = packer.compress(plain) + packer.flush()
    return encode_batch(records, base_offset=base, codec=1, payload=packed)


def well_packed_log(batches: int = 1) -> dict[int, bytes]:
    """One tiny record is superseded in each batch; compressed again, the batch is larger by more than that."""
    rng = random.Random(4)
    words = [bytes(rng.choices(b"abcdefgh", k=rng.randint(3, 9))) for _ in range(300)]
    data = b"".join(
        packed_better(2 * row, [(b"k", b""), (b"u%d" % row, b"".join(rng.choices(words, k=9000)))])
        for row in range(batches)
    )
    return {0: data, 2 * batches: keyed_batch(2 * batches, [("k", "1")]),
            2 * batches + 1: keyed_batch(2 * batches + 1, [("tail", "t")])}  # fmt: skip
