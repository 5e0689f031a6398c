"""The time when cleanerd last ran, in ``clock.json`` of the state directory (U-42).

The daemon writes it every minute and when it ends, ``clean`` and ``stage`` at their end. Without a readable file the
clock is trusted.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Final

from cleanerd.fsio.state_files import entries_of, require_format, try_write
from cleanerd.host.clock import Clock, LastTime

FILE_NAME: Final = "clock.json"
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_FORMAT: Final = 1
_MAX_MS: Final = 2**53 - 1


def read_clock(state_dir: Path, warnings: list[str]) -> Clock:
    """The clock, which continues from the stored time; ``warnings`` names a file that cannot be used."""
    found = entries_of(state_dir / FILE_NAME, _read, warnings)
    return Clock(last=found[0] if found else None, boot=boot_id())


def save_time(state_dir: Path, last: LastTime) -> str:
    """Write it down; why that could not be done, empty when it was."""
    return try_write(state_dir / FILE_NAME, json.dumps({"format": _FORMAT, **asdict(last)}).encode())


def boot_id(place: Path = _BOOT_ID) -> str:
    """The id of this boot; empty if it is hidden, as from a service that cannot read all of /proc."""
    try:
        return place.read_text().strip()
    except OSError:
        return ""


def _read(data: bytes) -> list[LastTime]:
    """Raises: one of ``DAMAGE``."""
    document = json.loads(data)
    require_format(document, _FORMAT)
    since = document["since"]
    if since is not None:
        wall_at, steady_at = since
        since = _ms(wall_at), _ms(steady_at)
    counted = document["counted"] is True
    return [LastTime(str(document["boot"]), _ms(document["steady_ms"]), _ms(document["wall_ms"]), since, counted)]


def _ms(value: object) -> int:
    if type(value) is not int or not 0 <= value <= _MAX_MS:
        raise ValueError("it is made of whole milliseconds")
    return value
