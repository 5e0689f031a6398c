"""Answers of the judges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """A record as Kafka decodes it; ``attributes`` is -1 for v0 and v1."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    attributes: int

    @classmethod
    def from_json(cls, node: list[Any]) -> ReadRecord:
        headers = tuple((name, _bytes(value)) for name, value in node[4])
        return cls(node[0], node[1], _bytes(node[2]), _bytes(node[3]), headers, node[5])


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """A batch as Kafka decodes it. ``base_timestamp``: the stored field; ``problem``: Kafka's objection or None."""

    segment: int
    position: int
    size: int
    base: int
    last: int
    magic: int
    crc: int
    attributes: int
    codec: str
    timestamp_type: str
    leader_epoch: int
    base_timestamp: int
    max_timestamp: int
    delete_horizon: int | None
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    transactional: bool
    control: bool
    problem: str | None
    count: int
    records: tuple[ReadRecord, ...] = ()

    @classmethod
    def from_json(cls, node: Json) -> ReadBatch:
        records = tuple(ReadRecord.from_json(record) for record in node.get("records", ()))
        return cls(**{**node, "records": records})


@dataclass(frozen=True, slots=True)
class ReadSegment:
    """A segment's files, entries as (offset, position), (timestamp, offset), (producer, first, last, stable offset)."""

    base: int
    size: int
    last_modified_ms: int
    offset_index: tuple[tuple[int, int], ...] | None
    time_index: tuple[tuple[int, int], ...] | None
    txn_index: tuple[tuple[int, int, int, int], ...] | None

    @classmethod
    def from_json(cls, node: Json) -> ReadSegment:
        def entries(name: str) -> Any:
            return tuple(tuple(entry) for entry in node[name]) if name in node else None

        return cls(
            base=node["base"],
            size=node["size"],
            last_modified_ms=node["last_modified_ms"],
            offset_index=entries("offset_index"),
            time_index=entries("time_index"),
            txn_index=entries("txn_index"),
        )


@dataclass(frozen=True, slots=True)
class Producer:
    """An entry of the producer state, from a snapshot file or rebuilt by a load; ``txn_first_offset`` -1: none open."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    txn_first_offset: int


@dataclass(frozen=True, slots=True)
class Dump:
    """A whole partition directory. ``files``: name to size in bytes; ``snapshots``: file name to entries."""

    segments: tuple[ReadSegment, ...]
    batches: tuple[ReadBatch, ...]
    files: dict[str, int]
    snapshots: dict[str, tuple[Producer, ...]]

    @property
    def records(self) -> tuple[ReadRecord, ...]:
        """Records of all data batches, in order."""
        return tuple(record for batch in self.batches if not batch.control for record in batch.records)

    @classmethod
    def from_json(cls, node: Json) -> Dump:
        return cls(
            segments=tuple(ReadSegment.from_json(segment) for segment in node["segments"]),
            batches=tuple(ReadBatch.from_json(batch) for batch in node.get("batches", ())),
            files=node["files"],
            snapshots={
                name: tuple(Producer(**entry) for entry in entries) for name, entries in node["snapshots"].items()
            },
        )


@dataclass(frozen=True, slots=True)
class Cleaned:
    """One pass of Kafka's cleaner: its answer, its statistics, and its cost.

    ``end_offset`` is the new cleaner checkpoint (0, and no change, if first dirty = bound). ``cpu_ns`` is the cleaning
    thread alone, ``process_cpu_ns`` the whole JVM with its collector and compiler threads (U-30).
    """

    end_offset: int
    bytes_read: int
    bytes_written: int
    map_messages_read: int
    messages_read: int
    invalid_messages_read: int
    messages_written: int
    buffer_utilization: float
    cpu_ns: int
    process_cpu_ns: int
    wall_ns: int
    log_start_offset: int
    log_end_offset: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """``differences`` is empty if cleanerd's result is right.

    ``additions`` are the (base, last) of batches that U-13 allows.
    """

    differences: tuple[str, ...]
    additions: tuple[tuple[int, int], ...]
    batches: int
    records: int


@dataclass(frozen=True, slots=True)
class LookupCheck:
    """``problems`` is empty if every one of the ``requested`` lookups, over ``entries`` index entries, was right."""

    problems: tuple[str, ...]
    requested: int
    entries: int


@dataclass(frozen=True, slots=True)
class Loaded:
    """A directory after Kafka's loader. ``digest`` covers names and bytes of all .log files.

    ``error`` is the exception if Kafka could not load it; the rest is then empty. ``batches`` (on request): (segment,
    base, last, crc).
    """

    error: str | None
    message: str
    log_start_offset: int
    log_end_offset: int
    digest: str
    files: dict[str, int]
    producers: tuple[Producer, ...]
    batches: tuple[tuple[int, int, int, int], ...]

    @classmethod
    def from_json(cls, node: Json) -> Loaded:
        return cls(
            error=node.get("error"),
            message=node.get("message", ""),
            log_start_offset=node.get("log_start_offset", -1),
            log_end_offset=node.get("log_end_offset", -1),
            digest=node.get("digest", ""),
            files=node.get("files", {}),
            producers=tuple(Producer(**entry) for entry in node.get("producers", ())),
            batches=tuple((b[0], b[1], b[2], b[3]) for b in node.get("batches", ())),
        )


@dataclass(frozen=True, slots=True)
class Retained:
    """A log's times for a broker, and the segments that retention deleted.

    ``largest_ms`` is a number per segment, that of its file if it has no time; ``found`` an offset for each requested
    time, -1 for none.
    """

    deleted: int
    log_start_offset: int
    largest_ms: tuple[int, ...]
    found: tuple[int, ...]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)
