"""``content_digest`` and ``read_contents``: a record's content by its fields, not by its bytes in the file."""

from __future__ import annotations

import struct
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleanerd import _kernel
from cleanerd.format.legacy import parse_message, records_of_message
from cleanerd.format.record import records_of
from tests.kernel.strategies import HASH_KEY, array
from tests.support.logs import Record, encode_batch, encode_legacy, encode_marker, encode_wrapper

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BYTES = st.one_of(st.none(), st.binary(max_size=12))
_NAMES = st.one_of(st.sampled_from([b"", b"h", b"\xff", "ü".encode()]), st.binary(max_size=4))
_RECORDS = st.builds(
    Record,
    key=_BYTES,
    value=_BYTES,
    timestamp=st.integers(0, 2**40),
    headers=st.lists(st.tuples(_NAMES, _BYTES), max_size=3).map(tuple),
    attributes=st.sampled_from([0, 1, 0x20, 0xFF]),
)
_LOGS = st.lists(st.tuples(st.lists(_RECORDS, min_size=1, max_size=5), st.integers(0, 4)), min_size=1, max_size=4)


def digest(data: bytes, **options: Any) -> NDArray[np.uint64]:
    return _kernel.content_digest(array(data), 0, hash_key=HASH_KEY, **options).digest.reshape(-1, 2)


def fields(offsets: NDArray[np.int32], data: NDArray[np.uint8], null: NDArray[np.bool_] | None) -> list[bytes | None]:
    whole = data.tobytes()
    return [
        None if null is not None and null[row] else whole[offsets[row] : offsets[row + 1]]
        for row in range(len(offsets) - 1)
    ]


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(_LOGS, st.data())
def test_contents(log: list[tuple[list[Record], int]], data: st.DataObject) -> None:
    """F-2.3: all fields of the requested records, in Arrow's layout; compared with plain Python."""
    content, base, expected = b"", 0, []
    for records, codec in log:
        content += encode_batch(records, base_offset=base, codec=codec)
        expected += [replace(record, offset_delta=base + row) for row, record in enumerate(records)]
        base += len(records)
    keep = np.array(data.draw(st.lists(st.booleans(), min_size=base, max_size=base)), np.bool_)
    found = _kernel.read_contents(array(content), 0, keep)
    kept = [record for record, stays in zip(expected, keep, strict=True) if stays]
    assert len(found) == len(kept)
    assert found.consumed == len(content)
    assert fields(found.key_offsets, found.key_data, found.key_null) == [record.key for record in kept]
    assert fields(found.value_offsets, found.value_data, found.value_null) == [record.value for record in kept]
    names = fields(found.header_name_offsets, found.header_name_data, None)
    values = fields(found.header_value_offsets, found.header_value_data, found.header_value_null)
    headers = list(zip(names, values, strict=True))
    edges = found.first_header.tolist()
    split = [tuple(headers[start:end]) for start, end in pairwise(edges)]
    assert split == [record.headers for record in kept]


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(_LOGS)
def test_digests(log: list[tuple[list[Record], int]]) -> None:
    """Equal exactly if the content is, whatever the batches; rows and attributes are decode_chunk's."""
    single, base, contents = b"", 0, []
    together = b""
    for records, codec in log:
        together += encode_batch(records, base_offset=base, codec=codec)
        for row, record in enumerate(records):
            single += encode_batch([replace(record, offset_delta=0)], base_offset=base + row)
            names = tuple((name.decode("utf-8", "replace"), value) for name, value in record.headers)
            contents.append((record.key, record.value, record.timestamp, names))
        base += len(records)
    found = digest(together)
    assert found.tolist() == digest(single).tolist()
    assert len(found) == len(_kernel.decode_chunk(array(together), 0).records)
    assert len({tuple(row) for row in found.tolist()}) == base, "offsets differ"
    moved = [digest(encode_batch([replace(r, offset_delta=0)], base_offset=7)) for rs, _ in log for r in rs]
    for one, first in zip(moved, contents, strict=True):
        for two, second in zip(moved, contents, strict=True):
            assert (one.tolist() == two.tolist()) == (first == second)
    digests = _kernel.content_digest(array(together), 0, hash_key=HASH_KEY)
    assert digests.attributes.tolist() == [record.attributes for records, _ in log for record in records]


def test_append_time_counts() -> None:
    """The timestamp is the one that a consumer sees (F-2.6)."""
    record = Record(b"k", b"v", 5, 0)
    assert (
        digest(encode_batch([record], log_append_time=9)).tolist()
        == digest(encode_batch([replace(record, timestamp=9)])).tolist()
    )
    assert digest(encode_batch([record], log_append_time=9)).tolist() != digest(encode_batch([record])).tolist()


@pytest.mark.parametrize("magic", [0, 1])
def test_legacy(magic: int) -> None:
    """A message of v0 or v1, wrapped or not, has the same content as its conversion to v2 by a cleaner (C-53)."""
    timestamp = 7 if magic else -1
    alone = encode_legacy(3, b"k", b"v", magic=magic, timestamp=timestamp)
    inner = encode_legacy(0 if magic else 3, b"k", b"v", magic=magic, timestamp=timestamp)
    wrapped = encode_wrapper(3, inner, magic=magic, timestamp=timestamp)
    v2 = encode_batch([Record(b"k", b"v", timestamp)], base_offset=3)
    assert digest(alone).tolist() == digest(wrapped).tolist() == digest(v2).tolist()
    found = _kernel.read_contents(array(wrapped), 0, np.ones(1, np.bool_))
    assert (found.key_data.tobytes(), found.value_data.tobytes(), len(found.header_name_data)) == (b"k", b"v", 0)
    digests = _kernel.content_digest(array(alone), 0, hash_key=HASH_KEY)
    assert (digests.attributes.tolist(), digests.size.tolist()) == ([0], [len(alone)])
    assert records_of_message(parse_message(alone, position=0), limit_bytes=99, position=0)[0].key == b"k"


def test_size_is_that_of_the_record() -> None:
    batch = encode_batch([Record(b"k", b"v" * 300), Record()], codec=4)
    size = _kernel.content_digest(array(batch), 0, hash_key=HASH_KEY).size
    assert int(size.sum()) == len(encode_batch([Record(b"k", b"v" * 300), Record()])) - 61
    assert len(records_of(batch, limit_bytes=1000, position=0)) == 2


def test_control_records_have_rows() -> None:
    """The rows are decode_chunk's, so that columns of both match."""
    data = encode_marker(4, commit=True, producer_id=1, timestamp=0)
    assert len(digest(data)) == len(_kernel.decode_chunk(array(data), 0).records) == 1


def test_errors() -> None:
    """Checksums are checked by default; wrong calls raise ValueError."""
    data = bytearray(encode_batch([Record(b"k", b"value")]))
    data[-3] ^= 1
    with pytest.raises(_kernel.CorruptLogError, match="CRC"):
        digest(bytes(data))
    assert len(digest(bytes(data), verify_crc=False)) == 1
    with pytest.raises(ValueError, match="16 bytes"):
        _kernel.content_digest(array(bytes(data)), 0, hash_key=b"short")
    with pytest.raises(ValueError, match="keep has 2 rows, but there are 1 records"):
        _kernel.read_contents(array(bytes(data)), 0, np.ones(2, np.bool_), verify_crc=False)
    with pytest.raises(_kernel.CorruptLogError):
        _kernel.read_contents(array(bytes(data)), 0, np.ones(1, np.bool_))
    cut = encode_batch([Record(b"k")]) + struct.pack(">qi", 1, 100)
    assert _kernel.content_digest(array(cut), 0, hash_key=HASH_KEY).needed == 112


def test_columns_are_read_only() -> None:
    """No reader can change another reader's data."""
    data = array(encode_batch([Record(b"k", b"v", headers=((b"h", b"x"),))]))
    tables = (
        _kernel.content_digest(data, 0, hash_key=HASH_KEY),
        _kernel.read_contents(data, 0, np.ones(1, np.bool_)),
    )
    columns = [getattr(t, n) for t in tables for n in dir(t) if isinstance(getattr(t, n), np.ndarray)]
    assert len(columns) == 3 + 12
    assert not any(column.flags.writeable for column in columns)
