"""Makes an archive of the classes that a Kafka broker loads: with it a broker starts for half of the CPU time.

The JVM maps such a file instead of reading, parsing and checking thousands of classes (class data sharing, JEP 310).
The broker's behaviour is the same. A JVM ignores an archive that does not fit.

``python -m cleanerd_lab.demo.class_archive LIBS...`` makes those that are missing; ``make setup`` does.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Final

from cleanerd_lab.demo.broker import Broker, BrokerError
from cleanerd_lab.demo.classes import archive_place

_CLIENTS: Final = "kafka-clients-"


def make_archive(libs_dir: Path) -> Path:
    """Start and stop a broker with the jars in ``libs_dir`` and store the classes that it loaded; returns their file.

    Raises:
        BrokerError: the broker did not start or stop.
        OSError: the jars' directory cannot be written.
    """
    place = archive_place(libs_dir.resolve())
    if place.exists():
        return place
    with tempfile.TemporaryDirectory(prefix=".classes-", dir=place.parent) as work:
        new = Path(work) / place.name
        with Broker(libs_dir, Path(work), version=_version_of(libs_dir), jvm_args=_writing(new)):
            pass
        for old in place.parent.glob("classes-*.jsa"):
            old.unlink()
        os.rename(new, place)
    return place


def _writing(file: Path) -> tuple[str, ...]:
    """Options of a JVM that writes its classes at its end. Classes that cannot be archived are not reported."""
    return (f"-XX:ArchiveClassesAtExit={file}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def _version_of(libs_dir: Path) -> str:
    return next(libs_dir.glob(f"{_CLIENTS}[0-9]*.jar")).stem.removeprefix(_CLIENTS)


if __name__ == "__main__":
    for libs in sys.argv[1:]:
        try:
            make_archive(Path(libs))
        except (OSError, BrokerError) as error:
            message = str(error).partition("\n")[0]  # the rest is the broker's log
            sys.stderr.write(f"{libs}: no class archive was made, so its brokers start more slowly: {message}\n")
