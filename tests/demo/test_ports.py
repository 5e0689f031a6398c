"""Ports for brokers and daemons: no process gets a port that another one has claimed."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from cleanerd_lab.demo import ports
from cleanerd_lab.demo.ports import free_port
from tests.support.patience import PATIENCE_SECONDS

_ASK = "from cleanerd_lab.demo.ports import free_port; print(free_port(), flush=True); input()"


def test_no_port_of_the_kernels_own_range() -> None:
    """A client's connection took the port of a broker that was just starting."""
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    assert not [port for port in (free_port() for _ in range(50)) if low <= port <= high]


def test_no_two_processes_get_the_same_port() -> None:
    """Though no process listens on it yet; when the other one has ended it is free again."""
    arguments = [sys.executable, "-c", _ASK]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        theirs = int(other.stdout.readline())
        with pytest.raises(OSError, match=f"between {theirs} and {theirs}"):
            free_port([theirs])
        other.communicate("\n", timeout=PATIENCE_SECONDS)
    assert free_port([theirs]) == theirs


def test_a_port_with_a_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one is used."""
    taken, free = free_port(), free_port()  # both claimed: no other process takes one meanwhile
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", taken))
        listening.listen()
        # This process has claimed both, so a query in this process reports them as claimed by another one.
        monkeypatch.setattr(ports, "_claim", lambda _port: True)
        assert {free_port([taken, free]) for _ in range(20)} == {free}


def test_claims_do_not_add_up() -> None:
    """A process that starts hundreds keeps the last few."""
    assert len({free_port() for _ in range(100)}) > 90
    assert len(ports._claims) == ports._CLAIMS
