"""The demonstration's last step: PySpark reads the log directory in a separate process, and prints its results."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cleanerd.errors import CleanerdError
from cleanerd_lab.demo.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cleanerd_lab.demo.traffic import AcknowledgedTopic

LINES: Final = """source = spark.read.format("kafka-segments").option("topics", topic)
records = source.option("view", "committed").load(log_dir)
latest = source.option("view", "latest").load(log_dir)
found = {row.offset: (row.key, row.value) for row in records.select("offset", "key", "value").collect()}
newest = {bytes(row.key): row.value for row in latest.select("key", "value").collect()}
"""
"""The code that is shown and run: the records of a topic, and its latest state."""

_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.log.level": "OFF",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.memory": "1g",
}


@dataclass(frozen=True, slots=True)
class SparkRead:
    """One topic as PySpark read it; every count but the first two should be 0. ``seconds``: Spark's start included.

    ``wrong_records``: not acknowledged with this offset, key and value. ``wrong_keys``: keys whose newest value or
    deletion differs from the last acknowledged one.
    """

    topic: str
    records: int
    keys: int
    wrong_records: int
    wrong_keys: int
    seconds: float

    @property
    def good(self) -> bool:
        """Whether everything equals the acknowledged records."""
        return self.records > 0 and self.wrong_records == self.wrong_keys == 0


def can_read() -> bool:
    """Whether ``cleanerd[spark]`` is installed here."""
    return all(importlib.util.find_spec(name) is not None for name in ("pyspark", "pyarrow", "pandas"))


def read_by_spark(log_dir: Path, written: AcknowledgedTopic) -> SparkRead:
    """Run :data:`LINES` on the topic and compare the results with the acknowledged records.

    Raises:
        CleanerdError: it did not complete.
    """
    started = time.monotonic()
    inherited = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", **os.environ}
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__, str(log_dir), written.topic],
            capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False, env=inherited,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise CleanerdError(f"PySpark did not answer in {PATIENCE_SECONDS:.0f} seconds", where=written.topic) from error
    if done.returncode != 0:
        raise CleanerdError(f"PySpark ended with exit code {done.returncode}:\n{done.stderr}", where=written.topic)
    summary = json.loads(done.stdout.splitlines()[-1])
    return compared(written, summary["found"], summary["newest"], seconds=time.monotonic() - started)


def compared(
    written: AcknowledgedTopic, found: Mapping[str, Any], newest: Mapping[str, str], *, seconds: float = 0.0
) -> SparkRead:
    """Compare the results, by offset and by key, as hexadecimal text, with the acknowledged records."""
    expected = {key.hex(): value.hex() for key, value in written.last_values().items() if value is not None}
    acknowledged = {
        str(offset): [key.hex(), None if value is None else value.hex()]
        for offset, (key, value) in written.records.items()
    }
    return SparkRead(
        topic=written.topic,
        records=len(found),
        keys=len(newest),
        wrong_records=sum(acknowledged.get(offset) != record for offset, record in found.items()),
        wrong_keys=sum(expected.get(key) != newest.get(key) for key in expected.keys() | newest.keys()),
        seconds=seconds,
    )


def main(log_dir: str, topic: str) -> None:
    """Run :data:`LINES` and print the results, as one line of JSON."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - only this process has it

    builder = SparkSession.builder.master("local[2]").appName("cleanerd demo")
    for key, value in _SETTINGS.items():
        builder = builder.config(key, value)
    names: dict[str, Any] = {"spark": builder.getOrCreate(), "log_dir": log_dir, "topic": topic}
    exec(LINES, names)  # noqa: S102 - our own: so what is shown is what runs

    def text(value: bytes | None) -> str | None:
        return None if value is None else bytes(value).hex()

    summary = {
        "found": {offset: [text(key), text(value)] for offset, (key, value) in names["found"].items()},
        "newest": {text(key): text(value) for key, value in names["newest"].items()},
    }
    print(json.dumps(summary))  # noqa: T201
    names["spark"].stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
