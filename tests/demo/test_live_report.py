"""The output of the live part of ``cleanerd demo``, and the results that count as errors."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from cleanerd.cli.output import Output
from cleanerd_lab.demo.compare import WrongKeys
from cleanerd_lab.demo.live import LiveDemo, LiveResult, LiveSample, LiveTopic
from cleanerd_lab.demo.live_report import live_document, report_live
from cleanerd_lab.demo.page import Page

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPIC = LiveTopic("balances", "header", 1_000, 30, 90, 30, 50_000, 3_000, WrongKeys(other_value=7), WrongKeys())
RESULT = LiveResult((TOPIC,), 12, 0, 14, 1, 5, 4_321, (), 12.0, 0.3, 0)
SAMPLE = LiveSample(5.2, 1_000, 50_000, 9_000, 0, 3, 4, 800)
URL = "http://127.0.0.1:7/"


def _run(result: LiveResult) -> LiveDemo:
    """A demonstration that did nothing and has ``result``."""

    def watch(_seconds: float | None) -> Iterator[LiveSample]:
        yield from [SAMPLE, SAMPLE]

    run = SimpleNamespace(start=lambda: None, watch=watch, finish=lambda: result, url=URL, bootstrap="127.0.0.1:9")
    return cast("LiveDemo", run)


@pytest.mark.parametrize(
    ("change", "good"),
    [
        ({}, True),
        ({"topics": (replace(TOPIC, wrong=WrongKeys(live_but_gone=1)),)}, False),
        ({"client_errors": ("a fetch failed",)}, False),
        ({"findings": 1}, False),
        ({"failed_cleanings": 1}, False),
        ({"swaps": 0}, False),
        ({"refused_swaps": 9}, True),
    ],
    ids=["good", "a key is wrong", "client", "verify", "quarantine", "nothing was swapped", "refusals are ordinary"],
)
def test_a_good_report(change: dict[str, Any], *, good: bool) -> None:
    result = replace(RESULT, **change)
    assert result.good is good
    assert live_document(result)["good"] is good


def test_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    """The page's address is above the growing table; then the sums, and the errors of clients by name."""
    result = report_live(Page(Output()), _run(replace(RESULT, client_errors=("it broke",))), seconds=1, stay=False)
    printed = capsys.readouterr().out
    assert result.client_errors
    assert printed.index(URL) < printed.index("acknowledged")
    assert printed.count("1,000") == 3
    assert "1 (it broke)" in printed
    assert "Ctrl-C" not in printed


def test_json_prints_only_json(capsys: pytest.CaptureFixture[str]) -> None:
    report_live(Page(Output(as_json=True)), _run(RESULT), seconds=1, stay=False)
    assert capsys.readouterr().out == ""
