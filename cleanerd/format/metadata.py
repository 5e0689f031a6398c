"""The frame around every record of the KRaft metadata log: frame version, api key, version, then the record."""

from __future__ import annotations

from typing import Final

from cleanerd.errors import UnsupportedLogError
from cleanerd.format.control import skip_tagged_fields
from cleanerd.format.metadata_records import LAYOUTS, RECORD_NAMES, MetadataRecord, OtherRecord
from cleanerd.format.reader import ByteReader

FRAME_VERSION: Final = 1


def read_metadata_record(value: bytes | None, *, where: str | None = None, position: int = 0) -> MetadataRecord:
    """Decode the value of a record in ``__cluster_metadata`` or in a snapshot of it.

    ``position`` is that of the record's batch in the file. Types that do not concern logs become OtherRecord without
    being decoded; so do newer versions of types that are only informative.

    Raises:
        CorruptionError: no value, another frame version, bytes that do not fit the type.
        UnsupportedLogError: a newer version of a type that decides what the cluster's topics and settings are.
    """
    reader = ByteReader(value or b"", where=where, origin=position, unpacked=True)
    if value is None:
        reader.fail("a metadata record without a value")
    frame_version = reader.unsigned_varint()
    if frame_version != FRAME_VERSION:
        reader.fail(f"metadata record frame version {frame_version} is unknown, only {FRAME_VERSION} is", at=0)
    api_key = reader.unsigned_varint()
    version = reader.unsigned_varint()
    layout = LAYOUTS.get(api_key)
    if layout is None:
        return OtherRecord(api_key, version)
    if version > layout.highest_version:
        if not layout.essential:
            return OtherRecord(api_key, version)
        raise UnsupportedLogError(
            f"{RECORD_NAMES[api_key]} version {version} is not known, only up to {layout.highest_version}",
            where=where,
            hint="update cleanerd, or give the topic's settings with --set",
        )
    record = layout.read(reader, version)
    if not layout.reads_tags:
        skip_tagged_fields(reader)
    if reader.left:
        reader.fail(f"{reader.left} bytes left at the end of a {RECORD_NAMES[api_key]}")
    return record
