"""``cleanerd trigger``, ``pause``, ``resume``, ``retry``, ``reload``: control of the running daemon over its socket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cleanerd.cli.options import Common, common_options
from cleanerd.cli.selecting import daemons_partitions
from cleanerd.daemon.asking import ask, find_control_socket
from cleanerd.words import counted

if TYPE_CHECKING:
    from collections.abc import Sequence


@click.command("trigger")
@common_options
@daemons_partitions(required=True)
def trigger(common: Common, partitions: tuple[str, ...]) -> None:
    """Have the daemon clean partitions next, whatever their dirty ratio, cleanerd.windows and quarantine say.

    TOPIC stands for all its partitions, 'orders-*' for all that match. When one that is named is unknown, or cannot be
    cleaned, none is.
    """
    answer = _ask(common, "trigger", partitions)
    _tell(
        common,
        answer,
        [
            f"{each['partition']}: tried again next; when last looked at it was not cleaned: {each['was_refused']}"
            if "was_refused" in each
            else f"{each['partition']}: {_WORKS[each['work']]} next"
            for each in answer["triggered"]
        ]
        + [f"{each['partition']}: left out: {each['reason']}" for each in answer["left_out"]],
    )


@click.command("pause")
@common_options
@daemons_partitions()
def pause(common: Common, partitions: tuple[str, ...]) -> None:
    """Keep the daemon from cleaning partitions, or without names from cleaning at all, until cleanerd resume.

    TOPIC stands for all the partitions that it has now, 'orders-*' for all that match. A cleaning that runs is stopped
    between two chunks. A restart of the daemon does not end a pause.
    """
    answer = _ask(common, "pause", partitions)
    paused = answer["paused"]
    lines = ["all cleaning is paused"] if paused == "all" else [f"{name}: paused" for name in paused]
    if answer["stopped"]:
        lines.append(f"stopped: {counted(answer['stopped'], 'running cleaning')}")
    _tell(common, answer, lines)


@click.command("resume")
@common_options
@daemons_partitions()
def resume(common: Common, partitions: tuple[str, ...]) -> None:
    """End the pause of partitions, or without names that of the whole daemon."""
    answer = _ask(common, "resume", partitions)
    if answer["resumed"] == "all":
        lines = ["the daemon was not paused" if answer["not_paused"] else "all cleaning: resumed"]
    else:
        lines = [f"{name}: resumed" for name in answer["resumed"]]
        lines += [f"{name}: was not paused" for name in answer["not_paused"]]
    if answer["all_paused"]:
        lines.append("all cleaning is still paused: cleanerd resume, without names, ends that")
    if answer["still_paused"]:
        lines.append(f"still paused: {', '.join(answer['still_paused'])}")
    _tell(common, answer, lines)


@click.command("retry")
@common_options
@daemons_partitions()
def retry(common: Common, partitions: tuple[str, ...]) -> None:
    """End the quarantine of partitions, or without names all quarantines: they are tried again at once."""
    answer = _ask(common, "retry", partitions)
    lines = [
        f"{name}: tried again, once its pause has ended (cleanerd resume)"
        if name in answer["paused"]
        else f"{name}: tried again"
        for name in answer["retried"]
    ]
    lines += [f"{name}: nothing to try again, it has not failed" for name in answer["healthy"]]
    _tell(common, answer, lines or ["nothing is quarantined"])


@click.command("reload")
@common_options
def reload(common: Common) -> None:
    """Have the daemon read its settings again, as SIGHUP does; says what takes effect at the next start only."""
    answer = _ask(common, "reload", ())
    lines = [f"changed: {', '.join(answer['changed']) or 'nothing'}"]
    if answer["needs_restart"]:
        lines.append(f"at the next start: {', '.join(answer['needs_restart'])}")
    _tell(common, answer, lines)


_WORKS = {"live": "cleaned", "stage": "staged", "observe": "worked out"}


def _ask(common: Common, operation: str, words: Sequence[str]) -> dict[str, Any]:
    return ask(find_control_socket(common.load_settings()), operation, partitions=list(words))


def _tell(common: Common, answer: dict[str, Any], lines: Sequence[str]) -> None:
    if common.output.as_json:
        common.output.json(answer)
        return
    for line in lines:
        common.output.line(line)
