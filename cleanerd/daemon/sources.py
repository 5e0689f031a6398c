"""What looks rest on besides the partitions themselves: the broker's configuration, and plans that wait on the disk."""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from cleanerd.cleaner.manifest import MANIFEST, READY, STAGING, Manifest
from cleanerd.daemon.look import StagedPlan
from cleanerd.errors import CleanerdError
from cleanerd.log.log_dir import METADATA_TOPIC
from cleanerd.scope.broker_facts import METADATA_AGE_MS, BrokerFacts, broker_facts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from cleanerd.log.log_dir import LogDir
    from cleanerd.settings import Settings

_SHARE: Final = 100
"""Reading the metadata log may take one part in so many of the time."""


class FactsCache:
    """What is known of a directory's broker, read again when a file that says it has changed.

    A running broker writes to its metadata log twice a second, so how often it is read depends on what that costs.
    """

    def __init__(self) -> None:
        self._facts: BrokerFacts | None = None
        self._signature: tuple[object, ...] = ()
        self._settings: Settings | None = None
        self._again_at = 0.0
        self.warnings: tuple[str, ...] = ()

    def get(self, settings: Settings, log_dir: LogDir, others: Sequence[Path], *, running: bool) -> BrokerFacts:
        """As it is now, or was a moment ago.

        Raises:
            CleanerdError: it cannot be read, and never was.
        """
        paths = [log_dir.path, *others]
        if self._facts is not None and self._facts.metadata_dir is not None:
            paths.append(self._facts.metadata_dir)  # it need not be a log directory
        signature = (running, *_signature(settings, paths))
        same = settings is self._settings and signature[0] == (self._signature or (None,))[0]
        fresh = signature == self._signature or time.monotonic() < self._again_at
        if self._facts is not None and same and fresh:
            return self._facts
        started = time.monotonic()
        only_before_ms = time.time_ns() // 1_000_000 - METADATA_AGE_MS if running else None
        try:
            self._facts = broker_facts(settings, log_dir, others, only_before_ms=only_before_ms)
            self.warnings = ()
        except CleanerdError as error:
            if self._facts is None or settings is not self._settings:
                raise
            self.warnings = (f"{log_dir.path}: what was known of the broker's configuration still counts: {error}",)
        self._settings, self._signature = settings, signature
        self._again_at = time.monotonic() + _SHARE * (time.monotonic() - started)
        return self._facts


def staged_plan(partition: Path) -> StagedPlan | None:
    """The newest plan in a partition that ``cleanerd apply`` would swap in; None when there is none."""
    plans = []
    try:
        if not (partition / STAGING).is_dir():
            return None
        for plan in os.scandir(partition / STAGING):
            if not os.path.exists(f"{plan.path}/{READY}"):
                continue
            with open(f"{plan.path}/{MANIFEST}", "rb") as file:
                manifest = Manifest.from_json(file.read(), plan.path)
            plans.append(StagedPlan(manifest.bound, manifest.created_ms, manifest.created_ms + manifest.max_age_ms))
    except (OSError, CleanerdError):
        return None  # it is being written, or no plan at all: whoever applies it says so
    return max(plans, key=lambda found: found.created_ms, default=None)


def staged_json(partition: Path) -> dict[str, int | None] | None:
    """The same for ``plan --json`` and ``explain --json``."""
    found = staged_plan(partition)
    return None if found is None else asdict(found)


def staged_in_words(partition: Path) -> str:
    """The same in a line; empty when there is none."""
    found = staged_plan(partition)
    if found is None:
        return ""
    old = found.expires_ms is not None and found.expires_ms <= time.time_ns() // 1_000_000
    what = "is too old to be applied" if old else "waits for the broker's next start (cleanerd apply)"
    return f"a staged plan up to offset {found.bound_offset} {what}"


def _signature(settings: Settings, paths: Sequence[Path]) -> Iterator[object]:
    daemon = settings.daemon
    configured = daemon.cleanerd_metadata_log_dir
    for path in [configured] if configured is not None else dict.fromkeys(paths):
        try:
            with os.scandir(path / f"{METADATA_TOPIC}-0") as entries:
                yield tuple(sorted((each.name, each.stat().st_size, each.stat().st_mtime_ns) for each in entries))
        except OSError:
            yield None
    for file in (daemon.cleanerd_broker_properties, daemon.cleanerd_state_dir / "delegations.json"):
        try:
            status = None if file is None else os.stat(file)
        except OSError:
            status = None
        yield None if status is None else (status.st_ino, status.st_size, status.st_mtime_ns)
