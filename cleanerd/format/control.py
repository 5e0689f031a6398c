"""Control records (F-2.7): transaction markers, and what KRaft writes into its log and snapshots."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cleanerd.format.names import uuid_to_base64
from cleanerd.format.reader import ByteReader

if TYPE_CHECKING:
    from cleanerd.format.record import Record


class ControlType(enum.IntEnum):
    """The type of a control record: the int16 after the version in its key."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """``type`` is a ControlType, or an int that this version does not know; ``fields`` are the ones to show."""

    type: ControlType | int
    fields: dict[str, int | list[int] | list[str]]

    @property
    def name(self) -> str:
        """``COMMIT``, or ``control type 9``."""
        return self.type.name if isinstance(self.type, ControlType) else f"control type {self.type}"


def read_control(record: Record, *, where: str | None = None, position: int = 0) -> ControlRecord:
    """Decode the one record of a control batch at ``position`` in the file.

    Raises:
        CorruptionError: a key shorter than 4 bytes or with a negative version, a value too short for its type.
    """
    key = ByteReader(record.key or b"", where=where, origin=position, unpacked=True)
    if key.left < 4:
        key.fail(f"a control record's key has {key.left} bytes, not 4")
    if key.int16() < 0:
        key.fail("a control record's key has a negative version")
    number = key.int16()
    try:
        kind = ControlType(number)
    except ValueError:
        return ControlRecord(number, {})
    value = ByteReader(record.value or b"", where=where, origin=position, unpacked=True)
    return ControlRecord(kind, _fields(kind, value))


def _fields(kind: ControlType, value: ByteReader) -> dict[str, int | list[int] | list[str]]:
    version = value.int16()
    match kind:
        case ControlType.ABORT | ControlType.COMMIT:
            return {"coordinator_epoch": value.int32()}
        case ControlType.LEADER_CHANGE:
            return {
                "leader_id": value.int32(),
                "voters": _voters(value, with_directory=version >= 1),
                "granting_voters": _voters(value, with_directory=version >= 1),
            }
        case ControlType.SNAPSHOT_HEADER:
            return {"last_contained_log_timestamp": value.int64()}
        case ControlType.SNAPSHOT_FOOTER:
            return {}
        case ControlType.KRAFT_VERSION:
            return {"kraft_version": value.int16()}
        case ControlType.KRAFT_VOTERS:
            return {"voters": _voter_set(value)}


def _voters(value: ByteReader, *, with_directory: bool) -> list[int]:
    voters = []
    for _ in range(_count(value)):
        voters.append(value.int32())
        if with_directory:
            value.uuid()
        skip_tagged_fields(value)
    return voters


def _voter_set(value: ByteReader) -> list[str]:
    voters = []
    for _ in range(_count(value)):
        node = value.int32()
        directory = uuid_to_base64(value.uuid())
        places = []
        for _ in range(_count(value)):
            listener, host = (value.raw(_count(value)).decode("utf-8", "replace") for _ in range(2))
            places.append(f"{listener}://{host}:{value.int16() & 0xFFFF}")
            skip_tagged_fields(value)
        value.int16()
        value.int16()
        skip_tagged_fields(value)
        skip_tagged_fields(value)
        voters.append(f"{node} {directory} {' '.join(places)}")
    return voters


def _count(value: ByteReader) -> int:
    """Length of a compact string or array, which is stored as one more; null counts as empty."""
    count = max(0, value.unsigned_varint() - 1)
    if count > value.left:
        value.fail(f"{count} elements or bytes announced, {value.left} bytes left")
    return count


def skip_tagged_fields(value: ByteReader) -> None:
    """Skip the tagged fields at the end of a flexible structure (KIP-482): count, then tag, size, data of each.

    Raises:
        CorruptionError: a field that is longer than what is left.
    """
    for _ in range(value.unsigned_varint()):
        value.unsigned_varint()
        value.raw(value.unsigned_varint())
