"""Prometheus' own checker of metrics and rules, from tools/install-tools.sh. A missing one is an error, not a skip."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
_FETCHED = ROOT / ".cache" / "prometheus" / "usr" / "bin" / "promtool"
DASHBOARD = ROOT / "config" / "grafana" / "cleanerd.json"


def promtool(*arguments: str, stdin: bytes | None = None) -> tuple[int, str]:
    """Run promtool; returns its exit code and all output."""
    found = shutil.which("promtool") or str(_FETCHED)
    done = subprocess.run(
        [found, *arguments], input=stdin, capture_output=True, timeout=PATIENCE_SECONDS, check=False, cwd=ROOT
    )
    return done.returncode, (done.stdout + done.stderr).decode()


if __name__ == "__main__":
    code, message = promtool(*sys.argv[1:])
    sys.stdout.write(message)
    sys.exit(code)


def panels() -> Iterator[dict[str, Any]]:
    for panel in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]:
        yield panel
        yield from panel.get("panels", ())
