"""Appends to one partition at a constant rate: ``python -m tests.bench.appending BOOTSTRAP TOPIC``.

A process of its own, so that cleanerd's CPU time does not count as latency of this client. It ends with its input, and
prints the largest latencies from ``produce`` to the acknowledgement, with their times, as JSON.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from typing import Any, Final

from confluent_kafka import Producer

RECORDS_PER_SECOND: Final = 300
SHOWN: Final = 5


def main(bootstrap: str, topic: str) -> None:
    """Send until the input ends."""
    latencies: list[tuple[float, float]] = []

    def delivered(error: Any, message: Any) -> None:
        assert error is None, error
        latencies.append((message.latency() * 1000, time.time()))

    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
    begin, number = time.monotonic(), 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        while (left := begin + number / RECORDS_PER_SECOND - time.monotonic()) > 0:
            producer.poll(left)
        producer.produce(topic, key=b"%d" % (number % 200), value=os.urandom(100), partition=0, on_delivery=delivered)
        number += 1
    assert producer.flush(60) == 0
    waits = sorted((latency for latency, _ in latencies), reverse=True)
    reported = {
        "count": len(waits),
        "p99_ms": waits[len(waits) // 100],
        "largest_ms": waits[:SHOWN],
    }
    sys.stdout.write(json.dumps(reported) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
