"""The status page: its host, the charts of the last day, refused partitions, and the agent's state in words."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.daemon.page_words import names, now_ms, text
from tests.daemon.serving import Served, serving
from tests.daemon.views import busy, log_dir, trend, view

if TYPE_CHECKING:
    from tests.daemon.browser import Page

pytestmark = [pytest.mark.browser, pytest.mark.long]


def test_it_shows_its_host(page: Page, busy_daemon: Served) -> None:
    """Host, node, Kafka's release and cleanerd's, on every view."""
    for path in ("", "history", "log-dirs"):
        page.open(f"{busy_daemon.url}/{path}")
        page.wait("document.querySelector('#where').innerText.includes('kafka-1.example')")
        reported = text(page, "#where")
        assert all(word in reported for word in ("node 3", "Kafka 4.3.1", "cleanerd 0.1.0")), reported


def test_the_last_day_has_four_charts(page: Page, busy_daemon: Served) -> None:
    """Drawn from the numbers of /status: a bar for each point with a value, a gap where the daemon was stopped."""
    day = trend()
    page.open(f"{busy_daemon.url}/")
    page.wait("document.querySelectorAll('#trend svg').length === 4")
    labels = page.run("[...document.querySelectorAll('#trend svg')].map(e => e.getAttribute('aria-label'))")
    assert [label.split(":")[0] for label in labels] == ["Reclaimed", "Dirty", "Cleanings", "Lock held"]
    cleanings = [number for number in day.cleanings if number is not None]
    assert f"Cleanings: {sum(cleanings)} in a day; the most in 10 min {max(cleanings)}" in labels
    bars = page.run("[...document.querySelectorAll('#trend svg')].map(e => e.querySelectorAll('rect').length)")
    wanted = [sum(bool(number) for number in column) for column in (day.reclaimed_bytes, day.cleanings, day.held_us)]
    assert [bars[0], bars[2], bars[3]] == wanted
    assert page.run("document.querySelectorAll('#trend path.line').length") == 2, "before the gap, and after it"
    # The current dirty bytes come from the partitions: the last point may be ten minutes old.
    figures = page.run("[...document.querySelectorAll('#trend figcaption b')].map(e => e.innerText)")
    assert f"{figures[1]} dirty in" in text(page, "#summary")
    page.open(f"{busy_daemon.url}/history")
    page.wait("document.querySelector('main').innerText.length > 100")
    assert page.run("document.querySelector('#trend').hidden") is True


def test_no_charts_without_a_day_of_figures(page: Page) -> None:
    """An earlier release of the daemon, or a daemon that has done nothing yet."""
    empty = replace(trend(), **dict.fromkeys(("reclaimed_bytes", "dirty_bytes", "cleanings", "held_us"), (None,) * 144))
    with serving(view(trend=None)) as served:
        page.open(f"{served.url}/")
        page.wait("document.querySelector('#summary').innerText.includes('All well')")
        assert page.run("document.querySelector('#trend').hidden") is True
        served.stage.shown = view(trend=empty)
        page.open(f"{served.url}/")
        page.wait("document.querySelectorAll('#trend svg').length === 4")
        assert "nothing yet" in text(page, "#trend")


def test_a_topic_that_is_not_delegated_is_refused(page: Page, busy_daemon: Served) -> None:
    """An operator has to act: `idle` would mean that there is nothing to do."""
    page.open(f"{busy_daemon.url}/?state=refused")
    assert {name.rpartition("-")[0] for name in names(page)} == {"payments.v2"}
    states = page.run("[...document.querySelectorAll('table.rows tbody td.c-state')].map(e => e.innerText)")
    assert states
    assert all("refused" in each and "undelegated" in each for each in states)


def test_the_agent_in_words(page: Page) -> None:
    """Sentences, not the names of its fields; markup in its messages stays text."""
    well = log_dir()
    assert well.agent is not None
    sick = {**well.agent, "capable": False, "why_incapable": "<b>no</b>", "self_test": "failed", "java": ""}
    with serving(view(log_dirs=(well, log_dir("/b", agent=sick), log_dir("/c", agent=None)))) as served:
        page.open(f"{served.url}/log-dirs")
        page.wait("document.querySelectorAll('main article').length === 3")
        reported = page.run("[...document.querySelectorAll('main article')].map(e => e.innerText)")
    assert "swaps segments while the broker runs" in reported[0]
    assert "Kafka 4.3.1, Java 17.0.9, process 4711" in reported[0]
    assert "812 segment groups" in reported[0]
    assert "cannot swap: <b>no</b>" in reported[1]
    assert "FAILED" in reported[1]
    assert "none in the broker" in reported[2]
    assert not any("self_test" in each or "accepting" in each for each in reported)


@pytest.mark.parametrize("width", [390, 820, 1400])
def test_everything_fits(page: Page, width: int) -> None:
    """Nothing is wider than the window, and no chart overlaps another; light and dark."""
    with serving(busy(60, now_ms=now_ms())) as served:
        for dark in (False, True):
            page.set_window(width=width, height=900, dark=dark)
            page.open(f"{served.url}/")
            page.wait("document.querySelectorAll('#trend svg').length === 4")
            assert page.run("document.documentElement.scrollWidth") <= width
            captions = "[...document.querySelectorAll('#trend figcaption')]"
            page.run(f"{captions}.forEach(e => {{ e.querySelector('b').textContent = '999 MiB' }})")
            assert not page.run(f"{captions}.filter(e => e.scrollWidth > e.clientWidth).map(e => e.innerText)")
            boxes = page.run(
                "[...document.querySelectorAll('#trend figure')].map(e => e.getBoundingClientRect())"
                ".map(b => [b.left, b.top, b.right, b.bottom])"
            )
            for at, one in enumerate(boxes):
                assert one[2] <= width
                assert all(
                    one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
                    for other in boxes[at + 1 :]
                )
    page.set_window()
