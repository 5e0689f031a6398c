"""A real Prometheus that scrapes a daemon and evaluates our rules, with shorter waits.

``tools/install-test-tools.sh`` downloads it. A missing Prometheus is an error, not a skip.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from cleanerd_lab.demo.ports import free_port
from tests.daemon.promtool import ROOT
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

RULES = ROOT / "config" / "prometheus" / "cleanerd.rules.yml"
_FETCHED = ROOT / ".cache" / "prometheus" / "usr" / "bin" / "prometheus"


@dataclass
class Prometheus:
    """Scrapes ``127.0.0.1:daemon_port`` every second and writes only below ``folder``. It ends with the block."""

    folder: Path
    daemon_port: int

    def __enter__(self) -> Self:
        self.folder.mkdir()
        # Alerts that wait for minutes wait for seconds here; their expressions are those that we ship.
        rules = re.sub(r"(?m)^( +)for: .*$", r"\1for: 2s", RULES.read_text(encoding="utf-8"))
        (self.folder / RULES.name).write_text(rules, encoding="utf-8")
        config = self.folder / "prometheus.yml"
        config.write_text(
            "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\n"
            f"rule_files: [{self.folder}/*.rules.yml]\n"
            "scrape_configs:\n"
            "  - job_name: cleanerd\n"
            f"    static_configs: [{{targets: ['127.0.0.1:{self.daemon_port}']}}]\n",
            encoding="utf-8",
        )
        self._port = free_port()
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    shutil.which("prometheus") or str(_FETCHED),
                    f"--config.file={config}",
                    f"--storage.tsdb.path={self.folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self._port}",
                ],
                stdout=log,
                stderr=log,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def log(self) -> str:
        """Prometheus's log."""
        return (self.folder / "log").read_text()

    def ask(self, path: str, **parameters: str) -> Any:
        """The ``data`` of an answer of its API."""
        query = f"?{urllib.parse.urlencode(parameters)}" if parameters else ""
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self._port}/api/v1/{path}{query}", timeout=PATIENCE_SECONDS
        ) as answer:
            return json.load(answer)["data"]

    def values(self, expression: str) -> list[float]:
        """The current values of an expression, one per series."""
        return [float(row["value"][1]) for row in self.ask("query", query=expression)["result"]]

    def alerts(self) -> dict[str, str]:
        """The alerts that are pending or firing."""
        return {alert["labels"]["alertname"]: alert["state"] for alert in self.ask("alerts")["alerts"]}

    def until(self, what: str, holds: Callable[[], bool]) -> None:
        """Wait until it does."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            assert self._process.poll() is None, self.log()
            try:
                if holds():
                    return
            except (urllib.error.URLError, OSError):
                pass  # it does not listen yet
            assert time.monotonic() < deadline, (what, self.alerts(), self.ask("targets"), self.log()[-2000:])
            time.sleep(0.1)
