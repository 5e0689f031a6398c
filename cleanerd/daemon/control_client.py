"""Sends requests to the daemon through its control socket. Small, because every command imports it."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cleanerd.errors import CleanerdError, RefusedError
from cleanerd.fsio.state_files import DAMAGE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cleanerd.config.load import Settings
    from cleanerd.format.names import TopicPartition

SOCKET_NAME: Final = "control.sock"
MAX_ANSWER_BYTES: Final = 256 * 1024 * 1024
RUNTIME_DIRECTORY: Final = Path("/run/cleanerd")

DAEMON_SECONDS: Final = 5.0
"""How long a command waits for the daemon if it can continue without it."""

PARTITION_FACTS: Final = ("log_dir", "phase", "outlook", "mode", "reason", "next_purge_ms")

UNKNOWN: Final = "the daemon knows no such compacted partition or topic"
"""The answer for a name that the daemon does not know."""


def control_socket(settings: Settings, environ: Mapping[str, str] | None = None) -> Path:
    """The daemon's socket: as configured, else in ``$RUNTIME_DIRECTORY``, else in the state directory."""
    environment = os.environ if environ is None else environ
    configured = settings.daemon.cleanerd_control_socket
    if configured is not None:
        return configured
    runtime = environment.get("RUNTIME_DIRECTORY", "").split(":")[0]
    return (Path(runtime) if runtime else settings.daemon.cleanerd_state_dir) / SOCKET_NAME


def find_control_socket(settings: Settings, environ: Mapping[str, str] | None = None) -> Path:
    """Where a daemon probably listens: from systemd's environment, else below ``/run``."""
    path = control_socket(settings, environ)
    usual = RUNTIME_DIRECTORY / SOCKET_NAME
    if settings.daemon.cleanerd_control_socket is not None:
        return path
    # Not Path.exists: if a directory is not readable, connecting reports that and the fix.
    return usual if not os.path.exists(path) and os.path.exists(usual) else path


def send_request(path: Path, operation: str, *, timeout_seconds: float = 30.0, **values: Any) -> dict[str, Any]:
    """Send one request to the daemon.

    Raises:
        RefusedError: no daemon answers, or it refuses (then with its own message).
    """
    request = json.dumps({"op": operation, **values}).encode() + b"\n"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.settimeout(timeout_seconds)
            line.connect(str(path))
            line.sendall(request)
            with line.makefile("rb") as answers:
                data = answers.readline(MAX_ANSWER_BYTES)
        return _result(json.loads(data))
    except (OSError, *DAMAGE) as error:
        why = "it sent no answer, or an invalid one"
        if isinstance(error, OSError):
            why = error.strerror or str(error)  # a path that is too long and a timeout have no errno
        hint = "is cleanerd run running, as which user, and with the same --config? see cleanerd.control.socket"
        if isinstance(error, PermissionError):
            hint = "only the daemon's user and root may connect: run the command as one of them"
        raise RefusedError(f"the daemon does not answer: {why}", where=str(path), hint=hint) from error


def daemon_facts(settings: Settings, log_dir: Path, name: TopicPartition | None = None) -> dict[str, dict[str, Any]]:
    """D-17: what the daemon of ``log_dir`` does with its partitions, by name; empty without an answer.

    ``name``: only this partition, whose log the daemon reads again.
    """
    try:
        path = find_control_socket(settings)
        if name is None:
            found = list(send_request(path, "status", timeout_seconds=DAEMON_SECONDS)["partitions"])
        else:
            answer = send_request(path, "explain", timeout_seconds=DAEMON_SECONDS, partition=str(name))
            found = [{**answer, **answer["daemon"]}]
        there = {str(each["log_dir"]) for each in found}
        here = {each for each in there if os.path.exists(each) and os.path.samefile(each, log_dir)}
        return {
            f"{each['topic']}-{each['partition']}": {fact: each[fact] for fact in PARTITION_FACTS}
            for each in found
            if each["log_dir"] in here
        }
    except (CleanerdError, OSError, *DAMAGE):
        return {}


def _result(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer's result; raises its refusal, and one of ``DAMAGE`` for a malformed answer."""
    if not answer.get("ok"):
        refused = CleanerdError(str(answer.get("error")))
        refused.exit_code = int(answer.get("code", 1))
        raise refused
    return dict(answer["result"])
