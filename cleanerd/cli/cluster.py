"""``cleanerd cluster``: the status of all daemons, and what a cleaning of all replicas would save."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Final

import click

from cleanerd.admin.cluster_compare import (
    DaemonAnswer,
    compare,
    comparison_lines,
    of_one_cluster,
    reclaimable,
    saving_lines,
)
from cleanerd.admin.peers import FoundDaemons, find_daemons, read_statuses
from cleanerd.cli.commands import Subcommands
from cleanerd.cli.options import Common, common_options, top_option
from cleanerd.errors import ConfigError

DEFAULT_PORT: Final = 10280
ANSWER_SECONDS: Final = 15.0
MOST_BYTES: Final = 256 * 1024 * 1024

_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(?::([0-9]{1,5}))?")


@click.group("cluster", cls=Subcommands)
def cluster() -> None:
    """Look at all daemons of a cluster together."""


def _daemon_options(command: Callable[..., int]) -> Callable[..., int]:
    """Options for the daemons: HOST..., ``--targets`` and ``--port``."""
    for option in (
        click.argument("hosts", nargs=-1, metavar="[HOST[:PORT]|URL]..."),
        click.option(
            "--targets",
            "files",
            multiple=True,
            metavar="FILE",
            type=click.Path(path_type=Path, readable=False),
            help="File with the daemons, in Prometheus' file_sd format (JSON). Repeatable.",
        ),
        click.option(
            "--port",
            type=click.IntRange(1, 65535),
            default=DEFAULT_PORT,
            show_default=True,
            metavar="PORT",
            help="Port of the daemons that are found through bootstrap.servers.",
        ),
    ):
        command = option(command)
    return command


@cluster.command("status", short_help="Every daemon's status, and where they differ.")
@common_options
@_daemon_options
def status(common: Common, hosts: tuple[str, ...], *, files: tuple[Path, ...], port: int) -> int:
    """Print the status of all daemons side by side: strategies, delegation, replicas, versions, savings.

    HOST is the address of a daemon's status page (cleanerd.http.listen); the default port is 10280. Without HOST and
    --targets, the daemons are those of cleanerd.cluster.peers, or of the brokers that bootstrap.servers name.

    Exit code 4 if a daemon does not answer or a broker is down. Exit code 1 if a daemon is unhealthy, its canary holds,
    or a partition is quarantined. The same if topics are not delegated or are cleaned by different strategies, or if
    two replicas have different latest states. Otherwise 0.
    """
    answers, found = _answers(common, hosts, files, port)
    compared = compare(answers, found.down)
    if common.output.as_json:
        common.output.json(compared.to_json())
    else:
        for line in comparison_lines(compared):
            common.output.line(line)
    return compared.exit_code


@cluster.command("plan", short_help="What cleaning would save in the whole cluster.")
@common_options
@_daemon_options
@top_option
def plan(common: Common, hosts: tuple[str, ...], *, files: tuple[Path, ...], port: int, top: int | None) -> int:
    """Print what cleaning all replicas would save, by topic, as the daemons have estimated it.

    The daemons are found as by cleanerd cluster status. Exit code 4 if one does not answer.
    """
    answers, found = _answers(common, hosts, files, port)
    savings = reclaimable(answers)
    if common.output.as_json:
        silent = {each.target: each.error for each in answers if each.status is None}
        common.output.json({"topics": [asdict(each) for each in savings], "no_answer": silent, "down": found.down})
    else:
        for line in saving_lines(savings, answers, top):
            common.output.line(line)
    return 4 if found.down or any(each.status is None for each in answers) else 0


def _answers(
    common: Common, hosts: tuple[str, ...], files: tuple[Path, ...], port: int
) -> tuple[list[DaemonAnswer], FoundDaemons]:
    """The answers of all daemons, in the order of their names."""
    targets = list(dict.fromkeys([*hosts, *(target for path in files for target in read_targets(path))]))
    found = FoundDaemons(())
    if not targets:
        found = _find(common, port)
        targets = [address for _, address in found.addresses]
    urls = {target: status_url(target) for target in targets}
    read = read_statuses(urls, answer_seconds=ANSWER_SECONDS, most_bytes=MOST_BYTES)
    return of_one_cluster([DaemonAnswer.of(*each) for each in read.items()], found.cluster_id), found


def _find(common: Common, port: int) -> FoundDaemons:
    daemon = common.load_settings().daemon
    peers = daemon.cleanerd_cluster_peers
    if isinstance(peers, tuple) and peers:
        return FoundDaemons(peers)
    try:
        return find_daemons(
            peers if isinstance(peers, int) else port,
            daemon.bootstrap_servers,
            daemon.cleanerd_command_config,
            with_down=True,
        )
    except ConfigError as error:
        if error.message != "bootstrap.servers is not set":
            raise
        hint = "name the daemons: HOST..., --targets FILE, cleanerd.cluster.peers or bootstrap.servers"
        raise click.UsageError(hint) from None


def read_targets(path: Path) -> list[str]:
    """The targets in a ``file_sd`` file.

    Raises:
        ConfigError: it cannot be read, or is not such a file.
    """
    try:
        groups = json.loads(path.read_bytes())
        return [str(target) for group in groups for target in group["targets"]]
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except (ValueError, KeyError, TypeError, RecursionError):
        hint = 'JSON of the form [{"targets": ["HOST:PORT", ...]}, ...]'
        raise ConfigError("is not a file_sd file of Prometheus", where=str(path), hint=hint) from None


def status_url(target: str) -> str:
    """The URL of a daemon's ``/status``; ``target``: HOST, HOST:PORT or the address of its page.

    Raises:
        ConfigError: it has none of these forms.
    """
    if target.startswith(("http://", "https://")):
        return target.rstrip("/") + "/status"
    found = _HOST.fullmatch(target)
    if found is None or int(found[2] or 0) > 65535:
        raise ConfigError("is neither HOST nor HOST:PORT nor an address", where=target)
    return f"http://{found[1]}:{found[2] or DEFAULT_PORT}/status"
