"""Fixtures of the status page's tests: one browser for all of them, and a busy daemon to look at."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.daemon.browser import Page, chromium
from tests.daemon.page_words import now_ms
from tests.daemon.serving import Served, serving
from tests.daemon.views import busy

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def browser() -> Iterator[Page]:
    with chromium() as page:
        yield page


@pytest.fixture
def page(browser: Page) -> Iterator[Page]:
    """The browser with a desktop's window; afterwards its console must have been silent."""
    browser.complaints.clear()
    browser.requests.clear()
    browser.look()
    yield browser
    browser.call("Page.navigate", url="about:blank")
    # A test's daemon ends before its page does, which may ask once more.
    assert [each for each in browser.complaints if "net::ERR_" not in each] == []


@pytest.fixture
def busy_daemon() -> Iterator[Served]:
    with serving(busy(60, now_ms=now_ms())) as running:
        yield running
