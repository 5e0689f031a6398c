"""Records parsed for a comparison equal the decoded ones."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from cleanerd.format.batch import parse_header
from cleanerd.format.record import records_of
from cleanerd.verify.against import tails_of
from tests.support.logs import Record, encode_batch

RECORDS = st.lists(
    st.builds(
        Record,
        key=st.none() | st.binary(max_size=200),
        value=st.none() | st.binary(max_size=300),
        timestamp=st.integers(-1, 2**62),
        headers=st.lists(st.tuples(st.binary(max_size=3), st.none() | st.binary(max_size=3)), max_size=2).map(tuple),
        attributes=st.integers(0, 255),
    ),
    max_size=200,
)


@settings(max_examples=60, deadline=None)
@given(RECORDS, st.integers(0, 4), st.none() | st.integers(0, 2**60), st.none() | st.integers(0, 2**60))
def test_as_decoded(records: list[Record], codec: int, append_time: int | None, horizon: int | None) -> None:
    """F-2.3: offsets and timestamps, horizons and append times, long and short numbers; equal tails mean equal rest."""
    batch = encode_batch(records, base_offset=1000, codec=codec, log_append_time=append_time, delete_horizon=horizon)
    tails = tails_of(batch, parse_header(batch))
    decoded = records_of(batch, limit_bytes=1 << 30)
    assert tails is not None
    assert [(offset, timestamp) for offset, (timestamp, _) in tails.items()] == [
        (record.offset, record.timestamp) for record in decoded
    ]
    by_tail: dict[bytes, tuple[object, ...]] = {}
    for (_, tail), record in zip(tails.values(), decoded, strict=True):
        rest = (record.key, record.value, record.headers)
        assert by_tail.setdefault(tail, rest) == rest
    assert len(set(by_tail)) == len({(r.key, r.value, r.headers) for r in decoded})


def test_damage() -> None:
    """Truncated bytes, or those that do not decompress, are not parsed."""
    batch = encode_batch([Record(b"k", b"v")], record_count=2)
    assert tails_of(batch, parse_header(batch)) is None
    batch = encode_batch([Record(b"k", b"v")], codec=1, payload=b"no gzip")
    assert tails_of(batch, parse_header(batch)) is None
