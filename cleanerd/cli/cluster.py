"""``cleanerd cluster status``: every daemon's ``/status`` side by side."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from cleanerd.cli.cluster_compare import ClusterComparison, DaemonAnswer, compare
from cleanerd.cli.commands import Subcommands
from cleanerd.cli.options import Common, common_options
from cleanerd.cli.output import Column
from cleanerd.errors import ConfigError
from cleanerd.humanize import counted, human_bytes, human_change

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cleanerd.cli.cluster_compare import Difference
    from cleanerd.cli.output import Output

DEFAULT_PORT: Final = 10280
ANSWER_SECONDS: Final = 15.0
MOST_BYTES: Final = 256 * 1024 * 1024
AT_ONCE: Final = 16
SHOWN: Final = 10
"""Lines of each kind that the table has; --json has all."""

# The daemons of one's own cluster are queried directly, whatever proxy the environment names for the web.
_OPENER: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(?::([0-9]{1,5}))?")


@click.group("cluster", cls=Subcommands)
def cluster() -> None:
    """Look at all daemons of a cluster together."""


@cluster.command("status", short_help="Every daemon's status, and where they differ.")
@common_options
@click.argument("hosts", nargs=-1, metavar="[HOST[:PORT]|URL]...")
@click.option(
    "--targets",
    "files",
    multiple=True,
    metavar="FILE",
    type=click.Path(path_type=Path, readable=False),
    help="The daemons of Prometheus' file_sd file (JSON). Repeatable.",
)
def status(common: Common, hosts: tuple[str, ...], *, files: tuple[Path, ...]) -> int:
    """Print the status of the daemons at HOST..., side by side: strategies, delegation, replicas, versions, savings.

    A HOST is where cleanerd.http.listen serves the status page; the port is 10280 unless it is named. Exit code 0 when
    all is well, 4 when a daemon does not answer, 1 when one is unwell, when topics are cleaned by different rules or
    are not delegated, when replicas have different latest states, or when a partition is in quarantine.
    """
    targets = tuple(dict.fromkeys([*hosts, *(target for path in files for target in read_targets(path))]))
    if not targets:
        raise click.UsageError("name the daemons: HOST..., or --targets FILE")
    urls = [status_url(target) for target in targets]
    with ThreadPoolExecutor(min(AT_ONCE, len(targets))) as pool:
        found = compare(list(pool.map(_query_daemon, targets, urls)))
    if common.output.as_json:
        common.output.json(found.to_json())
    else:
        print_cluster(common.output, found)
    return found.exit_code


def read_targets(path: Path) -> list[str]:
    """The targets of a ``file_sd`` file.

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
    """Where a daemon's ``/status`` is; ``target``: HOST, HOST:PORT or the address of its page.

    Raises:
        ConfigError: it is none of these.
    """
    if target.startswith(("http://", "https://")):
        return target.rstrip("/") + "/status"
    found = _HOST.fullmatch(target)
    if found is None or int(found[2] or 0) > 65535:
        raise ConfigError("is neither HOST nor HOST:PORT nor an address", where=target)
    return f"http://{found[1]}:{found[2] or DEFAULT_PORT}/status"


def _query_daemon(target: str, url: str) -> DaemonAnswer:
    try:
        with _OPENER.open(url, timeout=ANSWER_SECONDS) as answer:
            body = answer.read(MOST_BYTES + 1)
    except urllib.error.HTTPError as error:
        return DaemonAnswer(target, None, f"answers {error.code} ({error.reason}): see cleanerd.http.hosts")
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        return DaemonAnswer(target, None, f"does not answer: {getattr(reason, 'strerror', None) or reason}")
    try:
        document = json.loads(body)
        compare([DaemonAnswer(target, document)])  # whether it has all that is compared
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError, OverflowError):
        return DaemonAnswer(target, None, "responded, but is not a supported cleanerd version")
    return DaemonAnswer(target, document)


def print_cluster(output: Output, found: ClusterComparison) -> None:
    """In words, 80 columns wide."""
    columns = [Column("daemon"), Column("node"), Column("Kafka"), Column("cleanerd"), Column("mode"),
               Column("logs", right=True), Column("reclaimed", right=True), Column("notes")]  # fmt: skip
    output.table(columns, [_cells(row) for row in found.rows])
    kinds: tuple[tuple[str, Sequence[Difference]], ...] = (
        ("cleaned by different rules", found.drift),
        ("not delegated", found.undelegated),
        ("in quarantine", found.quarantined),
        ("replicas with different latest states", found.states),
        ("replicas with other clean points", found.clean_points),
        ("replicas of other sizes", found.sizes),
    )
    for title, differences in kinds:
        if differences:
            output.line()
            output.line(f"{title} ({len(differences):,}):")
        for each in differences[:SHOWN]:
            output.item(f"  {each.what}", _shared_text(each))
        if len(differences) > SHOWN:
            output.line(f"  and {len(differences) - SHOWN:,} more (--json has all)")
    output.line()
    answering = sum(bool(row.cleanerd) for row in found.rows)
    output.line(
        f"{counted(answering, 'daemon')} of {len(found.rows)} answered; reclaimed since their starts: "
        f"{human_change(found.bytes_before, found.bytes_after)}"
    )
    if len(found.versions) > 1:
        output.line(f"different releases of cleanerd: {', '.join(found.versions)}")


def _cells(row: Any) -> list[str]:
    if not row.cleanerd:
        return [row.target, "", "", "", "", "", "", row.remarks]
    nodes, kafka = ",".join(map(str, row.node_ids)) or "?", ",".join(row.kafka) or "?"
    remarks = row.remarks or "ok"
    return [
        row.target,
        nodes,
        kafka,
        row.cleanerd,
        row.mode,
        f"{row.partitions:,}",
        human_bytes(row.reclaimed_bytes),
        remarks,
    ]


def _shared_text(each: Difference) -> str:
    """Text that is the same at several daemons is printed once."""
    by_word: dict[str, list[str]] = {}
    for target, word in each.by_target.items():
        by_word.setdefault(word, []).append(target)
    return "; ".join(f"{word}: {', '.join(targets)}" for word, targets in by_word.items())
