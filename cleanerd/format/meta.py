"""``meta.properties`` of a log directory and ``partition.metadata`` of a partition (F-5, F-11)."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass

from cleanerd.errors import CorruptionError
from cleanerd.format.names import MAX_INT32, uuid_from_base64
from cleanerd.format.properties import read_properties

META_PROPERTIES = "meta.properties"

_INT = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)
_LINE_END = re.compile(r"\r\n|\r|\n")
_FIELD = re.compile(r"(.*?):[ \t\x0b\f]+(.*)")
_ZERO = uuid.UUID(int=0)


_RESTORE = (
    "the broker does not start with it: write the lines version=1, cluster.id=... and node.id=... as in another log "
    "directory of the broker. Leave directory.id out unless you know it; then start the broker twice, as partitions "
    "here may have no leader after the first start"
)
_WRITE_AGAIN = (
    "the broker does not start with it: write the two lines 'version: 0' and 'topic_id: ID'; cleanerd doctor knows the "
    "ID from the metadata log, and kafka-topics.sh --describe shows it"
)


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The owner of a log directory. Version 0 (ZooKeeper) may lack the ids; ``directory_id`` is newer than both."""

    version: int
    cluster_id: str | None
    node_id: int | None
    directory_id: uuid.UUID | None


def read_meta_properties(data: bytes, where: str) -> MetaProperties:
    """Decode ``meta.properties``; version 0 calls the node ``broker.id``, version 1 ``node.id`` and needs both ids.

    A missing version means 0, as in the broker. A file without cluster and node is refused: a disk may have left zeros.

    Raises:
        CorruptionError: another version, an id that is missing or malformed.
    """
    properties = read_properties(data, where)
    version = _integer(properties, "version", where) if "version" in properties else 0
    if version not in {0, 1}:
        raise CorruptionError(f"meta.properties version {version} is unknown", where=where)
    node_key = "node.id" if version == 1 else "broker.id"
    node_id = _integer(properties, node_key, where) if version == 1 or node_key in properties else None
    cluster_id = properties.get("cluster.id")
    if cluster_id is None and node_id is None and "version" not in properties:
        raise CorruptionError("names neither a cluster nor a node", where=where, hint=_RESTORE)
    if version == 1 and cluster_id is None:
        raise CorruptionError("cluster.id is missing", where=where)
    directory = properties.get("directory.id")
    try:
        directory_id = uuid_from_base64(directory) if directory is not None else None
    except ValueError as error:
        raise CorruptionError(f"directory.id: {error}", where=where) from None
    return MetaProperties(version, cluster_id, node_id, directory_id)


def _integer(properties: dict[str, str], key: str, where: str) -> int:
    text = properties.get(key)
    if key == "version" and text is not None:
        text = text.strip()  # only here, as in the broker
    if text is None:
        raise CorruptionError(f"{key} is missing", where=where)
    if _INT.fullmatch(text) is None or not -MAX_INT32 - 1 <= int(text) <= MAX_INT32:
        raise CorruptionError(f"{key} is {text[:40]!r}, not a number", where=where)
    return int(text)


def read_partition_metadata(data: bytes, where: str) -> uuid.UUID:
    """The topic id in ``partition.metadata`` (``version: 0`` and ``topic_id: <base64>``, no line feed at the end).

    Raises:
        CorruptionError: another version, a missing or malformed line, the zero id. The message names the line.
    """
    lines = _LINE_END.split(data.decode("iso-8859-1"))
    version = _field(lines, 0, "version", where)
    if version != "0":
        raise CorruptionError(
            f"line 1: partition.metadata version {version[:40]!r} is unknown", where=where, position=0
        )
    text = _field(lines, 1, "topic_id", where)
    try:
        topic_id = uuid_from_base64(text)
    except ValueError as error:
        position = len(lines[0]) + 1
        raise CorruptionError(f"line 2: {error}", where=where, position=position, hint=_WRITE_AGAIN) from None
    if topic_id == _ZERO:
        position = len(lines[0]) + 1
        raise CorruptionError("line 2: the topic id is zero", where=where, position=position, hint=_WRITE_AGAIN)
    return topic_id


def _field(lines: list[str], index: int, key: str, where: str) -> str:
    """Value of line ``index``, which must be ``key: value``."""
    match = _FIELD.fullmatch(lines[index]) if index < len(lines) else None
    if match is None or match[1] != key:
        position = sum(len(line) + 1 for line in lines[:index])
        raise CorruptionError(f"line {index + 1}: no {key}", where=where, position=position, hint=_WRITE_AGAIN)
    return match[2]
