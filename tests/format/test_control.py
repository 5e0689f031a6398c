"""Control records (F-2.7)."""

import struct
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleanerd.errors import CorruptionError
from cleanerd.format.control import ControlRecord, ControlType, read_control
from cleanerd.format.record import Record, records_of
from tests.format.worked_examples import E
from tests.support.format_bytes import compact, refusal

ID = uuid.UUID("32453738-4541-3537-3035-324434333642")
VOTER_SET = (
    b"\x00\x00\x02"
    + struct.pack(">i", 7)
    + ID.bytes
    + b"\x02"
    + compact("CONTROLLER")
    + compact("host-1")
    + struct.pack(">H", 40001)
    + b"\x00"
    + struct.pack(">hh", 0, 1)
    + b"\x00\x00\x00"
)


def control(kind: int, value: bytes | None, *, version: int = 0) -> Record:
    return Record(0, 0, struct.pack(">hh", version, kind), value, (), 0)


def test_example_e() -> None:
    """F-13 E: a commit marker of coordinator epoch 7."""
    (marker,) = records_of(E, limit_bytes=100)
    assert read_control(marker) == ControlRecord(ControlType.COMMIT, {"coordinator_epoch": 7})


@pytest.mark.parametrize(
    ("kind", "value", "name", "fields"),
    [
        (0, b"\0\0\0\0\0\5", "ABORT", {"coordinator_epoch": 5}),
        (1, b"\0\0\0\0\0\5extra", "COMMIT", {"coordinator_epoch": 5}),
        (
            2,
            b"\0\0\0\0\0\7\x02\0\0\0\7\0\x02\0\0\0\7\0\0",
            "LEADER_CHANGE",
            {"leader_id": 7, "voters": [7], "granting_voters": [7]},
        ),
        (
            2,
            b"\0\1\0\0\0\7\x02\0\0\0\7" + ID.bytes + b"\0\x01\0",
            "LEADER_CHANGE",
            {"leader_id": 7, "voters": [7], "granting_voters": []},
        ),
        (3, b"\0\0\0\0\0\0\0\0\0\x09\0", "SNAPSHOT_HEADER", {"last_contained_log_timestamp": 9}),
        (4, b"\0\0\0", "SNAPSHOT_FOOTER", {}),
        (5, b"\0\0\0\1\0", "KRAFT_VERSION", {"kraft_version": 1}),
        (
            6,
            VOTER_SET,
            "KRAFT_VOTERS",
            {"voters": ["7 MkU3OEVBNTcwNTJENDM2Qg CONTROLLER://host-1:40001"]},
        ),
        (9, b"anything", "control type 9", {}),
        (-7, None, "control type -7", {}),
    ],
)
def test_types(kind: int, value: bytes | None, name: str, fields: dict[str, object]) -> None:
    """F-2.7, each type; an unknown one is not an error."""
    decoded = read_control(control(kind, value))
    assert (decoded.name, decoded.fields) == (name, fields)


def test_a_higher_key_version_reads_as_zero() -> None:
    """F-2.7."""
    assert read_control(control(1, b"\0\0\0\0\0\5", version=3)).type is ControlType.COMMIT


@pytest.mark.parametrize(
    "record",
    [
        Record(0, 0, None, b"", (), 0),
        Record(0, 0, b"\0\0\0", b"", (), 0),
        control(1, b"\0\0\0\0\0\5", version=-1),
        control(0, b"\0\0\0\0\0"),
        control(0, None),
        control(2, b"\0\0\0\0\0\7\xff\xff\xff\xff\x0f"),
        control(4, b""),
    ],
)
def test_corrupt(record: Record) -> None:
    """F-2.7: a short key or value, a negative key version; the batch is the position."""
    with pytest.raises(CorruptionError, match=r"^f at byte 77: "):
        read_control(record, where="f", position=77)


@given(st.integers(0, 7), st.binary(max_size=60))
def test_garbage(kind: int, value: bytes) -> None:
    refusal(read_control, control(kind, value))
