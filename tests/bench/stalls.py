"""When the machine itself stood still: ``python -m tests.bench.stalls CORE``.

A thread that comes before all others of its core asks to be woken every millisecond. Where it is woken late the core
did not run at all, for nobody: the host had given it to another guest. It ends when its input does, and prints these
spans as JSON, in microseconds of the monotonic clock, which is that of a JVM's ``nanoTime`` too.
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
    with contextlib.suppress(PermissionError):  # else the spans in which others had the core are among them
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
