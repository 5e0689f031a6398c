"""How long a login is retried: as long as a broker may still answer, and no longer."""

from __future__ import annotations

import contextlib
import itertools
import socket

import pytest
from confluent_kafka.admin import AdminClient

from cleanerd.admin.client_config import ClientConfig, Login
from cleanerd.admin.refused_login import refused_login

CLIENT = ClientConfig(protocol="SASL_PLAINTEXT", login=Login("PLAIN", "alice", "wrong"))


@pytest.mark.slow
def test_a_port_without_a_listener_costs_no_wait() -> None:
    """Librdkafka reports it for each address; without that this test would not end."""
    # bound, so that no other process takes them, and not listening
    with socket.socket() as one, socket.socket() as two:
        ports = []
        for each in (one, two):
            each.bind(("127.0.0.1", 0))
            ports.append(each.getsockname()[1])
        servers = ",".join(f"127.0.0.1:{port}" for port in ports)
        assert refused_login(servers, CLIENT, seconds=1e9) is None


@pytest.mark.slow
def test_a_connection_closed_by_the_broker_is_tried_again() -> None:
    """A broker that starts, or whose answer was lost: retried until the timeout."""
    clock = itertools.count()  # it does not advance until a connection was made
    taken: list[bool] = []

    def now() -> float:
        return next(clock) if taken else 0

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.01)

        class Asking(AdminClient):
            def poll(self, seconds: float) -> int:
                with contextlib.suppress(TimeoutError):
                    server.accept()[0].close()
                    taken.append(True)
                return int(super().poll(seconds))

        servers = f"127.0.0.1:{server.getsockname()[1]}"
        assert refused_login(servers, CLIENT, seconds=25, clock=now, admin=Asking) is None
    assert next(clock) > 25, "until the time was over"


def test_without_a_login_no_broker_is_queried() -> None:
    assert refused_login("127.0.0.1:1", ClientConfig()) is None
