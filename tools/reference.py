"""Write the generated pages of the reference: ``python -m tools.reference``.

They are made from the program, so they cannot disagree with it; tests/packaging/test_reference.py compares them.
"""

from __future__ import annotations

import inspect
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Final, get_args

import click

from cleanerd.admin.delegate import Action
from cleanerd.cleaner.reclaimable import Method
from cleanerd.cleaner.result import Outcome, RemovedRecords
from cleanerd.cli.main import cli
from cleanerd.cli.options import common_options
from cleanerd.config.delegation import State
from cleanerd.config.keys import DAEMON_FIELDS, TOPIC_FIELDS, kind_of, valid_values
from cleanerd.daemon import view
from cleanerd.daemon.discovery.log_dir_scan import Configured
from cleanerd.daemon.log_events import EVENTS
from cleanerd.errors import Cause
from cleanerd.spark import audit, divergence
from cleanerd.verify.finding import Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pydantic.fields import FieldInfo

DOCS: Final = Path(__file__).resolve().parent.parent / "docs"


def pages() -> dict[str, str]:
    """Path below docs/ -> text."""
    commands = dict(command_pages(cli, "cleanerd"))
    return {
        "log-events.md": log_events(),
        "configuration.md": configuration(),
        "commands.md": index(cli),
        "json.md": json_fields(),
        **commands,
    }


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table in Markdown."""
    return [f"| {' | '.join(cells)} |" for cells in (titles, ["---"] * len(titles), *rows)]


def command_pages(command: click.Command, name: str, parent: click.Context | None = None) -> Iterator[tuple[str, str]]:
    """The page of each command that is not a group."""
    context = click.Context(command, info_name=name, parent=parent)
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            below = command.get_command(context, each)
            if below is not None and not below.hidden:
                yield from command_pages(below, each, context)
    else:
        words = context.command_path.split()[1:]
        yield f"commands/{'-'.join(words)}.md", command_page(context)


def command_page(context: click.Context) -> str:
    """Usage, help and options of one command; the options of every command are on one page."""
    command = context.command
    common = {each.name for each in _common_options()}
    records = [
        each.get_help_record(context)
        for each in command.params
        if each.name not in common and isinstance(each, click.Option) and not each.hidden
    ]
    options = [(f"`{_cell(record[0])}`", _cell(record[1])) for record in records if record is not None]
    return "\n".join(
        [
            f"# {context.command_path}",
            "",
            "```",
            f"{context.command_path} {' '.join(command.collect_usage_pieces(context))}",
            "```",
            "",
            *inspect.cleandoc(command.help or "").partition("\f")[0].splitlines(),
            "",
            *([*table(("option", "meaning"), options), ""] if options else []),
            "It also has the [options of every command](../command-line.md).",
            "",
        ]
    )


def _common_options() -> Sequence[click.Parameter]:
    """The options of every command: those of a command that has no other."""

    @click.command("common")
    @common_options
    def nothing() -> None:
        """Have the common options only."""

    return nothing.params


def _cell(text: str) -> str:
    """Text in a cell of a table."""
    return text.replace("|", "\\|")


def index(command: click.Group) -> str:
    """All commands, each with its line of ``cleanerd --help``."""
    rows = []
    context = click.Context(command, info_name="cleanerd")
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        if isinstance(below, click.Group):
            inner = click.Context(below, info_name=name, parent=context)
            names = [(f"{name} {each}", below.get_command(inner, each)) for each in below.list_commands(inner)]
        else:
            names = [(name, below)]
        rows += [
            (f"[`cleanerd {words}`](commands/{words.replace(' ', '-')}.md)", _cell(each.get_short_help_str(limit=200)))
            for words, each in names
            if each is not None and not each.hidden
        ]
    lines = ["# Commands", "", "[Command line and exit codes](command-line.md) has the options of every command.", ""]
    return "\n".join([*lines, *table(("command", ""), rows), ""])


def configuration() -> str:
    """Every setting, as in ``cleanerd config generate``."""
    lines = [
        "# Configuration",
        "",
        "Settings come from a TOML file (`--config`, default `/etc/cleanerd/cleanerd.toml`), the environment, and",
        "`--set KEY=VALUE`. The last one wins. `cleanerd config show` prints every value and its origin,",
        "`cleanerd config check` finds mistakes, and `cleanerd config generate` prints a commented file.",
        "",
        "In the environment a key begins with `CLEANERD_`, and `.` is written `_`: `CLEANERD_LOG_CLEANER_THREADS=2`.",
        "",
        "## The daemon and the broker",
        "",
        "Kafka's own keys apply where neither the topic nor the broker sets them.",
        "",
        *table(("key", "default or example", "values", "meaning"), map(_setting, DAEMON_FIELDS.items())),
        "",
        "## Topics",
        "",
        "Set these as `topics.NAME.KEY`, where NAME is a topic or a pattern. They are stronger than the topic's",
        "configuration in the cluster. The longest literal match of a name wins.",
        "",
        *table(("key", "default or example", "values", "meaning"), map(_setting, TOPIC_FIELDS.items())),
        "",
    ]
    return "\n".join(lines)


def _setting(item: tuple[str, FieldInfo]) -> tuple[str, str, str, str]:
    key, field = item
    example = f"e.g. `{field.examples[0]}`" if field.examples else f"`{kind_of(field).write(field.default)}`"
    return f"`{key}`", _cell(example), _cell(valid_values(field)), _cell(" ".join((field.description or "").split()))


JSON_FIELDS: Final = Path(__file__).with_name("json_fields.txt")
_VALUES: Final = {
    "Action": get_args(Action),
    "AuditKinds": tuple(audit.KINDS),
    "Cause": tuple(Cause),
    "Configured": get_args(Configured),
    "DivergenceKinds": tuple(divergence.KINDS),
    "Method": get_args(Method),
    "Outcome": get_args(Outcome),
    "Outlook": get_args(view.Outlook),
    "PartitionMode": get_args(view.PartitionMode),
    "PartitionPhase": get_args(view.PartitionPhase),
    "Removed": tuple(each.name for each in fields(RemovedRecords)),
    "RunPhase": get_args(view.RunPhase),
    "Severity": tuple(Severity),
    "State": get_args(State),
    "Trigger": get_args(view.Trigger),
}
"""Name in json_fields.txt -> the values that the program has for it."""


def json_objects() -> dict[str, list[tuple[str, str, str]]]:
    """Title of each JSON object -> name, type and meaning of its fields."""
    sections = JSON_FIELDS.read_text(encoding="utf-8").format(
        **{name: _literals(values) for name, values in _VALUES.items()}
    )
    found = {}
    for section in sections.split("\n## ")[1:]:
        title, *lines = section.strip().splitlines()
        rows = [tuple(cell.strip() for cell in line.split(" | ")) for line in lines]
        found[title] = [(name, kind, meaning) for name, kind, meaning in rows]
    return found


def json_fields() -> str:
    """The fields of the results of ``--json``."""
    lines = [
        "# JSON fields",
        "",
        "`--json` prints one object. It begins with `schema`, which is 1. Later releases may add fields. They",
        "remove none within a major version.",
        "",
        "* `..._ms` is a time since the epoch, or a duration, in milliseconds. `..._bytes` is a size.",
        "* A field is null if its value is not known, or does not apply.",
        "* Offsets that end a range are exclusive.",
        "",
    ]
    for title, rows in json_objects().items():
        cells = ((f"`{name}`", kind, meaning) for name, kind, meaning in rows)
        lines += [f"## {title}", "", *table(("field", "type", "meaning"), cells), ""]
    return "\n".join(lines)


def _literals(values: Iterable[str]) -> str:
    return ", ".join(f"`{each}`" for each in values)


def log_events() -> str:
    """The events of the daemon's log."""
    rows = (
        (f"`{event}`", facts.levels, ", ".join(f"`{field}`" for field in facts.fields), facts.meaning)
        for event, facts in EVENTS.items()
    )
    lines = [
        "# Log events",
        "",
        "The daemon logs to standard error, one line per event: `key=value` pairs, or text in colours on a terminal.",
        "Each line has `timestamp` (UTC), `level` and `event`. The names do not change within a major version.",
        "",
        "```",
        "journalctl -u cleanerd | grep event=partition_quarantined",
        'journalctl -u cleanerd | grep "event=cleaning_not_done.*outcome=failed"',
        "```",
        "",
        "`reason`, `finding`, `cost` and `hint` are sentences for people and may change. `exception` is a traceback.",
        "",
        *table(("event", "level", "fields", "meaning"), rows),
        "",
        f"`trigger` is why a cleaning began: {_literals(get_args(view.Trigger))}. `manual` is an operator's request.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the pages."""
    for path, text in pages().items():
        (DOCS / path).parent.mkdir(exist_ok=True)
        (DOCS / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
