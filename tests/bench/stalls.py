"""Detects pauses of the machine itself: ``python -m tests.bench.stalls CORE``.

A thread with the highest priority on its core asks to be woken every millisecond. If it is woken late, the core did not
run at all: the host had given it to another guest. It ends with its input, and prints these spans as JSON, in
microseconds of the monotonic clock, which is also that of a JVM's ``nanoTime``.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
import time
from typing import Final

EVERY_US: Final = 1000
LATE_US: Final = 500


def main(core: int) -> None:
    """Watch until the input ends."""
    os.sched_setaffinity(0, {core})
    with contextlib.suppress(PermissionError):  # otherwise spans in which other processes had the core are included
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
    spans: list[tuple[int, int]] = []
    before = time.monotonic_ns() // 1000
    while not select.select([sys.stdin], [], [], EVERY_US / 1e6)[0]:
        now = time.monotonic_ns() // 1000
        if now - before > EVERY_US + LATE_US:
            spans.append((before + EVERY_US, now))
        before = now
    sys.stdout.write(json.dumps(spans) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
