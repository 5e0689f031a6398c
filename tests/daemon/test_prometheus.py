"""A real Prometheus scrapes a real daemon: it accepts every sample, and our rules and panels work on them."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

import pytest

from cleanerd_lab.demo.ports import free_port
from tests.daemon.process import Daemon
from tests.daemon.prometheus import Prometheus
from tests.daemon.promtool import panels
from tests.daemon.service import assignments, broker
from tests.support.log_dirs import Partition
from tests.swap.offline_round import batch, two_groups

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.long


def expressions() -> list[str]:
    """The expressions of the dashboard, with values for Grafana's variables."""
    found = [target["expr"] for panel in panels() for target in panel.get("targets", ())]
    plain = [re.sub(r"\$__(range|rate_interval)", "1m", each) for each in found]
    return [each.replace("$job", ".*").replace("$instance", ".*") for each in plain]


def health(prometheus: Prometheus) -> tuple[str, str]:
    """The health of the last scrape."""
    (target,) = prometheus.ask("targets")["activeTargets"]
    return target["health"], target["lastError"]


def test_scraped_evaluated_and_alerted(root: Path, tmp_path: Path) -> None:
    """Every sample is accepted, every rule and panel evaluates without error; a quarantine and an absence fire."""
    bad = Partition({0: batch(0, ("a", "1"), ("a", "2")), 2: batch(2, ("a", "3")), 3: b""})
    port = free_port()
    with broker(root, {"orders-0": two_groups(), "orders-1": bad}):
        log = root / "orders-1" / f"{0:020d}.log"
        sound = log.read_bytes()
        log.write_bytes(sound[:-5] + b"\xff\xff\xff\xff\xff")
        settings = [each for each in assignments(root) if not each.startswith("cleanerd.http.listen")]
        settings += [f"cleanerd.http.listen=127.0.0.1:{port}", "cleanerd.retry.backoff.ms=300"]
        with (
            Daemon(settings, root.parent) as daemon,
            Prometheus(tmp_path / "prometheus", port) as prometheus,
        ):
            prometheus.until("it is scraped", lambda: prometheus.values("up") == [1.0])
            # A scrape of more than a second is due to the machine, not to us.
            prometheus.until("no error", lambda: health(prometheus) == ("up", ""))
            prometheus.until("all of it", lambda: any(n > 50 for n in prometheus.values("scrape_samples_scraped")))
            prometheus.until("quarantine", lambda: prometheus.alerts().get("CleanerdQuarantine") == "firing")
            cleaned = 'cleanerd_cleanings_total{outcome="cleaned"}'
            prometheus.until("the other is cleaned", lambda: prometheus.values(cleaned) == [1.0])
            for expression in expressions():
                prometheus.values(expression)
            assert sum(bool(prometheus.values(expression)) for expression in expressions()) > len(expressions()) // 2
            log.write_bytes(sound)
            prometheus.until("it is over", lambda: "CleanerdQuarantine" not in prometheus.alerts())
            prometheus.until("no other alert", lambda: set(prometheus.alerts()) <= {"CleanerdAgentMissing"})
            groups = prometheus.ask("rules")["groups"]
            assert {rule["health"] for group in groups for rule in group["rules"]} == {"ok"}
            assert daemon.end(signal.SIGTERM) == 143
            prometheus.until("down", lambda: prometheus.alerts().get("CleanerdDown") == "firing")
            # Prometheus would have logged every sample that it rejected, with the name of the metric.
            assert "err=" not in prometheus.log().replace('err="context canceled"', "")
