"""Figures of one process from ``/proc``, and figures of a daemon's status."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tests.soak.verdict import Series

TICKS: Final = os.sysconf("SC_CLK_TCK")
AGENT_THREADS: Final = "cleanerd-agent"
GRACE_MS: Final = 5_000
"""By Kafka's rules a clean enough log may be cleaned as soon as it is overdue, so it is overdue for a moment."""

_KIB_A_MIB: Final = 1024


@dataclass(slots=True)
class Samples:
    """Series by name."""

    series: dict[str, Series] = field(default_factory=dict)

    def add(self, at_seconds: float, values: Mapping[str, float]) -> None:
        """Add the values of one moment."""
        for name, value in values.items():
            self.series.setdefault(name, []).append((at_seconds, float(value)))


def memory_mib(pid: int) -> dict[str, float]:
    """Resident, proportional and anonymous memory. Without swapping, leaks stay in the last."""
    found: dict[str, float] = {}
    wanted = {"Rss": "resident MiB", "Pss": "proportional MiB", "Anonymous": "anonymous MiB"}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]:
        word, _, rest = line.partition(":")
        if word in wanted:
            found[wanted[word]] = int(rest.split()[0]) / _KIB_A_MIB
    return found


def descriptors(pid: int) -> list[str]:
    """The target of every open descriptor."""
    found = []
    for number in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.append(str(Path(f"/proc/{pid}/fd/{number}").readlink()))
    return found


def watches(pid: int) -> int:
    """Watches of inotify."""
    count = 0
    for number in os.listdir(f"/proc/{pid}/fdinfo"):
        with contextlib.suppress(FileNotFoundError):
            text = Path(f"/proc/{pid}/fdinfo/{number}").read_text(encoding="ascii")
            count += sum(line.startswith("inotify ") for line in text.splitlines())
    return count


def thread_names(pid: int) -> list[str]:
    """As the kernel has them, cut to 15 characters."""
    found = []
    for number in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found.append(Path(f"/proc/{pid}/task/{number}/comm").read_text(encoding="utf-8").strip())
    return found


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads, also of ended ones."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def of_daemon(pid: int, base: Path, state_dir: Path) -> dict[str, float]:
    """The process, and its files on the disk."""
    return {
        **memory_mib(pid),
        "descriptors": len(descriptors(pid)),
        "threads": len(thread_names(pid)),
        "inotify watches": watches(pid),
        "CPU seconds": cpu_seconds(pid),
        "files in the state directory": sum(len(files) for _, _, files in os.walk(state_dir)),
        "KiB of its log": (base / "daemon.log").stat().st_size / 1024,
    }


def of_broker(pid: int) -> dict[str, float]:
    """Possible leaks of an agent in its JVM; segments come and go, so files are counted apart."""
    opened = descriptors(pid)
    return {
        "broker: descriptors of files": sum(path.startswith("/") for path in opened),
        "broker: deleted files open": sum(path.endswith("(deleted)") for path in opened),
        "broker: other descriptors": sum(not path.startswith("/") for path in opened),
        "broker: threads of the agent": sum(name.startswith(AGENT_THREADS) for name in thread_names(pid)),
    }


def of_view(view: Mapping[str, Any], topics: Collection[str]) -> dict[str, float]:
    """The daemon's own figures; the backlog is that of ``topics``."""
    ours = [each for each in view["partitions"] if each["topic"] in topics]
    bad = [each for each in view["partitions"] if each["state"] == "quarantined" and each["topic"] != "planted"]
    due = [each["overdue_at_ms"] for each in ours if each["overdue_at_ms"] is not None]
    totals = view["totals"]
    return {
        "backlog KiB": sum(each["dirty_bytes"] for each in ours) / 1024,
        # A log is completely dirty until its first cleaning, however late that is on a busy host.
        "largest dirty ratio": max((each["dirty_ratio"] for each in ours if each["last_cleaning"]), default=0.0),
        "partitions never cleaned": sum(not each["last_cleaning"] for each in ours),
        "largest backlog of a partition KiB": max((each["dirty_bytes"] for each in ours), default=0) / 1024,
        "overdue partitions": sum(at_ms + GRACE_MS < view["made_ms"] for at_ms in due),
        "quarantined but for the planted": len(bad),
        "dead workers": totals["dead_workers"],
        "swaps": totals["swaps"],
        "cleanings": sum(totals["cleanings"].values()),
        "refused swaps": totals["refused_swaps"],
        "not healthy": not view["healthy"],
    }
