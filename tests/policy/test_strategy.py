"""The ranking of the records of a key (R280-2..R280-6)."""

from __future__ import annotations

import numpy as np
import pytest

from cleanerd import _kernel
from cleanerd.policy.rules import STRATEGIES, Rules
from tests.support.logs import Record, encode_batch


def decoded(*records: Record, header: bytes | None = None, **fields: object) -> _kernel.Records:
    data = encode_batch(records, **fields)  # type: ignore[arg-type]  # by name
    return _kernel.decode_chunk(np.frombuffer(data, np.uint8), 0, hash_key=bytes(16), version_header=header).records


def with_version(value: bytes | None) -> Record:
    return Record(key=b"k", headers=((b"v", value),))


def test_registry() -> None:
    """R280-2: the three names, each under its own; a fourth is one class and one line."""
    assert list(STRATEGIES) == ["offset", "timestamp", "header"]
    assert [(s.versioned, s.needs_header) for s in STRATEGIES.values()] == [(False, False), (True, False), (True, True)]


def test_offset() -> None:
    """R280-3: only the offset ranks."""
    version, present = STRATEGIES["offset"].versions(decoded(Record(timestamp=5), Record(timestamp=1)))
    assert (version.tolist(), present.tolist()) == ([0, 0], [False, False])


@pytest.mark.parametrize(
    ("fields", "times"),
    [
        pytest.param({}, [9, 3], id="the record's"),
        pytest.param({"log_append_time": 77}, [77, 77], id="LogAppendTime: the batch's"),
        pytest.param({"delete_horizon": 10**12}, [9, 3], id="R534-1: a horizon changes no time"),
        pytest.param({"base_timestamp": -5}, [9, 3], id="nor does another base"),
    ],
)
def test_timestamp(fields: dict[str, int], times: list[int]) -> None:
    """R280-4."""
    version, present = STRATEGIES["timestamp"].versions(decoded(Record(timestamp=9), Record(timestamp=3), **fields))
    assert (version.tolist(), present.tolist()) == (times, [True, True])


def test_header() -> None:
    """R280-5, R280-6: absent and malformed are the same, -1 is neither."""
    records = decoded(
        with_version((7).to_bytes(8, "big")),
        with_version(b"\xff" * 8),
        with_version(b"7"),
        Record(key=b"k"),
        header=b"v",
    )
    version, present = STRATEGIES["header"].versions(records)
    assert present.tolist() == [True, True, False, False]
    assert version[:2].tolist() == [7, -1]


@pytest.mark.parametrize(
    ("rules", "versioned", "is_kafkas", "headers"),
    [
        pytest.param(Rules(), False, True, (None, None), id="R280-2: the default"),
        pytest.param(Rules("offset", "v"), False, True, (None, None), id="a header without a use"),
        pytest.param(Rules("timestamp", "v"), True, False, (None, None), id="R280-4"),
        pytest.param(Rules("header", "v"), True, False, (b"v", None), id="R280-5"),
        pytest.param(Rules(tombstone_mode="flag", tombstone_header="t"), False, False, (None, None), id="R87-2"),
        pytest.param(Rules(tombstone_mode="header", tombstone_header="t"), False, False, (None, b"t"), id="R87-4"),
        pytest.param(Rules("header", "é", tombstone_mode="header", tombstone_header="t"), True, False,
                     ("é".encode(), b"t"), id="both"),
    ],
)  # fmt: skip
def test_rules(rules: Rules, versioned: bool, is_kafkas: bool, headers: tuple[bytes | None, bytes | None]) -> None:
    """The decoded fields by settings: the offset strategy with null tombstones decodes no header."""
    assert (rules.versioned, rules.is_kafkas) == (versioned, is_kafkas)
    assert (rules.version_header, rules.flag_header) == headers
