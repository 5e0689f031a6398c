"""Hostile names in another user's directory, and a file and a directory of root as their targets (U-33)."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest

OWNER: Final = 1000
SECRET: Final = "root:x:SECRET"  # noqa: S105 - of the victim
PLANTS: Final = ("link", "dangling", "loop", "fifo", "socket", "directory", "hard link", "link to a directory")


@dataclass(frozen=True, slots=True)
class Victim:
    """A file and a directory of root's."""

    file: Path
    directory: Path

    @classmethod
    def under(cls, root: Path) -> Victim:
        """Make them."""
        file, directory = root / "victim", root / "victim.d"
        file.write_text(f"{SECRET}\n{SECRET}\n")
        directory.mkdir()
        (directory / "inside").write_text(SECRET)
        for path in (file, directory / "inside"):
            path.chmod(0o600)
            os.utime(path, ns=(10**18, 10**18))
        directory.chmod(0o700)
        os.utime(directory, ns=(10**18, 10**18))
        return cls(file, directory)

    def state(self) -> list[tuple[Any, ...]]:
        """Everything that must not change; a hard link changes only the number of names."""
        found: list[tuple[Any, ...]] = []
        for path in (self.file, self.directory, *sorted(self.directory.rglob("*"))):
            status = path.lstat()
            content = path.read_bytes() if path.is_file() else b""
            found.append((path.name, content, status.st_uid, status.st_gid, status.st_mode, status.st_mtime_ns))
        return found


def plant(path: Path, what: str, victim: Victim) -> bool:
    """Put ``what`` at ``path``, replacing the file there; False if that makes no difference."""
    if path.is_dir() and not path.is_symlink():
        if what in {"directory", "hard link"}:
            return False
        shutil.rmtree(path)
    elif os.path.lexists(path):
        path.unlink()
    path.parent.mkdir(parents=True, exist_ok=True)
    match what:
        case "link":
            path.symlink_to(victim.file)
        case "link to a directory":
            path.symlink_to(victim.directory)
        case "dangling":
            path.symlink_to(victim.file.with_name("made-by-a-link"))
        case "loop":
            path.symlink_to(path.name)
        case "fifo":
            os.mkfifo(path)
        case "socket":
            previous = os.getcwd()
            os.chdir(path.parent)  # a socket's path may have 107 bytes
            try:
                with socket.socket(socket.AF_UNIX) as bound:
                    bound.bind(path.name)
            finally:
                os.chdir(previous)
        case "directory":
            path.mkdir()
            (path / "in the way").touch()
        case "hard link":
            path.hardlink_to(victim.file)
    return True


def give_all(root: Path, uid: int = OWNER) -> None:
    """Give everything below ``root``, and it, to ``uid``."""
    for path in (root, *root.rglob("*")):
        os.chown(path, uid, uid, follow_symlinks=False)


class Recorder:
    """Every name below ``root`` that this process opens, makes, or passes to a function.

    The functions of ``os`` show which directory a name is relative to; an audit hook sees the other calls, so that none
    is missed.
    """

    _FUNCTIONS: Final = ("open", "mkdir", "rename", "link", "unlink", "rmdir", "chown", "utime", "chmod", "replace")

    def __init__(self, root: Path) -> None:
        self._root = root
        self.names: set[str] = set()
        self.written: set[str] = set()
        self._unseen: set[str] = set()
        self._listening = False
        sys.addaudithook(self._hook)

    @contextmanager
    def listening(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """Listen in the block."""
        with monkeypatch.context() as patch:
            for function in self._FUNCTIONS:
                patch.setattr(os, function, self._listened(function, getattr(os, function)))
            self._listening = True
            try:
                yield
            finally:
                self._listening = False
        seen = {name.rpartition("/")[2] for name in self.names} | {"."}
        assert self._unseen <= seen, self._unseen - seen

    def _listened(self, function: str, real: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            writes = function != "open" or bool(arguments[1] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
            for number, key in ((0, "dir_fd"), (0, "src_dir_fd"), (1, "dst_dir_fd")):
                if function in {"rename", "link", "replace"} and key == "dir_fd":
                    continue
                if key == "dir_fd" or function in {"rename", "link", "replace"}:
                    self._add(arguments[number], named.get(key), writes=writes)
            return real(*arguments, **named)

        return call

    def _add(self, name: Any, directory: int | None, *, writes: bool) -> None:
        if isinstance(name, int):
            return
        path = os.fsdecode(name)
        if not os.path.isabs(path):
            path = os.path.join(os.getcwd() if directory is None else os.readlink(f"/proc/self/fd/{directory}"), path)
        path = os.path.normpath(path)
        if path.startswith(f"{self._root}/"):
            relative = os.path.relpath(path, self._root)
            self.names.add(relative)
            if writes:
                self.written.add(relative)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._listening or event != "open" or not isinstance(arguments[0], str | bytes):
            return
        path = os.fsdecode(arguments[0])
        if os.path.isabs(path):
            flags = arguments[2]
            self._add(path, None, writes=bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)))
        else:
            self._unseen.add(path.rpartition("/")[2])


def plant_endlessly(target: Path, names: list[Path]) -> None:
    """The work of the other process."""
    while True:
        for name in names:
            planted = f"{name}.planted"
            for step in (
                lambda planted=planted: os.symlink(target, planted),
                lambda planted=planted, name=name: os.rename(planted, name),
                lambda name=name: os.unlink(name),
            ):
                with suppress(OSError):
                    step()


@contextmanager
def planter(target: Path, names: list[Path]) -> Iterator[None]:
    """A process of uid 1000 that plants links to ``target``, until the block ends."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(OWNER)
            os.setuid(OWNER)
            plant_endlessly(target, names)
        finally:
            os._exit(1)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
