"""IndexBuilder compared with its reference, and rule by rule."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleanerd import _kernel
from cleanerd._kernel import IndexBuilder, Written
from tests.kernel.strategies import array, outcome
from tests.support import reference_kernel as reference
from tests.support.logs import Record, encode_batch


def _written(batches: list[tuple[int, int, int]]) -> Written:
    """Batches of (size, last offset, max timestamp), 68 bytes or more."""
    data = b"".join(
        encode_batch(
            [Record(value=bytes(size - 68) if size > 68 else None)], base_offset=offset, max_timestamp=timestamp
        )
        for size, offset, timestamp in batches
    )
    actions = np.full(len(batches), _kernel.ACTION_COPY, np.uint8)
    return _kernel.rewrite_chunk(array(data), 0, np.full(1 + len(batches) // 64, -1).astype(np.uint64), 0, actions)


def _rows(written: Written) -> list[tuple[int, int, int]]:
    return list(zip(written.size.tolist(), written.last_offset.tolist(), written.max_timestamp.tolist(), strict=True))


def _offsets(index: bytes) -> list[tuple[int, int]]:
    return list(struct.iter_unpack(">ii", index))


def _times(index: bytes) -> list[tuple[int, int]]:
    return list(struct.iter_unpack(">qi", index))


_BATCHES = st.lists(
    st.tuples(st.integers(68, 300), st.sampled_from([-3, 0, 1, 2, 50, 2**30]), st.sampled_from([-1, 5, 6, 7, 100])),
    max_size=12,
)


@settings(deadline=None)
@given(
    st.lists(_BATCHES, max_size=4),
    st.sampled_from([0, 1000]),
    st.integers(0, 500),
    st.integers(0, 5),
    st.integers(0, 5),
)
def test_index_builder_equals_the_reference(
    chunks: list[list[tuple[int, int, int]]], base: int, interval: int, most_offsets: int, most_times: int
) -> None:
    """F-6/7.1 per batch, over several chunks, with maxima and refusals; finish changes nothing."""
    real = IndexBuilder(base, interval, max_offset_entries=most_offsets, max_time_entries=most_times)
    model = reference.IndexBuilder(base, interval, max_offset_entries=most_offsets, max_time_entries=most_times)
    offset = base - 1
    for chunk in chunks:
        batches = []
        for size, step, timestamp in chunk:
            offset = max(offset + step, 0)
            batches.append((size, offset, timestamp))
        written = _written(batches)
        _, error = outcome(lambda written=written: real.append(written))  # type: ignore[misc]
        _, expected = outcome(lambda written=written: model.append(_rows(written)))  # type: ignore[misc]
        assert error == expected
        assert real.finish() == model.finish() == real.finish()
        assert (real.position, real.max_timestamp) == (model.position, model.latest)


def test_the_first_batch_never_has_an_entry() -> None:
    """F-6/7.1: the counter is compared before the batch is counted, and strictly."""
    builder = IndexBuilder(100, 100, max_offset_entries=9, max_time_entries=9)
    builder.append(_written([(100, 100, 5), (100, 101, 5), (100, 102, 5), (100, 103, 4)]))
    offsets, times = builder.finish()
    # 100 bytes are not more than 100; 200 are, before the third batch, and then the count starts again
    assert _offsets(offsets) == [(2, 200)]
    assert _times(times) == [(5, 0)]


def test_an_entry_names_the_batch_that_begins_there() -> None:
    """P4: (last offset of this batch, its position), and the maximum up to and with this batch."""
    builder = IndexBuilder(0, 0, max_offset_entries=9, max_time_entries=9)
    builder.append(_written([(100, 3, 5), (100, 7, 9)]))
    assert _offsets(builder.finish()[0]) == [(7, 100)]
    assert _times(builder.finish()[1]) == [(9, 7)]


def test_the_time_entry_is_the_earliest_batch_with_the_maximum() -> None:
    """F-7: the last offset of that batch; an equal timestamp is skipped; -1 never makes an entry."""
    builder = IndexBuilder(0, 0, max_offset_entries=9, max_time_entries=9)
    builder.append(_written([(100, 0, -1), (100, 1, -1), (100, 2, 8), (100, 3, 8), (100, 4, 2)]))
    assert _times(builder.finish()[1]) == [(8, 2)]
    only_old = IndexBuilder(0, 0, max_offset_entries=9, max_time_entries=9)
    only_old.append(_written([(100, 0, -1), (100, 1, -1)]))
    assert only_old.finish() == (struct.pack(">ii", 1, 100), b"")


def test_the_last_place_is_for_the_closing_entry() -> None:
    """F-7: full one entry early, the closing entry is still added. T-36: entries beyond the maxima are omitted."""
    builder = IndexBuilder(0, 0, max_offset_entries=2, max_time_entries=3)
    builder.append(_written([(100, offset, 10 + offset) for offset in range(6)]))
    offsets, times = builder.finish()
    assert _offsets(offsets) == [(1, 100), (2, 200)]
    assert _times(times) == [(11, 1), (12, 2), (15, 5)]


def test_an_empty_segment() -> None:
    """C-64: no bytes in either index."""
    builder = IndexBuilder(7, 4096, max_offset_entries=9, max_time_entries=9)
    builder.append(_written([]))
    assert builder.finish() == (b"", b"")
    assert (builder.position, builder.max_timestamp) == (0, -1)


def test_offsets_out_of_reach() -> None:
    """C-67: relative offsets have 31 bits; a refused call changes nothing."""
    builder = IndexBuilder(1000, 0, max_offset_entries=9, max_time_entries=9)
    for last in (999, 1000 + 2**31):
        with pytest.raises(ValueError, match="is not within"):
            builder.append(_written([(100, last, 5)]))
    with pytest.raises(ValueError, match="is not within"):
        builder.append(_written([(100, 1000, 5), (100, 1000 + 2**31, 6)]))
    assert (builder.position, builder.max_timestamp) == (0, -1)
    builder.append(_written([(100, 1000, 5), (100, 999 + 2**31, 6)]))
    assert _offsets(builder.finish()[0]) == [(2**31 - 1, 100)]
    with pytest.raises(ValueError, match="negative"):
        IndexBuilder(0, -1, max_offset_entries=9, max_time_entries=9)
