"""Log directories and ways to call ``plan`` and ``clean`` on them."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cleanerd.cli import apply as apply_module
from cleanerd.cli import clean as clean_module
from cleanerd.cli import move_aside as move_aside_module
from cleanerd.cli import undo as undo_module
from cleanerd.cli.main import run
from cleanerd.format.meta import read_partition_metadata
from cleanerd.swap.lock import LogDirLock
from tests.support.format_bytes import config as config_record
from tests.support.format_bytes import metadata_batch
from tests.support.format_bytes import topic as topic_record
from tests.support.log_dirs import Partition, make_log_dir, read_segments
from tests.support.logs import BASE_TIMESTAMP_MS, keyed_batch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest

NOW = BASE_TIMESTAMP_MS + 1_000_000
COMPACT = ("--set", "topics.orders.cleanup.policy=compact", "--set", "topics.orders.compaction.strategy=offset")
GOOD = ("--set", "topics.good.cleanup.policy=compact", "--set", "topics.good.compaction.strategy=offset")


DIRTY = {0: [(0, "a"), (1, "b")], 2: [(2, "a"), (3, "")], 4: [(4, "b"), (5, "b")], 6: [(6, "z")]}


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one command line."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The result of ``--json``."""
        return json.loads(self.out)

    @property
    def errors(self) -> list[str]:
        """The lines of stderr that are not notes (call with ``--quiet`` for none)."""
        return self.err.splitlines()


class Typist(io.StringIO):
    """Replaces a user at a terminal."""

    def isatty(self) -> bool:
        return True


class Shell:
    """Runs command lines in this process, without the second that a lock has to settle."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self._capsys = capsys
        self._monkeypatch = monkeypatch
        self.disk_reserve = "0"
        """A value of ``cleanerd.disk.reserve``; an empty one leaves the default."""
        real = LogDirLock.acquire

        class QuickLock:
            @staticmethod
            def acquire(path: Path, wait_seconds: float = 0.0) -> LogDirLock:
                assert wait_seconds > 0
                return real(path, 0, settle_seconds=0)

        for module in (apply_module, clean_module, move_aside_module, undo_module):
            monkeypatch.setattr(module, "LogDirLock", QuickLock)  # hundreds of calls would wait a second each

    @property
    def common(self) -> list[str]:
        """Settings of every call; the state directory follows ``root``."""
        reserve = ("--set", f"cleanerd.disk.reserve={self.disk_reserve}") if self.disk_reserve else ()
        return ["--set", f"cleanerd.state.dir={self.root / 'state'}", *reserve]

    def __call__(self, subcommand: str, *arguments: object, typed: str | None = None) -> Answer:
        """Run one command line; ``typed``: the input of a user at a terminal."""
        self._capsys.readouterr()
        if typed is not None:
            self._monkeypatch.setattr("sys.stdin", Typist(typed))  # there is no terminal
        code = run([subcommand, *(str(argument) for argument in arguments), *self.common])
        captured = self._capsys.readouterr()
        return Answer(code, captured.out, captured.err)

    def clean(self, *arguments: object) -> Answer:
        """``clean --yes --force --quiet`` of the topic ``orders`` with a fixed clock."""
        return self("clean", *arguments, "--yes", "--force", "--quiet", "--now-ms", NOW, *COMPACT)

    def subprocess(self, *arguments: object, script: str = "", **options: Any) -> subprocess.Popen[str]:
        """Run in a new process; ``script`` is run before the command line."""
        code = f"{script}\nfrom cleanerd.cli.main import main\nmain()"
        command = [sys.executable, "-c", code, *(str(argument) for argument in arguments), *self.common]
        environment = {**os.environ, "HOME": str(self.root)}
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, **options}
        return subprocess.Popen(command, text=True, env=environment, **options)


@contextmanager
def lock_holder(path: Path, *words: str) -> Iterator[int]:
    """Another process that holds the directory's lock as Java does (a POSIX record lock); yields its id.

    ``words``: further arguments of its command line.
    """
    script = (
        "import fcntl, sys\n"
        f"file = open({str(path / '.lock')!r}, 'w')\n"
        "fcntl.lockf(file, fcntl.LOCK_EX)\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script, *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        holder.stdout.readline()
        try:
            yield holder.pid
        finally:
            holder.stdin.close()


def batch(base: int, *entries: tuple[str | None, str | None]) -> bytes:
    return keyed_batch(base, entries, timestamp=NOW - 1000)


def dirty(**facts: Any) -> Partition:
    """Three sealed segments in which one record of five is retained, and an active one."""
    logs = {
        0: batch(0, ("a", "1"), ("b", "1")),
        2: batch(2, ("a", "2")) + batch(3, (None, "x")),
        4: batch(4, ("b", None), ("b", "3")),
        6: batch(6, ("z", "1")),
    }
    return Partition(logs, **facts)


CLEANED = {0: [(2, "a"), (5, "b")], 6: [(6, "z")]}


def good() -> Partition:
    """A partition that has to be cleaned whatever happens to the first."""
    return Partition({0: batch(0, ("k", "1")), 1: batch(1, ("k", "2")), 2: b""})


def keys(path: Path) -> dict[int, list[tuple[int, str]]]:
    """Offsets and keys by segment."""
    return {
        base: [(record.offset, (record.key or b"").decode()) for stored in batches for record in stored.records]
        for base, batches in read_segments(path).items()
    }


def make(root: Path, **facts: Any) -> Path:
    """The usual directory: ``orders-0`` is dirty."""
    return make_log_dir(root / "logs", {"orders-0": dirty(**facts)})


def write_metadata(
    path: Path,
    *,
    topics: dict[str, dict[str, str]],
    ids: dict[str, uuid.UUID] | None = None,
    more: int = 0,
    timestamp: int = 1000,
) -> Path:
    """Write a KRaft metadata log with these topics into the log directory ``path``; replaces an existing one.

    A topic has its id in ``ids``, otherwise the id of its partition 0 in ``path``. ``more``: the number of further
    records without content.
    """
    directory = path / "__cluster_metadata-0"
    directory.mkdir(exist_ok=True)
    values = []
    for number, (name, settings) in enumerate(topics.items()):
        file = path / f"{name}-0" / "partition.metadata"
        stated = read_partition_metadata(file.read_bytes(), str(file)) if file.exists() else uuid.UUID(int=number + 1)
        values.append(topic_record(name, (ids or {}).get(name, stated)))
        values += [config_record(2, name, key, value) for key, value in settings.items()]
    values += values[-1:] * more
    (directory / f"{0:020d}.log").write_bytes(metadata_batch(0, *values, timestamp=timestamp))
    return directory


def only_partition(answer: Answer) -> dict[str, Any]:
    (entry,) = answer.json["partitions"]
    found: dict[str, Any] = entry
    return found
