"""Effect of swaps on a producer: its latency without and with them, six rounds of both in turn.

One client sends at a constant rate to the partitions that are cleaned, with acks=all. Latencies are librdkafka's own,
from ``produce`` to the acknowledgement. Broker, client and cleanerd share the machine, so cleanerd's CPU use is in the
figures.

Environment: ``BENCH_ROUNDS`` (default 6), ``BENCH_SECONDS`` of every half of a round (default 15).
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest
from confluent_kafka import Producer

from tests.live.load import create_topics
from tests.live.rounds import with_agent

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd_lab.demo.broker import Broker
    from tests.kafka.fixtures import StartBroker

ROUNDS: Final = int(os.environ.get("BENCH_ROUNDS", "6"))
SECONDS: Final = float(os.environ.get("BENCH_SECONDS", "15"))
PARTITIONS: Final = 4
KEYS: Final = 200
VALUE_BYTES: Final = 500
RECORDS_PER_SECOND: Final = 500
PERCENTILES: Final = (50.0, 99.0, 99.9)
MOST_TIMES: Final = 5
"""Permitted ratio of latencies with and without swaps: a smaller difference is lost in the noise of a small machine."""


@dataclass(frozen=True, slots=True)
class Half:
    """Latencies in ms at PERCENTILES, and the number of groups swapped meanwhile."""

    percentiles: tuple[float, ...]
    swaps: int
    held_ms: float


def send(broker: Broker, seconds: float) -> list[float]:
    """Send records at a constant rate; returns their latencies in ms."""
    latencies: list[float] = []

    def delivered(error: Any, message: Any) -> None:
        assert error is None, error
        latencies.append(message.latency() * 1000)

    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all", "linger.ms": 0})
    value = os.urandom(VALUE_BYTES)
    begin = time.monotonic()
    for number in range(int(seconds * RECORDS_PER_SECOND)):
        while (left := begin + number / RECORDS_PER_SECOND - time.monotonic()) > 0:
            producer.poll(left)
        partition, key = number % PARTITIONS, b"%d" % (number * 7919 % KEYS)
        producer.produce("latency", key=key, value=value, partition=partition, on_delivery=delivered)
    assert producer.flush(30) == 0
    return latencies


def half(broker: Broker, state: Path, *, swapping: bool) -> Half:
    """One half of a round."""
    reported: dict[str, Any] = {"swaps": 0, "held_seconds": 0.0, "problems": []}
    if swapping:
        command = [sys.executable, "-m", "tests.bench.swapping", state, *broker.log_dirs]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            time.sleep(2)  # its start is not measured
            latencies = send(broker, SECONDS)
            reported = json.loads(process.communicate(timeout=60)[0])
    else:
        time.sleep(2)
        latencies = send(broker, SECONDS)
    assert reported["problems"] == []
    found = tuple(float(value) for value in np.percentile(latencies, PERCENTILES))
    return Half(found, reported["swaps"], reported["held_seconds"] * 1000)


@pytest.mark.bench
@pytest.mark.kafka
@pytest.mark.broker
@pytest.mark.timeout(900)
def test_produce_latency(broker_43: StartBroker, tmp_path: Path) -> None:
    """Medians of p50, p99 and p99.9 over the rounds; the table goes into docs/performance.md."""
    broker = broker_43(jvm_args=with_agent())
    create_topics(broker, ["latency"], partitions=PARTITIONS, segment_bytes=50_000)
    send(broker, SECONDS)  # a JVM that is warm
    half(broker, tmp_path / "state", swapping=True)
    rounds: list[dict[bool, Half]] = []
    for number in range(ROUNDS):
        order = (False, True) if number % 2 == 0 else (True, False)
        rounds.append({swapping: half(broker, tmp_path / "state", swapping=swapping) for swapping in order})
    swaps = sum(each[True].swaps for each in rounds)
    medians = {
        swapping: [statistics.median(each[swapping].percentiles[row] for each in rounds) for row in range(3)]
        for swapping in (False, True)
    }
    print("\n| produce latency, acks=all | p50 | p99 | p99.9 |\n|---|---|---|---|")  # noqa: T201 - the result
    for swapping, name in ((False, "without swaps"), (True, f"{swaps / ROUNDS / SECONDS:.1f} swaps a second")):
        print(f"| {name} | " + " | ".join(f"{value:.1f} ms" for value in medians[swapping]) + " |")  # noqa: T201
    held = max(each[True].held_ms for each in rounds)
    print(f"{swaps} swaps in {ROUNDS} rounds of {SECONDS:g} s; appends waited {held:.1f} ms at most")  # noqa: T201
    for each in rounds:
        print({name: [round(p, 1) for p in each[key].percentiles] for key, name in ((False, "-"), (True, "+"))})  # noqa: T201
    assert swaps >= ROUNDS * SECONDS, "U-26: at least one a second"
    assert all(with_ <= MOST_TIMES * without for without, with_ in zip(medians[False], medians[True], strict=True))
