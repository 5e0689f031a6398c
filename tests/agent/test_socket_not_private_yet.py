"""Clients that connect before the agent's socket is private (A-28)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.agent.building import BUILD
from tests.agent.java_program import JAVA, reported_by

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.kafka

PRIVATE = "            Files.setPosixFilePermissions(fresh"


def test_a_client_of_the_socket_before_its_mode_is_set_is_disconnected(tmp_path: Path) -> None:
    """A-28, A-29: its mode is the umask's then, and a Java without jdk.net cannot check the peer."""
    text = (BUILD.parent / "unix" / "cleanerd" / "agent" / "SocketFile.java").read_text()
    assert text.count(PRIVATE) == 1
    source = tmp_path / "SocketFile.java"
    source.write_text(
        text.replace(
            PRIVATE,
            "            try { Early.come(fresh); } catch (Exception e) { throw new IOException(e); }\n" + PRIVATE,
        )
    )
    reported = reported_by(
        tmp_path, [source, JAVA / "early" / "Early.java"], "cleanerd.agent.Early", str(tmp_path / "agent.sock")
    )
    assert reported == ["hung up on", "served"]
