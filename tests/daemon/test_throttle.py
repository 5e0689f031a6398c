"""Rates (C-83): kept on average, shared by threads, changeable while a thread waits."""

from __future__ import annotations

import threading
import time

import pytest

from cleanerd.cleaner.cleaner import CleaningStopped
from cleanerd.daemon.work.progress import JobProgress
from cleanerd.daemon.work.throttle import Rates, Throttle
from tests.support.patience import PATIENCE_SECONDS


def never() -> None:
    """A stop condition that never holds."""


class Time:
    """A clock that only sleeping moves: the tests assert what the throttle did, not how busy the machine is."""

    def __init__(self) -> None:
        self.now = 1000.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def __call__(self) -> float:
        return self.now


def work(throttle: Throttle, *, reads: int = 0, writes: int = 0, chunk: int = 10_000) -> None:
    for _ in range(reads // chunk):
        throttle.read(chunk, never)
    for _ in range(writes // chunk):
        throttle.wrote(chunk, never)


def test_without_a_limit_no_thread_waits() -> None:
    throttle = Throttle(Rates())
    work(throttle, reads=10**7, writes=10**7)
    assert (throttle.read_bytes, throttle.written_bytes, throttle.waited_seconds) == (10**7, 10**7, 0.0)


@pytest.mark.parametrize(
    ("rates", "reads", "writes"),
    [
        (Rates(read=500_000), 250_000, 250_000),
        (Rates(write=500_000), 250_000, 250_000),
        (Rates(total=500_000), 130_000, 120_000),
        (Rates(read=10**9, total=500_000), 250_000, 0),
    ],
)
def test_rates_are_kept(rates: Rates, reads: int, writes: int) -> None:
    """Each of the three; the total counts both directions, as Kafka's does. A tenth of a second's worth is free."""
    clock = Time()
    throttle = Throttle(rates, clock=clock, sleep=clock.sleep)
    work(throttle, reads=reads, writes=writes)
    assert clock.now - 1000 == pytest.approx(0.4)
    assert throttle.waited_seconds == pytest.approx(0.4)


def test_threads_share_a_rate() -> None:
    """By a real clock: three of them are no faster than one would be."""
    throttle = Throttle(Rates(read=500_000))
    threads = [threading.Thread(target=lambda: work(throttle, reads=100_000)) for _ in range(3)]
    started = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.monotonic() - started >= 0.4


def test_a_new_rate_applies_to_threads_that_wait_already() -> None:
    throttle = Throttle(Rates(read=1))
    waiting = threading.Thread(target=lambda: throttle.read(10**9, never), daemon=True)
    waiting.start()
    time.sleep(0.1)
    assert waiting.is_alive()
    throttle.set_rates(Rates())
    waiting.join(PATIENCE_SECONDS)
    assert not waiting.is_alive()
    throttle.waited_seconds = 0.0
    work(throttle, reads=10**7)
    assert throttle.waited_seconds == 0, "no debt is left"


def test_a_wait_for_the_rate_can_be_stopped() -> None:
    """SIGTERM does not wait for a slow rate."""
    progress = JobProgress(Throttle(Rates(write=1)), dirty_bytes=0)
    ended = threading.Event()

    def write() -> None:
        with pytest.raises(CleaningStopped):
            progress.wrote(10**9)
        ended.set()

    threading.Thread(target=write, daemon=True).start()
    time.sleep(0.05)
    progress.stop()
    assert ended.wait(PATIENCE_SECONDS)


def test_progress_shows_the_phases() -> None:
    """Index while the dirty section is read, then decide, then rewrite, and swap when all is rewritten."""
    progress = JobProgress(Throttle(Rates()), dirty_bytes=100)
    phases = [progress.current]
    progress.phase("index and decide", 300)
    for count in (60, 60, 180):
        phases.append(progress.current)
        progress.advance(count)
    phases.append(progress.current)
    progress.phase("rewrite", 50)
    phases.append(progress.current)
    progress.advance(50)
    phases.append(progress.current)
    assert phases == ["survey", "index", "index", "decide", "decide", "rewrite", "swap"]
    assert (progress.done_bytes, progress.total_bytes) == (50, 50)
