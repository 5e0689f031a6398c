"""What the daemon's log says of its log directories."""

from __future__ import annotations

from pathlib import Path

from structlog.testing import capture_logs

from cleanerd.daemon.looker import DirLook
from cleanerd.daemon.modes import DirMode
from cleanerd.daemon.told import log_look


def _look(error: str) -> DirLook:
    return DirLook(
        Path("/d"), online=not error, error=error, mode=DirMode("on-start", "", None), choice=None, facts=None,
        total_bytes=0, free_bytes=0,
    )  # fmt: skip


def test_a_directory_that_cannot_be_looked_at_is_logged_once_and_its_return_too() -> None:
    """A wrong path in cleanerd.log.dirs must not look like a daemon that is content; nor fill the log."""
    looks = [_look("no such file"), _look("no such file"), _look("no permission"), _look(""), _look("")]
    with capture_logs() as lines:
        for before, found in zip([None, *looks], looks, strict=False):
            log_look(before, found, lambda _found: False)
    said = [(line["log_level"], line.get("reason", "")) for line in lines]
    assert said == [("warning", "no such file"), ("warning", "no permission"), ("info", "")]
    assert {line["log_dir"] for line in lines} == {"/d"}
