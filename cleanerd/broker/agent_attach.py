"""Loads the agent into a running broker by HotSpot's attach protocol, without a JDK's tools.

A JVM that finds ``.attach_pid<pid>`` when it gets SIGQUIT opens a socket in ``/tmp``; five strings sent there load an
agent. SIGQUIT ends other processes, so it is sent only to a process that has a JVM loaded and catches it (A-05).
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cleanerd.errors import CleanerdError, RefusedError
from cleanerd.fsio.safe_open import (
    MAX_IDENTITY_BYTES,
    close_quietly,
    create,
    open_named,
    open_trusted_directory,
    read_whole,
)
from cleanerd.segments.log_dir import META_PROPERTIES

OPEN_SECONDS: Final = 5.0
"""A healthy JVM opens its socket within a few hundredths of a second."""
LOAD_SECONDS: Final = 30.0

_PROC: Final = Path("/proc")
_POLL_SECONDS: Final = 0.02
_MAX_REPLY_BYTES: Final = 65_536
_LOADED: Final = ["0", "return code: 0"]
_LOCK: Final = "/.lock"
FIRST_JAVA: Final = 11
_LIBJVM: Final = re.compile(r"\s(/.*)/lib/(?:\w+/)?server/libjvm\.so$", re.MULTILINE)
_JAVA_VERSION: Final = re.compile(r'^JAVA_VERSION="((\d+)[^"]*)"', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Jvm:
    """A process with a JVM. ``inner_pid``: its id in its own container; ``root``: the path to its files."""

    pid: int
    uid: int
    gid: int
    inner_pid: int
    catches_quit: bool
    home: str | None = None
    """The directory of its Java, as it sees it."""
    proc: Path = _PROC

    @property
    def root(self) -> Path:
        """The root of its mount namespace, as this process sees it."""
        return self.proc / str(self.pid) / "root"

    @property
    def attach_socket(self) -> Path:
        """The socket that it opens after an attach request: in ``/tmp``, whatever ``TMPDIR`` is."""
        return self.root / "tmp" / f".java_pid{self.inner_pid}"


def inspect_process(pid: int, proc: Path = _PROC) -> Jvm:
    """The process ``pid``, if the agent can be loaded into it.

    Raises:
        RefusedError: no such process, no JVM, or one of another user.
    """
    where = f"process {pid}"
    try:
        status = (proc / str(pid) / "status").read_text(encoding="utf-8", errors="replace")
        maps = (proc / str(pid) / "maps").read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        raise RefusedError("does not exist", where=where) from None
    except OSError as error:
        hint = "run as the broker's user, or as root"
        raise RefusedError(f"cannot be read: {error.strerror}", where=where, hint=hint) from error
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    if "libjvm.so" not in maps:
        raise RefusedError("is not a HotSpot JVM", where=where, hint="name the broker's process, not that of its shell")
    try:
        jvm = Jvm(
            pid,
            uid=int(fields["Uid"].split()[1]),
            gid=int(fields["Gid"].split()[1]),
            inner_pid=int(fields.get("NSpid", str(pid)).split()[-1]),
            catches_quit=bool(int(fields["SigCgt"], 16) >> (signal.SIGQUIT - 1) & 1),
            home=found[1] if (found := _LIBJVM.search(maps)) else None,
            proc=proc,
        )
    except (KeyError, ValueError, IndexError):
        raise RefusedError("its status cannot be understood", where=where) from None
    if os.geteuid() not in {0, jvm.uid}:
        raise RefusedError(
            f"belongs to uid {jvm.uid}, cleanerd runs as {os.geteuid()}", where=where, hint="run as that user"
        )
    return jvm


def attach(jvm: Jvm, jar: str, options: str) -> None:
    """Load the agent ``jar`` (a path as the broker sees it) with ``options``, which follow ``=``.

    It may return without having loaded the agent (A-02), so query the agent.

    Raises:
        RefusedError: the JVM refuses to be attached to, or its Java is too old.
        CleanerdError: the JVM could not load it; the message has its answer.
    """
    where = f"process {jvm.pid}"
    _require_java(jvm)
    if not (jvm.root / jar.lstrip("/")).is_file():
        raise RefusedError(
            f"does not see {jar}",
            where=where,
            hint="copy the jar to a path that the broker sees; pass it with --jar",
        )
    if not jvm.attach_socket.is_socket():
        _have_it_listen(jvm)
    reply = _load(jvm, f"{jar}={options}")
    if reply != _LOADED:
        response = "; ".join(reply)[:300] or "nothing"
        raise CleanerdError(
            f"did not load the agent and answered: {response}",
            where=where,
            hint="add -javaagent:$(cleanerd agent path) to the broker's KAFKA_OPTS and restart it",
        )


def log_dirs_of(jvm: Jvm) -> list[Path]:
    """The log directories whose lock the broker holds, as paths that this process can open."""
    return log_dirs_of_process(jvm.pid, jvm.proc)


def log_dirs_of_process(pid: int, proc: Path = _PROC) -> list[Path]:
    """As :func:`log_dirs_of`; empty if the process cannot be read."""
    found = set()
    process = proc / str(pid)
    with contextlib.suppress(OSError):
        for name in os.listdir(process / "fd"):
            with contextlib.suppress(OSError):
                target = os.readlink(process / "fd" / name)
                path = process / "root" / target.removesuffix(_LOCK).lstrip("/")
                if target.endswith(_LOCK) and (path / META_PROPERTIES).is_file():
                    found.add(path)
    return sorted(found)


def _require_java(jvm: Jvm) -> None:
    """Refuse a Java that the agent does not support, if the JVM's ``release`` file names it.

    Otherwise the agent would be loaded, report in the broker's log that it cannot start, and not listen.
    """
    if jvm.home is None:
        return
    try:
        facts = read_whole(os.fspath(jvm.root / jvm.home.lstrip("/") / "release"), max_bytes=MAX_IDENTITY_BYTES)
    except OSError:
        return
    version = _JAVA_VERSION.search(facts.decode(errors="replace"))
    if version is not None and int(version[2]) < FIRST_JAVA:
        raise RefusedError(
            f"runs on Java {version[1]}, and the agent needs Java {FIRST_JAVA} or newer",
            where=f"process {jvm.pid}",
            hint="run the broker on a newer Java, or have it cleaned at its restarts: cleanerd stage, cleanerd apply",
        )


def _have_it_listen(jvm: Jvm) -> None:
    where = f"process {jvm.pid}"
    if not jvm.catches_quit:
        raise RefusedError(
            "does not catch SIGQUIT, which would end it (-Xrs?)",
            where=where,
            hint="add -javaagent:$(cleanerd agent path) to the broker's KAFKA_OPTS and restart it",
        )
    with _attach_file(jvm):
        try:
            os.kill(jvm.pid, signal.SIGQUIT)
        except OSError as error:
            raise RefusedError(f"cannot be signalled: {error.strerror}", where=where) from error
        deadline = time.monotonic() + OPEN_SECONDS
        while not jvm.attach_socket.is_socket():
            if time.monotonic() > deadline:
                raise RefusedError(
                    "does not open its socket: it was started with -XX:+DisableAttachMechanism, or it hangs",
                    where=where,
                    hint="add -javaagent:$(cleanerd agent path) to the broker's KAFKA_OPTS and restart it",
                )
            time.sleep(_POLL_SECONDS)


@contextlib.contextmanager
def _attach_file(jvm: Jvm) -> Iterator[None]:
    """Create ``.attach_pid`` for the block: it makes SIGQUIT an attach request instead of one for a thread dump."""
    name = f".attach_pid{jvm.inner_pid}"
    problem: OSError | None = None
    for directory in (jvm.proc / str(jvm.pid) / "cwd", jvm.root / "tmp"):
        try:
            place = open_named(directory) if directory.name == "tmp" else open_trusted_directory(directory)
        except OSError as error:
            problem = error
            continue
        try:
            try:
                _make_attach_file(jvm, name, place)
            except OSError as error:
                problem = error
                continue
            try:
                yield
            finally:
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=place)
        finally:
            close_quietly(place)
        return
    raise RefusedError(
        f"no file can be created in its working directory or in its /tmp: {problem}", where=f"process {jvm.pid}"
    )


def _make_attach_file(jvm: Jvm, name: str, place: int) -> None:
    """A new file: an existing one of any kind is not opened or changed (U-33). Raises OSError."""
    descriptor = create(name, dir_fd=place)
    try:
        if os.geteuid() != jvm.uid:
            os.fchown(descriptor, jvm.uid, jvm.gid)
    finally:
        close_quietly(descriptor)


def _load(jvm: Jvm, argument: str) -> list[str]:
    where = str(jvm.attach_socket)
    try:
        # Check the name itself, not a link's target: that could be another service of root.
        found = jvm.attach_socket.lstat()
        if not stat.S_ISSOCK(found.st_mode) or found.st_uid not in {0, jvm.uid}:
            raise RefusedError("is not a socket of this process", where=where)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as connection:
            connection.settimeout(LOAD_SECONDS)
            connection.connect(str(jvm.attach_socket))
            words = ("1", "load", "instrument", "false", argument)
            connection.sendall(b"".join(word.encode() + b"\0" for word in words))
            reply = b""
            while len(reply) < _MAX_REPLY_BYTES and (some := connection.recv(4096)):
                reply += some
    except OSError as error:
        raise CleanerdError(f"the JVM does not answer: {error.strerror or error}", where=where) from error
    text = "".join(
        letter if letter.isprintable() or letter == "\n" else "?" for letter in reply.decode(errors="replace")
    )
    return [line.strip() for line in text.splitlines() if line.strip()]
