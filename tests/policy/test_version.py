"""Versions of single records (KIP-280)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleanerd import _kernel
from cleanerd.format.reader import ByteReader
from cleanerd.policy.version import (
    MAX_VERSION,
    MIN_VERSION,
    VERSION_ENCODINGS,
    VersionEncoding,
    encode_version,
    parse_version,
    rank,
)
from tests.support.logs import Record, encode_batch

LONGS = st.integers(MIN_VERSION, MAX_VERSION)


@pytest.mark.parametrize(
    ("value", "version"),
    [
        (b"\0\0\0\0\0\0\0\1", 1),
        (b"\1\0\0\0\0\0\0\0", 2**56),  # little-endian would be 1
        (b"\xff" * 8, -1),  # unsigned would be 2^64 - 1
        (b"\x80" + bytes(7), MIN_VERSION),
        (b"\x7f" + b"\xff" * 7, MAX_VERSION),
        (bytes(7), None),
        (bytes(9), None),
        (b"", None),
        (None, None),
        (b"12345678", 0x3132333435363738),  # text is not parsed
    ],
)
def test_long(value: bytes | None, version: int | None) -> None:
    """R280-5: exactly 8 bytes, signed, big-endian; R280-6: anything else counts as absent."""
    assert parse_version(value, "long") == version


@pytest.mark.parametrize(
    ("value", "version"),
    [
        (b"\0", 0),
        (b"\1", -1),
        (b"\2", 1),
        (b"\x80\1", 64),
        (b"\xff" * 9 + b"\1", MIN_VERSION),
        (b"\xff" * 9 + b"\x7f", MIN_VERSION),  # bits above the 64th are dropped
        (b"\xff" * 10, None),
        (b"\x80" * 10 + b"\0", None),  # eleven bytes
        (b"\x80", None),  # cut
        (b"\2\2", None),  # something follows
        (b"\0" * 8, None),
        (b"", None),
        (None, None),
    ],
)
def test_varlong(value: bytes | None, version: int | None) -> None:
    """One zigzag varlong and nothing else."""
    assert parse_version(value, "varlong") == version


@given(LONGS, st.sampled_from(VERSION_ENCODINGS))
def test_a_version_reads_back_as_written(version: int, encoding: VersionEncoding) -> None:
    """The whole signed 64-bit range, the real -1 included."""
    assert parse_version(encode_version(version, encoding), encoding) == version


@given(LONGS)
def test_varlongs_are_those_of_records(version: int) -> None:
    """The same number as a varlong inside a record (F-2.3)."""
    assert ByteReader(encode_version(version, "varlong")).varlong() == version


@pytest.mark.parametrize("version", [MIN_VERSION - 1, MAX_VERSION + 1])
@pytest.mark.parametrize("encoding", VERSION_ENCODINGS)
def test_too_large(version: int, encoding: VersionEncoding) -> None:
    with pytest.raises(ValueError, match="64 bits"):
        encode_version(version, encoding)


@pytest.mark.parametrize(
    ("loser", "winner"),
    [
        (rank(1, 9), rank(2, 3)),
        (rank(7, 3), rank(7, 9)),
        (rank(None, 3), rank(None, 9)),
        (rank(None, 9), rank(MIN_VERSION, 3)),
        (rank(-2, 9), rank(-1, 3)),
        (rank(None, 9), rank(0, 3)),
    ],
)
def test_rank(loser: tuple[bool, int, int], winner: tuple[bool, int, int]) -> None:
    """R280-4..6: version, then offset; absent is below every version, negative ones and 0 included."""
    assert loser < winner


def test_ranks_ascend() -> None:
    """R280-4..R280-6: any version precedes none, then the higher one, then the later record."""
    ascending = [(None, 1), (None, 9), (-(2**63), 3), (-1, 2), (0, 0), (5, 4), (5, 8), (2**63 - 1, 0)]
    ranks = [rank(version, offset) for version, offset in ascending]
    assert ranks == sorted(ranks)
    assert len(set(ranks)) == len(ranks)


@pytest.mark.slow
@given(st.none() | st.binary(max_size=12), st.sampled_from(VERSION_ENCODINGS))
def test_the_kernel_reads_the_same(value: bytes | None, encoding: VersionEncoding) -> None:
    """R280-5, R280-6: the cleaner's columns and this module agree on every value, well formed or not."""
    batch = np.frombuffer(encode_batch([Record(b"k", b"v", headers=((b"v", value),))]), np.uint8)
    records = _kernel.decode_chunk(batch, 0, version_header=b"v", version_encoding=encoding).records
    flags = int(records.flags[0])
    assert bool(flags & _kernel.FLAG_BAD_VERSION) is not bool(flags & _kernel.FLAG_HAS_VERSION)
    read = int(records.version[0]) if flags & _kernel.FLAG_HAS_VERSION else None
    assert parse_version(value, encoding) == read
