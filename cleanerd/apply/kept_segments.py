"""``trash.json`` in the state directory: what ``--keep-replaced`` put where, for ``undo`` (S-40).

An entry is one cleaning of one partition. It says how everything below the end of that cleaning looked before and what
came in its place, so that ``undo`` can tell whether the log went its own way since.
"""

from __future__ import annotations

import json
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import ConfigDict, PlainSerializer, PlainValidator, TypeAdapter

from cleanerd import __version__
from cleanerd.cleaner.manifest import FileFact, FileKind  # noqa: TC001 - pydantic resolves the annotations
from cleanerd.errors import UnsupportedLogError, system_error
from cleanerd.format.names import TopicPartition, uuid_from_base64, uuid_to_base64
from cleanerd.log.state_files import DAMAGE, locked, make_directory, read_state_file, set_aside, write_state_file

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator
    from pathlib import Path

FORMAT: Final = 1
KEPT_FILE: Final = "trash.json"

_STRICT = ConfigDict(strict=True, extra="forbid")


def _uuid(value: object) -> uuid.UUID:
    return value if isinstance(value, uuid.UUID) else uuid_from_base64(str(value))


_KafkaUuid = Annotated[uuid.UUID, PlainValidator(_uuid), PlainSerializer(uuid_to_base64)]


@dataclass(frozen=True, slots=True)
class FileMark:
    """A file as it was; renames and links keep all of it."""

    bytes: int
    inode: int
    mtime_ns: int

    __pydantic_config__ = _STRICT

    @classmethod
    def of(cls, status: os.stat_result) -> FileMark:
        """The mark of the file with this ``stat``."""
        return cls(status.st_size, status.st_ino, status.st_mtime_ns)


@dataclass(frozen=True, slots=True)
class KeptSegment:
    """A replaced segment; its files lie in the entry's directory under their own names."""

    base: int
    files: dict[FileKind, FileMark]

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class KeptGroup:
    """What was replaced, and by what: the ``output`` files, of which ``output_log`` is the ``.log``'s mark."""

    base: int
    end: int
    segments: tuple[KeptSegment, ...]
    output: dict[FileKind, FileFact]
    output_log: FileMark

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class KeptEntry:
    """One cleaning of one partition. ``kept`` is the directory with the replaced files.

    ``sources`` are the logs of all segments that the cleaning covered, by base offset, as they were before it.
    ``checkpoint``, ``clean_point`` and ``rules`` are what stood in Kafka's checkpoint and in cleanerd's state before;
    ``end_offset`` is the highest that either may say as long as nobody cleaned again.
    """

    plan: str
    topic: str
    partition: int
    topic_id: _KafkaUuid | None
    directory_id: _KafkaUuid | None
    log_dir: str
    kept: str
    cleaned_ms: int
    end_offset: int
    checkpoint: int | None
    clean_point: dict[str, Any] | None
    sources: dict[int, FileMark]
    groups: tuple[KeptGroup, ...]
    rules: str | None = None

    __pydantic_config__ = _STRICT

    @property
    def name(self) -> TopicPartition:
        """Topic and partition as one value."""
        return TopicPartition(self.topic, self.partition)

    @property
    def kept_bytes(self) -> int:
        """What the kept files take."""
        return sum(f.bytes for group in self.groups for segment in group.segments for f in segment.files.values())


_ENTRIES: Final = TypeAdapter(tuple[KeptEntry, ...])


class KeptSegments:
    """The file. Every method raises CleanerdError when it cannot be read or written."""

    def __init__(self, root: Path) -> None:
        """``root`` is the state directory."""
        self.path = root / KEPT_FILE
        self.warnings: list[str] = []

    def entries(self) -> tuple[KeptEntry, ...]:
        """All of them, the oldest first. A damaged file is set aside with a warning and counts as absent."""
        try:
            return _parse(read_state_file(self.path), str(self.path))
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise system_error("cannot be read", str(self.path), error) from error
        except DAMAGE:
            self._set_aside()
            return ()

    def require_writable(self, owner: os.stat_result) -> None:
        """Fail now rather than when segments have been rewritten."""
        with self._locked(owner):
            self._write(self.entries(), owner)

    def put(self, entry: KeptEntry, owner: os.stat_result) -> None:
        """Add ``entry``, in the place of one with its plan id. On the disk when this returns."""
        with self._locked(owner):
            self._write((*self._others(entry), entry), owner)

    def remove(self, entry: KeptEntry) -> None:
        """Forget the entry with this plan id."""
        try:
            owner = self.path.parent.stat()
        except OSError as error:
            raise system_error("cannot be looked at", str(self.path.parent), error) from error
        with self._locked(owner):
            self._write(self._others(entry), owner)

    def _others(self, entry: KeptEntry) -> tuple[KeptEntry, ...]:
        return tuple(other for other in self.entries() if other.plan != entry.plan)

    def _set_aside(self) -> None:
        try:
            aside = set_aside(self.path)
        except OSError as error:
            raise system_error("damaged, and cannot be set aside", str(self.path), error) from error
        self.warnings.append(f"{self.path}: damaged; set aside as {aside.name}, what it lists cannot be undone")

    def _write(self, entries: tuple[KeptEntry, ...], owner: os.stat_result) -> None:
        document = {"format": FORMAT, "cleanerd": __version__, "entries": _ENTRIES.dump_python(entries, mode="json")}
        try:
            write_state_file(self.path, json.dumps(document, indent=1).encode(), owner)
        except OSError as error:
            raise system_error("cannot be written", str(self.path), error) from error

    @contextmanager
    def _locked(self, owner: os.stat_result) -> Iterator[None]:
        """Other partitions of this process and other processes wait: the file is read, changed and replaced."""
        try:
            make_directory(self.path.parent, owner)
            with locked(self.path.with_suffix(".lock"), owner):
                yield
        except OSError as error:
            raise system_error("cannot be written", str(self.path), error) from error


def _parse(data: bytes, where: str) -> tuple[KeptEntry, ...]:
    """The entries in ``data``.

    Raises:
        UnsupportedLogError: a newer cleanerd wrote it.
        One of ``DAMAGE``: it is no such file.
    """
    document = json.loads(data)
    version = int(document["format"])
    if version > FORMAT:
        raise UnsupportedLogError(f"format {version} is unknown, only {FORMAT} is", where=where)
    return _ENTRIES.validate_json(json.dumps(document["entries"]))


def with_group(entry: KeptEntry, group: KeptGroup) -> KeptEntry:
    """``entry`` with one more group, in the place of one with its base."""
    others = tuple(other for other in entry.groups if other.base != group.base)
    return replace(entry, groups=(*others, group))
