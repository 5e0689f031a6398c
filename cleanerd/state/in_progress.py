"""Cleanings in progress, as marker files in the state directory (U-35).

They show which partition a killed process was cleaning.

A marker is a file below ``in-progress/``, locked while its process lives: the kernel releases the lock however the
process ends. So an unlocked marker belongs to a process that was killed while it cleaned that partition. The process
that finds it counts it once, and tries the partition last and alone. After a second death the partition is not tried
for a while. Crashes of the machine and requested stops are not counted. Markers are advisory: if
one cannot be written or read, no cleaning fails.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from cleanerd.format.names import TopicPartition, parse_topic_partition_dir
from cleanerd.fsio.held_directories import HeldDirectory
from cleanerd.fsio.safe_open import close_quietly, create, names_in, open_to_read, read_whole, write_all
from cleanerd.fsio.small_file import ignore_owner_errors
from cleanerd.fsio.state_files import DAMAGE
from cleanerd.state.document import Document

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cleanerd.segments.log_dir import LogDir
    from cleanerd.state.cleaner_checkpoint import StateStore

PLACE: Final = "in-progress"
TOO_MANY_DEATHS: Final = 2
"""After this many deaths in a row a partition is not tried: it is then certainly the cause."""

SAME_BOOT_SECONDS: Final = 120.0
"""Tolerance for the time of the last boot, which changes when the clock is corrected."""

_MODE: Final = 0o600
_NEW: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_BYTES: Final = 64 * 1024
_TEMPORARY: Final = ".tmp"


@dataclass(frozen=True, slots=True)
class CrashSuspect:
    """A partition that was being cleaned when a process was killed.

    ``deaths``: how many in a row; the last one was noticed at ``noticed_ms``.
    """

    deaths: int
    noticed_ms: int

    @property
    def is_too_much(self) -> bool:
        """Whether the partition is not tried for a while, instead of being tried last."""
        return self.deaths >= TOO_MANY_DEATHS

    @property
    def reason(self) -> str:
        """The reason in messages."""
        if not self.is_too_much:
            return "cleanerd was killed while it cleaned this partition: it is tried last, alone"
        return (
            f"cleanerd was killed {self.deaths} times in a row while it worked on this partition, the last time on "
            "nothing else: it may need more memory than cleanerd has (see its memory limit and the kernel's log; to "
            "try again: cleanerd retry, or cleanerd clean --partition)"
        )


@dataclass(frozen=True, slots=True)
class _InFlightMarker:
    """The file's content. ``left``: the death was already counted, at ``at_ms``; otherwise work began then."""

    deaths: int
    at_ms: int
    boot_seconds: float
    left: bool


_DOCUMENT: Final = Document("", _InFlightMarker)


class InFlightMarkers:
    """The markers of one state directory; for any thread."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._held: dict[int, tuple[LogDir, str]] = {}
        self._stuck: dict[int, tuple[LogDir, str]] = {}
        self._ends = False

    @contextlib.contextmanager
    def working(self, log_dir: LogDir, name: TopicPartition) -> Iterator[None]:
        """Keep a marker while the block runs. The process has survived the block, however it ends."""
        lock = self._begin(log_dir, str(name))
        try:
            yield
        finally:
            if lock is not None:
                self._end(lock)

    def begin_shutdown(self) -> None:
        """Note a requested stop: work that is cut short now is not the cause."""
        self._ends = True
        for lock in list(self._held):
            self._end(lock)

    def _begin(self, log_dir: LogDir, name: str) -> int | None:
        if self._ends:
            return None
        try:
            place, owner = f"{PLACE}/{self._store.directory_name(log_dir)}", self._store.owner(log_dir)
            lock = self._store.in_place(place, owner, lambda: self._leave(log_dir, name, owner))
        except OSError:
            return None
        with self._lock:
            self._held[lock] = (log_dir, name)
        return lock

    def _leave(self, log_dir: LogDir, name: str, owner: os.stat_result) -> int:
        with self._place(log_dir) as place:
            marker = _InFlightMarker(0, _now_ms(), _booted_seconds(), left=False)
            try:
                return _write(name, place, marker, owner, lock=True, new=True)
            except (FileExistsError, BlockingIOError):  # a killed process left it, or another one reads it now
                found = _read(name, place)
                marker = marker if found is None else replace(marker, deaths=found.deaths)
                return _write(name, place, marker, owner, lock=True)

    def _end(self, lock: int) -> None:
        with self._lock:
            held = self._held.pop(lock, None)
        if held is None:
            return  # the lock was released
        self._finish(lock, held)

    def _finish(self, lock: int, held: tuple[LogDir, str]) -> None:
        """Remove the marker, then release it: an unlocked marker would look like a killed process.

        If it cannot be removed, as on a read-only file system, its lock is held until it can be.
        """
        log_dir, name = held
        try:
            with self._place(log_dir) as place:
                if _is_file(name, place, lock):
                    os.unlink(name, dir_fd=place)
        except FileNotFoundError:
            pass
        except OSError:
            with self._lock:
                self._stuck[lock] = held
            return
        close_quietly(lock)

    def _finish_stuck(self) -> None:
        with self._lock:
            stuck, self._stuck = self._stuck, {}
        for lock, marker in stuck.items():
            self._finish(lock, marker)

    def suspects(self, log_dir: LogDir) -> dict[TopicPartition, CrashSuspect]:
        """The partitions with unlocked markers. The first process that finds a death counts it, once."""
        self._finish_stuck()
        found: dict[TopicPartition, CrashSuspect] = {}
        try:
            with self._place(log_dir) as place:
                for name in names_in(".", place):
                    partition = parse_topic_partition_dir(name)
                    if partition is not None and (suspect := self._suspect(name, place)) is not None:
                        found[partition] = suspect
                    elif name.endswith(_TEMPORARY):
                        _sweep(name, place)
        except OSError:
            pass  # none exist, or they cannot be read
        return found

    def _suspect(self, name: str, place: int) -> CrashSuspect | None:
        with contextlib.suppress(OSError), _locked(name, place) as free:
            marker = _read(name, place) if free else None
            if marker is None:
                return None
            if marker.left:
                return CrashSuspect(marker.deaths, marker.at_ms)
            same_boot = abs(_booted_seconds() - marker.boot_seconds) <= SAME_BOOT_SECONDS
            deaths = marker.deaths + (1 if same_boot else 0)
            if not deaths:
                os.unlink(name, dir_fd=place)
                return None
            counted = _InFlightMarker(deaths, _now_ms(), marker.boot_seconds, left=True)
            close_quietly(_write(name, place, counted, self._store.root.stat(), lock=False))
            return CrashSuspect(deaths, counted.at_ms)
        return None

    def outlived(self, log_dir: LogDir, name: TopicPartition) -> None:
        """The work was complete when its process was killed, so do not count this death."""
        with contextlib.suppress(OSError), self._place(log_dir) as place, _locked(str(name), place) as free:
            if free:
                os.unlink(str(name), dir_fd=place)

    def clear_failures(self, log_dir: LogDir, name: TopicPartition) -> CrashSuspect | None:
        """Try the partition again at an operator's request: last and alone, and one more death is the limit."""
        with contextlib.suppress(OSError), self._place(log_dir) as place, _locked(str(name), place) as free:
            marker = _read(str(name), place) if free else None
            if marker is None or not marker.left:
                return None
            eased = replace(marker, deaths=min(marker.deaths, TOO_MANY_DEATHS - 1))
            close_quietly(_write(str(name), place, eased, self._store.root.stat(), lock=False))
            return CrashSuspect(eased.deaths, eased.at_ms)
        return None

    def _place(self, log_dir: LogDir) -> HeldDirectory:
        return HeldDirectory(str(self._store.root), f"{PLACE}/{self._store.directory_name(log_dir)}")


def _write(
    name: str, place: int, marker: _InFlightMarker, owner: os.stat_result, *, lock: bool, new: bool = False
) -> int:
    """Replace the file, which is locked before it has its name; returns its descriptor.

    ``new``: only if it does not exist; until it is locked it is empty, which says nothing. It is not flushed: after a
    crash of the machine the file is not needed.

    Raises:
        FileExistsError, BlockingIOError: a ``new`` file exists, or another process locked it first.
    """
    temporary = name if new else f"{secrets.token_hex(8)}{_TEMPORARY}"
    descriptor = os.open(temporary, _NEW, _MODE, dir_fd=place) if new else create(temporary, dir_fd=place, mode=_MODE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with ignore_owner_errors():
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
        write_all(descriptor, _DOCUMENT.to_bytes(marker))
        if not lock:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        if not new:
            os.rename(temporary, name, src_dir_fd=place, dst_dir_fd=place)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=place)
        close_quietly(descriptor)
        raise
    return descriptor


def _read(name: str, place: int) -> _InFlightMarker | None:
    """None if the file does not exist or cannot be parsed."""
    try:
        return _DOCUMENT.parse(read_whole(name, dir_fd=place, max_bytes=_MOST_BYTES, one_name=True))
    except (OSError, *DAMAGE):
        return None


@contextlib.contextmanager
def _locked(name: str, place: int) -> Iterator[bool]:
    """Whether no other process has locked the file; the lock is held during the block."""
    descriptor = open_to_read(name, dir_fd=place, one_name=True)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield _is_file(name, place, descriptor)
    finally:
        close_quietly(descriptor)


def _is_file(name: str, place: int, descriptor: int) -> bool:
    """Whether the name still belongs to the open file."""
    try:
        found = os.stat(name, dir_fd=place, follow_symlinks=False)
    except OSError:
        return False
    own = os.fstat(descriptor)
    return (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino)


def _sweep(name: str, place: int) -> None:
    """Remove a temporary file whose process has ended."""
    with contextlib.suppress(OSError), _locked(name, place) as free:
        if free:
            os.unlink(name, dir_fd=place)


def _booted_seconds() -> float:
    """The time of the machine's last boot, by the wall clock."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
