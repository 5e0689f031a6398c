"""A command line of Kafka's own tool for the same change, for an operator with access to the cluster."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path


def kafka_configs_command(
    servers: str, command_config: Path | None, topic: str, changes: Mapping[str, str | None]
) -> str:
    """A shell command that sets ``changes`` on the topic; None unsets a key. It contains no password."""
    to_set = ",".join(f"{key}={text}" for key, text in changes.items() if text is not None)
    to_unset = ",".join(key for key, text in changes.items() if text is None)
    words = ["kafka-configs.sh", "--bootstrap-server", servers]
    words += [] if command_config is None else ["--command-config", str(command_config)]
    words += ["--alter", "--entity-type", "topics", "--entity-name", topic]
    words += ["--add-config", to_set] if to_set else []
    words += ["--delete-config", to_unset] if to_unset else []
    return shlex.join(words)
