"""Checks of ``cleanerd doctor`` for the host: settings, state directory, limits, file systems."""

from __future__ import annotations

import os
import resource
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cleanerd.admin.client_config import ClientConfig, read_client_config
from cleanerd.admin.key_stores import trusted_until, valid_until
from cleanerd.config.check import contradictions, is_missing, missing_paths, nearest_existing, wrong_state_dir
from cleanerd.config.load import Settings, read_settings
from cleanerd.errors import CleanerdError, as_cleanerd_error
from cleanerd.fsio.mounts import IN_MEMORY, file_system_of, is_remote
from cleanerd.humanize import human_bytes
from cleanerd.segments.keep_dir import on_its_file_system, require_keep_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cleanerd.doctor.findings import CheckResults

# linux/capability.h Interpreter, libraries, state, lock and listings; and per thread: directory, source, output,
# staging, indexes.
_CAP_CHOWN: Final = 0
# Interpreter, libraries, state, lock and listings; and per thread: directory, source, output, staging, indexes.
_FILES_OF_THE_PROCESS: Final = 64
_FILES_PER_THREAD: Final = 16


@dataclass(frozen=True, slots=True)
class Process:
    """The user that cleanerd runs as, and its additional capabilities."""

    uid: int
    may_chown: bool

    @classmethod
    def current(cls) -> Process:
        """Effective user and capabilities of this process."""
        bits = _effective_capabilities()
        return cls(
            uid=os.geteuid(),
            may_chown=bool(bits >> _CAP_CHOWN & 1),
        )


def check_settings(findings: CheckResults, paths: Sequence[Path], assignments: Sequence[str]) -> Settings | None:
    """As ``config check``; returns None if the settings cannot be used."""
    settings, problems = read_settings(paths, assignments)
    warnings: list[str] = []
    found = (
        problems
        if settings is None
        else [*missing_paths(settings), *contradictions(settings, warnings, by_topic=False)]
    )
    for problem in found:
        findings.failed("settings", problem, "see cleanerd config check")
    for text in warnings:
        findings.note("settings", text, "files, environment and --set")
    for text in () if settings is None else settings.stray:
        findings.warning(
            "settings",
            text,
            "environment",
            "remove the variable, or correct its name",
        )
    if settings is not None and not found:
        explicit = sum(origin != "default" for origin in settings.origins.values())
        explicit += sum(len(table.values) for table in settings.tables)
        findings.ok("settings", f"{explicit} set, the rest are defaults", "files, environment and --set")
    return None if settings is not None and wrong_state_dir(settings) else settings


def check_client_config(findings: CheckResults, path: Path | None, now: Callable[[], float] = time.time) -> None:
    """Check Kafka's client properties, if configured. Connects to no broker."""
    if path is None or is_missing(path):
        return  # the settings' check reported that it is missing
    try:
        client = read_client_config(path)
        if client.uses_tls:
            client.kafka_python()
    except CleanerdError as error:
        findings.failed("client properties", error, "correct the file of cleanerd.command.config")
        return
    for warning in client.warnings:
        where, _, what = warning.partition(": ")
        findings.warning("client properties", what, where, "chmod o-rwx, and change the password")
    expired = list(_expired(client, now()))
    for what in expired:
        findings.warning("client properties", what, path, "renew it: no connection comes about with it")
    if not client.warnings and not expired:
        findings.ok("client properties", f"can be used: {client.protocol}", path)


def _expired(client: ClientConfig, now_seconds: float) -> Iterator[str]:
    own = None if client.own is None else valid_until(client.own.chain)
    if own is not None and own < now_seconds:
        yield f"the certificate in its key store expired on {_day(own)}"
    trusted = None if client.trusted is None else trusted_until(client.trusted)
    if trusted is not None and trusted < now_seconds:
        yield f"the last authority in its trust store expired on {_day(trusted)}"


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d")


def check_keep_dir(findings: CheckResults, places: Sequence[Path], log_dir: Path) -> None:
    """Check the daemon's directory for replaced segments, if set: files of ``log_dir`` must be linkable there."""
    if not places:
        return
    try:
        place = on_its_file_system(places, log_dir)
        require_keep_dir(place, [log_dir])
    except (CleanerdError, OSError) as caught:
        error = as_cleanerd_error(caught, str(log_dir))
        findings.failed("replaced segments", error, error.hint or "correct cleanerd.keep.replaced.dir")
    else:
        findings.ok("replaced segments", "are kept for cleanerd undo", place)


def check_map_dir(
    findings: CheckResults,
    place: Path | None,
    log_dirs: Sequence[Path],
    *,
    kind_of: Callable[[Path], str | None] = file_system_of,
    access: Callable[..., bool] = os.access,
) -> None:
    """Check the directory for keys on disk, if set. A fault there only costs time (U-43)."""
    if place is None or is_missing(place):
        return  # the settings' check reported that it is missing
    what = "keys on disk"
    in_passes = "if the keys do not fit in memory, the log is read in several passes"
    kind = kind_of(place)
    device = _device_of(place)
    shared = next((path for path in log_dirs if device is not None and _device_of(path) == device), None)
    if device is None:
        fix = "let cleanerd's user search the directories on the way, or correct cleanerd.map.dir"
        findings.warning(what, f"cannot be read by this user: {in_passes}", place, fix)
    elif not place.is_dir():
        findings.warning(what, f"is not a directory: {in_passes}", place, "correct cleanerd.map.dir")
    elif not access(place, os.W_OK | os.X_OK, effective_ids=True):
        fix = "let cleanerd's user write there; under systemd it belongs into ReadWritePaths"
        findings.warning(what, f"is not writable for this user: {in_passes}", place, fix)
    elif kind in IN_MEMORY:
        findings.warning(what, f"{kind} is in memory: {in_passes}", place, "name a directory on a disk")
    elif kind is not None and is_remote(kind):
        findings.warning(what, f"{kind} is not a local disk: a cleaning waits for it", place, "name a fast local disk")
    elif shared is not None:
        text = f"on the disk of {shared}: it uses the broker's space and disk time there"
        findings.warning(what, text, place, "name a directory on another disk")
    else:
        disk = os.statvfs(place)
        findings.ok(what, f"{human_bytes(disk.f_bavail * disk.f_frsize)} free", place)


def _device_of(path: Path) -> int | None:
    """None if it does not exist or cannot be read."""
    try:
        return path.stat().st_dev
    except OSError:
        return None


def check_state_directory(findings: CheckResults, root: Path) -> None:
    """Whether checkpoints can be stored: the directory is writable, or can be created."""
    nearest = nearest_existing(root)
    fix = "set cleanerd.state.dir to a directory that cleanerd's user may write; without it Kafka's checkpoint is used"
    if not os.access(nearest, os.R_OK | os.W_OK | os.X_OK, effective_ids=True):
        findings.warning("state directory", "is not writable for this user", nearest, fix)
    elif nearest == root:
        findings.ok("state directory", "readable and writable", root)
    else:
        findings.note("state directory", f"does not exist yet; it can be created in {nearest}", root)


def check_limits(findings: CheckResults, threads: int, limits: tuple[int, int] | None = None) -> None:
    """Open files: cleanerd reads segments one by one, so threads matter and the number of partitions does not.

    ``limits``: the soft and the hard one; None: those of this process.
    """
    soft, hard = limits or resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _FILES_OF_THE_PROCESS + _FILES_PER_THREAD * threads
    text = "no limit" if soft == resource.RLIM_INFINITY else f"the limit is {soft}"
    what = f"about {needed} open files are needed with log.cleaner.threads={threads}, {text}"
    if soft != resource.RLIM_INFINITY and soft < needed:
        raised = "ulimit -n" if hard == resource.RLIM_INFINITY or hard >= needed else "LimitNOFILE= or limits.conf"
        fix = f"raise it with {raised}, or lower log.cleaner.threads"
        findings.problem("open files", what, "this process", fix, exit_code=1)
    else:
        findings.ok("open files", what, "this process")


def check_file_system(
    findings: CheckResults, path: Path, kind_of: Callable[[Path], str | None] = file_system_of
) -> None:
    """Whether the file system of ``path`` has what cleanerd relies on: locks, leases, fsync."""
    kind = kind_of(path)
    if kind is None:
        findings.note("file system", "unknown: /proc/self/mountinfo does not list it", path)
    elif is_remote(kind):
        findings.warning(
            "file system",
            f"{kind}: locks, leases and direct reads depend on a server or driver",
            path,
            "clean only while no broker on any host uses it; set cleanerd.lease.probe=required to be refused otherwise",
        )
    elif kind in IN_MEMORY:
        findings.note("file system", f"{kind}: its files are lost at a reboot, and fsync has no effect", path)
    else:
        findings.ok("file system", kind, path)


def _effective_capabilities() -> int:
    try:
        for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("CapEff:"):
                return int(line.split()[1], 16)
    except (OSError, ValueError, IndexError):
        pass
    return 0
