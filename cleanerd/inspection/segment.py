"""Inspection of files of batches: segments of partitions, the metadata log, its snapshots."""

from __future__ import annotations

import dataclasses
import enum
import os
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cleanerd.errors import CleanerdError, CorruptionError, UnsupportedLogError
from cleanerd.format.batch import CODEC_NAMES, TIMESTAMP_TYPE, BatchHeader, check_crc, parse_header
from cleanerd.format.control import ControlType, read_control
from cleanerd.format.legacy import LegacyMessage, parse_message, records_of_message
from cleanerd.format.metadata import read_metadata_record
from cleanerd.format.metadata_records import RECORD_NAMES, ConfigRecord, OtherRecord, ResourceType, record_name
from cleanerd.format.names import uuid_to_base64
from cleanerd.format.record import Record, records_of
from cleanerd.fsio.plain_file import open_plain
from cleanerd.fsio.safe_open import raw_file
from cleanerd.host.memory import batch_bytes_of_objects
from cleanerd.inspection.report import (
    Inspection,
    ReportTable,
    RowSelection,
    TableColumn,
    bytes_fields,
    moment,
    number,
    preview,
    text_column,
    text_of,
)
from cleanerd.segments.batch_file import StoredBatch, read_batches
from cleanerd.segments.log_dir import METADATA_TOPIC
from cleanerd.segments.preallocated import only_zeros

MAX_BATCH_BYTES: Final = 2**31 + 11

BATCH_COLUMNS: Final = (
    number("position", "position"),
    number("size", "size_bytes"),
    number("first offset", "base_offset"),
    number("last offset", "last_offset"),
    number("records", "records"),
    number("magic", "magic"),
    text_column("codec", "codec"),
    text_column("flags", "flags"),
    moment("largest time", "max_timestamp"),
    TableColumn(
        "producer",
        lambda row: text_of(row["producer"] and f"{row['producer_id']}/{row['producer_epoch']}:{row['base_sequence']}"),
    ),
    number("leader epoch", "partition_leader_epoch"),
)
RECORD_COLUMNS: Final = (
    number("offset", "offset"),
    moment("time", "timestamp"),
    text_column("control", "control"),
    TableColumn("key", preview("key")),
    TableColumn("value", preview("value")),
    TableColumn("headers", lambda row: _header_text(row["headers"])),
)
METADATA_COLUMNS: Final = (
    number("offset", "offset"),
    moment("time", "timestamp"),
    text_column("type", "type"),
    text_column("content", "fields"),
)


def _header_text(headers: object) -> str:
    if not isinstance(headers, list) or not headers:
        return "-"
    value = preview("value")
    return " ".join(f"{header['name']}={value(header)}" for header in headers)


def inspect_batches(path: Path, kind: str, selection: RowSelection, *, metadata: bool) -> Inspection:
    """Decode the batches of ``path``, and with ``selection.records`` their records, up to the first damage.

    ``metadata``: the records are KRaft metadata, and only keys on the allow-list are shown (U-24).
    """
    name = "records" if selection.records else "batches"
    columns = BATCH_COLUMNS if not selection.records else METADATA_COLUMNS if metadata else RECORD_COLUMNS
    table = ReportTable(name, columns, selection.limit)
    found = _BatchSums()
    end = 0
    error: CleanerdError | None = None
    try:
        for stored in read_batches(path, cut_tail_ends=True, limit_bytes=MAX_BATCH_BYTES):
            if selection.is_past(stored.frame.offset) and stored.frame.magic == 2:
                end = -1
                break
            _add(stored, table, found, selection, metadata=metadata)
            end = stored.end
        if end >= 0:
            found.zero_tail_bytes = zero_tail(path, end)
    except CleanerdError as caught:
        error = caught
    return Inspection(str(path), kind, found.facts(), [table], error)


@dataclass(slots=True)
class _BatchSums:
    """Sums over the selected batches."""

    batches: int = 0
    records: int = 0
    size_bytes: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    max_timestamp: int = -1
    codecs: set[str] = field(default_factory=set)
    magics: set[int] = field(default_factory=set)
    zero_tail_bytes: int = 0

    def facts(self) -> dict[str, object]:
        facts: dict[str, object] = {
            "batch_count": self.batches,
            "record_count": self.records,
            "size_bytes": self.size_bytes,
            "first_offset": self.first_offset,
            "last_offset": self.last_offset,
            "max_timestamp": self.max_timestamp,
            "codecs": sorted(self.codecs, key=CODEC_NAMES.index),
            "magic": sorted(self.magics),
        }
        return {**facts, "zero_tail_bytes": self.zero_tail_bytes} if self.zero_tail_bytes else facts


def _add(
    stored: StoredBatch, table: ReportTable, found: _BatchSums, selection: RowSelection, *, metadata: bool
) -> None:
    row, records = _decode(stored, need_records=selection.records and not table.is_full)
    first, last = row["base_offset"], row["last_offset"]
    if not isinstance(first, int) or not isinstance(last, int) or not selection.includes(first, last):
        return
    found.batches += 1
    found.records += row["records"] if isinstance(row["records"], int) else 0
    found.size_bytes += stored.frame.size_bytes
    found.first_offset = first if found.first_offset is None else found.first_offset
    found.last_offset = last
    found.max_timestamp = max(found.max_timestamp, int(str(row["max_timestamp"])))
    found.codecs.add(str(row["codec"]))
    found.magics.add(stored.frame.magic)
    if not selection.records:
        table.add(row)
        return
    if records is None:
        table.omitted += int(str(row["records"]))
        return
    for record in records:
        if selection.includes(record.offset, record.offset):
            table.add(_record_row(record, stored, row, metadata=metadata))


def _decode(stored: StoredBatch, *, need_records: bool) -> tuple[dict[str, object], list[Record] | None]:
    """The row of a batch and, if needed, its records; the CRC is always checked."""
    where, position = stored.where, stored.position
    if stored.frame.magic == 2:
        header = parse_header(stored.data, where=where, origin=position)
        check_crc(stored.data, header, where=where, position=position)
        records = (
            records_of(
                stored.data, limit_bytes=batch_bytes_of_objects(), where=where, position=position, verify_crc=False
            )
            if need_records
            else None
        )
        return _header_row(header, where, position), records
    message = parse_message(stored.data, where=where, position=position)
    # Only decompression shows how many messages a wrapper has, and its first offset.
    inner = records_of_message(message, limit_bytes=batch_bytes_of_objects(), where=where, position=position)
    return _message_row(message, inner, where, position), inner


def _header_row(header: BatchHeader, where: str, position: int) -> dict[str, object]:
    named = {
        "transactional": header.is_transactional,
        "control": header.is_control,
        "append time": header.is_log_append_time,
        "delete horizon": header.delete_horizon_ms is not None,
    }
    return {
        "position": position,
        "size_bytes": header.size_bytes,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "magic": header.magic,
        "codec": _codec_name(header.codec, where, position),
        "flags": [name for name, is_set in named.items() if is_set],
        "attributes": header.attributes,
        "base_timestamp": None if header.delete_horizon_ms is not None else header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "delete_horizon_ms": header.delete_horizon_ms,
        "producer": header.producer_id >= 0 or None,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "partition_leader_epoch": header.partition_leader_epoch,
        "crc": f"{header.crc:08x}",
    }


def _message_row(message: LegacyMessage, inner: list[Record], where: str, position: int) -> dict[str, object]:
    return {
        "position": position,
        "size_bytes": message.size_bytes,
        "base_offset": inner[0].offset,
        "last_offset": message.offset,
        "records": len(inner),
        "magic": message.magic,
        "codec": _codec_name(message.codec, where, position),
        "flags": ["append time"] if message.attributes & TIMESTAMP_TYPE else [],
        "attributes": message.attributes,
        "base_timestamp": None,
        "max_timestamp": message.timestamp,
        "delete_horizon_ms": None,
        "producer": None,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "partition_leader_epoch": None,
        "crc": f"{message.crc:08x}",
    }


def _codec_name(codec: int, where: str, position: int) -> str:
    if codec >= len(CODEC_NAMES):
        raise CorruptionError(f"codec {codec} is unknown", where=where, position=position)
    return CODEC_NAMES[codec]


def _record_row(record: Record, stored: StoredBatch, batch: dict[str, object], *, metadata: bool) -> dict[str, object]:
    row: dict[str, object] = {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "batch_position": stored.position,
    }
    flags = batch["flags"]
    control = None
    if isinstance(flags, list) and "control" in flags:
        control = read_control(record, where=stored.where, position=stored.position)
    if metadata:
        if control is not None:
            return {**row, "type": control.name, "fields": control.fields}
        decoded = read_metadata_record(record.value, where=stored.where, position=stored.position)
        return {**row, "type": record_name(decoded), "fields": _metadata_fields(decoded)}
    return {
        **row,
        "control": None if control is None else {"type": control.name, **control.fields},
        "attributes": record.attributes,
        **bytes_fields("key", record.key),
        **bytes_fields("value", record.value),
        "headers": [
            {"name": name.decode("utf-8", "backslashreplace"), **bytes_fields("value", value)}
            for name, value in record.headers
        ],
    }


def _metadata_fields(record: object) -> dict[str, object]:
    """The fields of a metadata record to show, without unread ones."""
    if isinstance(record, OtherRecord) or not dataclasses.is_dataclass(record):
        return {}
    fields = {each.name: _plain(getattr(record, each.name)) for each in dataclasses.fields(record)}
    if isinstance(record, ConfigRecord) and record.resource_type in set(ResourceType):
        fields["resource_type"] = ResourceType(record.resource_type).name
    return fields


def _plain(value: object) -> object:
    match value:
        case uuid.UUID():
            return uuid_to_base64(value)
        case enum.Enum():
            return value.name
        case dict():
            return {name: list(each) if isinstance(each, tuple) else each for name, each in value.items()}
        case _:
            return value


def zero_tail(path: Path, position: int) -> int:
    """Bytes from ``position`` on, which must all be zero: the preallocated end of a segment (F-1).

    Raises:
        CorruptionError: they are not, so the file ends inside a batch.
    """
    with raw_file(open_plain(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if not only_zeros(file.fileno(), position, size):
            raise CorruptionError(
                f"the file ends inside a batch, {size - position} bytes in", where=str(path), position=position
            )
        return size - position


def holds_metadata(path: Path, *, guess: bool = True) -> bool:
    """Whether a file of batches contains KRaft metadata, which must not be shown as plain records (U-24).

    Its directory shows that. For a copied file its first record does: a control record of KRaft, or with ``guess`` a
    record that can be read as metadata.
    """
    if path.resolve().parent.name.startswith(f"{METADATA_TOPIC}-"):
        return True
    try:
        for stored in read_batches(path, cut_tail_ends=True, limit_bytes=batch_bytes_of_objects()):
            if stored.frame.magic != 2:
                return False
            is_control = parse_header(stored.data).is_control
            for record in records_of(stored.data, limit_bytes=batch_bytes_of_objects(), verify_crc=False):
                if is_control:
                    return read_control(record).type not in {ControlType.ABORT, ControlType.COMMIT}
                return guess and _is_metadata(record)
    except UnsupportedLogError:
        return True
    except CleanerdError:
        pass
    return False


def _is_metadata(record: Record) -> bool:
    if record.key is not None or record.headers:
        return False
    decoded = read_metadata_record(record.value)
    return not isinstance(decoded, OtherRecord) or decoded.api_key in RECORD_NAMES
