"""Cost of one ``cleanerd run``: until it is ready, when idle, in memory, and for a scrape."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cleanerd_lab.demo.ports import free_port
from tests.bench.sizes import RESULTS
from tests.daemon.process import Daemon
from tests.soak.samples import cpu_seconds, memory_mib

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

SCRAPES: Final = 20
POLL_SECONDS: Final = 0.1
SETTLED_SECONDS: Final = 15.0
"""Time after the last event from which the daemon counts as idle."""


@dataclass(frozen=True, slots=True)
class Running:
    """A daemon that answers; the time and CPU until it was ready."""

    daemon: Daemon
    port: int
    ready_seconds: float
    ready_cpu_seconds: float

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds of the process so far."""
        return cpu_seconds(self.daemon.process.pid)


def compiled() -> dict[str, str]:
    """An environment with compiled modules, as pip and an image provide them.

    Without it each start compiles all modules if ``PYTHONDONTWRITEBYTECODE`` is set, as it is for tests: that takes
    half a second of CPU that no operator pays.
    """
    environ = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(RESULTS / "compiled")}
    subprocess.run([sys.executable, "-c", "import cleanerd.cli.run"], check=True, env={**os.environ, **environ})
    return environ


@contextmanager
def running(base: Path, mode: str, settings: Sequence[str]) -> Iterator[Running]:
    """``cleanerd run`` until it is ready; it ends with the block.

    The poll runs ten times a second: each response takes a millisecond or two, which count in its CPU seconds.
    """
    port, environ = free_port(), compiled()
    daemon = Daemon(
        [
            f"cleanerd.state.dir={base / mode}",
            f"cleanerd.control.socket={base / 'control.sock'}",
            f"cleanerd.http.listen=127.0.0.1:{port}",
            f"cleanerd.mode={mode}",
            "cleanerd.disk.reserve=0",
            "log.cleaner.threads=2",
            *settings,
        ],
        base,
        environ,
    )
    started = time.monotonic()
    with daemon:
        while not is_ready(port):
            assert daemon.process.poll() is None, daemon.log.read_text()
            assert time.monotonic() - started < 300, daemon.log.read_text()[-2000:]
            time.sleep(POLL_SECONDS)
        seconds = time.monotonic() - started
        yield Running(daemon, port, seconds, cpu_seconds(daemon.process.pid))
        assert daemon.end(signal.SIGTERM) == 143


def is_ready(port: int) -> bool:
    """The answer of ``/readyz``."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10) as answer:
            return bool(answer.status == 200)
    except (urllib.error.HTTPError, OSError):
        return False


def idle(live: Running, seconds: float) -> dict[str, float]:
    """When idle: the share of a core, memory at rest, and then the cost of scrapes."""
    time.sleep(SETTLED_SECONDS)
    before = live.cpu_seconds
    time.sleep(seconds)
    found = {
        "idle_core_share": (live.cpu_seconds - before) / seconds,
        "memory_mib": memory_mib(live.daemon.process.pid)["resident MiB"],
    }
    scrapes = [scrape(live.port) for _ in range(SCRAPES)]
    found["scrape_ms"] = statistics.median(each[0] for each in scrapes)
    found["scrape_most_ms"] = max(each[0] for each in scrapes)
    found["scrape_bytes"] = scrapes[0][1]
    return found


def scrape(port: int) -> tuple[float, int]:
    """Milliseconds from the request to the last byte, and number of bytes."""
    started = time.monotonic()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        size = len(answer.read())
    return (time.monotonic() - started) * 1000, size


def reported(found: Mapping[str, float], name: str) -> dict[str, float]:
    """Print the result and keep it in ``NAME.json``; returns the path."""
    rounded = {key: round(value, 4) for key, value in found.items()}
    sys.stdout.write("\n\n" + "".join(f"{key:28}{value:>12}\n" for key, value in rounded.items()))
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(rounded, indent=1) + "\n")
    return rounded
