"""Commands that control the running daemon over its socket, such as ``cleanerd trigger`` and ``ignore-replica``."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from cleanerd.cli.options import Common, common_options
from cleanerd.cli.selecting import daemons_partitions
from cleanerd.daemon.control_client import find_control_socket, send_request
from cleanerd.errors import RefusedError, worst_exit_code
from cleanerd.humanize import counted

POLL_SECONDS: Final = 0.2
"""Interval of ``trigger --wait`` between two queries for the result."""


@click.command("trigger")
@common_options
@daemons_partitions(required=True)
@click.option("--wait", is_flag=True, help="Wait until all have ended, and print the outcomes.")
@click.option(
    "--timeout",
    "timeout_seconds",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="With --wait: end after this time.",
)
def trigger(common: Common, partitions: tuple[str, ...], *, wait: bool, timeout_seconds: float | None) -> int:
    """Have the daemon clean partitions next, in spite of dirty ratio, cleanerd.windows and quarantine.

    TOPIC means all its partitions, 'orders-*' all that match. If a named partition is unknown or cannot be cleaned,
    nothing is triggered. With --wait the exit code is that of cleanerd clean: 0 if nothing failed or was refused. In
    observe mode it only computes what a cleaning would save.
    """
    if timeout_seconds is not None and not wait:
        raise click.UsageError("--timeout needs --wait")
    answer = _request(common, "trigger", partitions)
    if wait:
        return _wait(common, answer, timeout_seconds)
    _print_answer(
        common,
        answer,
        [
            f"{each['partition']}: will be tried again next; it was not cleaned at the last scan: {each['was_refused']}"
            if "was_refused" in each
            else f"{each['partition']}: will be {_WORKS[each['work']]} next"
            for each in answer["triggered"]
        ]
        + _left_out(answer),
    )
    return 0


def _left_out(answer: Mapping[str, Any]) -> list[str]:
    return [f"{each['partition']}: not triggered: {each['reason']}" for each in answer["left_out"]]


def _wait(common: Common, answer: dict[str, Any], timeout_seconds: float | None) -> int:
    """Poll the results until all have ended, or until the timeout."""
    names = [each["partition"] for each in answer["triggered"]]
    deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
    while True:
        found = _request(common, "outcomes", names)["outcomes"]
        pending = [each for each in found if each["pending"]]
        if not pending or (deadline is not None and time.monotonic() >= deadline):
            break
        time.sleep(POLL_SECONDS)
    lines = [
        f"{each['partition']}: not ended yet"
        if each["pending"]
        else f"{each['partition']}: {each['outcome']}" + (f": {each['reason']}" if each["reason"] else "")
        for each in found
    ]
    _print_answer(common, {**answer, "outcomes": found}, [*lines, *_left_out(answer)])
    codes = {RefusedError.exit_code if each["pending"] else each["code"] for each in found}
    return worst_exit_code(codes - {0}, some_done=0 in codes)


@click.command("pause")
@common_options
@daemons_partitions()
def pause(common: Common, partitions: tuple[str, ...]) -> None:
    """Pause the cleaning of partitions, or without names all cleaning, until cleanerd resume.

    TOPIC means all the partitions that it has now, 'orders-*' all that match. A running cleaning stops between two
    chunks. A restart of the daemon does not end a pause.
    """
    answer = _request(common, "pause", partitions)
    paused = answer["paused"]
    lines = ["all cleaning is paused"] if paused == "all" else [f"{name}: paused" for name in paused]
    if answer["stopped"]:
        lines.append(f"stopped: {counted(answer['stopped'], 'running cleaning')}")
    _print_answer(common, answer, lines)


@click.command("resume")
@common_options
@daemons_partitions()
@click.option("--canary", is_flag=True, help="Continue cleaning although the canary found a wrong cleaning.")
def resume(common: Common, partitions: tuple[str, ...], *, canary: bool) -> None:
    """End the pause of partitions, or without names of all cleaning."""
    if canary:
        _release_canary(common, partitions)
        return
    answer = _request(common, "resume", partitions)
    if answer["resumed"] == "all":
        lines = ["the daemon was not paused" if answer["not_paused"] else "all cleaning: resumed"]
    else:
        lines = [f"{name}: resumed" for name in answer["resumed"]]
        lines += [f"{name}: was not paused" for name in answer["not_paused"]]
    if answer["all_paused"]:
        lines.append("all cleaning is still paused: cleanerd resume, without names, ends that")
    if answer["still_paused"]:
        lines.append(f"still paused: {', '.join(answer['still_paused'])}")
    _print_answer(common, answer, lines)


def _release_canary(common: Common, partitions: tuple[str, ...]) -> None:
    if partitions:
        raise click.UsageError("--canary cannot be used with partitions")
    answer = _request(common, "release-canary", ())
    hold = answer["released"]
    line = (
        "the canary had not stopped cleaning"
        if hold is None
        else f"{hold['partition'] or 'canary'}: released: {hold['finding']}"
    )
    _print_answer(common, answer, [line])


@click.command("retry")
@common_options
@daemons_partitions()
def retry(common: Common, partitions: tuple[str, ...]) -> None:
    """End the quarantine of partitions, or without names all quarantines, and clean those that are due.

    If the canary has stopped all cleaning, it verifies that partition again.
    """
    answer = _request(common, "retry", partitions)
    lines = [
        f"{name}: will be tried again after its pause (cleanerd resume)"
        if name in answer["paused"]
        else f"{name}: its failures are forgotten, but it is not cleaned now: {answer['not_due'][name]}"
        if name in answer["not_due"]
        else f"{name}: will be tried again"
        for name in answer["retried"]
    ]
    again = answer.get("verified_again")
    lines += [f"{name}: has not failed, nothing to do" for name in answer["healthy"] if again is None or name != again]
    if again is not None:
        lines.append(f"{again or 'canary'}: will be verified again")
    _print_answer(common, answer, lines or ["nothing is quarantined"])


@click.command("reload")
@common_options
def reload(common: Common) -> None:
    """Have the daemon read its settings again, as SIGHUP does, and show which changes need a restart."""
    answer = _request(common, "reload", ())
    lines = [f"changed: {', '.join(answer['changed']) or 'nothing'}"]
    if answer["needs_restart"]:
        lines.append(f"at the next start: {', '.join(answer['needs_restart'])}")
    _print_answer(common, answer, lines)


@click.command("ignore-replica")
@common_options
@click.argument("brokers", nargs=-1, type=click.IntRange(min=0, max=2**31 - 1), metavar="[BROKER...]")
@click.option("--revoke", is_flag=True, help="Wait for these brokers again.")
def ignore_replica(common: Common, brokers: tuple[int, ...], *, revoke: bool) -> None:
    """Stop waiting for brokers that never return, so that tombstones and transaction markers can be removed.

    BROKER is a node.id; without one, the ignored brokers are listed. The daemon ignores them until --revoke, also after
    a restart. Before such a broker starts again, move its replicas aside: cleanerd move-aside.
    """
    operation = ("wait-for-replica" if revoke else "ignore-replica") if brokers else "ignored-replicas"
    answer = _request(common, operation, [str(each) for each in brokers])
    ignored = ", ".join(map(str, answer["ignored"]))
    lines = [
        f"tombstones do not wait for the replicas of broker {ignored}"
        if ignored
        else "tombstones wait for all replicas"
    ]
    _print_answer(common, answer, lines)


_WORKS = {"live": "cleaned", "stage": "staged", "observe": "estimated"}


def _request(common: Common, operation: str, words: Sequence[str]) -> dict[str, Any]:
    return send_request(find_control_socket(common.load_settings()), operation, partitions=list(words))


def _print_answer(common: Common, answer: dict[str, Any], lines: Sequence[str]) -> None:
    if common.output.as_json:
        common.output.json(answer)
        return
    for line in lines:
        common.output.line(line)
