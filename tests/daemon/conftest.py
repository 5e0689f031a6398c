"""Fixtures: a place for log directories, and, for the status page, one shared browser and a busy daemon."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from cleanerd.cli.output import configure_logging
from tests.cleaner.driver import scratch
from tests.daemon.browser import Page, chromium
from tests.daemon.page_words import now_ms
from tests.daemon.serving import Served, serving
from tests.daemon.views import busy
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True, scope="session")
def log_events_on_stderr() -> None:
    """Log as the command line does, whether or not an earlier test of this process configured logging."""
    configure_logging(verbose=False, quiet=False)


@pytest.fixture(autouse=True)
def no_thread_stays() -> Iterator[None]:
    """A service that has ended leaves no thread: once, each scan left some, until no new thread could start."""
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + PATIENCE_SECONDS
    while left := [each.name for each in set(threading.enumerate()) - before if each.name.startswith("cleanerd-")]:
        assert time.monotonic() < deadline, left
        time.sleep(0.01)


@pytest.fixture
def root() -> Iterator[Path]:
    """The path of a log directory, in a folder of the test."""
    with scratch() as path:
        yield path / "logs"


@pytest.fixture(scope="session")
def browser() -> Iterator[Page]:
    with chromium() as page:
        yield page


@pytest.fixture
def page(browser: Page) -> Iterator[Page]:
    """The browser with a desktop's window; at the end its console must be empty."""
    browser.complaints.clear()
    browser.requests.clear()
    browser.set_window()
    yield browser
    browser.call("Page.navigate", url="about:blank")
    # A test's daemon ends before its page does, so the page may poll once more.
    assert [each for each in browser.complaints if "net::ERR_" not in each] == []


@pytest.fixture
def busy_daemon() -> Iterator[Served]:
    with serving(busy(60, now_ms=now_ms())) as running:
        yield running
