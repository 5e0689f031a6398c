"""The boundary between Python and the kernel: arrays in both directions, the GIL, errors."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

from cleanerd import _kernel
from tests.kernel.strategies import HASH_KEY, array
from tests.support.logs import Record, encode_batch, keyed_batch

ONE = keyed_batch(5, [("k", "v"), (None, None)])


def _results() -> list[tuple[str, Any]]:
    chunk = _kernel.decode_chunk(array(ONE), 0, hash_key=HASH_KEY)
    keep, actions = np.array([3], np.uint64), np.array([_kernel.ACTION_COPY], np.uint8)
    written = _kernel.rewrite_chunk(array(ONE), 0, keep, 0, actions)
    return [
        (f"{type(table).__name__}.{name}", getattr(table, name))
        for table in (chunk.batches, chunk.records, written)
        for name in dir(table)
        if isinstance(getattr(table, name), np.ndarray)
    ]


def test_columns_are_read_only() -> None:
    """All columns: no reader can change another reader's data."""
    columns = _results()
    assert len(columns) == 17 + 5 + 8
    for name, column in columns:
        assert column.ndim == 1, name
        assert column.flags.c_contiguous, name
        assert not column.flags.writeable, name
        with pytest.raises(ValueError, match="read-only"):
            column[:1] = 0


def test_columns_outlive_their_table() -> None:
    """A column keeps its own memory alive, not the chunk."""
    offset = _kernel.decode_chunk(array(ONE), 0).records.offset
    assert offset.tolist() == [5, 6]


def test_columns_are_not_copied() -> None:
    """A second access returns the same array."""
    records = _kernel.decode_chunk(array(ONE), 0).records
    assert records.offset is records.offset


@pytest.mark.parametrize("source", [bytes, bytearray, memoryview])
def test_any_buffer(source: Any) -> None:
    """Through np.frombuffer, read-only or not, at any address."""
    data = np.frombuffer(source(b"x" + ONE), np.uint8)[1:]
    assert len(_kernel.decode_chunk(data, 0).records) == 2


@pytest.mark.parametrize(
    "data",
    [
        np.zeros(10, np.int8),
        np.zeros((2, 5), np.uint8),
        np.zeros(20, np.uint8)[::2],
        b"bytes",
        None,
    ],
)
def test_wrong_arrays_are_a_type_error(data: Any) -> None:
    """Never a CorruptLogError, which is about the log."""
    for call in (
        lambda: _kernel.decode_chunk(data, 0),
        lambda: _kernel.scan_headers(data, 0),
        lambda: _kernel.crc32c(data),
        lambda: _kernel.rewrite_chunk(data, 0, np.zeros(1, np.uint64), 0, np.zeros(1, np.uint8)),
    ):
        with pytest.raises(TypeError):
            call()


def test_hash_key_has_16_bytes() -> None:
    """One key length, and bytes."""
    for key in (b"", bytes(15), bytes(17)):
        with pytest.raises(ValueError, match="16 bytes"):
            _kernel.decode_chunk(array(ONE), 0, hash_key=key)
    with pytest.raises(ValueError, match="max_unpacked"):
        _kernel.decode_chunk(array(ONE), 0, max_unpacked=-1)


def test_errors_are_exceptions() -> None:
    """A worker's ``except Exception`` catches them; neither is a ValueError, which means a wrong call."""
    for error in (_kernel.CorruptLogError, _kernel.KernelBugError):
        assert issubclass(error, Exception)
        assert not issubclass(error, ValueError)
        assert error.__module__ == "cleanerd._kernel"


def test_an_error_has_reason_and_place() -> None:
    """One line with the reason and the place."""
    damaged = bytearray(ONE)
    damaged[-1] ^= 1
    with pytest.raises(_kernel.CorruptLogError) as caught:
        _kernel.decode_chunk(array(bytes(damaged)), 4096)
    text = str(caught.value)
    assert "CRC-32C" in text
    assert "byte 4096" in text
    assert "base offset 5" in text
    assert caught.value.reason in text


def test_the_gil_is_released() -> None:
    """Another thread runs during a long call; if the call kept the GIL, that thread would run only before and after it.

    Repeated until the other thread had a core at the same time, which on a busy machine takes some calls.
    """
    data = array(encode_batch([Record(value=bytes(60 << 20))], codec=1))
    ticks: list[float] = []
    done = threading.Event()

    def tick() -> None:
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    def ticks_meanwhile() -> int:
        start = time.perf_counter()
        _kernel.decode_chunk(data, 0)
        end = time.perf_counter()
        return sum(start < moment < end for moment in ticks)

    ticker = threading.Thread(target=tick)
    ticker.start()
    try:
        assert any(ticks_meanwhile() >= 3 for _ in range(100))
    finally:
        done.set()
        ticker.join()


def test_threads_do_not_disturb_each_other() -> None:
    """Codec contexts belong to a thread; the same chunk decodes identically everywhere."""
    data = array(b"".join(keyed_batch(i * 10, [(f"k{i}", "v" * i)] * 5, codec=i % 5) for i in range(200)))
    expected = _kernel.decode_chunk(data, 0, hash_key=HASH_KEY).records.key_hash.tolist()
    wrong: list[int] = []

    def decode() -> None:
        hashes = (_kernel.decode_chunk(data, 0, hash_key=HASH_KEY).records.key_hash.tolist() for _ in range(20))
        wrong.extend(1 for found in hashes if found != expected)

    workers = [threading.Thread(target=decode) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_build_info() -> None:
    """The facts for a bug report, without data of this machine."""
    info = _kernel.build_info()
    assert {"version", "target", "profile", "zstd", "lz4_flex", "flate2", "snap", "crc32c", "siphasher"} <= set(info)
    assert not any("/" in value for value in info.values())


def test_constants() -> None:
    """They are written into manifests of bits: their values are part of the contract."""
    actions = (_kernel.ACTION_DROP, _kernel.ACTION_COPY, _kernel.ACTION_REBUILD, _kernel.ACTION_EMPTY)
    assert len(set(actions)) == 4
    assert all(action < _kernel.ACTION_SET_HORIZON == 0x10 for action in actions)
    assert (_kernel.ACTION_TIMELESS, _kernel.ACTION_TIME_ZERO) == (0x20, 0x40)
    assert (_kernel.FLAG_HAS_KEY | _kernel.FLAG_HAS_VALUE) == 3
