"""Staged plans of a partition that wait for ``cleanerd apply``."""

from __future__ import annotations

import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from cleanerd.cleaner.manifest import MANIFEST, PLAN_ID, READY, STAGING, Manifest, staging_path
from cleanerd.errors import CleanerdError
from cleanerd.fsio.safe_open import MAX_MANIFEST_BYTES, close_quietly, names_in, open_named, read_whole


@dataclass(frozen=True, slots=True)
class StagedPlan:
    """A staged plan: its end offset, its creation time and its expiry."""

    first_uncleanable_offset: int
    created_ms: int
    expires_ms: int | None = None


def staged_plan(partition: Path) -> StagedPlan | None:
    """The newest plan in a partition that ``cleanerd apply`` would swap in; None: there is none."""
    if not os.path.lexists(partition / STAGING):
        return None
    try:
        directory = open_named(partition)
        try:
            plans = [plan for name in names_in(STAGING, directory) if (plan := _staged(directory, name)) is not None]
        finally:
            close_quietly(directory)
    except (OSError, CleanerdError):
        return None  # it is being written, or is not a plan; ``apply`` reports that
    return max(plans, key=lambda found: found.created_ms, default=None)


def _staged(partition: int, name: str) -> StagedPlan | None:
    if PLAN_ID.fullmatch(name) is None or READY not in names_in(staging_path(name), partition):
        return None
    where = f"{staging_path(name)}/{MANIFEST}"
    manifest = Manifest.from_json(read_whole(where, dir_fd=partition, max_bytes=MAX_MANIFEST_BYTES), where)
    return StagedPlan(manifest.bound, manifest.created_ms, manifest.created_ms + manifest.max_age_ms)


def staged_json(partition: Path) -> dict[str, int | None] | None:
    """The staged plan for ``plan --json`` and ``explain --json``."""
    found = staged_plan(partition)
    return None if found is None else asdict(found)


def describe_staged(partition: Path) -> str:
    """The staged plan in one line; empty if there is none."""
    found = staged_plan(partition)
    if found is None:
        return ""
    old = found.expires_ms is not None and found.expires_ms <= time.time_ns() // 1_000_000
    what = "is too old to be applied" if old else "waits for the broker's next start (cleanerd apply)"
    return f"a staged cleaning up to offset {found.first_uncleanable_offset} {what}"
