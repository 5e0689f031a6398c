"""The names of all settings that Kafka documents, of every release since 2.8.

cleanerd uses few of them. The others are accepted, so that an operator can copy a block of ``server.properties``.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Final

TABLE: Final = Path(__file__).with_suffix(".txt")

_PREFIXES: Final = ("listener.name.", "rsm.config.", "rlmm.config.", "confluent.")
"""Prefixes of names with a part that an operator or vendor chose: listeners, plug-ins."""

INSTEAD: Final = {
    "log.dir": "cleanerd.log.dirs",
    "log.dirs": "cleanerd.log.dirs",
    "metadata.log.dir": "cleanerd.metadata.log.dir",
    "advertised.listeners": "bootstrap.servers",
    "listeners": "bootstrap.servers",
    "inter.broker.protocol.version": "cleanerd.broker.version",
}
"""Kafka's setting -> cleanerd's key for the same purpose. The broker's value does not apply to cleanerd."""


@functools.cache
def broker_names() -> frozenset[str]:
    return _table()["broker"]


@functools.cache
def topic_names() -> frozenset[str]:
    return _table()["topic"]


def is_broker_name(name: str) -> bool:
    """Whether Kafka, one of its plug-ins or a vendor's broker has a broker setting of this name."""
    return name in broker_names() or any(name.startswith(each) and name != each for each in _PREFIXES)


@functools.cache
def _table() -> dict[str, frozenset[str]]:
    # Read only after an unknown key was found.
    found: dict[str, list[str]] = {}
    for line in TABLE.read_text("ascii").splitlines():
        if line.startswith("["):
            names = found.setdefault(line.strip("[]"), [])
        elif not line.startswith("#"):
            names.append(line)
    return {kind: frozenset(names) for kind, names in found.items()}
