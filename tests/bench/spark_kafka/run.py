"""``make bench-kafka-source``: speed of reading segments compared with Spark's ``kafka`` source and its broker.

A broker gets a topic of two partitions, records of 128 bytes with a header, uncompressed; one session with two cores
reads it by both sources in turns, and the log is warm for both. Needs a release of Spark with an available connector:
that and its pyspark are fetched. ``BENCH_KAFKA_SOURCE_MIB`` (256), ``BENCH_KAFKA_SOURCE_ROUNDS`` (5). The exit code is
1 below the goal, which is one of throughput: run it on an idle machine.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import TYPE_CHECKING, Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from cleanerd_lab.demo.broker import Broker
from tests.bench.spark_kafka.measure import TOPIC
from tests.compatibility.page import TOP
from tests.compatibility.spark import environment_of, install, interpreter
from tests.kafka.judge import fetch_jars
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MIB: Final = 1 << 20
SIZE_BYTES: Final = int(os.environ.get("BENCH_KAFKA_SOURCE_MIB", "256")) * MIB
ROUNDS: Final = int(os.environ.get("BENCH_KAFKA_SOURCE_ROUNDS", "5"))
RECORD_BYTES: Final = 128
LEAST: Final = 3.0
"""Required speed-up in elapsed time, by the best round of every."""
PYTHON: Final = "3.11"
_POM: Final = Path(__file__).with_name("pom.xml")
_SETTINGS: Final = {"replica.high.watermark.checkpoint.interval.ms": "200", "log.segment.bytes": str(128 * MIB)}


def release() -> str:
    """The release of Spark whose connector the pom names."""
    found = ET.parse(_POM).getroot().find(".//{*}spark.version")  # noqa: S314 - ours
    assert found is not None
    return str(found.text)


def jars(version: str) -> Path:
    """The connector's jars, fetched if necessary."""
    place = TOP / ".cache" / "spark" / f"kafka-{version}"
    if not any(place.glob("spark-sql-kafka-*.jar")):
        call = ["mvn", "-q", "-B", "-f", _POM, "dependency:copy-dependencies", f"-DoutputDirectory={place}"]
        subprocess.run(call, check=True)
    return place


def produce(bootstrap: str) -> int:
    """Fill the topic; returns its number of records."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(PATIENCE_SECONDS)
    producer = Producer({
        "bootstrap.servers": bootstrap, "linger.ms": 50, "batch.num.messages": 64,
        "queue.buffering.max.messages": 200_000,
    })  # fmt: skip
    pick = random.Random(1)
    count = SIZE_BYTES // RECORD_BYTES
    value = pick.randbytes(RECORD_BYTES * 1024)
    for number in range(count):
        at = number % 1000
        while True:
            try:
                producer.produce(
                    TOPIC,
                    value[at : at + 80],
                    b"%016d" % (number // 2),
                    partition=number % 2,
                    headers=[("v", b"%08d" % at)],
                )
                break
            except BufferError:
                producer.poll(0.1)
        if at == 0:
            producer.poll(0)
    producer.flush(PATIENCE_SECONDS)
    return count


def wait_until_known(log_dir: Path, count: int) -> None:
    """Wait until the broker's checkpoint shows all of it as acknowledged."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        lines = (log_dir / "replication-offset-checkpoint").read_text().splitlines()
        if sum(int(line.split()[2]) for line in lines if line.startswith(f"{TOPIC} ")) == count:
            return
        assert time.monotonic() < deadline, "the checkpoint does not reach the produced records"
        time.sleep(0.1)


def verdict(seconds: Mapping[str, Sequence[float]], cpu: Mapping[str, Sequence[float]]) -> tuple[str, bool]:
    """The summary of the rounds, and whether the goal is reached: throughput of the best round; CPU does not count.

    Both arguments: by source, of all rounds.
    """
    quick, less = (min(found["kafka"]) / min(found["kafka-segments"]) for found in (seconds, cpu))
    first = seconds["kafka"][0] / seconds["kafka-segments"][0]
    text = (
        f"kafka-segments is {quick:.1f} times as quick by the best round (goal {LEAST:g}), {first:.1f} by the first; "
    )
    return f"{text}{less:.1f} times less CPU", quick >= LEAST


def main() -> int:
    """Produce, read in turns, report."""
    version, base = release(), interpreter(PYTHON)
    assert base is not None, f"no Python {PYTHON} here"
    python = environment_of(PYTHON, base)
    install(python, f"pyspark=={version}")
    connector = jars(version)
    kafka = fetch_jars("4.3")
    with (
        tempfile.TemporaryDirectory(prefix="kafka-source-") as place,
        Broker(kafka.libs, Path(place), version=kafka.version, properties=_SETTINGS) as broker,
    ):
        count = produce(broker.bootstrap)
        (log_dir,) = broker.log_dirs
        wait_until_known(log_dir, count)
        size_mib = sum(file.stat().st_size for file in log_dir.glob(f"{TOPIC}-*/*.log")) / MIB
        given = [connector, broker.bootstrap, str(broker.pid), log_dir, str(ROUNDS)]
        call = [python, "-m", "tests.bench.spark_kafka.measure", *given]
        reported = subprocess.run(call, stdout=subprocess.PIPE, text=True, check=True, cwd=TOP).stdout
    found = json.loads(reported.splitlines()[-1])
    assert found["sums"]["kafka"] == found["sums"]["kafka-segments"], found["sums"]
    assert found["sums"]["kafka"][0] == str(count)
    sys.stdout.write(
        f"Spark {found['spark']}, two cores, {count:,} records, {size_mib:.0f} MiB, load {os.getloadavg()[0]:.1f}\n"
    )
    for name, seconds in found["seconds"].items():
        rounds = " ".join(f"{size_mib / each:.0f}" for each in seconds)
        used = " ".join(f"{each:.1f}" for each in found["cpu"][name])
        sys.stdout.write(f"{name:15} {rounds} MiB/s; CPU seconds, with the broker's: {used}\n")
    text, reached = verdict(found["seconds"], found["cpu"])
    sys.stdout.write(f"{text}\n")
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
