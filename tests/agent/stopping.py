"""Requests that stop at named moments of the agent's work, in a build made for that (``building.py``)."""

from __future__ import annotations

import shutil
import tempfile
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from cleanerd_lab.demo.broker import Broker
from tests.agent.live import PROPERTIES, Live
from tests.agent.raw_client import RefusedError
from tests.brokers.node import wait_until
from tests.kafka.judge import fetch_jars

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType


@dataclass(slots=True)
class Stopping:
    """A broker whose swaps can be stopped; ``place`` is the directory in which the agent checks whether to stop."""

    live: Live
    place: Path

    def at(self, moment: str, request: dict[str, Any], operation: str = "swap") -> Stopped:
        """A request that stops at ``moment`` until the block ends."""
        return Stopped(self, moment, request, operation)


@contextmanager
def stopping_broker(
    release: str, build: Callable[[Path], Path], *, log_dirs: int = 1, properties: Mapping[str, str] = PROPERTIES
) -> Iterator[Stopping]:
    """A broker of ``release`` with the agent that ``build`` makes in the given directory."""
    jars = fetch_jars(release)
    work_dir = Path(tempfile.mkdtemp(prefix=f"stopping-{release}-"))
    place = work_dir / "moments"
    place.mkdir()
    arguments = [f"-Dcleanerd.test.moments={place}", f"-javaagent:{build(work_dir)}"]
    broker = Broker(
        jars.libs,
        work_dir / "broker",
        version=jars.version,
        properties=dict(properties),
        jvm_args=arguments,
        log_dirs=log_dirs,
    )
    try:
        broker.start()
        yield Stopping(Live(broker), place)
    finally:
        broker.kill()
        shutil.rmtree(work_dir)


class Stopped:
    """A running ``request``; ``answer`` is its response after the block."""

    def __init__(self, stopping: Stopping, moment: str, request: dict[str, Any], operation: str) -> None:
        self._stop = stopping.place / f"{moment}.stop"
        self._reached = stopping.place / f"{moment}.reached"
        self._live = stopping.live
        self.request = request
        self._operation = operation
        self._thread = threading.Thread(target=self._ask)
        self.answer: dict[str, Any] | str = "none"

    def _ask(self) -> None:
        try:
            with self._live.asking() as agent:
                self.answer = agent.ask(self._operation, **self.request)
        except RefusedError as refused:
            self.answer = refused.answer
        except (AssertionError, OSError) as lost:
            self.answer = f"lost: {lost}"

    def __enter__(self) -> Self:
        self._stop.touch()
        self._thread.start()
        try:
            wait_until("the moment", lambda: self._reached.exists() or not self._thread.is_alive())
            assert self._reached.exists(), self.answer
        except BaseException:
            self._stop.unlink()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reached.unlink()
        self._stop.unlink()
        self._thread.join()

    @property
    def code(self) -> str:
        """The code of the refusal."""
        assert isinstance(self.answer, dict), self.answer
        code: str = self.answer["code"]
        return code
