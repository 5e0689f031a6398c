"""The offset map in a file (``cleanerd.map.dir``, U-43): the same decision, and shards whatever goes wrong with it."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleanerd._kernel import OffsetMap
from cleanerd.cleaner import map_file
from cleanerd.cleaner.cleaner import Cleaning
from cleanerd.cleaner.map_file import MapFileError, MapFilePace, PaceLimits, opened
from cleanerd.cleaner.map_size import SIZING, MapSize, MapSizing, most_bytes
from cleanerd.cleaner.switch import compare
from cleanerd.policy.rules import Rules
from cleanerd.segments.pool import ReaderPool
from cleanerd_lab.bench.generate import VERSION_HEADER, LogShape
from tests.cleaner.driver import Silent
from tests.cleaner.made_plan import plan_of_shape
from tests.support.mounts import ext4, tmpfs
from tests.support.now_open import now_open
from tests.support.system_calls import system_call

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cleanerd._kernel import Chunk
    from cleanerd.cleaner.decide import Decision
    from cleanerd.cleaner.plan import CleaningPlan

MIB = 1024 * 1024
SHAPE = LogShape("", "", 128, 16, 0.5)
FEW_KEYS = 0.02
"""A load with which the smallest map takes 61 keys."""


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory on a disk: the tests' own may lie in memory."""
    with tempfile.TemporaryDirectory(prefix="cleanerd-map-", dir="/var/tmp") as path:
        yield Path(path)


def _plan(tmp_path: Path, size: int = MIB, *, shape: LogShape = SHAPE) -> CleaningPlan:
    return replace(plan_of_shape(tmp_path, shape, size), map_bytes=1, map_load=FEW_KEYS)


def _in(plan: CleaningPlan, place: Path | str) -> CleaningPlan:
    return replace(plan, map_dir=str(place), map_reserve_bytes=0)


def _decision(plan: CleaningPlan, *, workers: int = 1, sizing: MapSizing = SIZING) -> Decision:
    with ReaderPool(plan.path, workers=workers, chunk_bytes=MIB // 8) as pool:
        return Cleaning(plan, pool, Silent(), sizing).decision


def _bits(decision: Decision) -> list[tuple[list[int], list[int]]]:
    return [(each.keep.tolist(), each.actions.tolist()) for each in decision.segments]


def _in_shards(plan: CleaningPlan, place: Path | str, why: str, sizing: MapSizing = SIZING) -> None:
    """No file can be used there: the note says ``why``, and what is decided is the same."""
    before = now_open()
    found = _decision(_in(plan, place), sizing=sizing)
    assert found.shards > 1
    assert found.map_note.startswith(f"no offset map in a file in {place}: ")
    assert found.map_note.endswith("; the keys are read in several passes")
    assert why in found.map_note
    assert _bits(found) == _bits(_decision(plan))
    assert now_open() <= before


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(
    superseded=st.sampled_from([0.02, 0.5, 0.95]),
    versions=st.booleans(),
    codec=st.sampled_from([0, 4]),
    first_dirty=st.integers(0, 1500),
    workers=st.integers(1, 2),
)
def test_the_same_decision(superseded: float, versions: bool, codec: int, first_dirty: int, workers: int) -> None:
    """OP-2, U-43: one pass with a file decides as many passes in memory do, with a clean part and versions too."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as path:
        shape = LogShape("", "", 128, 16, superseded, codec=codec, versions=versions)
        plan = _plan(Path(path), 512 * 1024, shape=shape)
        if versions:
            plan = replace(plan, rules=replace(plan.rules, strategy="header", header=VERSION_HEADER))
        plan = replace(plan, first_dirty_offset=first_dirty)
        before = now_open()
        found = _decision(_in(plan, path), workers=workers)
        in_memory = _decision(plan)
        assert (found.shards, in_memory.shards > 1, in_memory.map_note) == (1, True, "")
        assert f"in {path}" in found.map_note
        assert "the offset map was a file of" in found.map_note
        assert (_bits(found), found.map_entries) == (_bits(in_memory), in_memory.map_entries)
        assert now_open() <= before
        assert sorted(os.listdir(path)) == ["log"], "the file has no name"


def test_what_fits_needs_no_file(tmp_path: Path, place: Path) -> None:
    """A file takes the place of shards and of nothing else."""
    plan = replace(_plan(tmp_path), map_bytes=64 * MIB, map_load=0.85)
    found = _decision(_in(plan, place / "missing"))
    assert (found.shards, found.map_note) == (1, "")


class TwoShards(MapSizing):
    """Too few."""

    def first_size(self, plan: CleaningPlan) -> MapSize:
        return MapSize(most_bytes(plan), 2)


def test_a_file_that_is_too_small_grows(tmp_path: Path, place: Path) -> None:
    """U-20: the keys were guessed too few: the file gets room for every offset."""
    plan = _plan(tmp_path)
    expected = _decision(plan)
    found = _decision(_in(plan, place), sizing=TwoShards())
    assert (found.shards, _bits(found)) == (1, _bits(expected))
    assert "the offset map was a file" in found.map_note


def test_a_switch_of_strategy_counts_with_a_file_too(tmp_path: Path, place: Path) -> None:
    """``plan --exact`` of a changed strategy uses the map twice."""
    plan = _plan(tmp_path, 256 * 1024)
    other = Rules("timestamp", "", "long", "null", "", "horizon")
    with ReaderPool(plan.path, workers=1, chunk_bytes=MIB) as pool:
        first = compare(plan, other, pool, lambda _: None)
        second = compare(_in(plan, place), other, pool, lambda _: None)
    assert (first.keys, first.differing) == (second.keys, second.differing)


@pytest.mark.long
@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("/dev/shm", "tmpfs is memory itself"),  # noqa: S108
        ("missing", "No such file or directory"),
        ("a-file", "Not a directory"),
        ("/proc", "No such file or directory"),
        ("/sys", ""),
    ],
)
def test_a_directory_that_will_not_do(tmp_path: Path, place: Path, where: str, why: str) -> None:
    """Missing, no directory, memory itself, nothing can be made there."""
    (place / "a-file").touch()
    _in_shards(_plan(tmp_path), place / where, why)


@pytest.mark.long
def test_a_disk_that_is_read_only(tmp_path: Path, place: Path) -> None:
    with tmpfs(place / "disk", "ro"):
        _in_shards(_plan(tmp_path), place / "disk", "Read-only file system")


def test_the_reserve_stays_free(tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``cleanerd.disk.reserve`` counts there too; without it a tenth of the disk stays free."""
    plan = _plan(tmp_path)
    found = _decision(replace(_in(plan, place), map_reserve_bytes=1 << 60))
    assert found.shards > 1
    assert "are needed and 0 B may be taken" in found.map_note
    with opened(str(place)) as file:
        disk = SimpleNamespace(f_frsize=4096, f_blocks=1000, f_bavail=130)  # of a real one others write to meanwhile
        # No test owns a disk of a known size.
        system_call(monkeypatch, "fstatvfs", lambda _descriptor: disk)
        assert file.max_bytes(None) == 30 * 4096


@pytest.mark.long
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EOPNOTSUPP])
def test_room_that_cannot_be_had(tmp_path: Path, place: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """U-43: the disk fills up, a quota ends, the file system cannot promise room: before the map is used."""

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    plan = _plan(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", refuse)
        _in_shards(plan, place, os.strerror(number))


def test_files_may_not_be_as_large(tmp_path: Path, place: Path) -> None:
    """The process's own limit of a file's size (``LimitFSIZE``) is an error like any other."""
    plan = _plan(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16 * 1024, hard))
    try:
        _in_shards(plan, place, "File too large")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_is_really_full(tmp_path: Path, place: Path) -> None:
    """No call is replaced: an ext4 of 4 MiB without room."""
    with ext4(place, image_bytes=4 * MIB, room_bytes=64 * MIB) as disk:
        status = os.statvfs(disk)
        with (disk / "ballast").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, status.f_bavail * status.f_frsize)
        _in_shards(_plan(tmp_path), disk, "are needed and 0 B may be taken")


@pytest.mark.slow
def test_keys_of_lost_pages_are_read_again(tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """U-43: pages that the disk lost come back as they were before. The flush tells, and the keys are read again.

    A file system that keeps its promise of room, on a device that runs out of it: the map's pages are written while it
    is in use, and the device fails. Without the flush the decision of that map would count.
    """
    plan = _plan(tmp_path)
    expected = _decision(plan)
    with ext4(place, image_bytes=256 * MIB, room_bytes=12 * MIB) as disk:
        ballast = place / "small" / "ballast"
        status = os.statvfs(ballast.parent)

        def of(_: MapFilePace, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
            for number, chunk in enumerate(chunks):
                if number == 0:
                    with ballast.open("wb") as file:
                        file.write(bytes(status.f_bavail * status.f_frsize - 4096))
                yield chunk
                subprocess.run(["sync", "-f", str(disk)], check=False, capture_output=True)

        with monkeypatch.context() as patched:
            patched.setattr(MapFilePace, "of", of)
            found = _decision(_in(plan, disk))
    assert found.shards > 1
    assert f"no offset map in a file in {disk}: " in found.map_note
    assert _bits(found) == _bits(expected)


def test_a_page_that_is_lost(tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """U-43: it is told, the process lives, and the keys are read in passes."""
    plan = _plan(tmp_path)

    class Cut:
        """Makes maps whose file is cut at once."""

        def __new__(cls, *given: object, **named: object) -> OffsetMap:  # type: ignore[misc]
            return OffsetMap(*given, **named)  # type: ignore[arg-type]

        @staticmethod
        def in_file(fd: int, memory_bytes: int, *, load: float, versions: bool) -> OffsetMap:
            made = OffsetMap.in_file(fd, memory_bytes, load=load, versions=versions)
            os.ftruncate(fd, 0)
            return made

    with monkeypatch.context() as patched:
        patched.setattr(map_file, "OffsetMap", Cut)
        _in_shards(plan, place, "did not come back")


def test_the_map_file_has_no_name(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that makes no file without a name: its name goes at once."""
    real = os.open

    def without(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "not supported")
        return real(path, flags, mode, dir_fd=dir_fd)

    system_call(monkeypatch, "open", without)  # not every host has such a file system
    before = now_open()
    with (
        opened(str(place)) as file,
        file.offset_map(MIB, load=0.85, versions=False, reserve_bytes=0) as offset_map,
    ):
        assert list(place.iterdir()) == []
        assert offset_map.memory_bytes == MIB
    assert now_open() <= before


def test_a_slow_map_file_is_given_up(tmp_path: Path, place: Path) -> None:
    """U-43: the pace is that of passes at the most, and what was begun is begun again in shards."""
    limits = PaceLimits(grace_seconds=-1.0, least_passes=0, least_bytes=1, read_back_times=-1)
    sizing = MapSizing(pace=lambda passes: MapFilePace(passes // 1000, limits))
    _in_shards(_plan(tmp_path), place, "it was slower there than", sizing)


def test_the_pace() -> None:
    """Held against half of the passes at the best pace seen, and some seconds; short chunks say nothing.

    And only where pages come back: without them another process is to blame.
    """
    read = [0, 4 * (23 * MIB + 100)]
    limits = PaceLimits(read_from_disks=lambda: read[0])
    pace = MapFilePace(8, limits)
    pace.count(100, 0.000001)
    pace.count(MIB, 1.0)
    for _ in range(20):
        pace.count(MIB, 4.0)
    pace.count(MIB, 8.9)
    pace.count(MIB, 7.2)
    read.pop(0)
    pace.count(0, 0.0)
    read[0] += 1
    with pytest.raises(MapFileError, match="slower there than 8 passes"):
        pace.count(0, 0.0)
    patient = MapFilePace(2, limits)
    for _ in range(1000):
        patient.count(MIB, 2.9)  # two at least
        patient.count(MIB, 1.0)
