"""Read a topic by both sources in turns: ``measure JARS BOOTSTRAP BROKER_PID LOG_DIR ROUNDS``.

Needs an interpreter whose pyspark has a connector. Prints JSON: seconds by source and round, elapsed and of CPU,
including the broker's, and the sums of every read.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

from tests.spark.sessions import start_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC: Final = "orders"
SUMS: Final = ("count(*)", "sum(length(key))", "sum(length(value))", "sum(offset)", "sum(size(headers))")
"""The values that both must return for the topic."""


def frames(session: SparkSession, bootstrap: str, log_dir: str) -> dict[str, DataFrame]:
    """The topic with all columns of ``kafka``, by each source."""
    broker = session.read.format("kafka").options(
        **{"kafka.bootstrap.servers": bootstrap, "kafka.isolation.level": "read_committed"},
        subscribe=TOPIC,
        startingOffsets="earliest",
        endingOffsets="latest",
        includeHeaders="true",
    )
    return {
        "kafka": broker.load(),
        "kafka-segments": session.read.format("kafka-segments").option("topics", TOPIC).load(log_dir),
    }


def cpu_seconds(roots: list[psutil.Process]) -> float:
    """CPU seconds of these processes and their children, ended ones included."""
    found = 0.0
    for process in [each for root in roots for each in (root, *root.children(recursive=True))]:
        try:
            found += sum(process.cpu_times()[:4])
        except psutil.NoSuchProcess:
            continue  # its parent has its time
    return found


def main() -> None:
    """Measure in turns, after both returned the same sums."""
    jars, bootstrap, broker, log_dir, rounds = sys.argv[1:]
    found = ",".join(str(each) for each in sorted(Path(jars).glob("*.jar")))
    # Java's own flags, as for a long session: long reads are measured.
    session = start_session("local[2]", {"spark.driver.memory": "1g", "spark.jars": found})
    both = frames(session, bootstrap, log_dir)
    sums = {name: [str(each) for each in frame.selectExpr(*SUMS).collect()[0]] for name, frame in both.items()}
    seconds: dict[str, list[float]] = {name: [] for name in both}
    cpu: dict[str, list[float]] = {name: [] for name in both}
    counted = [psutil.Process(), psutil.Process(int(broker))]
    for _ in range(int(rounds)):
        for name, frame in both.items():
            began, used = time.monotonic(), cpu_seconds(counted)
            frame.write.format("noop").mode("overwrite").save()
            seconds[name].append(time.monotonic() - began)
            cpu[name].append(cpu_seconds(counted) - used)
    sys.stdout.write(json.dumps({"sums": sums, "seconds": seconds, "cpu": cpu, "spark": session.version}) + "\n")
    session.stop()


if __name__ == "__main__":
    main()
