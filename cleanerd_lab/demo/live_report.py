"""The report of ``cleanerd demo`` on its live part."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import threading
from typing import TYPE_CHECKING, Any, Final

from cleanerd.humanize import human_bytes, human_count, human_ms
from cleanerd_lab.demo.live import BY_VERSION, RECORDS_PER_SECOND, RULES
from cleanerd_lab.demo.load import PARTITIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cleanerd_lab.demo.live import LiveDemo, LiveResult, LiveSample
    from cleanerd_lab.demo.page import Page

_TITLES: Final = ("seconds", "records", "written", "on disk", "waiting", "cleanings", "swaps", "removed")
_WIDTH: Final = 10
_RESULT_TITLES: Final = (
    "topic",
    "strategy",
    "acknowledged",
    "keys",
    "out of order",
    "records left",
    "written",
    "on disk",
    "wrong uncleaned",
    "wrong cleaned",
)


def report_live(page: Page, run: LiveDemo, *, seconds: float, stay: bool) -> LiveResult:
    """Report both steps of the live part.

    Raises:
        CleanerdError: the broker, a client or the daemon failed.
    """
    with page.step("A broker with the agent, producers out of order, and `cleanerd run`"):
        run.start()
    _report_start(page, run)
    page.row(_TITLES, _WIDTH)
    for sample in run.watch(seconds):
        _report_sample(page, sample)
    if stay:
        page.print(f"The daemon keeps running: {run.url} - Ctrl-C ends it.")
        with _interrupted() as interrupt:
            for sample in run.watch(None):
                _report_sample(page, sample)
                if interrupt.is_set():
                    break
    with page.step("The producers stop, the daemon cleans the rest, consumers read everything"):
        result = run.finish()
    _report_result(page, result)
    return result


def _report_start(page: Page, run: LiveDemo) -> None:
    page.print(
        f"{len(RULES)} compacted topics with {PARTITIONS} partitions each. Producers write "
        f"{human_count(RECORDS_PER_SECOND)} records per second to each topic, and a consumer reads it again and again. "
        f"In {BY_VERSION}, the highest version in a header is kept, whatever the order of arrival. One second is one "
        "minute of the records' timestamps, so segments end every few seconds. "
        f"The broker at {run.bootstrap} swaps the cleaned segments.\n\n"
        f"The status page:  {run.url}\n"
    )


def _report_sample(page: Page, sample: LiveSample) -> None:
    cells = (
        f"{sample.seconds:.0f}",
        human_count(sample.records),
        human_bytes(sample.written_bytes),
        human_bytes(sample.log_bytes),
        human_bytes(sample.waiting_bytes),
        human_count(sample.cleanings),
        human_count(sample.swaps),
        human_count(sample.removed),
    )
    page.row(cells, _WIDTH)


def _report_result(page: Page, result: LiveResult) -> None:
    page.print("The last value of each key, as a plain consumer reads it, compared with what was acknowledged:")
    page.table(
        _RESULT_TITLES,
        [
            [
                topic.topic,
                topic.strategy,
                human_count(topic.acknowledged),
                human_count(topic.keys),
                human_count(topic.out_of_order),
                human_count(topic.left),
                human_bytes(topic.written_bytes),
                human_bytes(topic.log_bytes),
                human_count(topic.uncleaned.keys),
                human_count(topic.wrong.keys),
            ]
            for topic in result.topics
        ],
    )
    errors = f"{len(result.client_errors)} ({result.client_errors[0]})" if result.client_errors else "none"
    page.print(
        f"{human_count(result.cleanings)} cleanings, {human_count(result.swaps)} swaps by the running broker; "
        f"{human_count(result.refused_swaps)} swaps were refused and tried again later. During this time, a consumer "
        f"read {human_count(result.readings)} partitions from the beginning, with {human_count(result.read_records)} "
        f"records. Errors of clients: {errors}. Longest wait for an acknowledgement: {human_ms(result.slowest_ms)}.\n"
        f"SIGTERM ended the daemon within {human_ms(1000 * result.stop_seconds)}. cleanerd verify found "
        f"{human_count(result.findings)} errors in the result."
    )


def live_document(result: LiveResult) -> dict[str, Any]:
    """The same for ``--json``."""
    return {**dataclasses.asdict(result), "good": result.good}


@contextlib.contextmanager
def _interrupted() -> Iterator[threading.Event]:
    """In the block Ctrl-C only sets the event."""
    event = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: event.set())
    try:
        yield event
    finally:
        signal.signal(signal.SIGINT, before)
