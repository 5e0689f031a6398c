"""The command line of a running broker: ``kafka-server-start.sh server.properties --override KEY=VALUE``.

It overrides the file, and no file contains it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cleanerd.broker.lock_file import broker_process
from cleanerd.errors import CleanerdError

_PROC: Final = Path("/proc")
_OVERRIDE: Final = "--override"
_MAX_BYTES: Final = 4 * 1024 * 1024
"""Linux' limit of a command line from a shell with default limits."""


def overrides_of(log_dir: Path) -> Mapping[str, str]:
    """The settings on the command line of the broker that runs on ``log_dir``, by key.

    Empty if no broker runs there, or its process is invisible, as in another container.
    """
    try:
        with (_PROC / str(broker_process(log_dir)) / "cmdline").open("rb") as file:
            line = file.read(_MAX_BYTES)
    except (CleanerdError, OSError):
        return {}
    return overrides_in(line.decode("utf-8", errors="replace").split("\0"))


def overrides_in(words: list[str]) -> Mapping[str, str]:
    """Parsed as in ``kafka.Kafka``: each option has one setting, and the later of two is used."""
    found: dict[str, str] = {}
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == _OVERRIDE:
            setting = following
        elif word.startswith(f"{_OVERRIDE}="):
            setting = word.removeprefix(f"{_OVERRIDE}=")
        else:
            continue
        key, _, value = setting.partition("=")
        if key and value:
            found[key] = value
    return found
