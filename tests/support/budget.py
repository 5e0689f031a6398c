"""A plugin of pytest: stop after a time, and store the outcome of every test.

``--until`` stops the run at a moment: a test that has not begun by then is not run and is counted. ``--outcomes`` names
a file that gets the counts and the node ids of the failed tests as JSON.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Final

import pytest

RECORDER: Final = pytest.StashKey["Recorder"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("budget")
    group.addoption("--until", type=float, metavar="EPOCH", help="begin no test after this moment")
    group.addoption("--outcomes", metavar="FILE", help="write counts and failed node ids to FILE")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    """True: the test counts as handled, without a report."""
    until = item.config.getoption("--until")
    return True if until is not None and time.time() > until else None


class Recorder:
    """Keeps the worst outcome per test (set-up, call, clean-up), and the number of collected tests."""

    def __init__(self) -> None:
        self._outcomes: dict[str, str] = {}
        self._collected = 0

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self._collected = len(ids)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._collected = self._collected or len(session.items)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._outcomes[report.nodeid] = "failed"
        elif report.skipped or report.when == "call":
            self._outcomes.setdefault(report.nodeid, report.outcome)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._outcomes[report.nodeid] = "failed"

    def found(self) -> dict[str, Any]:
        """Counts by outcome, ``not_run``, and the failed node ids as ``failures``."""
        outcomes = list(self._outcomes.values())
        return {
            **{name: outcomes.count(name) for name in ("passed", "failed", "skipped")},
            "not_run": max(0, self._collected - len(outcomes)),
            "failures": sorted(name for name, outcome in self._outcomes.items() if outcome == "failed"),
        }


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--outcomes") is not None and not hasattr(config, "workerinput"):
        config.stash[RECORDER] = Recorder()
        config.pluginmanager.register(config.stash[RECORDER])


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    if (recorder := config.stash.get(RECORDER, None)) is not None:
        Path(config.getoption("--outcomes")).write_text(json.dumps(recorder.found()))
