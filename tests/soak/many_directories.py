"""A short soak: one ``cleanerd run`` beside many log directories with many small partitions, without a real broker.

Leaks per scan, directory or cleaning show within two minutes if there are many of them; the long soak has two
directories and thirty partitions. The brokers are stand-ins (``FakeAgent``), so a cleaning costs almost nothing and
dozens happen per second.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.daemon.process import Daemon
from tests.daemon.service import assignments
from tests.soak.samples import Samples, of_daemon, of_view
from tests.soak.verdict import Check, Row, below, failing, flat, per_second, reported, table
from tests.support.fake_agent import FakeAgent
from tests.support.log_dirs import Partition, make_log_dir, write_segment
from tests.swap.live_round import held
from tests.swap.offline_round import batch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

DIRECTORIES: Final = 6
PARTITIONS: Final = 25
PERIOD_SECONDS: Final = 1.0
WARM_SECONDS: Final = 20.0
"""By then every partition was cleaned once, and the daemon's modules are loaded."""

PAUSE_SECONDS: Final = 0.03
MEMORY_MIB: Final = 8.0


class GrowingBroker(FakeAgent):
    """One log directory whose partitions sometimes get a segment."""

    def __init__(self, log_dir: Path) -> None:
        super().__init__(
            log_dir, log_dir / ".cleanerd-agent.sock", settings={"min.cleanable.dirty.ratio": "0.2"}, held_us=5
        )
        names = [f"orders-{number}" for number in range(PARTITIONS)]
        make_log_dir(
            log_dir,
            {name: Partition({0: batch(0, ("a", "1"), ("b", "1")), 2: b""}) for name in names},
            clean_shutdown=False,
        )
        self.ends = dict.fromkeys(names, 2)

    def do_log(self, request: dict[str, Any]) -> dict[str, Any]:
        """All written records are flushed and committed."""
        end = self.ends[f"{request['topic']}-{request['partition']}"]
        markers = dict.fromkeys(("hw", "lso", "leo", "recovery_point"), end)
        return {**super().do_log(request), **markers}

    def grow(self, name: str) -> None:
        """Two more records of the same keys, in a segment that ends with them."""
        path, end = self.log_dir / name, self.ends[name]
        write_segment(path, end, batch(end, ("a", str(end)), ("b", str(end))))
        write_segment(path, end + 2, b"")
        self.ends[name] = end + 2


class Traffic:
    """The partitions grow in turn, one of every directory at a time."""

    def __init__(self, brokers: list[GrowingBroker]) -> None:
        self._brokers = brokers
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _write(self) -> None:
        while True:
            for number in range(PARTITIONS):
                for broker in self._brokers:
                    if self._ended.wait(PAUSE_SECONDS):
                        return
                    broker.grow(f"orders-{number}")


@dataclass
class ManyDirectories:
    """One run below ``base``. ``prefix``: the words before the daemon's command."""

    seconds: float
    base: Path
    prefix: Sequence[str] = ()
    samples: Samples = field(default_factory=Samples)
    checks: list[Check] = field(default_factory=list)

    def run(self) -> list[Row]:
        """The rows of the table; also fills ``checks``."""
        with contextlib.ExitStack() as stack:
            brokers = [GrowingBroker(self.base / f"disk{number}") for number in range(DIRECTORIES)]
            for broker in brokers:
                stack.enter_context(held(broker.log_dir))
                stack.enter_context(broker)
            settings = assignments(*(broker.log_dir for broker in brokers), log_cleaner_threads="2")
            daemon = stack.enter_context(Daemon(settings, self.base, prefix=self.prefix))
            daemon.until("ready", lambda view: view["ready"])
            with Traffic(brokers):
                self._sample(daemon)
            code = daemon.end(signal.SIGTERM)
            log = daemon.log.read_text()
        self.checks.append(Check("SIGTERM", f"exit code {code}", ok=code == 143))
        self.checks.append(Check("its log", f"{log.count(chr(10))} lines", ok="Traceback" not in log))
        return self._rows()

    def _sample(self, daemon: Daemon) -> None:
        began = time.monotonic()
        while (at := time.monotonic() - began) < WARM_SECONDS + self.seconds:
            view = daemon.ask("status")
            if at >= WARM_SECONDS:
                self.samples.add(at, of_view(view, {"orders"}))
                self.samples.add(at, of_daemon(daemon.process.pid, self.base, self.base / "state"))
            time.sleep(PERIOD_SECONDS)

    def _rows(self) -> list[Row]:
        series = self.samples.series
        rows = [flat(name, series[name], MEMORY_MIB) for name in ("resident MiB", "anonymous MiB")]
        # Workers and scans open and close files, so the number varies from moment to moment.
        rows += [flat("descriptors", series["descriptors"], 3), flat("threads", series["threads"], 1)]
        rows += [flat("inotify watches", series["inotify watches"], 0)]
        rows += [flat("files in the state directory", series["files in the state directory"], 2)]
        rows += [
            below(name, series[name], 0) for name in ("quarantined but for the planted", "dead workers", "not healthy")
        ]
        rows += [reported("cores", per_second(series["CPU seconds"])), reported("cleanings", series["cleanings"])]
        return rows


def main() -> int:
    """``python -m tests.soak.many_directories [--seconds N] [--inside FILE [--traced]]``: the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--inside", default="", help="a file for the daemon's own figures (tests/soak/measured.py)")
    parser.add_argument("--traced", action="store_true", help="with tracemalloc: several times slower")
    options = parser.parse_args()
    inside = (sys.executable, "-m", "tests.soak.measured", options.inside, "1" if options.traced else "0")
    with tempfile.TemporaryDirectory(prefix="soak-") as base:
        soak = ManyDirectories(options.seconds, Path(base), inside if options.inside else ())
        rows = soak.run()
    table(rows, soak.checks, lambda line: sys.stdout.write(f"{line}\n"))
    return int(bool(failing([*rows, *soak.checks])))


if __name__ == "__main__":
    sys.exit(main())
