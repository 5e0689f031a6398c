"""Finds the jars of a Kafka release. The package contains none."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cleanerd.errors import ConfigError

LIBS_VARIABLE: Final = "KAFKA_LIBS"
DEFAULT_DIR: Final = Path(".cache") / "kafka"

_MARKER: Final = re.compile(r"kafka-server-common-(\d+\.\d+\.\d+)\.jar")
_HINT: Final = (
    "in a clone of cleanerd run `make setup`; elsewhere unpack a Kafka release and give its directory: "
    "--kafka-libs DIR, or the variable KAFKA_LIBS"
)


@dataclass(frozen=True, slots=True)
class KafkaRelease:
    """A release, such as ``4.3.1``, and the directory with its jars."""

    version: str
    libs_dir: Path


def find_kafka(given: Path | None) -> KafkaRelease:
    """The newest release in ``given``, else in ``$KAFKA_LIBS``, else in ``.cache/kafka``.

    The directory may contain the jars, an unpacked release (``libs/``), or several (``libs-X.Y.Z/``).

    Raises:
        ConfigError: there is none.
    """
    named = os.environ.get(LIBS_VARIABLE)
    place = given or (Path(named) if named else DEFAULT_DIR)
    releases = [
        KafkaRelease(match[1], path.parent.resolve())
        for pattern in ("*.jar", "libs/*.jar", "libs-*/*.jar")
        for path in place.glob(pattern)
        if (match := _MARKER.fullmatch(path.name))
    ]
    if not releases:
        raise ConfigError("has no jars of a Kafka release", where=str(place), hint=_HINT)
    return max(releases, key=lambda release: tuple(int(number) for number in release.version.split(".")))
