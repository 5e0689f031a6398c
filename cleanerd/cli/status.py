"""``cleanerd status``: the state of the running daemon.

``cleanerd status --operations``: which user paused, triggered or reloaded what, and when.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, get_args

import click

from cleanerd.cli.options import FEW_PARTITIONS, Common, by_option, common_options, top_option
from cleanerd.cli.output import NONE_COMPACTED, Column, Output
from cleanerd.cli.selecting import daemons_partitions
from cleanerd.daemon.control_client import UNKNOWN, find_control_socket, send_request
from cleanerd.daemon.view import PartitionPhase
from cleanerd.format.names import TopicPartition
from cleanerd.humanize import counted, describe_reclaimable, human_bytes, human_ms, user_name
from cleanerd.inspection.report import time_of
from cleanerd.resolution.selection import select


def print_operations(output: Output, operations: Sequence[Mapping[str, Any]], limit: int | None) -> None:
    """Print the newest operations first, at most ``limit``."""
    shown = list(reversed(operations))[:limit]
    if output.as_json:
        output.json({"operations": shown})
        return
    if not operations:
        output.line("No operation has been requested yet.")
        return
    columns = [Column("time"), Column("who"), Column("operation"), Column("partitions"), Column("answer")]
    output.table(columns, [_row(each) for each in shown])


def _row(each: Mapping[str, Any]) -> list[str]:
    everything = "all" if each["operation"] in {"pause", "resume", "retry"} else ""
    return [
        time_of(each["at_ms"]),
        format_user(each["uid"]),
        each["operation"],
        ", ".join(each["partitions"]) or everything,
        f"refused: {each['refused']}" if each["refused"] else "done",
    ]


def format_user(uid: int | None) -> str:
    """A user's name, if this host knows one for the number."""
    return "a signal" if uid is None else user_name(uid)


_NAMED: Final = 10
"""Limit of names in a line about what needs attention; `--state` and `--json` have all."""

_STALE_MS: Final = 900_000
_HANGS_MS: Final = 900_000
"""The limit in the alerts CleanerdStalled and CleanerdHangingTransaction."""

PARTITION_COLUMNS = (
    Column("partition"),
    Column("state"),
    Column("mode", spare=4),
    Column("dirty", right=True, spare=2),
    Column("ratio", right=True, spare=3),
    Column("reclaimable", right=True),
    Column("next removal", right=True, spare=1),
    Column("why"),
)
_HISTORY_COLUMNS: Final = (
    Column("ended"),
    Column("partition"),
    Column("outcome"),
    Column("trigger", spare=1),
    Column("took", right=True, spare=2),
    Column("before", right=True),
    Column("after", right=True),
    Column("why"),
)
_TOPIC_COLUMNS: Final = (
    Column("topic"),
    Column("partitions", right=True, spare=2),
    Column("dirty", right=True, spare=1),
    Column("reclaimable", right=True),
    Column("next removal", right=True, spare=3),
    Column("states"),
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
@by_option
@top_option
@click.option("--operations", is_flag=True, help="Show the last requests of operators instead, with their users.")
@click.option("--history", is_flag=True, help="Show the last cleanings instead, the newest first.")
def status(
    common: Common,
    partitions: tuple[str, ...],
    *,
    states: tuple[str, ...],
    by: str | None,
    top: int | None,
    operations: bool,
    history: bool,
) -> int:
    """Show the daemon's total, what needs attention, and its log directories and partitions.

    The largest saving comes first; many partitions are shown by topic. Exit code 1 when the daemon is unhealthy.
    """
    socket = find_control_socket(common.load_settings())
    if operations:
        if partitions or states or history:
            raise click.UsageError("--operations can be used only with --top")
        print_operations(common.output, send_request(socket, "operations")["operations"], top)
        return 0
    if history and states:
        raise click.UsageError("--history cannot be used with --state")
    view = send_request(socket, "status")
    if history:
        show_history(common.output, view, partitions, top)
        return 0
    found = matching(view, partitions, states)
    if common.output.as_json:
        common.output.json({**view, "partitions": found[:top], "matching_partitions": len(found)})
    else:
        by = by or ("partition" if states else None)
        print_status(common.output, view, found, by=by, top=top)
    return 0 if view["healthy"] else 1


def matching(view: Mapping[str, Any], words: Sequence[str], states: Sequence[str]) -> list[Mapping[str, Any]]:
    """The partitions of a status that match the words and are in one of ``states``; without any, all.

    Raises:
        ConfigError: the daemon does not know a word.
    """
    rows = [(TopicPartition(each["topic"], each["partition"]), each) for each in view["partitions"]]
    wanted = select(words, (name for name, _ in rows), what=UNKNOWN, hint="see cleanerd status")
    return [each for name, each in rows if (not wanted or name in wanted) and (not states or each["state"] in states)]


def print_status(
    output: Output,
    view: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    *,
    by: str | None = None,
    top: int | None = None,
) -> None:
    """Print a status with these partitions; ``by`` and ``top`` as in ``print_plan``."""
    output.line(headline(view))
    if view.get("canary") is not None:
        output.line(canary_line(view["canary"]))
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
    if (by or ("topic" if len(rows) > FEW_PARTITIONS else "partition")) == "topic":
        _print_topics(output, rows, view["made_ms"], top)
    else:
        _print_partitions(output, view, sorted(rows, key=_by_saving), top)
    print_erasures(output, view.get("erasures", ()))
    if view["ready"] and not view["partitions"]:
        output.note(_no_partition())
    for warning in view["warnings"]:
        output.warning(warning)


def _by_saving(partition: Mapping[str, Any]) -> tuple[int, str, int]:
    return -(partition["reclaimable_bytes"] or 0), partition["topic"], partition["partition"]


def _print_partitions(
    output: Output, view: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], top: int | None
) -> None:
    # With a single directory its name is not needed.
    where = [Column("log directory", spare=1)] if len(view["log_dirs"]) > 1 else []
    cells = [
        [name, *([each["log_dir"]] if where else []), *others]
        for each in rows[:top]
        for name, *others in [partition_row(each, view["made_ms"])]
    ]
    output.table([PARTITION_COLUMNS[0], *where, *PARTITION_COLUMNS[1:]], cells)
    if len(cells) < len(rows):
        output.line(f"and {counted(len(rows) - len(cells), 'more partition')}; --top sets how many are shown")


def _print_topics(output: Output, rows: Sequence[Mapping[str, Any]], now_ms: int, top: int | None) -> None:
    """A row per topic with work or a saving; the others in one line."""
    topics: dict[str, list[Mapping[str, Any]]] = {}
    for row in sorted(rows, key=_by_saving):
        topics.setdefault(row["topic"], []).append(row)
    quiet = {
        topic: partitions
        for topic, partitions in topics.items()
        if all(each["state"] in {"idle", "excluded"} and not each["reclaimable_bytes"] for each in partitions)
    }
    groups = sorted(
        (partitions for topic, partitions in topics.items() if topic not in quiet),
        key=lambda group: -sum(each["reclaimable_bytes"] or 0 for each in group),
    )
    if groups:
        output.table(_TOPIC_COLUMNS, [_topic_row(group, now_ms) for group in groups[:top]])
    if top is not None and len(groups) > top:
        output.line(f"and {counted(len(groups) - top, 'more topic')}; --top sets how many are shown")
    rest = Counter(each["state"] for partitions in quiet.values() for each in partitions)
    if rest:
        states = ", ".join(f"{counted(number, 'partition')} {state}" for state, number in rest.most_common())
        output.line(f"nothing to reclaim in {counted(len(quiet), 'topic')}: {states}; --by partition shows each")


def _topic_row(partitions: Sequence[Mapping[str, Any]], now_ms: int) -> list[str]:
    dirty = [each["dirty_bytes"] for each in partitions if each["dirty_bytes"] is not None]
    removals = [each["next_purge_ms"] for each in partitions if each["next_purge_ms"] is not None]
    states = Counter(each["state"] for each in partitions)
    return [
        partitions[0]["topic"],
        f"{len(partitions):,}",
        human_bytes(sum(dirty)) if dirty else "",
        _reclaimable_sum(partitions),
        _removal(min(removals), now_ms, {}) if removals else "",
        ", ".join(f"{number:,} {state}" for state, number in states.most_common()),
    ]


def print_erasures(output: Output, erasures: Sequence[Mapping[str, Any]]) -> None:
    """U-88: the open erasure requests, a row per partition of this host with their tombstone."""
    rows = []
    for each in erasures:
        for stage in each["stages"] or [
            {"partition": each["topic"], "stage": "", "reason": "no partition of this host has its tombstone"}
        ]:
            deadline = time_of(each["deadline_ms"])
            rows.append([each["id"], stage["partition"], deadline, stage["stage"], stage["reason"]])
    if rows:
        output.line()
        titles = ("erasure", "partition", "deadline", "stage", "why")
        output.table([Column(title) for title in titles], rows)


def headline(view: Mapping[str, Any]) -> str:
    """A summary of the status in one line."""
    totals = view["totals"]
    words = [
        f"cleanerd {view['version']}, mode {view['mode']}",
        "ready" if view["ready"] else "not ready",
        f"up {human_ms(max(0, int(time.time() * 1000) - view['started_ms']))}",
        counted(len(view["partitions"]), "partition"),
        f"{totals['cleanings'].get('cleaned', 0)} cleaned",
        f"{human_bytes(max(0, totals['bytes_before'] - totals['bytes_after']))} saved",
        *([f"{reclaimable} reclaimable"] if (reclaimable := _reclaimable_sum(view["partitions"])) else []),
    ]
    if staged := sum(each["state"] == "staged" for each in view["partitions"]):
        known = totals.get("staged_bytes", 0)
        saves = f"which saves {human_bytes(known)}" if known else "which takes effect"
        words.append(f"{staged} staged, {saves} at the broker's next start")
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


def canary_line(canary: Mapping[str, Any]) -> str:
    """The progress of ``cleanerd.canary``."""
    now = f"verifies {canary['verifying']} now, " if canary["verifying"] else ""
    waiting = counted(canary["unverified"], "partition")
    return f"canary ({canary['budget']}): {now}{waiting} to verify, {canary['verified']:,} verified"


def attention(view: Mapping[str, Any], now_ms: int) -> list[str]:
    """OP-17: what an operator should check, the worst first: kind, count, names, and the command for details."""
    stale_ms = now_ms - (view["last_scan_ms"] or now_ms)
    lines = [f"the partitions were last scanned {human_ms(stale_ms)} ago"] if stale_ms > _STALE_MS else []
    if view["paused"]:
        lines.append("everything is paused, so nothing is cleaned (cleanerd resume)")
    canary = view.get("canary")
    if canary is not None and canary["held_partition"] is not None:
        where = f"{canary['held_partition']} in {canary['held_log_dir']}: " if canary["held_partition"] else ""
        lines.append(
            f"nothing is cleaned: {where}{canary['finding']} "
            "(verify again: cleanerd retry; continue: cleanerd resume --canary)"
        )
    for what, names, way_out in _in_need_of_attention(view, now_ms):
        if names:
            more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
            lines.append(
                f"{len(names):,} {what}: {', '.join(names[:_NAMED])}{more}{f' ({way_out})' if way_out else ''}"
            )
    return [f"needs attention: {line}" for line in lines]


def _in_need_of_attention(view: Mapping[str, Any], now_ms: int) -> list[tuple[str, list[str], str]]:
    """Each kind with its names and the command for details."""
    partitions, erasures = view["partitions"], view.get("erasures", ())
    online = [each for each in view["log_dirs"] if each["online"]]
    return [
        ("log directories offline", [each["path"] for each in view["log_dirs"] if not each["online"]], ""),
        ("log directories without a running broker", [each["path"] for each in online if _has_no_broker(each)], ""),
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
        (
            "erasure requests past their deadline",
            [f"{each['topic']} ({each['id']})" for each in erasures if each["deadline_ms"] < now_ms],
            "cleanerd erase plan TOPIC --key K",
        ),
        (
            "erasure requests that wait for a certificate",
            [f"{each['topic']} ({each['id']})" for each in erasures if _waits_for_certificate(each)],
            "cleanerd erase certify TOPIC",
        ),
        ("whose last cleaning failed", _names(partitions, _has_failed), "cleanerd status --history"),
    ]


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
    last = partition["last_cleaning"]
    return last is not None and last["outcome"] in {"failed", "quarantined"} and partition["quarantine"] is None


def _has_no_broker(log_dir: Mapping[str, Any]) -> bool:
    from cleanerd.broker.mode import NO_BROKER  # noqa: PLC0415 - it loads NumPy

    return NO_BROKER in log_dir["mode_reason"]


def _waits_for_certificate(erasure: Mapping[str, Any]) -> bool:
    return bool(erasure["stages"]) and all(each["stage"] == "certify" for each in erasure["stages"])


def show_history(output: Output, view: Mapping[str, Any], words: Sequence[str], limit: int | None) -> None:
    """Print the finished cleanings, the newest first, at most ``limit``; ``words``: only these partitions."""
    names = {(each["topic"], each["partition"]) for each in matching(view, words, ())} if words else None
    ended = sorted(view["history"], key=lambda each: each["ended_ms"], reverse=True)
    shown = [each for each in ended if names is None or (each["topic"], each["partition"]) in names][:limit]
    if output.as_json:
        output.json({"history": shown})
    elif not shown:
        output.line("No cleaning has ended since the daemon started.")
    else:
        output.table(_HISTORY_COLUMNS, [_history_row(each) for each in shown])


def _history_row(clean: Mapping[str, Any]) -> list[str]:
    result = clean["result"]
    is_known, active = result.get("bytes_before") is not None, result.get("active_bytes", 0)
    return [
        time_of(clean["ended_ms"]),
        f"{clean['topic']}-{clean['partition']}",
        result.get("outcome", "?"),
        clean["trigger"],
        human_ms(clean["ended_ms"] - clean["started_ms"]),
        # The whole log, as in clean and plan.
        human_bytes(result["bytes_before"] + active) if is_known else "",
        human_bytes(result["bytes_after"] + active) if is_known else "",
        result.get("reason", ""),
    ]


def partition_row(partition: Mapping[str, Any], now_ms: int) -> list[str]:
    """A partition as cells of ``PARTITION_COLUMNS``."""
    removal_ms = partition["next_purge_ms"]
    return [
        f"{partition['topic']}-{partition['partition']}",
        partition["state"] + (", overdue" if _is_overdue(partition, now_ms) else ""),
        partition["mode"],
        "" if partition["dirty_bytes"] is None else human_bytes(partition["dirty_bytes"]),
        "" if partition["dirty_ratio"] is None else f"{partition['dirty_ratio']:.3f}",
        _reclaimable(partition),
        "" if removal_ms is None else _removal(removal_ms, now_ms, partition),
        partition["reason"],
    ]


def _removal(at_ms: int, now_ms: int, partition: Mapping[str, Any]) -> str:
    if at_ms > now_ms:
        return f"in {human_ms(at_ms - now_ms)}"
    ends = {broker: f" (at {end} of {partition['log_end_offset']})" for broker, end in partition.get("waits_at", ())}
    brokers = [f"{broker}{ends.get(broker, '')}" for broker in partition.get("waits_for", ())]
    if not brokers:
        return "now"
    kept = partition.get("tombstones_kept")
    return (f"up to {kept:,} wait for " if kept else "waits for ") + ", ".join(brokers)


def _is_overdue(partition: Mapping[str, Any], now_ms: int) -> bool:
    due_ms = partition.get("overdue_at_ms")
    return due_ms is not None and due_ms <= now_ms and partition["state"] != "excluded"


def _reclaimable(partition: Mapping[str, Any]) -> str:
    """The reclaimable bytes; empty if the log was not scanned yet."""
    count, low, high = (partition[f"reclaimable_{name}"] for name in ("bytes", "low_bytes", "high_bytes"))
    if count is None or (partition["reclaimable_method"] == "guess" and high):
        return ""
    return describe_reclaimable(count, low, high, exact=partition["reclaimable_exact"] or not high)


def _reclaimable_sum(partitions: Sequence[Mapping[str, Any]]) -> str:
    """The reclaimable bytes of all partitions that were scanned; empty if none was."""
    known = [each for each in partitions if _reclaimable(each)]
    if not known:
        return ""
    sums = [sum(each[f"reclaimable_{name}"] for each in known) for name in ("bytes", "low_bytes", "high_bytes")]
    return describe_reclaimable(*sums, exact=all(each["reclaimable_exact"] for each in known))


def _no_partition() -> str:
    from cleanerd.resolution.broker_facts import METADATA_AGE_MS  # noqa: PLC0415 - it loads NumPy

    return (
        f"{NONE_COMPACTED} Without the agent, a topic is listed {METADATA_AGE_MS // 60_000} minutes after it was "
        "created or changed; cleanerd plan LOG_DIR... shows why"
    )
