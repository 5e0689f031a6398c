"""Each field of a record and of a v0 or v1 message is checked (U-56): a planted change for every one."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cleanerd import _kernel
from cleanerd.verify.finding import Severity
from cleanerd.verify.kinds import NOT_JUDGED
from cleanerd.verify.rules import KeyRules
from tests.support.logs import Record, encode_batch, encode_legacy, encode_record, encode_wrapper
from tests.verify import cleaned_partition as s
from tests.verify.cleaned_partition import Scene, T, findings

if TYPE_CHECKING:
    from collections.abc import Callable

RECORD = Record(b"a", b"2", T + 5, 0, headers=((b"h", b"v"), (b"i", None)))
CHANGED = {
    "attributes": replace(RECORD, attributes=1),
    "timestamp delta": replace(RECORD, timestamp=T + 6),
    "offset delta": replace(RECORD, offset_delta=1),
    "key": replace(RECORD, key=b"q"),
    "value": replace(RECORD, value=b"3"),
    "no value": replace(RECORD, value=None),
    "empty value": replace(RECORD, value=b""),
    "header name": replace(RECORD, headers=((b"g", b"v"), (b"i", None))),
    "header value": replace(RECORD, headers=((b"h", b"w"), (b"i", None))),
    "no header value": replace(RECORD, headers=((b"h", None), (b"i", None))),
    "order of headers": replace(RECORD, headers=((b"i", None), (b"h", b"v"))),
    "a header more": replace(RECORD, headers=(*RECORD.headers, (b"j", b""))),
}
LENGTHS = {"record": 0, "key": 4, "value": 6, "number of headers": 8, "header name": 9, "header value": 11}
"""Positions in the encoded record, at which each of these is one byte."""
BATCHES = pytest.mark.parametrize("codec", [0, 4])


def rich(record: Record = RECORD, codec: int = 0, payload: bytes | None = None) -> bytes:
    packed = None if payload is None else bytes(_kernel.compress(codec, payload)) if codec else payload
    return encode_batch([record], base_offset=3, last_offset_delta=1, base_timestamp=T, codec=codec, payload=packed)


def errors(scene: Scene, sound: bytes, found: bytes, *, against: bool, **facts: object) -> list[str]:
    """Findings for the partition with ``found`` instead of ``sound`` at offset 3."""
    (scene.copy / f"{0:020d}.log").write_bytes(s.FIRST + sound + s.LAST_OF_7)
    scene.file(0).write_bytes(found + s.LAST_OF_7_CLEANED)
    for suffix in (".index", ".timeindex"):  # a missing index is not an error: only the log is checked
        scene.file(0, suffix).unlink(missing_ok=True)
    kept = findings(scene, scene.copy if against else None, **facts)
    return [each.kind.text for each in kept if each.severity is Severity.ERROR]


@BATCHES
@pytest.mark.parametrize("field", CHANGED)
def test_each_field_of_a_record(scene: Scene, field: str, codec: int) -> None:
    """The batch around it is valid, with a right checksum: only the copy shows the change."""
    sound = rich(codec=codec)
    assert errors(scene, sound, sound, against=True) == []
    found = errors(scene, sound, rich(CHANGED[field], codec), against=True)
    assert bool(found) != (f".log {field} of a record" in NOT_JUDGED), found


@pytest.mark.parametrize("mode", ["null", "flag"])
@pytest.mark.parametrize("bit", [0x10, 0x20])
def test_the_flag_of_a_tombstone(scene: Scene, mode: str, bit: int) -> None:
    """U-14: Kafka's cleaner clears it, which brings the key back; a flag without a meaning is not checked."""
    rules = KeyRules(tombstone_mode=mode)
    flagged, clear = rich(replace(RECORD, attributes=bit)), rich()
    assert errors(scene, flagged, flagged, against=True, rules=rules) == []
    expected = ["record-changed"] if mode == "flag" and bit == 0x20 else []
    assert errors(scene, flagged, clear, against=True, rules=rules) == expected


@BATCHES
@pytest.mark.parametrize("by", [-2, 2])
@pytest.mark.parametrize("field", LENGTHS)
def test_each_length_in_a_record(scene: Scene, field: str, by: int, codec: int) -> None:
    """The log alone shows it, and the checksum is right."""
    plain = bytearray(encode_record(RECORD, offset_delta=0, timestamp_delta=5))
    sound = rich(codec=codec, payload=bytes(plain))
    assert errors(scene, sound, sound, against=False) == []
    plain[LENGTHS[field]] += by
    assert errors(scene, sound, rich(codec=codec, payload=bytes(plain)), against=False)


def resealed(message: bytes, at: int, content: bytes) -> bytes:
    """A v0 or v1 message with other bytes at a position and a right checksum."""
    changed = message[:at] + content + message[at + len(content) :]
    return changed[:12] + struct.pack(">I", zlib.crc32(changed[16:])) + changed[16:]


def messages(magic: int) -> dict[str, bytes]:
    """The message of offset 3 with one field changed, by field."""
    timestamp = T + 5 if magic else -1
    sound = encode_legacy(3, b"a", b"2", magic=magic, timestamp=timestamp)
    key = 26 if magic else 18
    changed = {
        "offset": struct.pack(">q", 4) + sound[8:],
        "size": sound[:8] + struct.pack(">i", len(sound) - 11) + sound[12:],
        "crc": sound[:12] + bytes([sound[12] ^ 1]) + sound[13:],
        "magic": resealed(sound, 16, b"\x05"),
        "codec": resealed(sound, 17, b"\x01"),
        "key length": resealed(sound, key, struct.pack(">i", 2)),
        "key": encode_legacy(3, b"q", b"2", magic=magic, timestamp=timestamp),
        "value length": resealed(sound, key + 5, struct.pack(">i", 2)),
        "value": encode_legacy(3, b"a", b"3", magic=magic, timestamp=timestamp),
        "no value": encode_legacy(3, b"a", None, magic=magic, timestamp=timestamp),
    }
    if magic:
        changed["timestamp"] = encode_legacy(3, b"a", b"2", magic=magic, timestamp=T + 6)
        changed["timestamp type"] = encode_legacy(3, b"a", b"2", magic=magic, timestamp=timestamp, attributes=8)
    return {"": sound, **changed}


CASES = [(magic, field) for magic in (0, 1) for field in messages(magic) if field]


@pytest.mark.parametrize(("magic", "field"), CASES)
def test_each_field_of_a_message(scene: Scene, magic: int, field: str) -> None:
    """Of the formats 0 and 1; the log alone shows a wrong size, length, checksum, format and codec."""
    sound, changed = messages(magic)[""], messages(magic)[field]
    assert errors(scene, sound, sound, against=True) == []
    assert bool(errors(scene, sound, changed, against=True)) != (f".log {field} of a v{magic} message" in NOT_JUDGED)
    if field in {"size", "crc", "magic", "codec", "key length", "value length"}:
        assert errors(scene, sound, changed, against=False)


def wrapped(magic: int, *, offset: int = 3, key: bytes = b"a", value: bytes | None = b"2", time: int = T + 5) -> bytes:
    """A gzip wrapper of two messages, the first of which the arguments describe."""
    inner = [
        encode_legacy(at - (4 if magic else 0), *row, magic=magic, timestamp=stamp if magic else -1)
        for at, row, stamp in ((offset, (key, value), time), (4, (b"w", b"1"), T + 9))
    ]
    return encode_wrapper(4, b"".join(inner), magic=magic, timestamp=T + 9 if magic else -1)


INNER: dict[str, Callable[[int], bytes]] = {
    "offset": lambda magic: wrapped(magic, offset=2),
    "key": lambda magic: wrapped(magic, key=b"q"),
    "value": lambda magic: wrapped(magic, value=b"3"),
    "no value": lambda magic: wrapped(magic, value=None),
    "timestamp": lambda magic: wrapped(magic, time=T + 6),
}


@pytest.mark.parametrize(
    ("magic", "field"), [(magic, field) for magic in (0, 1) for field in INNER if magic or field != "timestamp"]
)
def test_each_field_of_a_message_in_a_wrapper(scene: Scene, magic: int, field: str) -> None:
    sound = wrapped(magic)
    assert errors(scene, sound, sound, against=True) == []
    assert errors(scene, sound, INNER[field](magic), against=True)
