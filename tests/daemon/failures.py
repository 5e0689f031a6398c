"""The table of failures: how to cause each one, what it looks like while it lasts, and how to repair it.

``docs/failures.md`` has the same table for operators; ``test_failures.py`` checks both.
"""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, Union

from tests.daemon.site import without_agent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tests.daemon.site import Site

DAY_MS: Final = 86_400_000
MIB: Final = 1 << 20
LEFT_BYTES: Final = 12_288


Value = Union[float, None, "Callable[[float], bool]"]
"""The value of a sample; None: there is no such sample."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One class of failures; its ``id`` is a row of ``docs/failures.md``.

    The failure lasts as long as the block ``made``. Meanwhile the hurt partition's state is ``state``, and ``where``
    shows ``message``, a regular expression: what happened, where, what to do. ``log_lines`` are the least and most log
    lines that match ``logged``; None: one for each try. ``samples`` are values in ``/metrics`` before and during the
    failure; after it they are as before. ``counters`` are those that rise. ``others`` are the partitions that are still
    cleaned. ``alert`` depends on ``alert_metric``.
    """

    id: str
    made: Callable[[Site], AbstractContextManager[None]]
    where: Literal["partition", "directory", "warnings"]
    message: str
    state: str
    logged: str
    log_lines: tuple[int, int] | None = (1, 1)
    mode: str = "live"
    readyz: str = "ready\n"
    samples: Mapping[str, tuple[Value, Value]] = field(default_factory=dict)
    counters: tuple[str, ...] = ()
    others: tuple[Literal["hurt", "other"], ...] = ("other",)
    alert: str = ""
    settings: tuple[str, ...] = ()
    topic: Mapping[str, Any] = field(default_factory=dict)
    over: str = ""
    long: bool = False


def first_segment(site: Site) -> Path:
    """A closed segment that was cleaned already."""
    return min(site.directory(site.hurt).glob("*.log"))


@contextmanager
def corrupt_segment(site: Site) -> Iterator[None]:
    """Bits flip on the disk; the next cleaning reads them."""
    path = first_segment(site)
    sound = path.read_bytes()
    path.write_bytes(sound[:80] + bytes([sound[80] ^ 0xFF]) + sound[81:])
    site.write(site.hurt)
    yield
    assert path.read_bytes() != sound, "damaged bytes are never rewritten"
    path.write_bytes(sound)


@contextmanager
def unreadable_file(site: Site) -> Iterator[None]:
    """The file was restored from a backup, with another owner."""
    path = first_segment(site)
    mode = path.stat().st_mode
    path.chmod(0)
    site.write(site.hurt)
    yield
    path.chmod(mode)


@contextmanager
def broker_stopped(site: Site) -> Iterator[None]:
    """An orderly stop, and a start at the end."""
    site.broker.stop()
    try:
        yield
    finally:
        site.broker.start()


@contextmanager
def agent_missing(site: Site) -> Iterator[None]:
    """The agent is removed from the broker's unit, and put back at the end."""
    with without_agent(site.broker):
        site.broker.stop()
        site.broker.start()
    try:
        yield
    finally:
        site.broker.stop()
        site.broker.start()


@contextmanager
def agent_missing_for_long(site: Site) -> Iterator[None]:
    """As `agent_missing`, with much to clean at that time."""
    site.daemon.ask("pause")
    site.write(site.hurt, site.other)
    with agent_missing(site):
        site.daemon.ask("resume")
        yield


def free_bytes(place: Path) -> int:
    """The space that users other than root can use."""
    status = os.statvfs(place)
    return status.f_bavail * status.f_frsize


@contextmanager
def ballast(site: Site, left_bytes: int) -> Iterator[None]:
    """A file that leaves no more than that of the hurt partition's disk."""
    place = site.broker.log_dirs[1]
    path = place / "ballast"
    path.write_bytes(bytes(free_bytes(place) - left_bytes))
    try:
        yield
    finally:
        path.unlink()


@contextmanager
def at_reserve(site: Site) -> Iterator[None]:
    """Less space is free than cleanerd.disk.reserve."""
    with ballast(site, 4 * MIB):
        site.write(site.hurt)
        yield


@contextmanager
def disk_full(site: Site) -> Iterator[None]:
    """No segment group fits any more, as the file system reports."""
    name = f"{site.topic}-{site.hurt}"
    site.daemon.ask("pause", partition=name)
    site.write(site.hurt, count=6000, keys=5000)
    with ballast(site, LEFT_BYTES):
        site.daemon.ask("resume", partition=name)
        yield
    site.daemon.ask("retry", partition=name)


@contextmanager
def state_rubbish(site: Site) -> Iterator[None]:
    """Every file of the state directory has other contents."""
    for path in site.state_dir.rglob("*.json"):
        path.write_bytes(b"\x00rubbish")
    site.write(site.hurt, site.other)
    yield
    assert list(site.state_dir.rglob("*.damaged")), "the damaged files are kept for inspection"


@contextmanager
def state_unwritable(site: Site) -> Iterator[None]:
    """All of its directories are read-only."""
    places = [site.state_dir, *(path for path in site.state_dir.rglob("*") if path.is_dir())]
    for path in places:
        path.chmod(0o500)
    site.write(site.hurt, site.other)
    yield
    for path in places:
        path.chmod(0o750)


@contextmanager
def state_removed(site: Site) -> Iterator[None]:
    """The state directory was deleted: it is created again, without a message."""
    shutil.rmtree(site.state_dir)
    site.write(site.hurt)
    yield
    assert list(site.state_dir.rglob("*.json"))


@contextmanager
def clock_off(site: Site, off_ms: int) -> Iterator[None]:
    """The wall clock is put forward or back, and later put right."""
    assert site.clock is not None
    site.clock.set(off_ms)
    site.write(site.hurt)
    yield
    site.clock.set(0)


QUARANTINE: Final[dict[str, Any]] = {
    "where": "partition",
    "state": "quarantined",
    "samples": {
        "cleanerd_quarantined_partitions{log_dir={hurt}}": (0, 1),
        "cleanerd_quarantined_partitions{log_dir={other}}": (0, 0),
        "kafka_log_logcleanermanager_uncleanable_partitions_count{logDirectory={hurt_by_jmx}}": (0, 1),
        'cleanerd_partitions{log_dir={hurt},state="quarantined"}': (0, 1),
    },
    "counters": ('cleanerd_cleanings_total{outcome="quarantined"}',),
    "log_lines": None,  # one for each try, at growing intervals
    "alert": "CleanerdQuarantine",
}
AGENT_GONE: Final[dict[str, Any]] = {
    "where": "directory",
    "message": r"^a broker runs on it without cleanerd's agent: "
    r"cleanings are staged for its next start \(cleanerd apply\)$",
    "mode": "on-start",
    "readyz": "ready\n{other}: on-start: a broker runs on it without cleanerd's agent: cleanings are staged",
    "logged": "event=mode_changed log_dir={hurt} mode=on-start .*without cleanerd's agent",
    "log_lines": (1, 2),  # a broker that stops removes its agent's socket first
    "over": "event=mode_changed log_dir={hurt} mode=live",
    "samples": {
        "cleanerd_log_dir_agent{log_dir={hurt}}": (1, 0),
        'cleanerd_log_dir_mode_info{log_dir={hurt},mode="live"}': (1, None),
        'cleanerd_log_dir_mode_info{log_dir={hurt},mode="on-start"}': (None, 1),
    },
    "others": (),
    "alert": "CleanerdAgentGone",
}
STATE: Final[dict[str, Any]] = {
    "where": "warnings",
    "state": "idle",
    "counters": ("cleanerd_state_errors_total",),
    "others": ("hurt", "other"),
    "alert": "CleanerdStateDir",
}

FAILURES: Final = (
    Failure(
        "corrupt segment",
        corrupt_segment,
        message=r"{hurt_log} at byte \d+: .*cleanerd verify .*cleanerd retry",
        logged=r"event=partition_quarantined .*{hurt_log} at byte \d+: .*cleanerd verify",
        **QUARANTINE,
    ),
    Failure(
        "unreadable file",
        unreadable_file,
        message=r"{hurt_log}: cannot be opened: Permission denied "
        r"\(its mode is -{10}: chmod it for the broker's user\)",
        logged=r"event=partition_quarantined .*{hurt_log}: cannot be opened: Permission denied",
        **QUARANTINE,
    ),
    Failure(
        "broker stopped",
        broker_stopped,
        where="directory",
        message="^no broker runs on it; it may be about to start$",
        state="idle",
        mode="offline",
        readyz="ready\n{other}: offline: no broker runs on it; it may be about to start\n{hurt}: offline: no broker",
        logged="event=mode_changed log_dir={hurt} mode=offline .*no broker runs on it",
        over="event=mode_changed log_dir={hurt} mode=live",
        samples={
            "cleanerd_log_dir_agent{log_dir={hurt}}": (1, 0),
            'cleanerd_log_dir_mode_info{log_dir={hurt},mode="live"}': (1, None),
            'cleanerd_log_dir_mode_info{log_dir={hurt},mode="offline"}': (None, 1),
            "cleanerd_log_dir_online{log_dir={hurt}}": (1, 1),
        },
        others=(),
        alert="CleanerdAgentGone",
    ),
    Failure(
        "agent gone",
        agent_missing,
        state="idle",
        # Topics that are younger than five minutes are not known from the metadata log of a running broker (U-23).
        settings=("topics.agent-gone.cleanup.policy=compact",),
        **AGENT_GONE,
    ),
    Failure(
        "agent gone for long",
        agent_missing_for_long,
        state="staged",
        settings=("topics.agent-gone-for-long.cleanup.policy=compact",),
        long=True,
        **AGENT_GONE,
    ),
    Failure(
        "disk at its reserve",
        at_reserve,
        where="partition",
        message=r"free space is at the reserve \(cleanerd.disk.reserve, 8.0 MiB\): nothing is cleaned here",
        state="idle",
        logged="event=disk_reserve_reached log_dir={hurt}",
        over="event=disk_reserve_cleared log_dir={hurt}",
        samples={"cleanerd_log_dir_free_bytes{log_dir={hurt}}": (lambda v: v > 8 * MIB, lambda v: v < 8 * MIB)},
        alert="CleanerdDiskReserve",
        settings=(f"cleanerd.disk.reserve={8 * MIB}",),
    ),
    Failure(
        "disk full",
        disk_full,
        where="partition",
        message="{hurt_dir}.*(No space left on device|not enough free)",
        state="idle",
        logged="event=cleaning_not_done partition={hurt_name} outcome=failed .*(No space left|not enough free)",
        log_lines=None,
        counters=('cleanerd_cleanings_total{outcome="failed"}',),
        alert="CleanerdCleansFail",
        topic={"segment_bytes": 100_000},
    ),
    Failure(
        "state files damaged",
        state_rubbish,
        message=r"{state}/partitions/.*\.json: damaged .*set aside and ignored",
        logged=r"{state}/partitions/.*\.json: damaged",
        log_lines=(2, 2),  # one per file
        # The compaction settings of a topic that Kafka's cleaner skips have to be configured (U-6).
        settings=("topics.*.compaction.strategy=offset", "topics.*.tombstone.mode=null"),
        **STATE,
    ),
    Failure(
        "state directory unwritable",
        state_unwritable,
        message=r"{state}/partitions/.*\.json: cannot be written \(Permission denied\)",
        logged=r"event=warning_raised .*{state}/partitions/.*\.json: cannot be written",
        log_lines=(2, 2),  # one per directory
        over="event=warning_cleared .*cannot be written",
        **STATE,
    ),
    Failure(
        "state directory removed",
        state_removed,
        where="partition",
        message="^nothing to clean",
        state="idle",
        logged="level=(warning|error)",
        log_lines=(0, 0),
        others=("hurt", "other"),
    ),
    Failure(
        "clock ahead",
        partial(clock_off, off_ms=DAY_MS),
        where="warnings",
        message=r"the clock jumped ahead by 1 day, 0:00:00: .*nothing is deleted by the new time; set the clock right",
        state="idle",
        logged="event=warning_raised .*the clock jumped ahead",
        over="event=warning_cleared .*the clock jumped ahead",
        counters=("cleanerd_clock_jumps_total",),
        others=("hurt", "other"),
        alert="CleanerdClockJumped",
    ),
    Failure(
        "clock behind",
        partial(clock_off, off_ms=-DAY_MS),
        where="warnings",
        message=r"the clock is behind the last known time by .*tombstones of cleanings stay longer.*"
        "set the clock right",
        state="idle",
        logged="event=warning_raised .*the clock is behind",
        over="event=warning_cleared .*the clock is behind",
        others=("hurt", "other"),
    ),
)
