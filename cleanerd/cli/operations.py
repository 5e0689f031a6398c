"""``cleanerd status --operations``: which user paused, triggered or reloaded what, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cleanerd.cli.output import Column
from cleanerd.humanize import user_name
from cleanerd.inspection.report import time_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cleanerd.cli.output import Output


def print_operations(output: Output, operations: Sequence[Mapping[str, Any]], limit: int | None) -> None:
    """The newest first, at most ``limit`` of them."""
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
    """A user by name, where this host has one for the number."""
    return "a signal" if uid is None else user_name(uid)
