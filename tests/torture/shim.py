"""System calls that fail, by a preloaded library: the possible faults, and the switch for them.

The process must have been started with the library (:func:`preloaded`); its forked children have it as well.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cleanerd.closeable import Closeable
from tests.support.preload import compiled, preloading

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

SOURCE: Final = Path(__file__).parent / "fault_shim.c"
CLASSES: Final = (
    "open", "create", "read", "write", "fsync", "rename", "unlink", "link", "mkdir", "list", "stat", "access", "change",
    "attribute", "room", "mmap", "close", "lock", "socket", "connect", "send", "receive",
)  # fmt: skip
"""Kinds of calls, in the order of the shim's ``enum``."""

_FILES: Final = CLASSES[: CLASSES.index("mmap")]
_GROWING: Final = ("create", "write", "fsync", "rename", "link", "mkdir", "room")
_INTERRUPTED: Final = ("open", "create", "read", "write", "fsync", "room", "lock", "connect", "send", "receive")
SHORT: Final = -1


@dataclass(frozen=True, slots=True)
class Fault:
    """The fault of calls of ``classes``: an error number, or :data:`SHORT`; ``lasting``: from the i-th call on.

    ``ending``, for a :class:`Switch`: only files whose names end so.
    """

    name: str
    error: int
    classes: tuple[str, ...]
    lasting: bool = False
    ending: str = ""

    @property
    def mask(self) -> int:
        """The classes as bits."""
        return sum(1 << CLASSES.index(each) for each in self.classes)

    @property
    def cause(self) -> str:
        """The system's message; "" for a fault without an error."""
        return os.strerror(self.error) if self.is_error else ""

    def is_reported(self, words: str) -> bool:
        """Whether the message contains the cause; Java has an exception class for EACCES, but no text."""
        denied = self.error == errno.EACCES and ("AccessDenied" in words or "permission denied" in words)
        return denied or self.cause in words

    @property
    def is_error(self) -> bool:
        """Whether the call fails; an interruption or partial transfer must go unnoticed."""
        return self.error not in {SHORT, errno.EINTR}


FAULTS: Final = {
    fault.name: fault
    for fault in (
        Fault("EIO", errno.EIO, _FILES),
        Fault("EIO-lasting", errno.EIO, _FILES, lasting=True),
        Fault("ENOSPC", errno.ENOSPC, _GROWING),
        Fault("ENOSPC-lasting", errno.ENOSPC, _GROWING, lasting=True),
        Fault("EMFILE", errno.EMFILE, ("open", "create", "socket")),
        Fault("EMFILE-lasting", errno.EMFILE, ("open", "create", "socket"), lasting=True),
        Fault("ENOMEM", errno.ENOMEM, ("open", "list", "mmap", "socket")),
        Fault("ECONNRESET", errno.ECONNRESET, ("connect", "send", "receive")),
        Fault("close", errno.EIO, ("close",)),
        Fault("close-lasting", errno.EIO, ("close",), lasting=True),
        Fault("lock", errno.EIO, ("lock",)),
        Fault("no-locks", errno.ENOLCK, ("lock",), lasting=True),
        Fault("EINTR", errno.EINTR, _INTERRUPTED),
        Fault("short", SHORT, ("read", "write", "receive")),
        Fault("short-lasting", SHORT, ("read", "write", "receive"), lasting=True),
    )
}


@dataclass(frozen=True, slots=True)
class Struck:
    """The result: ``seen`` calls of the fault's classes, of which ``hits`` failed; the first one and its path."""

    seen: int
    hits: int
    call: str
    path: str
    by_class: dict[str, int]


def build() -> Path:
    """Build the library that makes calls fail."""
    return compiled(SOURCE, "faults")


def preloaded() -> dict[str, str]:
    """The environment of a process in which calls can be made to fail."""
    return {**os.environ, "LD_PRELOAD": str(build()), "PYTHONHASHSEED": "0"}


class Shim:
    """The switch, in a process that was started with the library."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        for name in ("fault_call", "fault_path"):
            getattr(self._library, name).restype = ctypes.c_char_p

    @staticmethod
    def is_there() -> bool:
        """Whether this process has the library."""
        return hasattr(ctypes.CDLL(None), "fault_arm")

    def arm(self, root: Path, fault: Fault, target: int) -> None:
        """Make call number ``target`` (from 0; -1: none, only count) below ``root`` fail."""
        lasting = int(fault.lasting)
        self._library.fault_arm(os.fsencode(root), target, fault.error, lasting, ctypes.c_uint(fault.mask))

    def disarm(self) -> Struck:
        """Stop the fault."""
        self._library.fault_disarm()
        counts = {name: self._library.fault_by_class(row) for row, name in enumerate(CLASSES)}
        return Struck(
            self._library.fault_seen(),
            self._library.fault_hits(),
            os.fsdecode(self._library.fault_call()),
            os.fsdecode(self._library.fault_path()),
            {name: count for name, count in counts.items() if count},
        )


class _Fault(ctypes.Structure):
    """The ``struct fault`` of the shim."""

    _fields_ = (
        *((name, ctypes.c_int) for name in ("armed", "target", "error", "lasting")),
        ("mask", ctypes.c_uint),
        ("root", ctypes.c_char * 1024),
        ("ending", ctypes.c_char * 64),
        *((name, ctypes.c_int) for name in ("seen", "hits")),
        ("by_class", ctypes.c_int * len(CLASSES)),
        ("call", ctypes.c_char * 32),
        ("path", ctypes.c_char * 1024),
    )


class Switch(Closeable):
    """The same switch for another process: through a file that both have mapped."""

    def __init__(self, control: Path) -> None:
        self._control = control
        control.write_bytes(bytes(ctypes.sizeof(_Fault)))
        with control.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)
        self._fault = _Fault.from_buffer(self._memory)

    def listening(self) -> AbstractContextManager[None]:
        """Processes started in the block obey this switch."""
        return preloading(build(), FAULT_CONTROL=self._control)

    def arm(self, root: Path, fault: Fault, target: int) -> None:
        """As in :class:`Shim`."""
        reported = self._fault
        reported.armed = 0
        reported.target, reported.error, reported.lasting, reported.mask = (
            target,
            fault.error,
            int(fault.lasting),
            fault.mask,
        )
        reported.root, reported.ending, reported.call, reported.path = (
            os.fsencode(root),
            os.fsencode(fault.ending),
            b"",
            b"",
        )
        reported.seen = reported.hits = 0
        reported.by_class = type(reported.by_class)()
        reported.armed = 1

    def disarm(self) -> Struck:
        """As in :class:`Shim`."""
        reported = self._fault
        reported.armed = 0
        counts = {name: count for name, count in zip(CLASSES, reported.by_class, strict=True) if count}
        return Struck(reported.seen, reported.hits, os.fsdecode(reported.call), os.fsdecode(reported.path), counts)

    def close(self) -> None:
        """Close the file; a process that has it mapped keeps it."""
        del self._fault
        self._memory.close()
