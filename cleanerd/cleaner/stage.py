"""The staging directory ``<partition>/.kstage/<plan id>/`` and a group's files in it (S-22..S-25, S-58..S-60, C-65)."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Self

import numpy as np

from cleanerd._kernel import crc32c
from cleanerd.cleaner.log_file import LogFile, WriteBuffer
from cleanerd.cleaner.manifest import STAGING, FileFact, FileKind, StagedGroup
from cleanerd.errors import NoSpaceError, unwritable
from cleanerd.format.names import file_name
from cleanerd.log.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from cleanerd.cleaner.decide import SegmentDecision
    from cleanerd.cleaner.plan import CleaningPlan
    from cleanerd.cleaner.rewrite import WrittenSegment

PLAN = "plan.json"


class Staging:
    """One plan's staging directory, made through the partition directory's descriptor (S-23).

    ``reserve_bytes`` stay free on the file system: staging stops before it would take them (S-25). ``behind``: see
    :class:`WriteBuffer`.
    """

    def __init__(self, plan: CleaningPlan, partition: int, *, reserve_bytes: int, behind: bool = False) -> None:
        self._plan = plan
        self._partition = partition
        self._reserve_bytes = reserve_bytes
        self.path = f"{plan.path}/{STAGING}/{plan.plan_id}"
        self.directory = -1
        self._buffer = WriteBuffer(behind=behind)

    def __enter__(self) -> Self:
        try:
            with self._told("cannot be made"):
                self._make()
        except BaseException:
            self.discard()
            self._close()
            raise
        return self

    def _make(self) -> None:
        with suppress(FileExistsError):
            os.mkdir(STAGING, 0o755, dir_fd=self._partition)
        name = f"{STAGING}/{self._plan.plan_id}"
        os.mkdir(name, 0o755, dir_fd=self._partition)
        self.directory = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._partition)
        self._give_directory(STAGING)
        self._give_directory(name)
        self._put(PLAN, json.dumps(self._plan.to_json(), indent=1).encode())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        self._buffer.close()
        if self.directory >= 0:
            os.close(self.directory)
            self.directory = -1

    @contextmanager
    def log_file(self, base: int, expected_bytes: int) -> Iterator[LogFile]:
        """A ``.log`` to write about so many bytes into; fsynced when the block ends well, removed when it does not.

        Raises:
            CleanerdError: it cannot be written, or the disk reserve would be touched.
        """
        name = file_name(base, ".log")
        where = f"{self.path}/{name}"
        self._check_space(expected_bytes)
        output = LogFile(self._create(name), where, self._buffer)
        try:
            yield output
            output.sync()
        except BaseException:
            with suppress(OSError):
                os.unlink(name, dir_fd=self.directory)
            raise
        finally:
            output.close()

    def finish(self, group: Sequence[SegmentDecision], written: WrittenSegment) -> StagedGroup:
        """The group's files, with the time, owner and mode of its sources: see :meth:`dressed`."""
        return StagedGroup(
            base=written.base,
            end=group[-1].source.end,
            sources=tuple(member.source.base for member in group),
            files=self.dressed(written, group[0].source.segment, group[-1].source.segment.mtime_ns),
        )

    def dressed(self, written: WrittenSegment, model: Segment, mtime_ns: int) -> dict[FileKind, FileFact]:
        """Write the indexes beside the ``.log``, give all of them owner and mode of ``model`` and the time, and flush.

        Raises:
            CleanerdError: they cannot be written.
        """
        base = written.base
        files: dict[FileKind, FileFact] = {"log": FileFact(written.log_bytes, written.log_crc32c)}
        with self._told("cannot be staged"):
            indexes: tuple[tuple[FileKind, bytes | None], ...] = (
                ("index", written.offset_index),
                ("timeindex", written.time_index),
                ("txnindex", written.txn_index or None),  # no file when there are no entries (C-69)
            )
            for kind, content in indexes:
                if content is None:
                    continue
                self._write(file_name(base, f".{kind}"), content)
                files[kind] = FileFact(len(content), crc32c(np.frombuffer(content, np.uint8)))
            for kind in files:
                self._dress(file_name(base, f".{kind}"), model, mtime_ns)
            os.fsync(self.directory)
        return files

    def staged_segment(self, base: int) -> Segment:
        """The staged ``.log`` as a segment, to be read back."""
        with self._told("cannot be read back"):
            stat = os.stat(file_name(base, ".log"), dir_fd=self.directory, follow_symlinks=False)
        return Segment.from_stat(base, stat, frozenset())

    def discard(self) -> None:
        """Remove what was staged: the plan is given up, the log stays as it was. Never fails."""
        if self.directory >= 0:
            with suppress(OSError):
                for name in os.listdir(self.directory):
                    os.unlink(name, dir_fd=self.directory)
        for name in (f"{STAGING}/{self._plan.plan_id}", STAGING):
            with suppress(OSError):
                os.rmdir(name, dir_fd=self._partition)

    def _create(self, name: str) -> int:
        with self._told("cannot be staged"):
            return os.open(
                name, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600, dir_fd=self.directory
            )

    def _put(self, name: str, content: bytes) -> None:
        self._write(name, content, flush=True)

    def _write(self, name: str, content: bytes, *, flush: bool = False) -> None:
        descriptor = self._create(name)
        try:
            write_all(descriptor, memoryview(content))
            if flush:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _dress(self, name: str, model: Segment, mtime_ns: int) -> None:
        """Owner and mode of the sources, modification time of the last one; then all of it is on the disk."""
        descriptor = os.open(name, os.O_RDWR | os.O_CLOEXEC, dir_fd=self.directory)
        try:
            stat = os.fstat(descriptor)
            if (stat.st_uid, stat.st_gid) != (model.uid, model.gid):
                os.fchown(descriptor, model.uid, model.gid)
            os.fchmod(descriptor, model.mode)
            os.utime(descriptor, ns=(mtime_ns, mtime_ns))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _give_directory(self, name: str) -> None:
        """The broker's user must be able to remove the directory with the topic."""
        owner = os.fstat(self._partition)
        stat = os.stat(name, dir_fd=self._partition)
        if (stat.st_uid, stat.st_gid) != (owner.st_uid, owner.st_gid):
            os.chown(name, owner.st_uid, owner.st_gid, dir_fd=self._partition)

    def _check_space(self, bytes_needed: int) -> None:
        status = os.fstatvfs(self.directory)
        free_bytes = status.f_bavail * status.f_frsize
        if free_bytes - bytes_needed < self._reserve_bytes:
            raise NoSpaceError(
                f"not enough free space: {free_bytes} bytes are free, the next segment takes about {bytes_needed} and "
                f"{self._reserve_bytes} are kept free",
                where=self.path,
                hint="free some space or lower cleanerd.disk.reserve",
            )

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise unwritable(what, self.path, error) from error


def write_all(descriptor: int, data: memoryview) -> None:
    """``os.write`` until everything is written; raises OSError."""
    done = 0
    while done < len(data):
        done += os.write(descriptor, data[done:])
