"""Clients of a daemon and changes around it while it cleans.

Each runs repeatedly in a thread of its own: any leak of a descriptor, thread or memory happens dozens of times in a
quarter of an hour. Problems are reported at the end.
"""

from __future__ import annotations

import contextlib
import http.client
import signal
import socket
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

from tests.brokers.node import wait_until
from tests.live.load import create_topics
from tests.live.shared_broker import admin_request, directory_of, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

    from cleanerd_lab.demo.broker import Broker
    from tests.daemon.process import Daemon

ANSWER_SECONDS: Final = 20.0
SOON_SECONDS: Final = 60.0
HANG_SECONDS: Final = 150.0
"""longer than the server's limit"""

PLANTED: Final = "planted"
PAGES: Final = ("/status", "/status", "/healthz", "/readyz", "/", "/page/app.js", "/explain/plain-none-0", "/nowhere")


@dataclass
class Visitors:
    """They run until the block ends."""

    daemon: Daemon
    broker: Broker
    port: int
    config: Path
    problems: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    scrape_ms: list[tuple[float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._hanging: list[tuple[float, socket.socket]] = []
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        create_topics(self.broker, [PLANTED])
        self._begin("scrapes", 5, 0, self._scrape)
        self._begin("pages", 7, 3, self._read_a_page)
        self._begin("hanging clients", 20, 5, self._hang)
        self._begin("clients of the socket", 25, 8, self._hang_on_socket)
        self._begin("reloads", 60, 30, self._reload)
        self._begin("pauses", 45, 20, self._pause)
        self._begin("topics", 60, 10, self._make_a_topic_and_delete_it)
        self._begin("quarantines", 150, 25, self._plant)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(2 * SOON_SECONDS)
            assert not thread.is_alive()
        for _, connection in self._hanging:
            connection.close()

    def _begin(self, name: str, period_seconds: float, first_seconds: float, visit: Callable[[int], None]) -> None:
        self.counts[name] = 0

        def go_on() -> None:
            next_at = time.monotonic() + first_seconds
            while not self._stop.wait(max(0.0, next_at - time.monotonic())):
                next_at += period_seconds
                try:
                    visit(self.counts[name])
                except Exception as problem:  # noqa: BLE001 - it must be seen in the verdict, not in a thread
                    self.problems.append(f"{name}: {type(problem).__name__}: {problem}")
                self.counts[name] += 1

        thread = threading.Thread(target=go_on, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    # -- readers ------------------------------------------------------------------------------------------------------

    def _get(self, path: str, **headers: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_SECONDS)
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def _scrape(self, _number: int) -> None:
        began = time.monotonic()
        status, body = self._get("/metrics", Accept="application/openmetrics-text")
        self.scrape_ms.append((began - self._began, (time.monotonic() - began) * 1000))
        assert status == 200, status
        assert body.endswith(b"# EOF\n"), body[-100:]

    def _read_a_page(self, number: int) -> None:
        path = PAGES[number % len(PAGES)]
        status, body = self._get(path, **({"Accept-Encoding": "gzip"} if number % 2 else {}))
        wanted = {"/nowhere": {404}, "/readyz": {200, 503}}  # a reload is not ready for a moment
        assert status in wanted.get(path, {200}), (path, status, body[:200])

    def _hang(self, number: int) -> None:
        """Send nothing, half a request, or a whole one without reading the response."""
        self._let_go()
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=ANSWER_SECONDS)
        if number % 3:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sendall(b"GET /status HTTP/1.1\r\nHost: localhost\r\n" + (b"\r\n" if number % 3 == 1 else b""))
        self._hanging.append((time.monotonic(), connection))

    @property
    def hanging(self) -> int:
        """The number of hanging clients of the page."""
        return len(self._hanging)

    def _let_go(self) -> None:
        limit = time.monotonic() - HANG_SECONDS
        for each in [each for each in self._hanging if each[0] < limit]:
            self._hanging.remove(each)
            each[1].close()

    def _hang_on_socket(self, number: int) -> None:
        """A client of the control socket that sends nothing or invalid data, or disconnects before the response."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.settimeout(ANSWER_SECONDS)
            line.connect(str(self.daemon.base / "control.sock"))
            line.sendall((b"", b"nonsense\n", b'{"op": "status"}\n')[number % 3])
            self._stop.wait((20, 5, 0)[number % 3])

    # -- changes ------------------------------------------------------------------------------------------------------

    def _reload(self, number: int) -> None:
        """SIGHUP with other settings each time: three workers, two workers."""
        before = self.daemon.ask("status")["settings_generation"]
        self.config.write_text(f'"log.cleaner.threads" = {2 + (number + 1) % 2}\n')
        self.daemon.process.send_signal(signal.SIGHUP)
        wait_until("reloaded", lambda: self.daemon.ask("status")["settings_generation"] > before)

    def _pause(self, number: int) -> None:
        """Pause a partition, or every third time all of them, for some seconds."""
        name = None if number % 3 == 2 else f"plain-none-{number % 2}"
        try:
            self.daemon.ask("pause", partition=name)
            self._stop.wait(3)
        finally:
            self.daemon.ask("resume", partition=name)

    def _make_a_topic_and_delete_it(self, number: int) -> None:
        """Compacted, written, cleaned."""
        topic = f"passing-{number}"
        create_topics(self.broker, [topic], partitions=2)
        write(self.broker, topic)
        wait_until("the topic is cleaned", lambda: self._clean(topic) is not None, SOON_SECONDS)
        admin_request(self.broker, "delete_topics", [topic])
        wait_until("the topic is deleted", lambda: not self._rows(topic), SOON_SECONDS)

    def _plant(self, _number: int) -> None:
        """Change a byte of a closed segment: quarantined; restore it: ``retry``, and it is cleaned."""
        name = f"{PLANTED}-0"
        wait_until("the daemon lists the topic", lambda: bool(self._rows(PLANTED)), SOON_SECONDS)
        self.daemon.ask("pause", partition=name)
        write(self.broker, PLANTED)
        victim = sorted(directory_of(self.broker, PLANTED).glob("*.log"))[-2]
        place = victim.stat().st_size // 2
        before = self._clean(PLANTED)
        with victim.open("r+b") as file:
            _turn(file, place)
            self.daemon.ask("resume", partition=name)
            self.daemon.ask("trigger", partition=name)
            try:
                wait_until("quarantined", lambda: self._rows(PLANTED)[0]["quarantine"] is not None, SOON_SECONDS)
            finally:
                _turn(file, place)
        self.daemon.ask("retry", partition=name)  # a scan that comes before it ends the quarantine as well
        wait_until("cleaned", lambda: self._is_well() and self._clean(PLANTED) != before, SOON_SECONDS)

    def _rows(self, topic: str) -> list[dict[str, Any]]:
        found = []
        with contextlib.suppress(TimeoutError):
            found = [row for row in self.daemon.ask("status")["partitions"] if row["topic"] == topic]
        return found

    def _clean(self, topic: str) -> int | None:
        """When partition 0 was cleaned last."""
        cleanings = [row["last_cleaning"] for row in self._rows(topic) if row["partition"] == 0]
        done = [each for each in cleanings if each is not None and each["outcome"] == "cleaned"]
        return int(done[0]["ended_ms"]) if done else None

    def _is_well(self) -> bool:
        return [row["quarantine"] for row in self._rows(PLANTED)] == [None]


def _turn(file: Any, place: int) -> None:
    file.seek(place)
    byte = file.read(1)
    file.seek(place)
    file.write(bytes([byte[0] ^ 0xFF]))
    file.flush()
