"""Settings from files and assignments, and refused files with their errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cleanerd.config.load import Settings, load_settings
from cleanerd.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

SEGMENT = "log.segment.bytes"


def load(*assignments: str, files: tuple[Path, ...] = (), environ: dict[str, str] | None = None) -> Settings:
    return load_settings(files, assignments, environ or {})


def refused(*assignments: str, files: tuple[Path, ...] = (), environ: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as raised:
        load(*assignments, files=files, environ=environ)
    return str(raised.value)


NO_TOML = [
    ('"cleanerd.mode" = "obs', "Unterminated string", "was it written to the end?"),
    ('"cleanerd.mode"', "Expected '='", "was it written to the end?"),
    ('"cleanerd.mode" = "\0"', "Illegal character", "was it written to the end?"),
    ('"cleanerd.mode" = "live"\n"cleanerd.mode" = "auto"\n', "Cannot overwrite a value", "only once"),
    ("[topics.a]\n[topics.a]\n", "Cannot declare", "only once"),
    ("cleanerd.mode = live\n", "Invalid value", "keys and text are written in quotes"),
    ("x = " + "[" * 5000, "nested too deeply", "is it a file of cleanerd's settings?"),
    (f"x = {'1' * 5000}", "a number in it has thousands of digits", "is it a file of cleanerd's settings?"),
]
LISTS = [
    ('"cleanerd.state.dir" = ["/a", "/b"]', "cleanerd.state.dir is a list, must be a path"),
    ('"cleanerd.windows" = ["Mon", "Sat"]', "cleanerd.windows is a list, must be times such as 22:00-06:00"),
    ('[topics.o]\n"compaction.strategy.header" = ["v", "w"]', "compaction.strategy.header is a list, must be the name"),
    ('"log.cleaner.threads" = ["2"]', "log.cleaner.threads is a list, must be a whole number; at least 1"),
]
TWICE = [
    ('"cleanerd.mode" = "observe"\n[cleanerd]\nmode = "live"\n', 3, "cleanerd.mode", '"cleanerd.mode"'),
    ('log.segment.bytes = 100\n"log.segment.bytes" = 200\n', 2, SEGMENT, SEGMENT),
    (
        '"topics.orders.cleanup.policy" = "delete"\n[topics.orders]\ncleanup.policy = "compact"\n',
        3,
        "cleanup.policy",
        '"topics.orders.cleanup.policy"',
    ),
]
