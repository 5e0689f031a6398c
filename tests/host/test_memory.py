"""The memory that the system leaves to the process, and its distribution (U-35)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cleanerd.host.memory import (
    COPIES,
    LEAST_BATCH_BYTES,
    MIB,
    Memory,
    MemoryShare,
    RecentMeasurement,
    measure,
    share_of,
)

if TYPE_CHECKING:
    from pathlib import Path

GIB = 1024 * MIB


def _share(memory_bytes: int, threads: int = 1, **more: int | bool) -> MemoryShare:
    settings = {"map_bytes": 128 * MIB, "read_buffer_bytes": 4 * MIB, "max_unpacked_bytes": GIB, **more}
    return share_of(Memory(memory_bytes, "a test"), threads=threads, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("threads", [1, 2, 3, 10, 100])
@pytest.mark.parametrize("memory_bytes", [512 * MIB, GIB, 2 * GIB, 24 * GIB])
@pytest.mark.parametrize("inside", [False, True])
def test_all_of_it_fits(memory_bytes: int, threads: int, *, inside: bool) -> None:
    """U-35: map, read buffers and the decompressed batches of all threads fit the memory, or a message says so."""
    found = _share(memory_bytes, threads, inside=inside)
    taken = found.map_bytes + threads * (COPIES * found.batch_bytes + 2 * 4 * MIB)
    assert taken < memory_bytes or not found.fits
    assert found.fits or found.batch_bytes == LEAST_BATCH_BYTES


def test_more_threads_and_less_memory_get_less() -> None:
    """U-35: known in advance, from memory, settings and threads alone."""
    assert _share(GIB).batch_bytes > _share(GIB, 2).batch_bytes > _share(512 * MIB, 2).batch_bytes > 2 * MIB
    assert _share(512 * MIB).batch_bytes > 32 * MIB
    assert _share(512 * MIB).map_bytes < _share(GIB).map_bytes == 128 * MIB
    assert _share(GIB, map_bytes=2 * MIB).batch_bytes > _share(GIB).batch_bytes
    assert _share(GIB, 4, inside=False).batch_bytes > _share(GIB, 4).batch_bytes


def test_the_setting_is_used_if_it_is_the_lower_one() -> None:
    """A machine with enough memory gets no message about too little."""
    ample = _share(64 * GIB)
    assert (ample.batch_bytes, ample.fits) == (GIB, True)
    assert _share(GIB).batch_bytes < GIB
    assert _share(GIB, max_unpacked_bytes=2 * MIB).batch_bytes == 2 * MIB


class _Proc:
    """A ``/proc`` and cgroup directories for one process."""

    def __init__(self, root: Path, groups: str, mounts: str) -> None:
        self.root = root
        own = root / "proc" / "self"
        own.mkdir(parents=True)
        (own / "status").write_text("Name:\tcleanerd\nVmRSS:\t  999 kB\nRssAnon:\t  10240 kB\n")
        (own / "cgroup").write_text(groups)
        (own / "mountinfo").write_text(mounts)

    def available(self, size: int) -> None:
        (self.root / "proc" / "meminfo").write_text(f"MemTotal: 99999999 kB\nMemAvailable: {size // 1024} kB\n")

    def file(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def measure(self) -> Memory:
        return measure(self.root / "proc")


def _mount(place: Path, kind: str, root: str = "/", options: str = "rw") -> str:
    return f"31 23 0:28 {root} {place} rw,relatime shared:9 - {kind} {kind} {options}\n"


def test_the_cgroup_of_version_2(tmp_path: Path) -> None:
    """The lowest of memory.max and memory.high, of its own group or of one above."""
    proc = _Proc(tmp_path, "0::/kube/pod/one\n", _mount(tmp_path / "cg", "cgroup2"))
    proc.available(8 * GIB)
    proc.file("cg/kube/pod/one/memory.max", f"{GIB}\n")
    proc.file("cg/kube/pod/one/memory.high", "max\n")
    assert proc.measure() == Memory(GIB, f"memory.max of the cgroup {tmp_path}/cg/kube/pod/one")
    proc.file("cg/kube/memory.max", f"{512 * MIB}\n")
    assert proc.measure() == Memory(512 * MIB, f"memory.max of the cgroup {tmp_path}/cg/kube")
    proc.file("cg/kube/pod/one/memory.high", f"{256 * MIB}\n")
    assert proc.measure().origin == f"memory.high of the cgroup {tmp_path}/cg/kube/pod/one"
    proc.available(100 * MIB)
    assert proc.measure() == Memory(110 * MIB, "the memory that this machine has available")


def test_other_processes_in_the_same_cgroup(tmp_path: Path) -> None:
    """The memory of a broker in the same slice is not available; the page cache, and our own, is."""
    proc = _Proc(tmp_path, "0::/slice\n", _mount(tmp_path / "cg", "cgroup2"))
    proc.available(8 * GIB)
    proc.file("cg/slice/memory.max", f"{2 * GIB}\n")
    proc.file("cg/slice/memory.current", f"{GIB + 10 * MIB + 300 * MIB}\n")
    proc.file("cg/slice/memory.stat", f"anon 1\nactive_file {100 * MIB}\ninactive_file {200 * MIB}\n")
    assert proc.measure().bytes == GIB


def test_the_cgroup_of_version_1(tmp_path: Path) -> None:
    """The memory controller's own hierarchy; in a container its root is the mounted one."""
    groups = "9:name=systemd:/\n5:cpu,cpuacct:/docker/one\n4:memory:/docker/one\n0::/\n"
    mounts = _mount(tmp_path / "cpu", "cgroup", options="rw,cpu") + _mount(
        tmp_path / "mem", "cgroup", "/docker/one", "rw,memory"
    )
    proc = _Proc(tmp_path, groups, mounts)
    proc.available(8 * GIB)
    proc.file("mem/memory.limit_in_bytes", f"{GIB}\n")
    proc.file("mem/memory.usage_in_bytes", f"{500 * MIB}\n")
    proc.file("mem/memory.stat", f"total_inactive_file {290 * MIB}\ntotal_active_file {200 * MIB}\nactive_file 1\n")
    assert proc.measure() == Memory(GIB, f"memory.limit_in_bytes of the cgroup {tmp_path}/mem")
    proc.file("mem/memory.limit_in_bytes", "9223372036854771712\n")
    assert proc.measure().origin == "the memory that this machine has available"


def test_memory_that_cannot_be_read(tmp_path: Path) -> None:
    """``ProcSubset=pid`` hides meminfo: half of the machine's memory; a cgroup's limit below that still counts."""
    proc = _Proc(tmp_path, "0::/\n", _mount(tmp_path / "cg", "cgroup2"))
    assert proc.measure().origin == "half of this machine's memory"
    proc.file("cg/memory.max", f"{64 * MIB}\n")
    assert proc.measure().bytes == 64 * MIB
    assert measure(tmp_path / "nothing").bytes > 0


def test_the_memory_of_this_machine() -> None:
    """On this machine, whatever it is: more than zero, and below the total."""
    found = measure()
    assert 0 < found.bytes < 2**50


def test_queried_many_times_it_is_measured_once_a_second() -> None:
    """Thousands of small partitions query it; a limit that is lowered takes effect a second later."""
    now, limits = [100.0], [512 * MIB]
    requests: list[int] = []

    def measure() -> Memory:
        requests.append(limits[0])
        return Memory(limits[0], "a test")

    lately = RecentMeasurement(measure, lambda: now[0])
    found = [lately().bytes for _ in range(3)]
    limits[0] = 64 * MIB
    now[0] += 0.9
    found.append(lately().bytes)
    now[0] += 0.2
    found.append(lately().bytes)
    assert (found, len(requests)) == ([512 * MIB] * 4 + [64 * MIB], 2)
