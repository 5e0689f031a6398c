"""``cleanerd status``: what the running daemon knows."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, get_args

import click

from cleanerd.cli.operations import print_operations
from cleanerd.cli.options import Common, common_options
from cleanerd.cli.output import NONE_COMPACTED, Column
from cleanerd.cli.selecting import daemons_partitions
from cleanerd.daemon.control_client import UNKNOWN, find_control_socket, send_request
from cleanerd.daemon.view import PartitionPhase
from cleanerd.format.names import TopicPartition
from cleanerd.humanize import counted, describe_reclaimable, human_bytes, human_ms
from cleanerd.inspection.report import time_of
from cleanerd.resolution.selection import select

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cleanerd.cli.output import Output

_NAMED: Final = 10
"""Names in a line about what needs attention; `--state` and `--json` have all."""

_STALE_MS: Final = 900_000
_HANGS_MS: Final = 900_000
"""As in the alerts CleanerdStalled and CleanerdHangingTransaction."""

PARTITION_COLUMNS = (
    Column("partition"),
    Column("state"),
    Column("mode"),
    Column("dirty", right=True),
    Column("ratio", right=True),
    Column("to reclaim", right=True),
    Column("next purge", right=True),
    Column("why"),
)


@click.command("status")
@common_options
@daemons_partitions()
@click.option(
    "--state",
    "states",
    type=click.Choice(get_args(PartitionPhase)),
    multiple=True,
    help="Only partitions in this state. Repeatable.",
)
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="At most N partitions. Default: all.")
@click.option("--operations", is_flag=True, help="Show instead what operators asked for last, and who asked.")
@click.option("--history", is_flag=True, help="Show instead the cleanings that ended last, the newest first.")
def status(
    common: Common,
    partitions: tuple[str, ...],
    *,
    states: tuple[str, ...],
    limit: int | None,
    operations: bool,
    history: bool,
) -> int:
    """Print what the daemon knows of its log directories and partitions, and what of it needs attention.

    Exit code 1 when the daemon is unhealthy.
    """
    socket = find_control_socket(common.load_settings())
    if operations:
        if partitions or states or history:
            raise click.UsageError("--operations goes with --limit only")
        print_operations(common.output, send_request(socket, "operations")["operations"], limit)
        return 0
    if history and states:
        raise click.UsageError("--history goes with partitions and --limit, not with --state")
    view = send_request(socket, "status")
    if history:
        show_history(common.output, view, partitions, limit)
        return 0
    found = matching(view, partitions, states)
    rows = found if limit is None else found[:limit]
    if common.output.as_json:
        common.output.json({**view, "partitions": rows, "matching_partitions": len(found)})
    else:
        print_status(common.output, view, rows)
        if len(rows) < len(found):
            common.output.note(f"{len(rows)} of {counted(len(found), 'partition')} shown")
    return 0 if view["healthy"] else 1


def matching(view: Mapping[str, Any], words: Sequence[str], states: Sequence[str]) -> list[Mapping[str, Any]]:
    """The partitions of a status that the words mean, and that are in one of ``states``; without any, all.

    Raises:
        ConfigError: the daemon does not know a word.
    """
    rows = [(TopicPartition(each["topic"], each["partition"]), each) for each in view["partitions"]]
    wanted = select(words, (name for name, _ in rows), what=UNKNOWN, hint="see cleanerd status")
    return [each for name, each in rows if (not wanted or name in wanted) and (not states or each["state"] in states)]


def print_status(output: Output, view: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
    """A status in words, with these of its partitions."""
    output.line(headline(view))
    output.line()
    for line in attention(view, int(time.time() * 1000)) or ["nothing needs attention"]:
        output.line(line)
    output.line()
    output.table(
        [Column("log directory"), Column("mode"), Column("free", right=True), Column("why")],
        [
            [d["path"], d["mode"], human_bytes(d["free_bytes"]), d["error"] or d["mode_reason"]]
            if d["online"]
            else [d["path"], "offline!", "?", d["error"] or d["mode_reason"]]
            for d in view["log_dirs"]
        ],
    )  # fmt: skip
    output.line()
    # A single directory's name is not needed.
    where = [Column("log directory")] if len(view["log_dirs"]) > 1 else []
    cells = [
        [name, *([each["log_dir"]] if where else []), *others]
        for each in rows
        for name, *others in [partition_row(each, view["made_ms"])]
    ]
    output.table([PARTITION_COLUMNS[0], *where, *PARTITION_COLUMNS[1:]], cells)
    if view["ready"] and not view["partitions"]:
        output.note(_no_partition())
    for warning in view["warnings"]:
        output.warning(warning)


def headline(view: Mapping[str, Any]) -> str:
    """One line about all of it."""
    totals = view["totals"]
    words = [
        f"cleanerd {view['version']}, mode {view['mode']}",
        "ready" if view["ready"] else "not ready",
        f"up {human_ms(max(0, int(time.time() * 1000) - view['started_ms']))}",
        counted(len(view["partitions"]), "partition"),
        f"{totals['cleans'].get('cleaned', 0)} cleaned",
        f"{human_bytes(max(0, totals['bytes_before'] - totals['bytes_after']))} saved",
    ]
    if totals["cleans"].get("staged"):
        saves = human_bytes(totals.get("staged_bytes", 0))
        words.append(f"{totals['cleans']['staged']} staged, which saves {saves} at the broker's next start")
    if totals.get("observed"):
        words.append(counted(totals["observed"], "observation"))
    if overdue := sum(_is_overdue(each, view["made_ms"]) for each in view["partitions"]):
        words.append(f"{overdue} overdue by max.compaction.lag.ms")
    if view["paused"]:
        words.append("PAUSED")
    if not view["window_open"]:
        words.append("outside of cleanerd.windows")
    if not view["healthy"]:
        words.append(f"UNHEALTHY: {view['unhealthy_reason']}")
    return ", ".join(words)


def attention(view: Mapping[str, Any], now_ms: int) -> list[str]:
    """OP-17: what an operator should check, the worst first: kind, count, names, and the command for more."""
    partitions = view["partitions"]
    stale_ms = now_ms - (view["last_round_ms"] or now_ms)
    online = [each for each in view["log_dirs"] if each["online"]]
    kinds: list[tuple[str, list[str], str]] = [
        ("log directories offline", [each["path"] for each in view["log_dirs"] if not each["online"]], ""),
        (
            "log directories below cleanerd.disk.reserve",
            [each["path"] for each in online if each["free_bytes"] < each["reserve_bytes"]],
            "free some space",
        ),
        ("quarantined", _names(partitions, lambda each: each["quarantine"]), "cleanerd status --state quarantined"),
        ("not delegated", _names(partitions, lambda each: each["delegated"] is False), "cleanerd delegate TOPIC"),
        ("refused", _names(partitions, _is_refused), "cleanerd status --state refused"),
        (
            "overdue by max.compaction.lag.ms",
            _names(partitions, lambda each: _is_overdue(each, view["made_ms"])),
            "cleanerd explain TOPIC-N",
        ),
        (
            "limited by a transaction open for more than 15 minutes",
            _names(partitions, lambda each: _is_hanging(each, now_ms)),
            "cleanerd explain TOPIC-N",
        ),
        (
            "with timestamps that are not in milliseconds",
            _names(partitions, lambda each: each.get("has_wrong_times")),
            "cleanerd explain TOPIC-N",
        ),
        (
            "with tombstones that wait for a replica",
            _names(partitions, lambda each: _is_held(each, now_ms)),
            "cleanerd explain TOPIC-N",
        ),
        ("whose last cleaning failed", _names(partitions, _has_failed), "cleanerd status --history"),
    ]
    lines = [f"the partitions were last scanned {human_ms(stale_ms)} ago"] if stale_ms > _STALE_MS else []
    for what, names, way_out in kinds:
        if names:
            more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
            lines.append(
                f"{len(names):,} {what}: {', '.join(names[:_NAMED])}{more}{f' ({way_out})' if way_out else ''}"
            )
    return [f"needs attention: {line}" for line in lines]


def _names(partitions: Sequence[Mapping[str, Any]], is_meant: Callable[[Mapping[str, Any]], Any]) -> list[str]:
    return [f"{each['topic']}-{each['partition']}" for each in partitions if is_meant(each)]


def _is_refused(partition: Mapping[str, Any]) -> bool:
    return partition["state"] == "refused" and partition["delegated"] is not False


def _is_held(partition: Mapping[str, Any], now_ms: int) -> bool:
    due_ms = partition["next_purge_ms"]
    return bool(partition.get("waits_for")) and due_ms is not None and due_ms <= now_ms


def _is_hanging(partition: Mapping[str, Any], now_ms: int) -> bool:
    since_ms = partition.get("open_transaction_since_ms")
    return since_ms is not None and now_ms - since_ms > _HANGS_MS


def _has_failed(partition: Mapping[str, Any]) -> bool:
    last = partition["last_clean"]
    return last is not None and last["outcome"] == "failed" and partition["quarantine"] is None


def show_history(output: Output, view: Mapping[str, Any], words: Sequence[str], limit: int | None) -> None:
    """The cleanings that ended, the newest first, at most ``limit``; ``words``: only these partitions."""
    names = {(each["topic"], each["partition"]) for each in matching(view, words, ())} if words else None
    ended = sorted(view["history"], key=lambda each: each["ended_ms"], reverse=True)
    shown = [each for each in ended if names is None or (each["topic"], each["partition"]) in names][:limit]
    if output.as_json:
        output.json({"history": shown})
    elif not shown:
        output.line("No cleaning has ended since the daemon started.")
    else:
        columns = ("ended", "partition", "outcome", "trigger", "took", "before", "after", "why")
        numbers = {"took", "before", "after"}
        output.table([Column(each, right=each in numbers) for each in columns], [_history_row(each) for each in shown])


def _history_row(clean: Mapping[str, Any]) -> list[str]:
    result = clean["result"]
    is_known = result.get("bytes_before") is not None
    return [
        time_of(clean["ended_ms"]),
        f"{clean['topic']}-{clean['partition']}",
        result.get("outcome", "?"),
        clean["trigger"],
        human_ms(clean["ended_ms"] - clean["started_ms"]),
        human_bytes(result["bytes_before"]) if is_known else "",
        human_bytes(result["bytes_after"]) if is_known else "",
        result.get("reason", ""),
    ]


def partition_row(partition: Mapping[str, Any], now_ms: int) -> list[str]:
    """A partition as cells of ``PARTITION_COLUMNS``."""
    purge = partition["next_purge_ms"]
    return [
        f"{partition['topic']}-{partition['partition']}",
        partition["state"] + (", overdue" if _is_overdue(partition, now_ms) else ""),
        partition["mode"],
        "" if partition["dirty_bytes"] is None else human_bytes(partition["dirty_bytes"]),
        "" if partition["dirty_ratio"] is None else f"{partition['dirty_ratio']:.3f}",
        _reclaimable(partition),
        "" if purge is None else _purge(purge, now_ms, partition.get("waits_for", ())),
        partition["reason"],
    ]


def _purge(at_ms: int, now_ms: int, waits_for: Sequence[int]) -> str:
    if at_ms > now_ms:
        return f"in {human_ms(at_ms - now_ms)}"
    return "waits for " + ", ".join(map(str, waits_for)) if waits_for else "now"


def _is_overdue(partition: Mapping[str, Any], now_ms: int) -> bool:
    due_ms = partition.get("overdue_at_ms")
    return due_ms is not None and due_ms <= now_ms and partition["state"] != "excluded"


def _reclaimable(partition: Mapping[str, Any]) -> str:
    """The reclaimable bytes; empty if the log was not scanned yet."""
    count, low, high = (partition[f"reclaimable_{name}"] for name in ("bytes", "low_bytes", "high_bytes"))
    if count is None or (partition["reclaimable_method"] == "guess" and high):
        return ""
    return describe_reclaimable(count, low, high, exact=partition["reclaimable_exact"] or not high)


def _no_partition() -> str:
    from cleanerd.resolution.broker_facts import METADATA_AGE_MS  # noqa: PLC0415 - it loads NumPy

    return (
        f"{NONE_COMPACTED} Beside a broker without the agent a topic counts {METADATA_AGE_MS // 60_000} minutes after "
        "it was made or changed; cleanerd plan LOG_DIR... says more"
    )
