"""Measures each kernel stage alone: data in memory, one thread, the minimum of several passes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from cleanerd import _kernel
from cleanerd.policy.retain import RecordEvidence, bits_from, retain
from cleanerd.segments.reading import DEFAULT_CHUNK_BYTES
from cleanerd_lab.bench.yardstick import segments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from cleanerd_lab.bench.generate import MadeLog

MOST_BYTES: Final = 128 * 1024 * 1024
_MAP_ENTRY_BYTES: Final = 16
_HASH_KEY: Final = bytes(range(16))


@dataclass(frozen=True, slots=True)
class Stages:
    """CPU time of each stage in ns a record."""

    crc: float
    scan: float
    decode: float
    put: float
    contains: float
    rewrite: float


def measure_stages(log: MadeLog, *, repeat: int) -> Stages:
    """Process the first ``MOST_BYTES`` of ``log`` with the kernel, stage by stage.

    Raises:
        OSError: the log cannot be read.
    """
    data = [np.frombuffer(piece, np.uint8) for piece in _pieces(log)]
    parts = [part for piece in data for part in _parts(piece)]
    chunks = [_decode(part) for part in parts]
    records = sum(len(chunk.records) for chunk in chunks)
    masks = [np.ones(len(chunk.records), dtype=np.bool_) for chunk in chunks]
    offset_map = _kernel.OffsetMap(int(records / 0.85 * _MAP_ENTRY_BYTES))
    work = [_Rewrite(part, chunk) for part, chunk in zip(parts, chunks, strict=True)]

    def put() -> None:
        offset_map.clear()
        for chunk, mask, each in zip(chunks, masks, work, strict=True):
            offset_map.put_max(chunk.records.key_hash, each.first_ordinal, mask)

    def contains() -> None:
        for chunk, mask in zip(chunks, masks, strict=True):
            offset_map.contains(chunk.records.key_hash, mask)

    first_ordinal = 0
    for each in work:
        each.first_ordinal = first_ordinal
        first_ordinal += (len(each.chunk.records) + 63) // 64 * 64
    put_seconds = _best(repeat, put)
    for each in work:
        each.decide(offset_map)
    return Stages(
        *(
            seconds * 1e9 / records
            for seconds in (
                _best(repeat, lambda: _each(_kernel.crc32c, parts)),
                _best(repeat, lambda: _each(lambda part: _kernel.scan_headers(part, 0), parts)),
                _best(repeat, lambda: _each(_decode, parts)),
                put_seconds,
                _best(repeat, contains),
                _best(repeat, lambda: _each(_Rewrite.run, work)),
            )
        )
    )


class _Rewrite:
    """One chunk with its keep bits and actions."""

    def __init__(self, data: NDArray[np.uint8], chunk: _kernel.Chunk) -> None:
        self.data = data
        self.chunk = chunk
        self.first_ordinal = 0
        self._keep = np.zeros(0, np.uint64)
        self._actions = np.zeros(0, np.uint8)

    def decide(self, offset_map: _kernel.OffsetMap) -> None:
        records = len(self.chunk.records)
        batches = self.chunk.batches
        evidence = RecordEvidence(
            keyed=bits_from(0, records),
            tombstone=np.zeros((records + 63) // 64, np.uint64),
            newest=offset_map.winners(self.first_ordinal, records),
            cleaned_records=records,
        )
        retention = retain(evidence, batches.first_record, np.zeros(len(batches), np.uint8))
        self._keep = retention.keep
        self._actions = retention.actions

    def run(self) -> None:
        # The kernel stops early when the output grows large; the next call continues there.
        position = batch = record = 0
        while position < len(self.data):
            written = _kernel.rewrite_chunk(self.data[position:], position, self._keep, record, self._actions[batch:])
            position += written.consumed
            batch += written.batches_read
            record += written.records_read


def _decode(data: NDArray[np.uint8]) -> _kernel.Chunk:
    return _kernel.decode_chunk(data, 0, hash_key=_HASH_KEY)


def _pieces(log: MadeLog) -> Iterator[bytes]:
    """The sealed segments, ``MOST_BYTES`` of them in total."""
    left = MOST_BYTES
    for path in segments(log.partition_dir)[:-1]:
        if left <= 0:
            return
        piece = path.read_bytes()[:left]
        left -= len(piece)
        yield piece


def _parts(piece: NDArray[np.uint8]) -> Iterator[NDArray[np.uint8]]:
    """Chunks of whole batches, as the cleaner reads them, without a batch that the end of the piece cuts."""
    start = 0
    while start < len(piece):
        part = piece[start : start + DEFAULT_CHUNK_BYTES]
        consumed = _decode(part).consumed
        if consumed == 0:
            return
        yield part[:consumed]
        start += consumed


def _each(call: Callable[..., object], arguments: list[object] | list[NDArray[np.uint8]] | list[_Rewrite]) -> None:
    for argument in arguments:
        call(argument)


def _best(repeat: int, stage: Callable[[], None]) -> float:
    best = float("inf")
    for _ in range(repeat):
        started = time.thread_time()
        stage()
        best = min(best, time.thread_time() - started)
    return best
