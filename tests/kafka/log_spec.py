"""The wanted content of a partition directory, in the terms of the log format; ``Judge.make`` makes Kafka write it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Json = dict[str, Any]
Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]


@dataclass(frozen=True, slots=True)
class Record:
    """One record. ``timestamp`` in ms; ``value`` None is a tombstone. v0 and v1 have no headers, v0 no timestamp."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    def to_json(self) -> list[Any]:
        headers = [[name, _hex(value)] for name, value in self.headers]
        return [self.offset, self.timestamp, _hex(self.key), _hex(self.value), headers]


@dataclass(frozen=True, slots=True)
class Marker:
    """The end of a transaction."""

    type: Literal["commit", "abort"]
    timestamp: int
    coordinator_epoch: int = 0


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch; v0 and v1 without a codec become one batch per record, as always.

    ``base`` (default: the first record's offset) and ``last`` (default: the last record's) may leave space for removed
    records. No records and no marker: an empty batch, which needs ``base``. ``append_time``: LogAppendTime, patched
    into the header as a leader does it. ``raw`` is appended unchanged.
    """

    records: tuple[Record, ...] = ()
    base: int | None = None
    last: int | None = None
    magic: int = 2
    codec: Codec = "none"
    append_time: int | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    transactional: bool = False
    control: bool = False
    leader_epoch: int = 0
    delete_horizon: int | None = None
    max_timestamp: int | None = None
    """Of an empty batch only."""
    marker: Marker | None = None
    raw: bytes | None = None

    def to_json(self) -> Json:
        node: Json = {
            "records": [record.to_json() for record in self.records],
            "base": self.base,
            "last": self.last,
            "magic": self.magic,
            "codec": self.codec,
            "append_time": self.append_time,
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
            "base_sequence": self.base_sequence,
            "transactional": self.transactional,
            "control": self.control,
            "leader_epoch": self.leader_epoch,
            "delete_horizon": self.delete_horizon,
            "max_timestamp": self.max_timestamp,
            "raw": _hex(self.raw),
        }
        if self.marker is not None:
            node["marker"] = {
                "type": self.marker.type,
                "timestamp": self.marker.timestamp,
                "coordinator_epoch": self.marker.coordinator_epoch,
            }
        return {name: value for name, value in node.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Segment:
    """Batches of one ``.log``. ``last_modified_ms``: the mtime of it and its indexes (legacy tombstones use it)."""

    base: int
    batches: tuple[Batch, ...] = ()
    last_modified_ms: int | None = None

    def to_json(self) -> Json:
        return {
            "base": self.base,
            "batches": [batch.to_json() for batch in self.batches],
            "last_modified_ms": self.last_modified_ms,
        }


@dataclass(frozen=True, slots=True)
class Round:
    """One pass of Kafka's cleaner.

    ``first_dirty_offset`` defaults to the log start, ``first_uncleanable_offset`` (the bound) to the active segment's
    base, the high watermark to the log end.
    """

    now_ms: int
    first_dirty_offset: int | None = None
    first_uncleanable_offset: int | None = None
    high_watermark: int | None = None

    def to_json(self) -> Json:
        node = {
            "now_ms": self.now_ms,
            "first_dirty_offset": self.first_dirty_offset,
            "first_uncleanable_offset": self.first_uncleanable_offset,
            "high_watermark": self.high_watermark,
        }
        return {name: value for name, value in node.items() if value is not None}


@dataclass(frozen=True, slots=True)
class ToLoad:
    """A directory for ``Judge.load``, first copied from ``source`` if given. Defaults: clean start, no checkpoints."""

    directory: str
    source: str | None = None
    clean_shutdown: bool = True
    log_start_offset: int = 0
    recovery_point: int = 0

    def to_json(self) -> Json:
        node: Json = {
            "dir": self.directory,
            "clean_shutdown": self.clean_shutdown,
            "log_start_offset": self.log_start_offset,
            "recovery_point": self.recovery_point,
        }
        if self.source is not None:
            node["source"] = self.source
        return node


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()
