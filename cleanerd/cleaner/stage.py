"""The staging directory ``<partition>/.kstage/<plan id>/`` and a group's files in it (S-22..S-25, S-58..S-60, C-65)."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Self

import numpy as np

from cleanerd._kernel import crc32c
from cleanerd.cleaner.log_file import LogFile, WriteBuffer
from cleanerd.cleaner.manifest import MANIFEST, STAGING, FileFact, FileKind, StagedGroup
from cleanerd.errors import NoSpaceError, system_error
from cleanerd.format.names import file_name
from cleanerd.fsio.safe_open import (
    ClosedOnError,
    HostileNameError,
    OpenParent,
    close_quietly,
    create,
    make_directory,
    new_directory,
    require_at,
    write_all,
)
from cleanerd.fsio.small_file import ignore_owner_errors
from cleanerd.humanize import human_bytes
from cleanerd.segments.file_metadata import FileMetadata
from cleanerd.segments.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cleanerd.cleaner.decide import SegmentDecision
    from cleanerd.cleaner.plan import CleaningPlan
    from cleanerd.cleaner.rewrite import WrittenSegment

SMALL_BYTES = 64 * 1024
"""For a segment up to this size, wait for the disk only at the flush, not at the write."""

STAGING_MODE = 0o700
"""Mode of ``.kstage`` and the directories in it."""


class Staging:
    """One plan's staging directory, made through the partition directory's descriptor (S-23).

    ``reserve_bytes`` stay free on the file system: staging stops before it would use them (S-25). ``lasting``: the
    files may be used after a crash of the machine. Otherwise the next run deletes them, so no name is flushed.
    """

    def __init__(
        self,
        plan: CleaningPlan,
        partition: int,
        *,
        reserve_bytes: int,
        name: str | None = None,
        lasting: bool = True,
    ) -> None:
        self._plan = plan
        self._lasting = lasting
        self._partition = partition
        self._reserve_bytes = reserve_bytes
        self._name = f"{STAGING}/{plan.plan_id}" if name is None else name
        self.path = f"{plan.path}/{self._name}"
        self.directory = -1
        self._buffer = WriteBuffer()
        self._open: dict[str, int] = {}

    def __enter__(self) -> Self:
        try:
            with self._translate_errors("cannot be made"):
                self._make()
        except BaseException:
            self.discard()
            self._close()
            raise
        return self

    def _make(self) -> None:
        staging = open_staging(self._partition)
        try:
            self._make_directory(self._name.removeprefix(f"{STAGING}/"), staging)
        finally:
            close_quietly(staging)

    def _make_directory(self, name: str, above: int) -> None:
        self.directory = new_directory(name, dir_fd=above, mode=STAGING_MODE)
        copy_owner(self._partition, self.directory)

    def __exit__(self, *_error: object) -> None:
        self._close()

    def _close(self) -> None:
        self._buffer.close()
        for descriptor in self._open.values():
            close_quietly(descriptor)
        self._open.clear()
        if self.directory >= 0:
            close_quietly(self.directory)
            self.directory = -1

    @contextmanager
    def log_file(self, base: int, expected_bytes: int) -> Iterator[LogFile]:
        """A ``.log`` for about ``expected_bytes``; removed if the block fails.

        :meth:`dressed` flushes it, together with the metadata that it changes.

        Raises:
            CleanerdError: it cannot be written, or the disk reserve would be used.
        """
        name = file_name(base, ".log")
        where = f"{self.path}/{name}"
        self._check_space(expected_bytes)
        descriptor = os.dup(self._create(name))
        with ClosedOnError(descriptor):
            output = LogFile(descriptor, where, self._buffer, direct=expected_bytes > SMALL_BYTES)
        try:
            yield output
            output.finish()
        except BaseException:
            self._discard(name)
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
        """Write the indexes beside the ``.log``, set owner, mode (from ``model``) and time of all of them, and flush.

        Raises:
            CleanerdError: they cannot be written.
        """
        base = written.base
        files: dict[FileKind, FileFact] = {"log": FileFact(written.log_bytes, written.log_crc32c)}
        with self._translate_errors("cannot be staged"):
            source = file_name(model.base, ".log")
            metadata = FileMetadata.of_file(self._partition, source, model, f"{self._plan.path}/{source}")
            indexes: tuple[tuple[FileKind, bytes | None], ...] = (
                ("index", written.offset_index),
                ("timeindex", written.time_index),
                ("txnindex", written.txn_index or None),  # without entries there is no file (C-69)
            )
            for kind, content in indexes:
                if content is None:
                    continue
                self._write(file_name(base, f".{kind}"), content)
                files[kind] = FileFact(len(content), crc32c(np.frombuffer(content, np.uint8)))
            for kind in files:
                self._dress(file_name(base, f".{kind}"), metadata, mtime_ns)
            if self._lasting:
                os.fsync(self.directory)
        return files

    def staged_segment(self, base: int) -> Segment:
        """The staged ``.log`` as a segment, to be read back."""
        with self._translate_errors("cannot be read back"):
            stat = os.fstat(self._open[file_name(base, ".log")])
        return Segment.from_stat(base, stat, frozenset())

    def stat(self, base: int) -> os.stat_result:
        """The staged ``.log`` before its metadata is set. Raises OSError."""
        return os.stat(file_name(base, ".log"), dir_fd=self.directory, follow_symlinks=False)

    def empty(self) -> bool:
        """Remove manifest and directory after all groups were swapped in; False: the directory has other files."""
        try:
            os.unlink(MANIFEST, dir_fd=self.directory)
            with OpenParent(self._name, self._partition) as (place, last):
                os.rmdir(last, dir_fd=place)
        except OSError:
            return False
        return True

    def discard(self) -> None:
        """Delete what was staged, without a swap; the log does not change. Does not raise."""
        if self.directory >= 0:
            with suppress(OSError):
                for name in os.listdir(self.directory):
                    os.unlink(name, dir_fd=self.directory)
        for name in (self._name, STAGING):
            with suppress(OSError), OpenParent(name, self._partition) as (place, last):
                os.rmdir(last, dir_fd=place)

    def _create(self, name: str) -> int:
        """A new file, open until its metadata is set: later its name may belong to another file."""
        with self._translate_errors("cannot be staged"):
            self._open[name] = create(name, dir_fd=self.directory)
        return self._open[name]

    def _discard(self, name: str) -> None:
        close_quietly(self._open.pop(name))
        with suppress(OSError):
            os.unlink(name, dir_fd=self.directory)

    def _write(self, name: str, content: bytes) -> None:
        write_all(self._create(name), content)

    def _dress(self, name: str, metadata: FileMetadata, mtime_ns: int) -> None:
        """Set the metadata, with the modification time of the last source; then flush everything to the disk."""
        descriptor = self._open.pop(name)
        try:
            metadata.apply(descriptor, require_at(descriptor, name, dir_fd=self.directory))
            os.utime(descriptor, ns=(mtime_ns, mtime_ns))
            os.fsync(descriptor)
        finally:
            close_quietly(descriptor)

    def _check_space(self, bytes_needed: int) -> None:
        with self._translate_errors("the free space of its file system cannot be read"):
            status = os.fstatvfs(self.directory)
        require_space(status, bytes_needed, self._reserve_bytes, self.path)

    @contextmanager
    def _translate_errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise system_error(what, self.path, error) from error


def require_space(status: os.statvfs_result, bytes_needed: int, reserve_bytes: int, where: str) -> None:
    """Check that a file system has room for the next segment (U-16).

    Raises:
        NoSpaceError: the segment would use the disk reserve.
    """
    free_bytes = status.f_bavail * status.f_frsize
    if free_bytes - bytes_needed < reserve_bytes:
        raise NoSpaceError(
            f"not enough free space: {human_bytes(free_bytes)} free, {human_bytes(bytes_needed)} needed for the next "
            f"segment, {human_bytes(reserve_bytes)} kept free",
            where=where,
            hint="free some space or lower cleanerd.disk.reserve",
        )


def open_staging(partition: int) -> int:
    """A descriptor of ``.kstage`` below the open partition directory ``partition``; created if missing. Raises OSError.

    Only its owner may read it: its files do not have the segments' permissions yet.
    """
    staging = make_directory(STAGING, dir_fd=partition, mode=STAGING_MODE)
    with ClosedOnError(staging):
        owner, found = os.fstat(partition), os.fstat(staging)
        if not _same_owner(owner, found):
            # A process that was killed before it changed the owner has not written any file yet.
            if found.st_uid == os.geteuid() and not os.listdir(staging):
                copy_owner(partition, staging)
            require_owner(partition, staging, STAGING)
    return staging


def copy_owner(model: int, directory: int) -> None:
    """Change the owner of our directory to that of ``model``: the broker's user must be able to remove it (H-19)."""
    owner, found = os.fstat(model), os.fstat(directory)
    if not _same_owner(owner, found) and found.st_uid == os.geteuid():
        with ignore_owner_errors():
            os.fchown(directory, owner.st_uid, owner.st_gid)


def _same_owner(model: os.stat_result, found: os.stat_result) -> bool:
    return (found.st_uid, found.st_gid) == (model.st_uid, model.st_gid)


def require_owner(model: int, directory: int, name: str) -> None:
    """Raise :class:`HostileNameError` unless the owner of ``model`` owns the directory, or we do without being root.

    Root changes the owner of each directory that it creates. So a directory of root or of a third user was moved here.
    """
    owner, found = os.fstat(model).st_uid, os.fstat(directory).st_uid
    if found != owner and (found == 0 or found != os.geteuid()):
        raise HostileNameError(errno.EPERM, f"it belongs to user {found}, the partition to user {owner}", name)
