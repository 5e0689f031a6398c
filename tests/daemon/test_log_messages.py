"""The daemon's log messages about its log directories."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
import structlog
from structlog.testing import LogCapture

from cleanerd.daemon.discovery.log_dir_scan import DirMode, LogDirScan
from cleanerd.daemon.limits import DaemonLimits
from cleanerd.daemon.log_events import EVENTS, LogEvent
from cleanerd.daemon.status import log_messages
from cleanerd.daemon.status.log_messages import log_scan
from tests.daemon.service import assignments, broker, serve, until

if TYPE_CHECKING:
    from cleanerd.daemon.service import Service

DAEMON: Final = Path(log_messages.__file__).parents[1]
LOGGERS: Final = {"log", *(f"_log.{level}" for level in ("debug", "info", "warning", "error", "exception"))}


def _scan(error: str) -> LogDirScan:
    return LogDirScan(
        Path("/d"), online=not error, error=error, mode=DirMode("on-start", "", None), choice=None, facts=None,
        total_bytes=0, free_bytes=0,
    )  # fmt: skip


def test_a_directory_that_cannot_be_read_is_logged_once_and_its_return_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A wrong path in cleanerd.log.dirs must be reported, and must not fill the log."""
    scans = [_scan("no such file"), _scan("no such file"), _scan("no permission"), _scan(""), _scan("")]
    # A logger of its own: another test may have silenced loggers, and capture_logs would capture nothing.
    heard = LogCapture()
    own = structlog.wrap_logger(structlog.PrintLogger(), processors=[heard], wrapper_class=structlog.BoundLogger)
    # See above: loggers are made when modules are imported.
    monkeypatch.setattr(log_messages, "_log", own)
    for before, found in zip([None, *scans], scans, strict=False):
        log_scan(before, found, lambda _found: False)
    lines = heard.entries
    messages = [(line["log_level"], line.get("reason", "")) for line in lines]
    assert messages == [("warning", "no such file"), ("warning", "no permission"), ("info", "")]
    assert {line["log_dir"] for line in lines} == {"/d"}


def test_a_single_event_is_not_shown_indefinitely(tmp_path: Path) -> None:
    """Otherwise cleanerd_warnings would never fall again, and the next event would go unnoticed."""
    with broker(tmp_path / "logs"):

        async def story(service: Service) -> None:
            service.publisher.warn("it happened")
            service.publisher.publish()
            assert "it happened" in service.view().warnings
            await until("it is over", lambda: "it happened" not in service.view().warnings)

        serve(assignments(tmp_path / "logs"), story, limits=DaemonLimits(event_seconds=1.0))


def _calls(source: str) -> list[tuple[str, set[str]]]:
    """(first argument, names of the fields) for every call of a module's logger."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in LOGGERS:
            fields = {keyword.arg for keyword in node.keywords if keyword.arg is not None}
            found.append((ast.unparse(node.args[0]), fields - {"exc_info"}))
    return found


@pytest.mark.parametrize("module", sorted(DAEMON.rglob("*.py")), ids=lambda path: path.stem)
def test_every_event_is_in_the_table(module: Path) -> None:
    """OP-24: a fixed name, and only the fields that the table has."""
    for event, fields in _calls(module.read_text()):
        assert event.startswith("LogEvent."), event
        assert fields <= set(EVENTS[LogEvent[event.removeprefix("LogEvent.")]].fields), event


def test_every_event_of_the_table_is_logged() -> None:
    """OP-24: names that work in a search, each used in the code."""
    used = {event for module in DAEMON.rglob("*.py") for event, _ in _calls(module.read_text())}
    assert used == {f"LogEvent.{event.name}" for event in LogEvent} == {f"LogEvent.{event.name}" for event in EVENTS}
    assert all(event.value == event.name.lower() for event in LogEvent)
