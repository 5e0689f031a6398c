"""The reference kernel: every call of ``cleanerd/_kernel.pyi`` in plain Python, slow and exact.

``reference_map`` has the map. Columns are lists. The reference raises its own ``CorruptError`` with the kernel's
attributes except the reason, and ValueError where the kernel does. Compression is the kernel's own: compressed bytes
depend on the library, and ``reference_codecs`` tests that they decompress to the right bytes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace
from itertools import pairwise

from cleanerd import _kernel
from tests.support.logs import varint
from tests.support.reference_batches import (
    BadBatchError,
    Header,
    Parsed,
    Walk,
    check_crc,
    control_type,
    payload_of,
    records_of,
    wrap,
)
from tests.support.reference_codecs import crc32c, siphash_1_3_128
from tests.support.reference_legacy import converted, kept_of, messages_of, open_legacy, rebuilt_legacy

MANY_RECORDS = 1 << 20
MANY_BYTES = 64 << 20


@dataclass(slots=True)
class Batches:
    position: list[int] = field(default_factory=list)
    headers: list[Header] = field(default_factory=list)
    control_type: list[int] = field(default_factory=list)
    first_record: list[int] = field(default_factory=lambda: [0])
    mixed_magic: list[int] = field(default_factory=list)
    unordered: list[int] = field(default_factory=list)
    consumed: int = 0
    needed: int = 0

    def column(self, name: str) -> list[int]:
        """The column of this name, as the kernel has it."""
        if name in ("position", "control_type", "first_record", "mixed_magic", "unordered"):
            return list(getattr(self, name))
        return [getattr(header, name) for header in self.headers]


@dataclass(slots=True)
class Chunk:
    batches: Batches = field(default_factory=Batches)
    offset: list[int] = field(default_factory=list)
    timestamp: list[int] = field(default_factory=list)
    key_hash: list[int] = field(default_factory=list)
    flags: list[int] = field(default_factory=list)
    version: list[int] = field(default_factory=list)


def scan_headers(data: bytes, position: int, *, verify_crc: bool = False) -> Batches:
    """Reference of ``scan_headers``."""
    walk, table = Walk(data, position), Batches()
    while front := walk.peek():
        header, batch = front
        if table.first_record[-1] + header.record_count > 0xFFFF_FFFF:
            break
        if verify_crc:
            try:
                check_crc(header, batch)
            except BadBatchError as error:
                raise walk.corrupt() from error
        _push(table, walk, front, table.first_record[-1] + header.record_count)
    table.consumed, table.needed = walk.consumed, walk.needed
    return table


def _push(table: Batches, walk: Walk, front: tuple[Header, bytes], records: int) -> None:
    header, batch = front
    try:
        table.control_type.append(control_type(header, batch))
    except BadBatchError as error:
        raise walk.corrupt(error.record) from error
    table.position.append(walk.position + walk.consumed)
    table.headers.append(header)
    table.first_record.append(records)
    walk.consumed += header.size


def read_version(value: bytes | None, encoding: str) -> int | None:
    """The version in a header's value, None if it is not one. ``varlong``: as ``ByteUtils.readVarlong``."""
    if value is None:
        return None
    if encoding == "long":
        return int.from_bytes(value, "big", signed=True) if len(value) == 8 else None
    last_only = [byte < 0x80 for byte in value] == [False] * (len(value) - 1) + [True]
    if not last_only or len(value) > 10:
        return None
    raw = sum((byte & 0x7F) << 7 * group for group, byte in enumerate(value)) & 0xFFFF_FFFF_FFFF_FFFF
    return raw >> 1 ^ -(raw & 1)


def header_facts(record: Parsed, version: bytes | None, encoding: str, tombstone: bytes | None) -> tuple[int, int]:
    """Version, and the flags from 4 on, of a record: of repeated header names the last one counts."""
    last = dict(record.headers)
    number, flags = 0, 4 * (record.attributes >> 5 & 1)
    if version in last:
        found = read_version(last[version], encoding)
        number = found or 0
        flags |= 16 if found is None else 8
    if tombstone in last and last[tombstone] not in (None, b"", b"0", b"false"):
        flags |= 32
    return number, flags


def decode_chunk(
    data: bytes,
    position: int,
    *,
    hash_key: bytes | None = None,
    version_header: bytes | None = None,
    version_encoding: str = "long",
    tombstone_header: bytes | None = None,
    verify_crc: bool = True,
    max_unpacked: int = 1 << 30,
) -> Chunk:
    """Reference of ``decode_chunk``."""
    walk, chunk, unpacked = Walk(data, position), Chunk(), 0
    while len(chunk.flags) < MANY_RECORDS and unpacked <= MANY_BYTES and (front := walk.peek()):
        header, batch = front
        try:
            if header.magic < 2:
                opened = open_legacy(header, batch, verify_crc=verify_crc, limit=max_unpacked)
                header, payload = opened.header, opened.plain
                messages = list(messages_of(opened))
                rows = [(message.offset, message.timestamp, message.key) for message in messages]
                facts = [(message.value is not None, 0, 0) for message in messages]
                if any(message.magic != header.magic for message in messages):
                    chunk.batches.mixed_magic.append(len(chunk.batches.headers))
                if not all(one.offset < other.offset for one, other in pairwise(messages)):
                    chunk.batches.unordered.append(len(chunk.batches.headers))
            else:
                if verify_crc:
                    check_crc(header, batch)
                payload = payload_of(header, batch, max_unpacked)
                records = [record for _, record in records_of(header, payload)]
                deltas = [-1, *(record.offset_delta for record in records)]
                rising = all(one < other for one, other in pairwise(deltas))
                if not rising or max(deltas) > header.last_offset_delta:
                    chunk.batches.unordered.append(len(chunk.batches.headers))
                rows = [(header.base_offset + record.offset_delta, record.timestamp, record.key) for record in records]
                names = version_header, version_encoding, tombstone_header
                facts = [(record.has_value, *header_facts(record, *names)) for record in records]
        except BadBatchError as error:
            raise walk.corrupt(error.record) from error
        unpacked += len(payload)
        for (offset, timestamp, key), (has_value, version, flags) in zip(rows, facts, strict=True):
            chunk.offset.append(offset)
            chunk.timestamp.append(timestamp)
            chunk.flags.append((key is not None) + 2 * has_value + flags)
            chunk.version += [] if version_header is None else [version]
            chunk.key_hash += _hash(hash_key, key)
        _push(chunk.batches, walk, (header, batch), len(chunk.flags))
    chunk.batches.consumed, chunk.batches.needed = walk.consumed, walk.needed
    return chunk


def _hash(hash_key: bytes | None, key: bytes | None) -> tuple[int, ...]:
    if hash_key is None:
        return ()
    return (0, 0) if key is None else siphash_1_3_128(hash_key, key)


@dataclass(slots=True)
class Written:
    data: bytearray = field(default_factory=bytearray)
    position: list[int] = field(default_factory=list)
    size: list[int] = field(default_factory=list)
    last_offset: list[int] = field(default_factory=list)
    max_timestamp: list[int] = field(default_factory=list)
    record_count: list[int] = field(default_factory=list)
    consumed: int = 0
    needed: int = 0
    batches_read: int = 0
    records_read: int = 0

    def add(self, header: Header, batch: bytes) -> None:
        """Add one more written batch."""
        self.position.append(len(self.data))
        self.size.append(len(batch))
        self.last_offset.append(header.last_offset)
        self.max_timestamp.append(header.max_timestamp)
        self.record_count.append(header.record_count)
        self.data += batch


def _encode(header: Header, payload: bytes) -> bytes:
    h = header
    covered = struct.pack(
        ">hiqqqhii",
        h.attributes, h.last_offset_delta, h.base_timestamp, h.max_timestamp,
        h.producer_id, h.producer_epoch, h.base_sequence, h.record_count,
    ) + payload  # fmt: skip
    return struct.pack(">qiibI", h.base_offset, 49 + len(payload), h.leader_epoch, 2, crc32c(covered)) + covered


def _check_producer(header: Header) -> None:
    """Refuse the batches that C-54 refuses."""
    transactional, control = header.attributes & 0x10, header.attributes & 0x20
    if header.producer_id == -1:
        bad = bool(transactional)
    else:
        bad = header.producer_epoch == -1 or (header.base_sequence < 0 and not control)
    if bad:
        raise BadBatchError


def _rebuild(header: Header, batch: bytes, keep: list[bool], horizon: int, limit: int) -> tuple[Header, bytes]:
    _check_producer(header)
    kept = [record for _, record in records_of(header, payload_of(header, batch, limit), keep.__getitem__)]
    if not kept:
        raise ValueError(header)
    if header.attributes & 0x40:
        horizon = header.base_timestamp
    base = horizon if horizon >= 0 else kept[0].timestamp
    payload = b""
    for record in kept:
        body = bytes([record.attributes]) + varint(wrap(record.timestamp - base)) + record.tail
        payload += varint(len(body)) + body
    latest = header.max_timestamp if header.append_time else max([-1, *(record.timestamp for record in kept)])
    rebuilt = replace(
        header,
        attributes=header.attributes & 0x3F | (0x40 if horizon >= 0 else 0),
        base_timestamp=base,
        max_timestamp=latest,
        record_count=len(kept),
    )
    return rebuilt, _encode(rebuilt, _kernel.compress(header.attributes & 7, payload))


def _allowed(header: Header, *, convert_legacy: bool) -> tuple[int, ...]:
    if header.magic == 2:
        return 0, 1, 2, 3, 0x12, 0x23, 0x43
    return (0, 2, 3, 0x12, 0x23, 0x43) if convert_legacy else (0, 1, 2, 3, 0x23, 0x43)


def _emptied_time(action: int, time: int) -> int:
    return {3: time, 0x23: -1, 0x43: 0}[action]


def _legacy(
    written: Written, front: tuple[Header, bytes], keep: list[bool], action: int, horizon: int,
    *, convert_legacy: bool, verify_crc: bool, limit: int,
) -> int:  # fmt: skip
    """A v0 or v1 batch; returns its record count."""
    header, batch = front
    if action == 0 and not header.attributes & 7:
        if not keep:
            raise ValueError(keep)
        return 1
    opened = open_legacy(header, batch, verify_crc=verify_crc, limit=limit)
    real = opened.header
    if real.record_count > len(keep):
        raise ValueError(keep)
    if action == 1:
        written.add(real, batch)
    elif action in (3, 0x23, 0x43):
        latest = _emptied_time(action, real.max_timestamp)
        empty = replace(real, magic=2, attributes=real.attributes & 8, max_timestamp=latest, record_count=0)
        written.add(empty, _encode(empty, b""))
    elif action:
        kept = kept_of(opened, keep)
        if not kept:
            raise ValueError(action)
        if convert_legacy:
            new, payload = converted(real, kept, horizon)
            written.add(new, _encode(new, payload))
        else:
            written.add(*rebuilt_legacy(real, kept))
    return real.record_count


def rewrite_chunk(
    data: bytes,
    position: int,
    keep: list[bool],
    first_bit: int,
    actions: list[int],
    *,
    delete_horizon: int = -1,
    convert_legacy: bool = False,
    verify_crc: bool = True,
    max_unpacked: int = 1 << 30,
) -> Written:
    """Reference of ``rewrite_chunk``; ``keep`` are the bits one by one."""
    walk, written = Walk(data, position), Written()
    while len(written.data) < MANY_BYTES and (front := walk.peek()):
        header, batch = front
        first = first_bit + written.records_read
        if header.magic == 2 and first + header.record_count > len(keep):
            raise ValueError(first)
        if written.batches_read >= len(actions):
            raise ValueError(first)
        action = actions[written.batches_read]
        if action not in _allowed(header, convert_legacy=convert_legacy):
            raise ValueError(action)
        horizon = delete_horizon if action & 0x10 else -1
        try:
            if header.magic < 2:
                check = verify_crc and action != 0
                count = _legacy(
                    written, front, keep[first:], action, horizon,
                    convert_legacy=convert_legacy, verify_crc=check, limit=max_unpacked,
                )  # fmt: skip
            else:
                count = header.record_count
                if action and verify_crc:
                    check_crc(header, batch)
                if action == 1:
                    written.add(header, batch)
                elif action in (3, 0x23, 0x43):
                    empty = replace(
                        header,
                        attributes=header.attributes & 0x38,
                        base_timestamp=-1,
                        max_timestamp=_emptied_time(action, header.max_timestamp),
                        record_count=0,
                    )
                    written.add(empty, _encode(empty, b""))
                elif action:
                    written.add(*_rebuild(header, batch, keep[first:], horizon, max_unpacked))
        except BadBatchError as error:
            raise walk.corrupt(error.record) from error
        written.batches_read += 1
        written.records_read += count
        walk.consumed += header.size
    written.consumed, written.needed = walk.consumed, walk.needed
    return written


class IndexBuilder:
    """Reference of ``IndexBuilder``: F-6/7.1 per batch."""

    def __init__(self, base: int, interval: int, *, max_offset_entries: int, max_time_entries: int) -> None:
        if min(base, interval, max_offset_entries, max_time_entries) < 0:
            raise ValueError(base)
        self.base, self.interval = base, interval
        self.most_offsets, self.most_times = max_offset_entries, max_time_entries
        self.offsets: list[tuple[int, int]] = []
        self.times: list[tuple[int, int]] = []
        self.counter = self.position = 0
        self.latest, self.latest_offset, self.last_offset = -1, base, -1

    def append(self, batches: list[tuple[int, int, int]]) -> None:
        """Append (size, last offset, max timestamp) per batch."""
        for _, last_offset, _ in batches:
            if not 0 <= last_offset - self.base < 1 << 31:
                raise ValueError(last_offset)
        if self.position + sum(size for size, _, _ in batches) >= 1 << 31:
            raise ValueError(self.position)
        for size, last_offset, timestamp in batches:
            rises = last_offset > self.last_offset
            self.last_offset = max(self.last_offset, last_offset)
            if timestamp > self.latest:
                self.latest, self.latest_offset = timestamp, self.last_offset
            if rises and self.counter > self.interval:
                if len(self.offsets) < self.most_offsets:
                    self.offsets.append((last_offset - self.base, self.position))
                if len(self.times) < self.most_times - 1:
                    self.times = self._with_time()
                self.counter = 0
            self.counter += size
            self.position += size

    def _with_time(self) -> list[tuple[int, int]]:
        if self.latest > (self.times[-1][0] if self.times else -1):
            return [*self.times, (self.latest, self.latest_offset - self.base)]
        return self.times

    def finish(self) -> tuple[bytes, bytes]:
        """Reference of ``finish``."""
        offsets = b"".join(struct.pack(">ii", *entry) for entry in self.offsets)
        return offsets, b"".join(struct.pack(">qi", *entry) for entry in self._with_time())
