"""``cleanerd trigger``, ``pause``, ``resume``, ``retry``, ``reload``: control of the running daemon over its socket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cleanerd.cli.options import Common, common_options
from cleanerd.cli.scope import parse_partitions
from cleanerd.daemon.control import ask, find_control_socket

if TYPE_CHECKING:
    from collections.abc import Sequence


@click.command("trigger")
@common_options
@click.argument("partitions", nargs=-1, required=True, metavar="TOPIC-N...")
def trigger(common: Common, partitions: tuple[str, ...]) -> None:
    """Have the daemon clean TOPIC-N next, whatever its dirty ratio, cleanerd.windows and quarantine say."""
    answers = _each(common, "trigger", partitions)
    _tell(common, answers, [f"{answer['partition']}: {_WORKS[answer['work']]} next" for answer in answers])


@click.command("pause")
@common_options
@click.argument("partitions", nargs=-1, metavar="[TOPIC-N...]")
def pause(common: Common, partitions: tuple[str, ...]) -> None:
    """Keep the daemon from cleaning TOPIC-N, or without one from cleaning at all, until cleanerd resume.

    A cleaning that runs is stopped between two chunks. A restart of the daemon does not end a pause.
    """
    answers = _each(common, "pause", partitions)
    _tell(common, answers, [f"{answer['paused']}: paused, {answer['stopped']} stopped" for answer in answers])


@click.command("resume")
@common_options
@click.argument("partitions", nargs=-1, metavar="[TOPIC-N...]")
def resume(common: Common, partitions: tuple[str, ...]) -> None:
    """End the pause of TOPIC-N, or without one that of the whole daemon."""
    answers = _each(common, "resume", partitions)
    lines = [f"{answer['resumed']}: resumed" for answer in answers]
    paused = answers[-1]["still_paused"]
    _tell(common, answers, [*lines, f"still paused: {', '.join(paused)}"] if paused else lines)


@click.command("retry")
@common_options
@click.argument("partitions", nargs=-1, metavar="[TOPIC-N...]")
def retry(common: Common, partitions: tuple[str, ...]) -> None:
    """End the quarantine of TOPIC-N, or without one of all partitions: they are tried again at once."""
    answers = _each(common, "retry", partitions)
    retried = [name for answer in answers for name in answer["retried"]]
    _tell(common, answers, [f"{name}: tried again" for name in retried] or ["nothing is quarantined"])


@click.command("reload")
@common_options
def reload(common: Common) -> None:
    """Have the daemon read its settings again, as SIGHUP does; says what takes effect at the next start only."""
    answer = ask(find_control_socket(common.load_settings()), "reload")
    changed = ", ".join(answer["changed"]) or "nothing"
    lines = [f"changed: {changed}"]
    if answer["needs_restart"]:
        lines.append(f"at the next start: {', '.join(answer['needs_restart'])}")
    if common.output.as_json:
        common.output.json(answer)
    else:
        for line in lines:
            common.output.line(line)


_WORKS = {"live": "cleaned", "stage": "staged", "observe": "worked out"}


def _each(common: Common, operation: str, partitions: Sequence[str]) -> list[dict[str, Any]]:
    socket = find_control_socket(common.load_settings())
    names = [str(name) for name in parse_partitions(partitions, said_as="TOPIC-N")]
    return [ask(socket, operation, partition=name) for name in names] or [ask(socket, operation)]


def _tell(common: Common, answers: Sequence[dict[str, Any]], lines: Sequence[str]) -> None:
    if common.output.as_json:
        common.output.json({"answers": list(answers)})
        return
    for line in lines:
        common.output.line(line)
