"""Reads the keys with the most records: a profile has only their hash and an offset."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from cleanerd.errors import CleanerdError
from cleanerd.spark.source.options import RAW
from cleanerd.spark.source.part import split_of
from cleanerd.spark.source.reading import ReadOptions, SourceReading
from cleanerd.spark.source.rows import SourceRows, to_arrow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cleanerd.format.names import TopicPartition
    from cleanerd.spark.logs import Log
    from cleanerd.spark.profile import HotKey, Profile

MOST: Final = 20

_KEY: Final = pa.schema([("key", pa.binary())])
_SHOWN_CHARACTERS: Final = 60


@dataclass(frozen=True, slots=True)
class NamedKey:
    """A key with many records. ``text``: its readable form, or why it is unknown."""

    name: TopicPartition
    text: str
    hot: HotKey


def hottest(profiles: Sequence[Profile], logs: Mapping[TopicPartition, Log]) -> list[NamedKey]:
    """The MOST keys with the most records, if they have more than one."""
    found = [(each.name, hot) for each in profiles for hot in each.hot_keys if hot.records > 1]
    found.sort(key=lambda each: (-each[1].records, each[0]))
    return [NamedKey(name, _text_at(logs[name], hot.offset), hot) for name, hot in found[:MOST]]


def _text_at(log: Log, offset: int) -> str:
    try:
        key = key_at(log, offset)
    except CleanerdError:
        key = None
    return "(gone meanwhile)" if key is None else shown(key)


def key_at(log: Log, offset: int) -> bytes | None:
    """The key of the record at ``offset``; None if the record does not exist, or has no key."""
    split = split_of(log, offset, offset + 1)
    for rows in SourceReading(split, ReadOptions(RAW, skip_damage=False, tombstones=True, map_bytes=0), _KEY).rows():
        keep = rows.keep & (rows.decoded.chunk.records.offset == offset)
        if keep.any():
            batch = to_arrow(SourceRows(rows.decoded, keep, rows.hidden, rows.reach, rows.segment), _KEY)
            key: bytes | None = batch.column(0)[0].as_py()
            return key
    return None


def shown(key: bytes) -> str:
    """``key`` to show: its text, or hexadecimal; a long one is cut."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        text = ""
    if not text.isprintable() or not text:
        text = f"0x{key.hex()}" if key else "(empty)"
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}... ({len(key):,} bytes)"
