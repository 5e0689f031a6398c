"""Random logs for the kernel's tests, and the comparison of a call with its reference."""

from __future__ import annotations

import struct
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import strategies as st

from cleanerd import _kernel
from tests.support.logs import BASE_TIMESTAMP_MS, Record, encode_batch, encode_legacy, encode_wrapper, varint
from tests.support.reference_batches import CorruptError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

HASH_KEY = bytes(range(16))

_KEYS = st.one_of(st.none(), st.sampled_from([b"", b"a", b"b", b"key-7", b"k" * 200]), st.binary(max_size=40))
_VALUES = st.one_of(st.none(), st.binary(max_size=90), st.integers(1, 400).map(lambda count: b"value " * count))
_TIMESTAMPS = st.one_of(
    st.just(-1), st.integers(0, 200).map(BASE_TIMESTAMP_MS.__add__), st.integers(0, 2**62), st.just(2**63 - 1)
)
_HEADER_NAMES = st.one_of(st.sampled_from([b"", b"v", b"v", b"vv", b"t"]), st.binary(max_size=5))
_HEADER_VALUES = st.one_of(
    st.none(),
    st.sampled_from([b"", b"0", b"false", b"1"]),
    st.binary(max_size=11),
    st.integers(-(2**63), 2**63 - 1).map(lambda number: number.to_bytes(8, "big", signed=True)),
    st.integers(-(2**63), 2**63 - 1).map(varint),
)
_HEADERS = st.lists(st.tuples(_HEADER_NAMES, _HEADER_VALUES), max_size=4)
SMALLEST_MAP_BYTES = 72 << 10


def array(data: bytes) -> NDArray[np.uint8]:
    """The kernel's type for bytes."""
    return np.frombuffer(data, np.uint8)


def bitmap(bits: list[bool]) -> NDArray[np.uint64]:
    """Bits as words, with only zeros after the last one in the last word."""
    padded = bits + [False] * (-len(bits) % 64)
    return np.packbits(np.array(padded, bool), bitorder="little").view("<u8").astype(np.uint64)


@st.composite
def records(draw: st.DrawFn, *, most: int = 6) -> list[Record]:
    """Records with gaps between their offsets."""
    result = []
    delta = -1
    for _ in range(draw(st.integers(0, most))):
        delta += draw(st.sampled_from([1, 1, 1, 2, 100, 3_000_000]))
        result.append(
            Record(
                key=draw(_KEYS),
                value=draw(_VALUES),
                timestamp=draw(_TIMESTAMPS),
                offset_delta=delta,
                headers=tuple(draw(_HEADERS)),
                attributes=draw(st.sampled_from([0, 0, 0x20, 0xFF])),
            )
        )
    return result


@st.composite
def control_records(draw: st.DrawFn) -> list[Record]:
    """A control batch's one record (F-2.7), sometimes with another after it; none in an emptied batch.

    Every one of them has a control key: a rewrite may leave the second one alone in its batch.
    """
    result = draw(records(most=2))
    for index, record in enumerate(result):
        kind = draw(st.sampled_from([0, 1, 1, 2, 300]))
        key = struct.pack(">hh", draw(st.sampled_from([0, 0, 7])), kind) + draw(st.sampled_from([b"", b"more"]))
        result[index] = replace(record, key=key)
    return result


@st.composite
def batch(draw: st.DrawFn, base_offset: int = 0) -> bytes:
    """A v2 batch as brokers have them: any codec, timestamp type, producer, horizon; sometimes empty."""
    control = draw(st.sampled_from([False, False, True]))
    content = draw(control_records() if control else records())
    producer = draw(st.booleans())
    append_time = draw(st.one_of(st.none(), st.none(), st.integers(0, 2**62)))
    last = content[-1].offset_delta if content else 0
    assert last is not None
    return encode_batch(
        content,
        base_offset=base_offset,
        codec=draw(st.integers(0, 4)) if content and not control else 0,
        log_append_time=append_time,
        delete_horizon=draw(st.one_of(st.none(), st.none(), st.integers(0, 2**62))) if content else None,
        transactional=producer and draw(st.booleans()),
        control=control,
        producer_id=draw(st.integers(0, 2**63 - 1)) if producer else -1,
        producer_epoch=draw(st.integers(0, 2**15 - 1)) if producer else -1,
        base_sequence=draw(st.integers(0, 2**31 - 1)) if producer else -1,
        leader_epoch=draw(st.integers(-1, 2**31 - 1)),
        last_offset_delta=last + draw(st.sampled_from([0, 0, 5])),
    )


@st.composite
def legacy(draw: st.DrawFn, base_offset: int = 0) -> bytes:
    """A v0 or v1 batch: a message, or a wrapper, sometimes with messages of the other magic (KAFKA-4298)."""
    magic, codec = draw(st.integers(0, 1)), draw(st.integers(0, 3))
    timestamp = draw(_TIMESTAMPS)
    if codec == 0:
        attributes = draw(st.sampled_from([0, 8, 0xF8]))
        return encode_legacy(
            base_offset, draw(_KEYS), draw(_VALUES), magic=magic, timestamp=timestamp, attributes=attributes
        )
    steps = draw(st.lists(st.sampled_from([1, 1, 2, 3_000_000]), max_size=4))
    offsets = [*accumulate(steps, initial=base_offset if magic == 0 else draw(st.sampled_from([0, 0, 3])))]
    highest = offsets[-1]
    if draw(st.integers(0, 5)) == 0:  # U-45: offsets that decrease
        free = len(offsets) - magic  # the last one of magic 1 stays the highest, because it is the wrapper's
        offsets = [*draw(st.permutations(offsets[:free])), *offsets[free:]]
    inner = b""
    for offset in offsets:
        kind = magic if draw(st.integers(0, 5)) else 1 - magic
        inner += encode_legacy(offset, draw(_KEYS), draw(_VALUES), magic=kind, timestamp=draw(_TIMESTAMPS))
    if draw(st.integers(0, 9)) == 0:
        inner += encode_legacy(highest + 1, b"cut", b"off", magic=magic)[: draw(st.integers(1, 20))]
    wrapper_offset = highest if magic == 0 else base_offset + highest
    return encode_wrapper(
        wrapper_offset, inner, magic=magic, codec=codec, timestamp=timestamp, append_time=draw(st.booleans())
    )


@st.composite
def log(draw: st.DrawFn, *, most: int = 4) -> bytes:
    """Consecutive batches, a few of them legacy."""
    base, pieces = draw(st.sampled_from([0, 7, 2**40])), []
    for _ in range(draw(st.integers(0, most))):
        if draw(st.integers(0, 3)) == 0:
            pieces.append(draw(legacy(base)))
        else:
            pieces.append(draw(batch(base)))
        base += 10_000_000_000
    return b"".join(pieces)


def header_options() -> st.SearchStrategy[dict[str, Any]]:
    """Options of ``decode_chunk`` about headers, with names that :func:`records` uses."""
    names = st.sampled_from([None, b"v", b"v", b"t", b"", b"vv"])
    encodings = st.sampled_from(["long", "varlong"])
    return st.fixed_dictionaries({"version_header": names, "version_encoding": encodings, "tombstone_header": names})


def outcome(call: Callable[[], Any]) -> tuple[Any, Any]:
    """(result, None), or (None, the exception in a form that is equal for the kernel and its reference)."""
    try:
        return call(), None
    except (_kernel.CorruptLogError, CorruptError) as error:
        return None, ("corrupt", error.position, error.base_offset, error.record)
    except ValueError:
        return None, "ValueError"
