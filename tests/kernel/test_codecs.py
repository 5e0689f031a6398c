"""compress and decompress compared with decompressors in plain Python (F-4)."""

from __future__ import annotations

import gzip
import struct
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleanerd import _kernel
from tests.support.reference_codecs import DamagedError, unpack, xxh32

CODECS = range(5)
_DATA = st.one_of(
    st.binary(max_size=300),
    st.lists(st.tuples(st.binary(min_size=1, max_size=9), st.integers(1, 3000)), max_size=12).map(
        lambda runs: b"".join(piece * count for piece, count in runs)
    ),
)


@settings(max_examples=60, deadline=None)
@given(_DATA, st.sampled_from(CODECS))
def test_round_trip(data: bytes, codec: int) -> None:
    """An independent decoder decompresses the kernel's output (zstd: the kernel itself)."""
    packed = _kernel.compress(codec, data)
    assert _kernel.decompress(codec, packed, len(data)) == data
    if codec != 4:
        assert unpack(codec, packed, len(data)) == data


@settings(max_examples=60, deadline=None)
@given(_DATA, st.sampled_from([1, 2, 3]), st.data())
def test_damage_is_decoded_like_the_reference(data: bytes, codec: int, draw: st.DataObject) -> None:
    """C-57: damaged bytes are refused, or give the same as with the other decoder."""
    packed = bytearray(_kernel.compress(codec, data))
    packed[draw.draw(st.integers(0, len(packed) - 1))] = draw.draw(st.integers(0, 255))
    damaged = bytes(packed[: draw.draw(st.integers(max(0, len(packed) - 3), len(packed)))])
    try:
        expected: bytes | None = unpack(codec, damaged, 50_000)
    except DamagedError:
        expected = None
    unpacked: bytes | None = None
    place: tuple[int, int, int] | None = None
    try:
        unpacked = _kernel.decompress(codec, damaged, 50_000)
    except _kernel.CorruptLogError as error:
        place = (error.position, error.base_offset, error.record)
    assert place == (None if expected is not None else (-1, -1, -1))
    assert unpacked == expected


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_bombs_are_refused(codec: int) -> None:
    """F-4: the limit is exact."""
    packed = _kernel.compress(codec, bytes(8 << 20))
    assert len(packed) < 600_000
    assert _kernel.decompress(codec, packed, 8 << 20) == bytes(8 << 20)
    for limit in (0, 1, 1 << 20, (8 << 20) - 1):
        with pytest.raises(_kernel.CorruptLogError, match="more than"):
            _kernel.decompress(codec, packed, limit)


def test_gzip_of_others() -> None:
    """RFC 1952: names, several members; the checksum counts."""
    assert _kernel.decompress(1, gzip.compress(b"one ") + gzip.compress(b"two"), 7) == b"one two"
    wrong = bytearray(gzip.compress(b"hello"))
    wrong[-5] ^= 1
    with pytest.raises(_kernel.CorruptLogError, match="checksum"):
        _kernel.decompress(1, bytes(wrong), 100)
    with pytest.raises(_kernel.CorruptLogError, match="damaged gzip"):
        _kernel.decompress(1, zlib.compress(b"hello"), 100)


def test_kafkas_example_g() -> None:
    """F-13 G: the gzip payload of a wrapper, 68 bytes decompressed."""
    packed = bytes.fromhex(
        "1f8b08000000000000006360800309f19e299d8c400663497b5e0348843111441842e599406a267ebe3807ae8619c44802"
        "11460001e51ba648000000"
    )
    assert _kernel.decompress(1, packed, 100) == unpack(1, packed, 100)


def test_snappy_framed_bare_and_concatenated() -> None:
    """F-4: xerial framing as Kafka writes it, one bare block as other clients do, concatenated streams."""
    framed = _kernel.compress(2, b"hello " * 20)
    assert framed.startswith(bytes.fromhex("82534e4150505900 00000001 00000001"))
    (length,) = struct.unpack_from(">i", framed, 16)
    assert length == len(framed) - 20
    assert _kernel.decompress(2, framed[20:], 1000) == b"hello " * 20
    assert _kernel.decompress(2, framed + framed, 1000) == b"hello " * 40
    assert _kernel.decompress(2, framed + framed[16:], 1000) == b"hello " * 40
    blocks = _kernel.compress(2, bytes(32769))
    (first,) = struct.unpack_from(">i", blocks, 16)
    assert len(unpack(2, blocks[: 20 + first], 40_000)) == 32768


def test_lz4_frame() -> None:
    """F-4: Kafka's descriptor 60 40 82; independent blocks only; checksums of blocks count."""
    packed = _kernel.compress(3, b"hello " * 20)
    assert packed.startswith(bytes.fromhex("04224d18 60 40 82"))
    assert packed.endswith(bytes(4))
    stored = struct.pack("<I", 1 << 31 | 3) + b"abc"

    def frame(flags: int, optional: bytes, blocks: bytes) -> bytes:
        descriptor = bytes([flags, 0x40]) + optional
        return bytes.fromhex("04224d18") + descriptor + bytes([xxh32(descriptor) >> 8 & 0xFF]) + blocks

    checksum = struct.pack("<I", xxh32(b"abc"))
    assert _kernel.decompress(3, frame(0x60, b"", stored + bytes(4)), 9) == b"abc"
    assert _kernel.decompress(3, frame(0x70, b"", stored + checksum + bytes(4)), 9) == b"abc"
    assert _kernel.decompress(3, frame(0x6C, bytes(8), stored + bytes(4) + b"????"), 9) == b"abc"
    assert _kernel.decompress(3, frame(0x60, b"", stored + bytes(4) + b"x"), 9) == b"abc"
    for bad, reason in (
        (frame(0x40, b"", stored + bytes(4)), "depend on each other"),
        (frame(0x70, b"", stored + bytes(4) + bytes(4)), "block checksum"),
        (frame(0x60, b"", stored), "truncated"),
        (packed[:6] + b"\x1a" + packed[7:], "descriptor checksum"),
    ):
        with pytest.raises(_kernel.CorruptLogError, match=reason):
            _kernel.decompress(3, bad, 100)


def test_codecs_that_do_not_exist() -> None:
    """Always a wrong call."""
    for codec in (-1, 5, 2**40):
        with pytest.raises(ValueError, match="unknown codec"):
            _kernel.compress(codec, b"")
        with pytest.raises(ValueError, match="unknown codec"):
            _kernel.decompress(codec, b"", 1)
    with pytest.raises(ValueError, match="negative"):
        _kernel.decompress(0, b"", -1)
