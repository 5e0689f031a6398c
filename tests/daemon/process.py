"""``cleanerd run`` as a process of its own, as systemd starts it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from cleanerd.daemon.asking import ask
from cleanerd.errors import CleanerdError
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import TracebackType


@dataclass
class Daemon:
    """The process; its log goes to ``log``. A block that ends leaves none behind. ``prefix``: the words before it."""

    settings: Sequence[str]
    base: Path
    environ: dict[str, str] = field(default_factory=dict)
    config: Path | None = None
    prefix: Sequence[str] = ()

    @property
    def log(self) -> Path:
        """What it said."""
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
        return ask(self.base / "control.sock", operation, **values)

    def until(
        self, what: str, holds: Callable[[dict[str, Any]], bool], seconds: float = PATIENCE_SECONDS
    ) -> dict[str, Any]:
        """Wait until the status is so; returns it."""
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
