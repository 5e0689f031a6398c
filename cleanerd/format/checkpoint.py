"""Checkpoint text files: offsets per partition and leader epochs (F-9, F-11).

::

    0                        version
    <number of entries>
    <topic> <partition> <offset>      or, leader-epoch-checkpoint:  <epoch> <start offset>
"""

from __future__ import annotations

import functools
import re
import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cleanerd.errors import CorruptionError
from cleanerd.format.names import MAX_INT32, MAX_OFFSET, TopicPartition

VERSION = 0

_LINE_END = re.compile(r"\r\n|\r|\n")
# Java's \s: no Unicode spaces.
_SPACE = re.compile(r"[ \t\n\x0b\f\r]+")
_PLAIN = (string.ascii_letters + string.digits + "._- \n").encode()
_ODD = re.compile(rb" [ \n]|\n[ \n]| 0[0-9]")
_PLAIN_ENTRY = re.compile(rb"^([\w.-]+) (\d{1,10}) (-?\d{1,19})$", re.MULTILINE)
_NUMBER = re.compile(r"[+-]?[0-9]{1,32}", re.ASCII)
_MOST_JUDGED = 32
"""Number of cached files: two for each of a broker's log directories."""


@dataclass(frozen=True, slots=True, order=True)
class EpochStart:
    """The first offset that was written in a leader epoch."""

    epoch: int
    start_offset: int


def read_offset_checkpoint(data: bytes, where: str) -> dict[TopicPartition, int]:
    """Offsets by partition, read as strictly as the broker does (F-11); an empty file has none.

    A partition that is listed twice has the later offset, as in Kafka.

    Raises:
        CorruptionError: another version, a line with other than three fields, a bad number, a wrong count. The message
            names the line, ``position`` is where it starts.
    """
    plain = _plain_offsets(data)
    if plain is not None:
        return plain
    offsets = {}
    for line in _entry_lines(data, where, fields=3):
        topic, partition, offset = line.fields
        place = TopicPartition(topic, line.number(partition, 0, MAX_INT32))
        offsets[place] = line.number(offset, -MAX_OFFSET - 1, MAX_OFFSET)
    return offsets


def _plain_offsets(data: bytes) -> dict[TopicPartition, int] | None:
    """The offsets in a file as Kafka writes it; None for any other file, of which each line is checked."""
    entries = _PLAIN_ENTRY.findall(data)
    if data.count(b"\n") != len(entries) + 2 or not data.startswith(b"0\n%d\n" % len(entries)):
        return None
    offsets = {}
    for topic, partition, text in entries:
        place, offset = TopicPartition(topic.decode(), int(partition)), int(text)
        if place.partition > MAX_INT32 or abs(offset) > MAX_OFFSET:
            return None
        offsets[place] = offset
    return offsets


def offset_in_checkpoint(data: bytes, where: str, place: TopicPartition) -> int | None:
    """:func:`read_offset_checkpoint` for one partition; None if it has no entry.

    In a file in Kafka's format only that partition's lines are parsed: while a daemon cleans thousands of partitions,
    the file changes thousands of times and has thousands of lines.

    Raises:
        CorruptionError: see :func:`read_offset_checkpoint`; in a file in Kafka's format, only for lines of this
            partition.
    """
    if not _is_plain(data):
        return read_offset_checkpoint(data, where).get(place)
    start = data.rfind(f"\n{place.topic} {place.partition} ".encode()) + 1
    if not start:
        return None
    text = data[start : data.find(b"\n", start)].decode("ascii")
    line = _Line(where, data.count(b"\n", 0, start) + 1, start, (text,))
    return line.number(line.split(3)[2], -MAX_OFFSET - 1, MAX_OFFSET)


def write_offset_checkpoint(entries: Mapping[TopicPartition, int]) -> bytes:
    """The file for ``entries``, sorted by partition, a line feed after every line."""
    lines = [str(VERSION), str(len(entries))]
    lines += [f"{place.topic} {place.partition} {offset}" for place, offset in sorted(entries.items())]
    return "".join(f"{line}\n" for line in lines).encode("utf-8")


def read_epoch_checkpoint(data: bytes, where: str) -> list[EpochStart]:
    """Leader epochs in the order of the file (F-9); an empty file has none.

    Raises:
        CorruptionError: as :func:`read_offset_checkpoint`, with two fields a line.
    """
    return [
        EpochStart(line.number(line.fields[0], 0, MAX_INT32), line.number(line.fields[1], 0, MAX_OFFSET))
        for line in _entry_lines(data, where, fields=2)
    ]


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of a checkpoint, with its position for errors."""

    where: str
    line_number: int
    position: int
    fields: tuple[str, ...]

    def number(self, text: str, smallest: int, largest: int) -> int:
        if _NUMBER.fullmatch(text) is None or not smallest <= int(text) <= largest:
            raise self.error(f"{text[:40]!r} is not a number between {smallest} and {largest}")
        return int(text)

    def split(self, count: int) -> tuple[str, ...]:
        parts = _fields(self.fields[0])
        if len(parts) != count:
            raise self.error(f"{len(parts)} fields instead of {count}")
        return parts

    def error(self, message: str) -> CorruptionError:
        return CorruptionError(f"line {self.line_number}: {message}", where=self.where, position=self.position)


def _entry_lines(data: bytes, where: str, *, fields: int) -> Iterator[_Line]:
    """The entries of a checkpoint, each with exactly ``fields`` fields; checks version and count.

    The count is checked after the last entry, so consume the iterator before you use its entries.
    """
    lines = list(_split_lines(data, where))
    if not lines:
        return
    version = lines[0].number(lines[0].fields[0], -MAX_INT32 - 1, MAX_INT32)
    if version != VERSION:
        raise lines[0].error(f"checkpoint version {version} is unknown, only {VERSION} is")
    if len(lines) < 2:  # the broker takes a lone version for an empty file
        return
    expected = lines[1].number(lines[1].fields[0], -MAX_INT32 - 1, MAX_INT32)
    for line in lines[2:]:
        yield _Line(where, line.line_number, line.position, line.split(fields))
    if expected != len(lines) - 2:
        raise lines[1].error(f"{expected} entries announced, {len(lines) - 2} found")


@functools.lru_cache(maxsize=_MOST_JUDGED)
def _is_plain(data: bytes) -> bool:
    """Whether a file of offsets has exactly Kafka's format: one space between fields, a line feed after each line.

    Thousands of partitions read the same file.
    """
    lines = data.count(b"\n")
    return (
        data.startswith(b"0\n%d\n" % (lines - 2))
        and data.endswith(b"\n")
        and data.count(b" ") == 2 * (lines - 2)
        and not data.translate(None, _PLAIN)
        and _ODD.search(data) is None
    )


def _split_lines(data: bytes, where: str) -> Iterator[_Line]:
    """Lines as Java's readers end them: at LF, CR or both; the last one may lack its end. One field, the whole line."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptionError("not UTF-8 text", where=where, position=error.start) from None
    start = 0
    position = 0
    number = 1
    while start < len(text):
        end = _LINE_END.search(text, start)
        stop, following = (end.start(), end.end()) if end else (len(text), len(text))
        yield _Line(where, number, position, (text[start:stop],))
        position += len(text[start:following].encode("utf-8"))
        start = following
        number += 1


def _fields(line: str) -> tuple[str, ...]:
    """Split on runs of white space; a leading run gives an empty first field, a trailing one gives none, as in Java."""
    parts = _SPACE.split(line)
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return tuple(parts)
