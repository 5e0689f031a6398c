"""Names on disk: segment files, partition directories, KRaft snapshots, and Kafka's way to write a UUID (F-5, F-12)."""

from __future__ import annotations

import base64
import functools
import re
import uuid
from dataclasses import dataclass

METAVAR = "TOPIC[-N]"
"""How help texts and errors name a topic or one of its partitions."""

SEGMENT_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIMEINDEX_SUFFIX = ".timeindex"
TXNINDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"

DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"

FUTURE_SUFFIX = "-future"
PASSING_SUFFIXES = ("-delete", FUTURE_SUFFIX, "-stray")
"""Suffixes of directories that a broker deletes, fills, or moved aside."""
REMOTE_INDEX_CACHE = "remote-log-index-cache"
"""A broker's directory beside the partitions."""

MAX_OFFSET = 2**63 - 1
MAX_INT32 = 2**31 - 1

_BASE_DIGITS = 20
_FILE_SUFFIXES = frozenset(
    kind + state
    for kind in (SEGMENT_SUFFIX, INDEX_SUFFIX, TIMEINDEX_SUFFIX, TXNINDEX_SUFFIX, SNAPSHOT_SUFFIX)
    for state in ("", DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)
)
_CHECKPOINT_NAME = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint", re.ASCII)
# One digit form per number, so that str() of the result is the directory name again.
_PARTITION_DIR = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})", re.ASCII)
_JAVA_INT = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)
_FUTURE_DIR = re.compile(r"(.+)\.[0-9a-f]{32}-future", re.ASCII)
_PASSING_DIR = re.compile(r"(\S+-\S+)\.\S+-(?:delete|future|stray)")
_UUID_TEXT = re.compile(r"[A-Za-z0-9_-]{22}(?:==)?", re.ASCII)


def file_name(base: int, suffix: str) -> str:
    """Name of a file of the segment ``base``: 20 digits and ``suffix``.

    Raises:
        ValueError: ``base`` is not an offset.
    """
    if not 0 <= base <= MAX_OFFSET:
        raise ValueError(f"{base} is not a base offset")
    return f"{base:020d}{suffix}"


def parse_file_name(name: str) -> tuple[int, str] | None:
    """``(base offset, suffix)`` of a segment's file; the suffix includes all dots, e.g. ``.log.swap``.

    None for any other name: checkpoints, temporary files, copies.
    """
    digits, suffix = name[:_BASE_DIGITS], name[_BASE_DIGITS:]
    if suffix not in _FILE_SUFFIXES or not (digits.isdecimal() and digits.isascii()):
        return None
    base = int(digits)
    return (base, suffix) if base <= MAX_OFFSET else None


def parse_checkpoint_name(name: str) -> tuple[int, int] | None:
    """``(end offset, leader epoch)`` of a complete KRaft snapshot ``<20 digits>-<10 digits>.checkpoint``, else None.

    The snapshot contains the metadata log below the end offset. ``.checkpoint.part`` and ``.checkpoint.deleted`` give
    None.
    """
    match = _CHECKPOINT_NAME.fullmatch(name)
    if match is None:
        return None
    end, epoch = int(match[1]), int(match[2])
    return (end, epoch) if end <= MAX_OFFSET and epoch <= MAX_INT32 else None


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """A partition of a topic; ``str()`` gives the directory name ``topic-3``."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def parse_topic_partition_dir(name: str) -> TopicPartition | None:
    """The partition whose current log the directory ``name`` holds: the number follows the last dash (F-5).

    None for ``-future``, ``-delete`` and ``-stray`` directories and for other directories. A number with leading zeros
    gives None too, because the partition would be searched under another name.
    """
    match = _PARTITION_DIR.fullmatch(name)
    if match is None or match[1] in {".", ".."}:
        return None
    partition = int(match[2])
    return TopicPartition(match[1], partition) if partition <= MAX_INT32 else None


def parse_future_dir(name: str) -> TopicPartition | None:
    """The partition whose replica is being moved into the directory ``name``, from another log directory (F-5)."""
    match = _FUTURE_DIR.fullmatch(name)
    return None if match is None else parse_topic_partition_dir(match[1])


def broker_takes_dir(name: str) -> bool:
    """Whether a broker starts with a directory of this name in a log directory; Kafka: `parseTopicPartitionName`.

    It takes more names than :func:`parse_topic_partition_dir`: ``x-01`` is partition 1 of ``x``.
    """
    if name == REMOTE_INDEX_CACHE:
        return True
    passing = _PASSING_DIR.fullmatch(name)
    if passing is None and name.endswith(PASSING_SUFFIXES):
        return False
    topic, _, number = (name if passing is None else passing[1]).rpartition("-")
    return bool(topic) and _JAVA_INT.fullmatch(number) is not None and -MAX_INT32 - 1 <= int(number) <= MAX_INT32


@functools.lru_cache(maxsize=1024)
def uuid_from_base64(text: str) -> uuid.UUID:
    """A UUID from Kafka's form: URL-safe base64, 22 characters (padding is accepted).

    Topics have few of them.

    Raises:
        ValueError: ``text`` is malformed.
    """
    if _UUID_TEXT.fullmatch(text) is None:
        raise ValueError(f"{text[:40]!r} is not a base64 UUID of 22 characters")
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text[:22] + "=="))


@functools.lru_cache(maxsize=1024)
def uuid_to_base64(value: uuid.UUID) -> str:
    """Kafka's form of ``value``, 22 characters; cached, because the same topics recur."""
    return base64.urlsafe_b64encode(value.bytes).decode("ascii").rstrip("=")
