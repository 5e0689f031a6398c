"""``cleanerd agent``: the jar, loading it into a running broker, and its report."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from cleanerd.broker.agent_attach import Jvm, attach, inspect_process, log_dirs_of
from cleanerd.broker.agent_jar import build_of_jar, jar_path
from cleanerd.broker.live_broker import LiveBroker, find_socket
from cleanerd.broker.lock_file import broker_process
from cleanerd.broker.mode import SINGLE_TRY
from cleanerd.cli.agent_build import warn_of_another_build
from cleanerd.cli.output import Column
from cleanerd.errors import AgentUnavailableError, ConfigError, RefusedError
from cleanerd.resolution.log_dirs import configured_log_dirs
from cleanerd.segments.log_dir import read_log_dir

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cleanerd.broker.agent_facts import AgentInfo
    from cleanerd.cli.options import Common

FOUND_SECONDS = 10.0
"""How long to wait for the agent: it listens a few hundredths of a second after loading, in a starting broker later."""
REPLACED_SECONDS = 60.0
"""How long to wait for another build: an agent completes its swap before it is replaced."""


def path(common: Common) -> None:
    """Run ``cleanerd agent path``; its options are in ``setup_commands.py``."""
    found = jar_path()
    if common.output.as_json:
        common.output.json({"path": str(found), "build": build_of_jar()})
    else:
        common.output.line(str(found))


def attach_command(
    common: Common,
    log_dirs: tuple[Path, ...],
    *,
    pid: int | None,
    jar: str | None,
    wanted: str | None,
    transport: str | None,
    allow_unknown_version: bool,
) -> int:
    """Run ``cleanerd agent attach``; its options are in ``setup_commands.py``."""
    settings = common.load_settings()
    place = str(jar_path()) if jar is None else jar
    options = f"jar={place}" + (f",socket={wanted}" if wanted else "")
    options += f",transport={transport}" if transport else ""
    options += ",allow-unknown-version=true" if allow_unknown_version else ""
    if "," in place or (wanted and "," in wanted):
        raise click.UsageError("an agent's option cannot hold a comma: choose other paths")
    if wanted and not wanted.startswith("/"):
        raise click.UsageError(f"--socket {wanted}: give an absolute path, for the broker works in another directory")
    if pid is not None and log_dirs:
        raise click.UsageError("give LOG_DIR or --pid, not both")
    jvm = inspect_process(_process_of(common.log_dirs(log_dirs)) if pid is None else pid)
    configured = jvm.root / wanted.lstrip("/") if wanted else settings.daemon.cleanerd_agent_socket
    build = build_of_jar() if jar is None else None
    there = None if build is None or allow_unknown_version else _listening(jvm, configured)
    if there is not None and there[1].build == build:
        socket, info = there
        if transport not in {None, info.transport}:
            raise RefusedError(
                f"has an agent that is reached by {info.connection_text} already",
                where=f"process {jvm.pid}",
                hint="leave --transport out, or restart the broker and attach again",
            )
        common.output.note("this build is already loaded: nothing was done")
    else:
        started = time.monotonic()
        attach(jvm, place, options)
        seconds = time.monotonic() - started
        socket, info = _wait_for(jvm, configured, build)
        warn_of_another_build(common.output, info)
        common.output.note(f"loaded in {1000 * seconds:.0f} ms; until the broker restarts")
    _print_report(common, socket, info)
    return 0 if info.capable or not info.ready else AgentUnavailableError.exit_code


def info_command(common: Common, log_dirs: tuple[Path, ...], *, pid: int | None) -> int:
    """Run ``cleanerd agent info``; its options are in ``setup_commands.py``."""
    settings = common.load_settings()
    directories: Sequence[Path] = (
        log_dirs or configured_log_dirs(settings) if pid is None else log_dirs_of(inspect_process(pid))
    )
    socket = find_socket(settings.daemon.cleanerd_agent_socket, directories)
    if socket is None:
        if not directories:
            raise ConfigError(
                "the place of the agent's socket is unknown",
                where="cleanerd agent info",
                hint="name the broker's log directories, --pid, or --set cleanerd.agent.socket=PATH",
            )
        raise AgentUnavailableError(
            "no cleanerd agent found in " + ", ".join(str(directory) for directory in directories),
            hint="start the broker with the agent, or run cleanerd agent attach",
        )
    with LiveBroker(socket, SINGLE_TRY) as broker:
        info = broker.info()
    warn_of_another_build(common.output, info)
    _print_report(common, socket, info)
    return 0 if info.capable else AgentUnavailableError.exit_code


def _process_of(log_dirs: Sequence[Path]) -> int:
    """The broker's process, from the lock of its log directories.

    Raises:
        ConfigError: one of them is not a log directory, or they belong to several brokers.
        RefusedError: no broker runs there, or its process is not visible from here.
    """
    found = {path: broker_process(read_log_dir(path).path) for path in log_dirs}
    if len(set(found.values())) > 1:
        places = ", ".join(f"{path}: process {pid}" for path, pid in found.items())
        raise ConfigError("several brokers run there", where=places, hint="name one broker's log directories")
    return next(iter(found.values()))


def _listening(jvm: Jvm, configured: Path | None) -> tuple[Path, AgentInfo] | None:
    """The agent that is already loaded, if it answers."""
    socket = find_socket(configured, log_dirs_of(jvm))
    if socket is None:
        return None
    try:
        with LiveBroker(socket, SINGLE_TRY) as broker:
            return socket, broker.info()
    except AgentUnavailableError:
        return None


def _wait_for(jvm: Jvm, configured: Path | None, build: str | None) -> tuple[Path, AgentInfo]:
    """Wait until this agent answers: the result of attaching does not prove that it listens (A-02).

    An agent of another build than ``build`` may complete its swap first; then the one that answers is returned.

    Raises:
        AgentUnavailableError: none answers.
    """
    deadline = time.monotonic() + FOUND_SECONDS
    last = time.monotonic() + REPLACED_SECONDS
    while True:
        socket = find_socket(configured, log_dirs_of(jvm))
        try:
            if socket is not None:
                with LiveBroker(socket, SINGLE_TRY) as broker:
                    info = broker.info()
                if build in {None, info.build} or time.monotonic() > last:
                    return socket, info
                deadline = max(deadline, time.monotonic() + FOUND_SECONDS)
        except AgentUnavailableError:
            if time.monotonic() > deadline:
                raise
        if time.monotonic() > deadline:
            raise AgentUnavailableError(
                "the agent was loaded, but its socket was not found",
                where=f"process {jvm.pid}",
                hint="see the broker's log; --socket sets the path",
            )
        time.sleep(0.1)


_LOADED: Final = {
    "premain": "started with the broker (-javaagent)",
    "agentmain": "loaded into the running broker, until its next restart",
}


def _print_report(common: Common, socket: Path, info: AgentInfo) -> None:
    if common.output.as_json:
        ours = build_of_jar()
        common.output.json(
            {**asdict(info), "found_at": str(socket), "same_build": ours == info.build if ours else None}
        )
        return
    facts = {
        "socket": os.fspath(_resolve_socket(socket)),
        "reached by": info.connection_text,
        "broker": f"{info.kafka}, Java {info.java}, process {info.pid}, node {info.node_id}",
        "agent": f"build {info.build}, protocol {info.protocol}, {_LOADED.get(info.loaded, info.loaded)}",
        "can swap": _capability(info),
        "self-test": info.self_test_text,
        "log directories": ", ".join(info.log_dirs),
        "swaps so far": str(info.swaps),
        "broker's cleaner paused for": ", ".join(info.pauses) or "nothing",
    }
    if info.failed_resumes:
        facts["COULD NOT RESUME"] = ", ".join(info.failed_resumes)
    common.output.table([Column(""), Column("")], [[name, value] for name, value in facts.items()])
    for error in info.errors[-5:]:
        common.output.warning(f"the agent reported: {error}")


def _resolve_socket(socket: Path) -> Path:
    """The path without the broker's process in it, if both lead to the same file: outside of containers."""
    parts = socket.parts
    if parts[:2] != ("/", "proc") or parts[3:4] != ("root",):
        return socket
    plain = Path("/", *parts[4:])
    with contextlib.suppress(OSError):
        if plain.samefile(socket):
            return plain
    return socket


def _capability(info: AgentInfo) -> str:
    if not info.ready:
        return "not yet: the broker is starting"
    if not info.capable:
        return f"no: {info.incapable}"
    return "yes" if info.accepting_swaps else "no longer: it had an error; restart the broker"
