"""``make soak``: one ``cleanerd run`` beside a broker of 4.3 with the agent, 30 partitions, all kinds of clients.

``SOAK_MINUTES`` (default 15). Every five seconds it measures the daemon and the broker. At the end a table shows which
figures grew, and the exit codes of the daemon and ``cleanerd verify``. The exit code is 1 if a row is not as wanted.
``SOAK_KEEP``: a directory for the samples and the daemon's log.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cleanerd_lab.demo.ports import free_port
from tests.brokers.node import cleanerd, errors, wait_until
from tests.daemon.process import Daemon
from tests.kafka.fixtures import brokers
from tests.live.load import WRITINGS, Load, create_topics
from tests.live.rounds import with_agent
from tests.soak.samples import Samples, of_broker, of_daemon, of_view
from tests.soak.verdict import Check, Row, after, below, failing, flat, per_second, reported, table
from tests.soak.visitors import Visitors

if TYPE_CHECKING:
    from collections.abc import Callable

    from cleanerd_lab.demo.broker import Broker

PARTITIONS: Final = 6
PERIOD_SECONDS: Final = 5.0
TOPICS: Final = frozenset(writing.topic for writing in WRITINGS)
_kafka = contextlib.contextmanager(brokers)

PROPERTIES: Final = {
    "log.segment.delete.delay.ms": "500",
    # Once per hour by default: from then on the daemon reads the cluster's metadata in a different way.
    "metadata.log.max.snapshot.interval.ms": "60000",
}


@dataclass
class Soak:
    """One run. ``write`` gets progress lines."""

    minutes: float
    base: Path
    write: Callable[[str], object]
    samples: Samples = field(default_factory=Samples)
    checks: list[Check] = field(default_factory=list)

    def run(self) -> list[Row]:
        """The rows of the table; also fills ``checks``."""
        with _kafka("4.3") as start:
            broker = start(log_dirs=2, jvm_args=with_agent(), properties=PROPERTIES)
            port = free_port()
            config = self.base / "cleanerd.toml"
            config.write_text('"log.cleaner.threads" = 2\n')
            # Markers expire after a minute: otherwise clean sections would always grow, and with them the allowed dirty
            # sections.
            create_topics(
                broker,
                sorted(TOPICS),
                partitions=PARTITIONS,
                max_compaction_lag_ms="120000",
                delete_retention_ms="60000",
            )
            load = Load(broker, partitions=PARTITIONS)
            with Daemon(self._settings(broker, port), self.base, config=config) as daemon:
                daemon.until("ready", lambda view: view["ready"])
                with load, Visitors(daemon, broker, port, config) as visitors:
                    self._sample(daemon, broker, visitors)
                self._judge_clients(load, visitors)
                self._end(daemon)
            self._judge_leftovers(broker)
        return self._rows(visitors)

    def _settings(self, broker: Broker, port: int) -> list[str]:
        """As on a host; the topics' ratio of 1 does not apply to cleanerd (U-9)."""
        return [
            "cleanerd.mode=auto",
            f"cleanerd.broker.properties={broker.properties_file}",
            f"cleanerd.state.dir={self.base / 'state'}",
            f"cleanerd.control.socket={self.base / 'control.sock'}",
            f"cleanerd.http.listen=127.0.0.1:{port}",
            "cleanerd.disk.reserve=0",
            "log.cleaner.backoff.ms=1s",
            "topics.*.min.cleanable.dirty.ratio=0.3",
        ]

    def _sample(self, daemon: Daemon, broker: Broker, visitors: Visitors) -> None:
        began = time.monotonic()
        next_at = began
        while (at := time.monotonic() - began) < self.minutes * 60:
            view = daemon.ask("status")
            assert daemon.process.poll() is None, daemon.log.read_text()[-3000:]
            self.samples.add(at, of_view(view, TOPICS))
            self.samples.add(at, of_daemon(daemon.process.pid, self.base, self.base / "state"))
            # Hanging clients become more in the first minutes, until as many are closed as arrive.
            own = self.samples.series["descriptors"][-1][1] - visitors.hanging
            self.samples.add(at, {"descriptors but for hanging clients": own})
            self.samples.add(at, of_broker(broker.pid))
            self.samples.add(at, {"load of the host": os.getloadavg()[0]})
            if int(at // 60) > int((at - PERIOD_SECONDS) // 60):
                self._print_progress(at)
            next_at += PERIOD_SECONDS
            time.sleep(max(0.0, next_at - time.monotonic()))

    def _print_progress(self, at_seconds: float) -> None:
        wanted = ("anonymous MiB", "descriptors", "threads", "swaps", "backlog KiB", "overdue partitions")
        figures = ", ".join(f"{name} {self.samples.series[name][-1][1]:.0f}" for name in wanted)
        self.write(f"{at_seconds / 60:4.0f} min: {figures}")

    # -- checks made once ---------------------------------------------------------------------------------------------

    def _check(self, name: str, reported_so: str, *, ok: bool) -> None:
        self.checks.append(Check(name, reported_so, ok))

    def _judge_clients(self, load: Load, visitors: Visitors) -> None:
        try:
            load.check()
        except AssertionError as problem:
            self._check("clients of the broker", str(problem), ok=False)
        else:
            message = f"{load.ledger.count:,} records acknowledged, {load.full_reads} full reads, no error"
            self._check("clients of the broker", message, ok=True)
        came = ", ".join(f"{count} {name}" for name, count in visitors.counts.items())
        self._check("visitors", "; ".join([came, *visitors.problems[:5]]), ok=not visitors.problems)
        idle = [name for name, count in visitors.counts.items() if count == 0]
        self._check("all visitors came", ", ".join(idle) or "yes", ok=not idle)

    def _end(self, daemon: Daemon) -> None:
        began = time.monotonic()
        code = daemon.end(signal.SIGTERM)
        self._check("SIGTERM", f"exit code {code} after {time.monotonic() - began:.1f} s", ok=code == 143)
        log = daemon.log.read_text()
        self._check("its log", f"{log.count(chr(10))} lines", ok="Traceback" not in log and "[error" not in log)

    def _judge_leftovers(self, broker: Broker) -> None:
        names = (".kstage", ".swap", ".cleaned", ".deleted")
        left: list[str] = []

        def nothing_is_left() -> bool:
            left[:] = [str(p) for d in broker.log_dirs for p in d.glob("*-*/*") if p.name.endswith(names)]
            return not left

        with contextlib.suppress(AssertionError):  # the check reports the names
            wait_until("deleted", nothing_is_left)
        left += [str(p) for p in self.base.rglob("*") if p.name.endswith((".tmp", ".sock", ".damaged"))]
        self._check("leftover files", ", ".join(left[:5]) or "nothing", ok=not left)
        broker.stop()
        found = errors(broker.log_text())
        self._check("the broker's log", "; ".join(found) or "no error", ok=not found)
        verified = cleanerd("verify", broker.log_dirs, self.base / "state")
        self._check("cleanerd verify", f"exit code {verified.exit_code}", ok=verified.exit_code == 0)

    # -- the results --------------------------------------------------------------------------------------------------

    def _rows(self, visitors: Visitors) -> list[Row]:
        series = self.samples.series
        # a daemon that has run for two minutes still fills its history
        memory_mib = 4.0 if self.minutes >= 10 else 16.0
        rows = [flat(name, series[name], memory_mib) for name in ("resident MiB", "anonymous MiB")]
        # This is a share: it changes when another process with the same libraries starts or ends.
        rows += [reported("proportional MiB", series["proportional MiB"])]
        rows += [reported("descriptors", series["descriptors"])]
        own = "descriptors but for hanging clients"
        rows += [flat(name, series[name], 2) for name in (own, "threads", "inotify watches")]
        rows += [flat("files in the state directory", series["files in the state directory"], 2)]
        rows += [flat("broker: descriptors of files", series["broker: descriptors of files"], 40)]
        others = ("broker: deleted files open", "broker: other descriptors", "broker: threads of the agent")
        rows += [flat(name, series[name], allowance) for name, allowance in zip(others, (20, 3, 3), strict=True)]
        backlog = series["backlog KiB"]
        rows += [flat("backlog KiB", backlog, 200)]
        rows += [below("largest backlog of a partition KiB", series["largest backlog of a partition KiB"], 1024)]
        rows += [below("largest dirty ratio", series["largest dirty ratio"], 0.99)]
        never = "partitions never cleaned"
        rows += [below(never, after(series[never], self.minutes * 30), 0)]
        nothing = ("overdue partitions", "quarantined but for the planted", "dead workers", "not healthy")
        rows += [below(name, series[name], 0) for name in nothing]
        rows += [below("scrape ms", visitors.scrape_ms, 2000)]
        rows += [
            reported("cores", per_second(series["CPU seconds"])),
            reported("swaps a second", per_second(series["swaps"])),
        ]
        rows += [
            reported(name, series[name])
            for name in ("cleanings", "refused swaps", "KiB of its log", "load of the host")
        ]
        return rows


def main() -> int:
    """Run and report."""
    minutes = float(os.environ.get("SOAK_MINUTES", "15"))

    def write(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    with tempfile.TemporaryDirectory(prefix="soak-") as base:
        soak = Soak(minutes, Path(base), write)
        rows = soak.run()
        table(rows, soak.checks, write)
        bad = failing([*rows, *soak.checks])
        write(f"not as wanted: {', '.join(bad)}" if bad else f"all as wanted, {minutes:g} minutes")
        if keep := os.environ.get("SOAK_KEEP"):
            Path(keep).mkdir(parents=True, exist_ok=True)
            shutil.copy(Path(base) / "daemon.log", keep)
            (Path(keep) / "samples.json").write_text(json.dumps(soak.samples.series))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
