"""Kafka's client properties file (``--command-config``) as options of the two client libraries.

::

    BrokerTopic(confluent_options("client.properties"), "orders", rules)
    FlagTopic("orders", **kafka_python_options("client.properties"))

The options contain passwords: do not print them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cleanerd.admin.client_config import read_client_config

if TYPE_CHECKING:
    import os


def confluent_options(path: str | os.PathLike[str], bootstrap: str | None = None) -> dict[str, Any]:
    """For ``BrokerTopic``, ``Producer``, ``Consumer``, and for confluent-kafka's own clients.

    ``bootstrap`` (``HOST:PORT,...``) overrides ``bootstrap.servers`` of the file.

    Raises:
        ConfigError: a setting of the file cannot be used: with file, line, name and fix.
    """
    client = read_client_config(Path(path))
    servers = bootstrap or client.servers
    return client.confluent() | ({} if servers is None else {"bootstrap.servers": servers})


def kafka_python_options(path: str | os.PathLike[str], bootstrap: str | None = None) -> dict[str, Any]:
    """For ``FlagTopic``, ``FlagProducer``, ``FlagConsumer``, and for kafka-python's own clients; as above."""
    client = read_client_config(Path(path))
    servers = bootstrap or client.servers
    return client.kafka_python() | ({} if servers is None else {"bootstrap_servers": servers.split(",")})
