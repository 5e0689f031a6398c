"""Queries that tests send to the status page."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from cleanerd.daemon.http import server as daemon_http

if TYPE_CHECKING:
    from tests.daemon.browser import Page

FOLDER = Path(daemon_http.__file__).parent / "page"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def names(page: Page) -> list[str]:
    """The visible partitions, from the top."""
    found: list[str] = page.run("[...document.querySelectorAll('table.rows tbody a')].map(a => a.textContent)")
    return found


def text(page: Page, selector: str = "body") -> str:
    reported: str = page.run(f"document.querySelector({selector!r}).innerText")
    return reported


def click(page: Page, selector: str) -> None:
    page.run(f"document.querySelector({selector!r}).click()")
