"""The whole offline cleaning, killed before each of its changes to the file system, from staging to the checkpoint.

Kafka's loader must then find every group old or new, new ones first. A second cleaning must end like an undisturbed
one.
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from cleanerd.format.names import parse_file_name
from cleanerd.swap.checkpoint import CHECKPOINT
from cleanerd.swap.files import FileOperation, PartitionFiles
from tests.cleaner.driver import NAME, clean_all, config
from tests.crash.scenario import digest
from tests.kafka.judge import ToLoad
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import BASE_TIMESTAMP_MS, keyed_batch

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.kafka.judge import Judge

pytestmark = [pytest.mark.kafka, pytest.mark.long]

NOW_MS = BASE_TIMESTAMP_MS + 1000
TOPIC = config(segment_bytes=2500)
BATCHES = 12
CHANGES = frozenset({"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.chmod", "os.chown", "os.utime", "os.link"})
KILLED = 77


@dataclass(frozen=True, slots=True)
class Undisturbed:
    """An undisturbed cleaning: ``groups`` are (base, end)."""

    old: dict[str, bytes]
    new: dict[str, bytes]
    groups: tuple[tuple[int, int], ...]
    checkpoint: bytes
    changes: int

    def logs(self, swapped: int) -> dict[str, bytes]:
        """The segments with that many new groups."""
        done = self.groups[:swapped]
        old = {name: data for name, data in self.old.items() if not _within(name, done)}
        return {**old, **{name: data for name, data in self.new.items() if _within(name, done)}}


def _within(name: str, groups: tuple[tuple[int, int], ...]) -> bool:
    place = parse_file_name(name)
    return place is not None and any(base <= place[0] < end for base, end in groups)


def log_dir(path: Path) -> Path:
    """Seven segments; half of the keys supersede the others."""
    segments = {}
    for number in range(7):
        base = number * BATCHES * 2
        batches = [
            keyed_batch(base + 2 * step, [(f"k{step + number % 3}", "x" * 100), (f"own{base + step}", f"{step}" * 40)])
            for step in range(BATCHES)
        ]
        segments[base] = b"".join(batches)
    return make_log_dir(path, {NAME: Partition(segments)})


def logs_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.glob("*.log")}


@pytest.fixture
def undisturbed(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Undisturbed:
    operations: list[FileOperation] = []
    real = PartitionFiles.perform

    def listening(files: PartitionFiles, operation: FileOperation) -> None:
        operations.append(operation)
        real(files, operation)

    place = log_dir(workspace / "undisturbed")
    old = logs_of(place / NAME)
    with monkeypatch.context() as patch:
        patch.setattr(PartitionFiles, "perform", listening)
        clean_all(place, NOW_MS, TOPIC)
    lines = [operation.data.split() for operation in operations if operation.kind == "append"]
    groups = tuple((int(words[2]), int(words[3])) for words in lines if words[0] == b"begin")
    changes = killed_before(log_dir(workspace / "counted"), 1 << 30)
    shutil.rmtree(workspace / "counted")
    return Undisturbed(old, logs_of(place / NAME), groups, (place / CHECKPOINT).read_bytes(), changes)


def killed_before(place: Path, number: int) -> int:
    """Clean in a forked process that ends like ``kill -9`` before its change ``number``: -1.

    Otherwise the number of changes.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            made = _count_changes(number)
            clean_all(place, NOW_MS, TOPIC)
            os.write(writing, str(len(made)).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    _, status = os.waitpid(child, 0)
    answer = os.read(reading, 20)
    os.close(reading)
    assert os.waitstatus_to_exitcode(status) == (0 if answer else KILLED)
    return int(answer) if answer else -1


def _count_changes(last: int) -> list[str]:
    """From now on this process ends itself before change number ``last``."""
    made: list[str] = []

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        writes = event == "open" and isinstance(arguments[2], int) and bool(arguments[2] & (os.O_WRONLY | os.O_RDWR))
        if event in CHANGES or writes:
            if len(made) == last:
                os._exit(KILLED)
            made.append(event)

    sys.addaudithook(hook)
    return made


@pytest.mark.parametrize("stride", [5, pytest.param(1, marks=pytest.mark.long)])
def test_killed_before_every_change(undisturbed: Undisturbed, judge_43: Judge, workspace: Path, stride: int) -> None:
    """OP-10, X-01 .. X-13 with the real cleaner."""
    assert len(undisturbed.groups) >= 3
    assert undisturbed.changes > 100
    by_digest = {digest(undisturbed.logs(count)): count for count in range(len(undisturbed.groups) + 1)}
    seen = []
    for number in range(0, undisturbed.changes, stride):
        place = log_dir(workspace / "log")
        assert killed_before(place, number) == -1
        copy = workspace / "copy" / NAME
        shutil.copytree(place / NAME, copy)
        seen.append(swapped(judge_43, copy, by_digest))
        shutil.rmtree(copy.parent)

        clean_all(place, NOW_MS, TOPIC)
        left = sorted(path.name for path in (place / NAME).iterdir() if path.suffix not in {".log", ".index"})
        assert not [name for name in left if name.endswith((".swap", ".cleaned", ".deleted", ".kstage"))], number
        assert records(logs_of(place / NAME)) == records(undisturbed.new), f"killed before change {number}"
        assert (place / CHECKPOINT).read_bytes() == undisturbed.checkpoint
        shutil.rmtree(place)
    assert seen == sorted(seen)
    assert set(seen) == set(by_digest.values())


def swapped(judge: Judge, directory: Path, by_digest: Mapping[str, int]) -> int:
    """The number of new groups for Kafka's loader; fails on a mixture."""
    (loaded,) = judge.load([ToLoad(str(directory))], now_ms=NOW_MS, shut_down=True)
    assert loaded.error is None, loaded.message
    assert loaded.digest in by_digest, sorted(loaded.files)
    assert judge.lookups(directory).problems == ()
    return by_digest[loaded.digest]


def records(logs: Mapping[str, bytes]) -> bytes:
    """All batches in order, whatever their segments: a second cleaning may group differently."""
    return b"".join(logs[name] for name in sorted(logs))
