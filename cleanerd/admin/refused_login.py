"""Checks with the other client library whether a cluster refuses a login.

A broker that refuses a login answers and closes the connection. kafka-python often sees the end before the answer, and
reports a lost connection; librdkafka reads the answer first.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient

if TYPE_CHECKING:
    from collections.abc import Callable

    from cleanerd.admin.client_config import ClientConfig

_SECONDS: Final = 10.0


class LoginError(Exception):
    """The cluster refuses the login; ``str`` of it is the reason."""


def refused_login(
    bootstrap: str,
    client: ClientConfig,
    *,
    seconds: float = _SECONDS,
    clock: Callable[[], float] = time.monotonic,
    admin: type[AdminClient] = AdminClient,
) -> LoginError | None:
    """The cluster's refusal of the login; None without a login, or without a refusal within ``seconds``.

    If nothing listens at any of its addresses, there is no wait.
    """
    if client.login is None:
        return None
    refusals: list[LoginError] = []
    met: list[bool] = []
    unreachable: list[bool] = []

    def hear(error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001
            unreachable.append(bool(met) and not any(met))
        elif error.code() in {KafkaError._TRANSPORT, KafkaError._RESOLVE}:  # noqa: SLF001
            met.append("Connect to " not in error.str() and error.code() != KafkaError._RESOLVE)  # noqa: SLF001
        elif error.code() == KafkaError._AUTHENTICATION:  # noqa: SLF001 - the library's own name of it
            refusals.append(LoginError(error.str().rpartition(": ")[2]))

    quiet = logging.getLogger("cleanerd.refused_login")
    quiet.addHandler(logging.NullHandler())
    quiet.propagate = False
    options: dict[str, Any] = {**client.confluent(), "bootstrap.servers": bootstrap, "error_cb": hear}
    asking = admin(options, logger=quiet)
    deadline = clock() + seconds
    while not refusals and not any(unreachable) and clock() < deadline:
        asking.poll(0.1)
    return refusals[0] if refusals else None
