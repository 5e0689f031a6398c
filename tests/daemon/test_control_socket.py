"""The daemon's control socket: where it is, and what is said where nobody answers."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import pytest

from cleanerd.daemon.asking import ask, control_socket, find_control_socket
from cleanerd.errors import RefusedError
from cleanerd.settings import load_settings
from tests.cleaner.driver import scratch
from tests.support.root import as_somebody, needs_root

if TYPE_CHECKING:
    from pathlib import Path


def test_where_the_socket_is(tmp_path: Path) -> None:
    """As set; else in $RUNTIME_DIRECTORY, else in the state directory."""
    plain = load_settings([], [f"cleanerd.state.dir={tmp_path}"], {})
    assert control_socket(plain, {"RUNTIME_DIRECTORY": "/run/cleanerd:/run/other"}).parts[-2:] == (
        "cleanerd", "control.sock",
    )  # fmt: skip
    assert control_socket(plain, {}) == tmp_path / "control.sock"
    said = load_settings([], [f"cleanerd.control.socket={tmp_path}/there"], {})
    assert control_socket(said, {"RUNTIME_DIRECTORY": "/run/cleanerd"}) == tmp_path / "there"
    assert find_control_socket(said, {}) == tmp_path / "there"


def test_nobody_there(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="does not answer"):
        ask(tmp_path / "none", "status")
    with pytest.raises(RefusedError, match="does not answer: AF_UNIX path too long"):
        ask(tmp_path / ("n" * 120), "status")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
        silent.bind(str(tmp_path / "silent"))
        silent.listen()
        with pytest.raises(RefusedError, match="does not answer: timed out"):
            ask(tmp_path / "silent", "status", timeout_seconds=0.05)
    assert os.path.exists(tmp_path)


@needs_root
def test_a_socket_that_is_closed_to_us() -> None:
    """Neither its directory nor it may be looked at: that is told, with who may ask."""
    with scratch() as root:
        root.chmod(0o700)
        said = load_settings([], [f"cleanerd.state.dir={root / 'state'}"], {})

        def told() -> str:
            try:
                ask(find_control_socket(said, {}), "status")
            except RefusedError as error:
                return str(error)
            return "it answered"

        answer = as_somebody(told)
        assert f"{root / 'state' / 'control.sock'}: the daemon does not answer: Permission denied" in answer
        assert "the daemon's user and root" in answer
