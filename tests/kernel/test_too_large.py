"""Batches that would take too much memory are refused in advance, and distinguished from damaged ones (U-35)."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

from cleanerd import _kernel
from tests.support.bombs import crowded_batch, zeros_batch
from tests.support.logs import encode_legacy, encode_wrapper, keyed_batch, seal

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

MIB = 1024 * 1024
RECORD_BYTES = 32
MANY = MIB // RECORD_BYTES + 10_000


def _array(data: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(data, np.uint8)


def _decode(data: bytes, limit: int = MIB) -> _kernel.Chunk:
    return _kernel.decode_chunk(_array(data), 0, max_unpacked=limit)


def _keep_none(data: bytes, limit: int = MIB) -> _kernel.Written:
    actions = np.full(2, _kernel.ACTION_REBUILD, np.uint8)
    return _kernel.rewrite_chunk(_array(data), 0, np.full(1 << 15, 1, np.uint64), 0, actions, max_unpacked=limit)


def _plain(codec: int) -> bytes:
    return keyed_batch(0, [("k", "x" * (2 * MIB))], codec=codec)


@pytest.mark.parametrize("call", [_decode, _keep_none])
@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_each_codec(codec: int, call: Callable[[bytes], object]) -> None:
    """The error has its own class, and the place, the stored size of the batch, and the limit."""
    good, bad = keyed_batch(0, [("k", "v")]), _plain(codec)
    with pytest.raises(_kernel.BatchTooLargeError) as caught:
        call(bad)
    assert caught.value.reason == f"a batch of {len(bad)} bytes decompresses to more than {MIB} bytes"
    with pytest.raises(_kernel.BatchTooLargeError) as caught:
        call(good + bad)
    assert caught.value.position == len(good)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [1, 2, 3])
def test_wrappers(codec: int, magic: int) -> None:
    """F-3.1: the decompressed size of a v0 or v1 wrapper counts like a batch."""
    inner = encode_legacy(0, b"k", bytes(2 * MIB), magic=magic)
    with pytest.raises(_kernel.BatchTooLargeError):
        _decode(encode_wrapper(0, inner, magic=magic, codec=codec))


def test_many_small_records_count_too() -> None:
    """Eight bytes per record would fit; their columns would not."""
    assert len(_decode(crowded_batch(0, MIB // RECORD_BYTES)).records) == MIB // RECORD_BYTES
    with pytest.raises(
        _kernel.BatchTooLargeError, match=f"decompresses to {MANY} records, which need more memory than"
    ):
        _decode(crowded_batch(0, MANY))
    assert len(_decode(crowded_batch(0, MANY), 2 * MIB).records) == MANY


_LITTLE_MEMORY = """
import resource, struct, sys
from cleanerd import _kernel

def frame(window_log):
    data = b"hello"
    head = struct.pack("<IBB", 0xFD2FB528, 0, window_log - 10 << 3)
    return head + (len(data) << 3 | 1).to_bytes(3, "little") + data

def unpack(window_log):
    try:
        print(_kernel.decompress(4, frame(window_log), 1000))
    except _kernel.CorruptLogError as error:
        print(type(error).__name__, error)

unpack(27)
unpack(28)
with open("/proc/self/status") as status:
    size = next(int(line.split()[1]) for line in status if line.startswith("VmSize")) * 1024
resource.setrlimit(resource.RLIMIT_AS, (size + (40 << 20), -1))
unpack(27)
unpack(17)
"""


def test_a_window_larger_than_the_memory() -> None:
    """U-35, U-38: a zstd frame with the largest window that brokers read is not damaged. A larger one is reported."""
    done = subprocess.run([sys.executable, "-c", _LITTLE_MEMORY], capture_output=True, check=True, text=True)
    assert done.stdout.splitlines() == [
        "b'hello'",
        "CorruptLogError zstd data has a window of more than 128 MiB, which brokers reject, too",
        "BatchTooLargeError needs more memory for its decompression by zstd than the system has",
        "b'hello'",
    ]


def test_a_false_record_count_is_damage() -> None:
    """A record count that does not match the bytes does not affect the memory."""
    lie = bytearray(crowded_batch(0, 100))
    lie[57:61] = (2**31 - 1).to_bytes(4, "big")
    with pytest.raises(_kernel.CorruptLogError, match="2147483647 records do not fit in") as caught:
        _decode(seal(bytes(lie)))
    assert not isinstance(caught.value, _kernel.BatchTooLargeError)


def test_damage_is_not_too_large() -> None:
    """Nor is any other fault in compressed data."""
    for codec in (1, 2, 3, 4):
        whole = keyed_batch(0, [("k", "x" * 1000)], codec=codec)
        with pytest.raises(_kernel.CorruptLogError) as caught:
            _decode(seal(whole[: 61 + (len(whole) - 61) // 2]))
        assert not isinstance(caught.value, _kernel.BatchTooLargeError), codec


@pytest.mark.long
def test_a_chunk_ends_early_where_there_is_little_memory() -> None:
    """Many batches below the limit do not add up to much."""
    one = crowded_batch(0, MIB // RECORD_BYTES)
    data = b"".join(crowded_batch(n << 15, MIB // RECORD_BYTES) for n in range(8))
    assert _decode(data, 1 << 30).consumed == len(data)
    assert _decode(data).consumed <= 2 * len(one)
    zeros = b"".join(zeros_batch(2 * n, 3 * MIB) for n in range(8))
    assert len(_decode(zeros, 4 * MIB).batches) == 2
    assert len(_decode(zeros, 1 << 30).batches) == 8
