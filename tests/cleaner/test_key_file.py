"""Keys on disk (U-43): the same decisions as with passes, whatever happens to the file, at a linear cost."""

from __future__ import annotations

import errno
import os
import resource
import signal
import stat
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cleanerd.cleaner.cleaner import Cleaning
from cleanerd.cleaner.index import ChunkDecoding, Contest, DirtyIndex
from cleanerd.cleaner.key_file import KeyFile, KeyFileError, opened, require_room
from cleanerd.cleaner.map_size import SIZING, MapPass, MapSize, MapSizing, most_bytes, with_map
from cleanerd.cleaner.metadata_budget import MetadataBudget
from cleanerd.cleaner.switch import compare
from cleanerd.policy.rules import Rules
from cleanerd.segments.pool import ReaderPool
from cleanerd_lab.bench.generate import PARTITION, VERSION_HEADER, LogShape
from tests.cleaner.driver import Silent, scratch
from tests.cleaner.made_plan import plan_of, plan_of_shape
from tests.cleaner.strategy_script import Script, Shape
from tests.cleaner.strategy_world import World
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import Record, encode_batch
from tests.support.mounts import ext4, tmpfs
from tests.support.now_open import now_open
from tests.support.system_calls import system_call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cleanerd.cleaner.decide import Decision
    from cleanerd.cleaner.index import KeyPass
    from cleanerd.cleaner.map_size import MapUse
    from cleanerd.cleaner.plan import CleaningPlan

MIB = 1024 * 1024
SHAPE = LogShape("", "", 128, 16, 0.5)
FEW_KEYS = 0.02
"""A load with which the smallest map holds 61 keys."""


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory on a disk: the tests' own may be in memory."""
    with tempfile.TemporaryDirectory(prefix="cleanerd-keys-", dir="/var/tmp") as path:
        yield Path(path)


def _plan(tmp_path: Path, size: int = MIB, *, shape: LogShape = SHAPE) -> CleaningPlan:
    return replace(plan_of_shape(tmp_path, shape, size), map_bytes=1, map_load=FEW_KEYS)


def _on_disk(plan: CleaningPlan, place: Path | str) -> CleaningPlan:
    return replace(plan, map_dir=str(place), map_reserve_bytes=0)


def _decision(plan: CleaningPlan, *, workers: int = 1, sizing: MapSizing = SIZING) -> Decision:
    with ReaderPool(plan.path, workers=workers, chunk_bytes=MIB // 8) as pool:
        return Cleaning(plan, pool, Silent(), sizing).decide()


def _bits(decision: Decision) -> list[tuple[list[int], list[int], int, int]]:
    return [
        (each.keep.tolist(), each.actions.tolist(), each.superseded, each.expired_tombstones)
        for each in decision.segments
    ]


def _in_passes(plan: CleaningPlan, place: Path | str, why: str, sizing: MapSizing = SIZING) -> None:
    """The file cannot be used: the note has ``why``, and passes decide the same."""
    before = now_open()
    found = _decision(_on_disk(plan, place), sizing=sizing)
    assert found.passes > 1
    assert found.map_note.startswith(f"the keys were not written to disk in {place}: ")
    assert found.map_note.endswith("; they are read in several passes")
    assert why in found.map_note
    assert _bits(found) == _bits(_decision(plan))
    assert now_open() <= before


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(
    superseded=st.sampled_from([0.02, 0.5, 0.95]),
    versions=st.booleans(),
    keeps_times=st.booleans(),
    codec=st.sampled_from([0, 4]),
    first_dirty=st.integers(0, 1500),
    workers=st.integers(1, 2),
)
def test_the_same_decision(
    superseded: float, versions: bool, keeps_times: bool, codec: int, first_dirty: int, workers: int
) -> None:
    """OP-2, U-43: one walk decides as many passes do, with a clean section, versions and write times (U-65) too."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as path:
        shape = LogShape("", "", 128, 16, superseded, codec=codec, versions=versions)
        plan = _plan(Path(path), 512 * 1024, shape=shape)
        if versions:
            retention = "write-time" if keeps_times else "record-time"
            rules = replace(plan.rules, strategy="header", header=VERSION_HEADER, winner_retention=retention)
            plan = replace(plan, rules=rules)
        plan = replace(plan, first_dirty_offset=first_dirty)
        before = now_open()
        found = _decision(_on_disk(plan, path), workers=workers)
        in_memory = _decision(plan)
        assert (found.passes, in_memory.passes > 2, in_memory.map_note) == (1, True, "")
        assert f"the keys were written to disk in {path}, " in found.map_note
        assert (_bits(found), found.map_entries) == (_bits(in_memory), in_memory.map_entries)
        times = [each.least_max_timestamps for each in found.segments]
        for ours, theirs in zip(times, in_memory.segments, strict=True):
            assert (None if ours is None else ours.tolist()) == (
                None if theirs.least_max_timestamps is None else theirs.least_max_timestamps.tolist()
            )
        assert now_open() <= before
        assert sorted(os.listdir(path)) == ["log"], "the file has no name"


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    strategy=st.sampled_from(["offset", "timestamp", "header"]),
    expires=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_histories_end_alike(strategy: str, expires: bool, seed: int) -> None:
    """U-43: tombstones, transactions, old formats, several cleanings; each is compared with a dictionary."""
    ends = []
    for map_dir in ("", "/var/tmp"):  # noqa: S108
        with scratch() as root:
            world = World(root, Shape(strategy, expires=expires), map_dir)
            world.run(Script(world.shape, seed, 3, stops=False, moves=True, changes=False, upsets=False))
            ends.append({log.name: log.read_bytes() for log in world.partition.glob("*.log")})
    assert ends[0] == ends[1]


def test_keys_that_fit_need_no_file(tmp_path: Path, place: Path) -> None:
    """Keys on disk replace passes and nothing else."""
    plan = replace(_plan(tmp_path), map_bytes=64 * MIB, map_load=0.85)
    found = _decision(_on_disk(plan, place / "missing"))
    assert (found.passes, found.map_note) == (1, "")


def _sized(shards: int) -> MapSizing:
    class Sized(MapSizing):
        def first_size(self, plan: CleaningPlan) -> MapSize:
            return MapSize(most_bytes(plan), shards)

    return Sized()


def test_chosen_by_cost(tmp_path: Path, place: Path) -> None:
    """U-43: two passes are cheaper than a file, and so are passes over fewer bytes than the keys have."""
    roomy = replace(_plan(tmp_path), map_load=0.85, map_bytes=512 * 1024)
    assert _decision(_on_disk(roomy, place), sizing=_sized(2)).passes == 2
    assert _decision(_on_disk(roomy, place), sizing=_sized(3)).passes == 1
    few_bytes = b"".join(
        encode_batch([Record(b"%d" % (base + n), b"", offset_delta=n) for n in range(1000)], base_offset=base)
        for base in range(0, 8000, 1000)
    )
    make_log_dir(tmp_path / "small", {str(PARTITION): Partition({0: few_bytes, 8000: b""})})
    small = plan_of(tmp_path / "small")
    assert _decision(_on_disk(small, place), sizing=_sized(3)).passes == 3
    assert _decision(_on_disk(small, place), sizing=_sized(6)).passes == 1


@pytest.mark.parametrize("shards", [1, 3])
def test_parts_that_do_not_fit_are_halved(tmp_path: Path, place: Path, shards: int) -> None:
    """U-20: the keys were estimated too low, or a map was full first."""
    plan = _plan(tmp_path)
    found = _decision(_on_disk(plan, place), sizing=_sized(shards))
    assert (found.passes, _bits(found)) == (1, _bits(_decision(plan)))
    assert "the keys were written to disk" in found.map_note


def test_a_switch_of_strategy_counts_with_keys_on_disk_too(tmp_path: Path, place: Path) -> None:
    """``plan --exact`` of a changed strategy decides retained records twice."""
    plan = _plan(tmp_path, 256 * 1024)
    other = Rules("timestamp", "", "long", "null", "", "horizon", winner_retention="write-time")
    with ReaderPool(plan.path, workers=1, chunk_bytes=MIB) as pool:
        first = compare(plan, other, pool, lambda _: None)
        second = compare(_on_disk(plan, place), other, pool, lambda _: None)
    assert (first.keys, first.differing) == (second.keys, second.differing)


def test_the_cost_is_linear(tmp_path: Path, place: Path) -> None:
    """U-43: eight times the keys cost at most nine times the bytes and rows; passes would cost 64 times as much."""

    def cost(name: str, size: int) -> tuple[int, int, int, int]:
        plan = _on_disk(_plan(tmp_path / name, size, shape=LogShape("", "", 128, 16, 0.01)), place)
        plan = replace(plan, map_load=0.5)
        log_bytes = [0]
        with ReaderPool(plan.path, workers=1, chunk_bytes=MIB) as pool:
            decoder = ChunkDecoding(plan, pool, log_bytes.append)
            keys = with_map(plan, lambda use: _walk(plan, decoder, next(iter(use.passes))))
        assert isinstance(keys, KeyFile)
        return plan.end_offset, sum(log_bytes), keys.bytes_written, keys.rows_read

    few, many = cost("few", MIB // 2), cost("many", 4 * MIB)
    assert many[0] >= 7.5 * few[0]
    assert all(after <= 9 * before for before, after in zip(few, many, strict=True))
    assert many[3] <= 1.1 * many[0], "each row is read once"


def _walk(plan: CleaningPlan, decoder: ChunkDecoding, keys: KeyPass) -> KeyPass:
    index = DirtyIndex(plan, MetadataBudget(plan))
    index.build(decoder, keys)
    keys.decide(decoder, Contest((), 0, index.ordinals))
    return keys


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
def test_an_unsuitable_directory(tmp_path: Path, place: Path, where: str, why: str) -> None:
    """Missing, not a directory, in memory, or not writable."""
    (place / "a-file").touch()
    _in_passes(_plan(tmp_path), place / where, why)


@pytest.mark.long
def test_a_disk_that_is_read_only(tmp_path: Path, place: Path) -> None:
    with tmpfs(place / "disk", "ro"):
        _in_passes(_plan(tmp_path), place / "disk", "Read-only file system")


def test_the_limit_of_the_file(tmp_path: Path, place: Path) -> None:
    """U-43: ``cleanerd.map.max.bytes``, before the keys are written, and during that, if there are more of them."""
    plan = _plan(tmp_path)
    limited = replace(plan, map_file_bytes=100_000)
    _in_passes(limited, place, "more than 97.7 KiB (cleanerd.map.max.bytes)")
    with opened(str(place)) as descriptor:
        keys = KeyFile(replace(plan, map_file_bytes=100), descriptor, MIB, 2)
        with ReaderPool(plan.path, workers=1, chunk_bytes=MIB) as pool, pytest.raises(KeyFileError, match=r"map\.max"):
            _walk(plan, ChunkDecoding(plan, pool, lambda _: None), keys)


def test_the_reserve_stays_free(tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """U-43: ``cleanerd.disk.reserve`` applies there too; without it a tenth of the disk stays free."""
    plan = _plan(tmp_path)
    found = _decision(replace(_on_disk(plan, place), map_reserve_bytes=1 << 60))
    assert found.passes > 1
    assert "are needed and 0 B may be taken" in found.map_note
    disk = SimpleNamespace(f_frsize=4096, f_blocks=1000, f_bavail=130)
    # No test owns a disk of a known size.
    system_call(monkeypatch, "fstatvfs", lambda _descriptor: disk)
    require_room(0, 30 * 4096, None)
    with pytest.raises(KeyFileError, match=r"120\.0 KiB may be taken"):
        require_room(0, 30 * 4096 + 1, None)


@pytest.mark.parametrize(
    ("call", "number"),
    [("write", errno.ENOSPC), ("write", errno.EDQUOT), ("write", errno.EIO), ("pread", errno.EIO), ("fstatvfs", 5)],
)
def test_a_disk_that_fails(
    tmp_path: Path, place: Path, call: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """U-43: the disk fills up, a quota ends, the disk fails: while the keys are written, and when they are read."""
    plan = _plan(tmp_path)
    real: Callable[..., object] = getattr(os, call)

    def refuse(descriptor: int, *more: object) -> object:
        if os.readlink(f"/proc/self/fd/{descriptor}").startswith(str(place)):
            raise OSError(number, os.strerror(number))
        return real(descriptor, *more)

    with monkeypatch.context() as patched:
        system_call(patched, call, refuse)
        _in_passes(plan, place, os.strerror(number))


@pytest.mark.parametrize("damage", ["zeros", "short"])
def test_lost_rows(tmp_path: Path, place: Path, damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """U-43: rows that a disk lost may come back as older data. The checksum shows it, and the log is read again."""
    plan = _plan(tmp_path)
    real = os.pread

    def lost(descriptor: int, count: int, position: int) -> bytes:
        data = real(descriptor, count, position)
        if position and os.readlink(f"/proc/self/fd/{descriptor}").startswith(str(place)):
            return bytes(len(data)) if damage == "zeros" else b""
        return data

    with monkeypatch.context() as patched:
        system_call(patched, "pread", lost)
        _in_passes(plan, place, "the bytes that were written there cannot be read back")


def test_a_limit_of_the_file_size(tmp_path: Path, place: Path) -> None:
    """The process's own limit of a file's size (``LimitFSIZE``) is an error like any other."""
    plan = _plan(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16 * 1024, hard))
    try:
        _in_passes(plan, place, "File too large")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_is_really_full(tmp_path: Path, place: Path) -> None:
    """No call is replaced: an ext4 of 4 MiB without space; and one where other writers take the space meanwhile."""
    with ext4(place, image_bytes=4 * MIB, room_bytes=64 * MIB) as disk:
        status = os.statvfs(disk)
        with (disk / "ballast").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, status.f_bavail * status.f_frsize)
        _in_passes(_plan(tmp_path), disk, "are needed and 0 B may be taken")


def test_no_other_user_can_read_it(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """U-43: mode 0600 and no name, also if a file system makes no file without one."""
    real = os.open

    def without(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "not supported")
        return real(path, flags, mode, dir_fd=dir_fd)

    before = now_open()
    for patches in (False, True):
        if patches:
            system_call(monkeypatch, "open", without)  # not every host has such a file system
        with opened(str(place)) as descriptor:
            status = os.fstat(descriptor)
            assert stat.S_IMODE(status.st_mode) == 0o600
            assert status.st_nlink == 0
            assert list(place.iterdir()) == []
    assert now_open() <= before


_KILLED = """
import sys, time
from pathlib import Path
from cleanerd.cleaner import key_file
with key_file.opened(sys.argv[1]) as descriptor:
    key_file.write_all(descriptor, bytes(1 << 20))
    print("written", flush=True)
    time.sleep(60)
"""


def test_nothing_is_left_after_a_kill(place: Path) -> None:
    """U-43: the space is free again, and the file never had a name."""
    with subprocess.Popen([sys.executable, "-c", _KILLED, str(place)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "written\n"
        assert any("(deleted)" in os.readlink(link) for link in Path(f"/proc/{process.pid}/fd").iterdir())
        process.send_signal(signal.SIGKILL)
    assert list(place.iterdir()) == []


def test_passes_begin_with_an_empty_map(tmp_path: Path) -> None:
    """U-20: each pass of the fallback decides its own shard."""
    plan = _plan(tmp_path)
    shards: list[tuple[int, int]] = []

    def attempt(use: MapUse) -> None:
        for each in use.passes:
            assert isinstance(each, MapPass)
            shards.append((each.shard, each.shards))

    with_map(plan, attempt, _sized(4))
    assert shards == [(number, 4) for number in range(4)]
