"""``cleanerd run`` as a separate process, as systemd starts it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from cleanerd.daemon.control_client import send_request
from cleanerd.errors import CleanerdError
from tests.support.log_dirs import Partition
from tests.support.logs import keyed_batch
from tests.support.patience import PATIENCE_SECONDS
from tests.swap.offline_round import NOW

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import TracebackType


@dataclass
class Daemon:
    """A daemon process, which ends with the block. Its log goes to ``log``; ``prefix``: the command words before it."""

    settings: Sequence[str]
    base: Path
    environ: dict[str, str] = field(default_factory=dict)
    config: Path | None = None
    prefix: Sequence[str] = ()

    @property
    def log(self) -> Path:
        """The daemon's log."""
        return self.base / "daemon.log"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def start(self) -> None:
        """Begin, and do not wait."""
        config = [] if self.config is None else ["--config", str(self.config)]
        options = [word for each in self.settings for word in ("--set", each)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.prefix, sys.executable, "-m", "cleanerd", "run", *config, *options],
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environ},
            )

    def end(self, number: signal.Signals) -> int:
        """Send a signal and wait for the exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_SECONDS)

    def ask(self, operation: str, **values: Any) -> dict[str, Any]:
        """Over the control socket."""
        return send_request(self.base / "control.sock", operation, **values)

    def until(
        self, what: str, holds: Callable[[dict[str, Any]], bool], seconds: float = PATIENCE_SECONDS
    ) -> dict[str, Any]:
        """Wait until the status fulfills the condition, and return it."""
        deadline = time.monotonic() + seconds
        while True:
            assert self.process.poll() is None, self.log.read_text()
            try:
                view = self.ask("status")
                if holds(view):
                    return view
            except CleanerdError:
                pass  # it does not listen yet
            assert time.monotonic() < deadline, (what, self.log.read_text())
            time.sleep(0.02)


def large(segments: int = 8, batches: int = 40) -> Partition:
    """Every segment is rewritten: half of its keys are written again in the next one."""
    logs: dict[int, bytes] = {}
    offset = 0
    for number in range(segments):
        base, data = offset, b""
        for each in range(batches):
            data += keyed_batch(
                offset,
                ((f"k{each}", "x" * 900 + str(number)), (f"only-{number}-{each}", "y" * 900)),
                timestamp=NOW - 1000,
            )
            offset += 2
        logs[base] = data
    return Partition({**logs, offset: b""})


def newest(root: Path, name: str) -> dict[bytes | None, bytes | None]:
    return {key: value for _, key, value in content_of(root, name)}


def content_of(root: Path, name: str) -> list[tuple[int, bytes | None, bytes | None]]:
    from tests.support.log_dirs import read_segments  # noqa: PLC0415

    batches = (batch for found in read_segments(root / name).values() for batch in found)
    return [(record.offset, record.key, record.value) for batch in batches for record in batch.records]


def leftovers(root: Path) -> list[str]:
    return sorted(str(p) for p in root.rglob("*") if p.name.endswith((".kstage", ".swap", ".cleaned", ".tmp")))


def is_done(view: dict[str, Any]) -> bool:
    return view["ready"] and all(p["dirty_bytes"] == 0 and p["state"] == "idle" for p in view["partitions"])
