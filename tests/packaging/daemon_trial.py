"""An installed daemon, started and queried as by an operator."""

from __future__ import annotations

import re
import signal
import subprocess
import time
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING

from cleanerd_lab.demo.ports import free_port
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path


def try_daemon(program: Path, environment: dict[str, str], logs: Path, tmp_path: Path) -> None:
    """Start the daemon and load its page with all files that the page requests."""
    page = f"http://127.0.0.1:{(port := free_port())}"
    environment = {
        **environment,
        "STATE_DIRECTORY": str(tmp_path / "state"),
        "CLEANERD_CLEANERD_LOG_DIRS": str(logs),
        "CLEANERD_CLEANERD_MODE": "observe",
        "CLEANERD_CLEANERD_HTTP_LISTEN": f"127.0.0.1:{port}",
    }
    with subprocess.Popen([program, "run"], env=environment, cwd=tmp_path) as daemon:
        try:
            deadline = time.monotonic() + PATIENCE_SECONDS
            while not _answers(f"{page}/readyz"):
                assert time.monotonic() < deadline
                assert daemon.poll() is None
                time.sleep(0.2)
            with urllib.request.urlopen(f"{page}/", timeout=PATIENCE_SECONDS) as answer:  # noqa: S310 - our own
                html = answer.read().decode()
            parts = re.findall(r'(?:src|href)="([^":#]+)"', html)
            assert any(part.endswith(".js") for part in parts)
            assert [part for part in parts if not _answers(urllib.parse.urljoin(f"{page}/", part))] == []
            assert subprocess.run([program, "status", "--quiet"], env=environment, check=False).returncode == 0
        finally:
            daemon.terminate()
    assert daemon.returncode == 128 + signal.SIGTERM


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS) as answer:  # noqa: S310 - our own
            return bool(answer.status == 200)
    except OSError:
        return False
