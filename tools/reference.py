"""Write the generated pages of the reference: ``python -m tools.reference``.

They are made from the program, so they cannot disagree with it; tests/packaging/test_reference.py compares them.
"""

from __future__ import annotations

import ast
import inspect
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Final, get_args

import click

from cleanerd.cleaner import reclaimable, result
from cleanerd.cli.main import cli
from cleanerd.cli.options import common_options
from cleanerd.config.keys import DAEMON_FIELDS, TOPIC_FIELDS, kind_of, valid_values
from cleanerd.daemon import view
from cleanerd.daemon.log_events import EVENTS
from cleanerd.errors import Cause

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
        "`cleanerd config check` looks for mistakes, and `cleanerd config generate` prints a commented file.",
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


MODELS: Final = (
    ("`status` and `/status`: the whole", view.DaemonView),
    ("`status` and `/status`: an entry of `partitions`", view.PartitionView),
    ("`status` and `/status`: an entry of `log_dirs`", view.LogDirView),
    ("`status` and `/status`: an entry of `running`", view.RunningView),
    ("`status` and `/status`: `quarantine` of a partition", view.QuarantineView),
    ("`clean`, `stage`, `apply` and `spark clean`: an entry of `partitions`", result.CleaningResult),
)
"""Title and dataclass of each JSON object; ``to_json`` of the dataclass has its fields."""


def json_fields() -> str:
    """The fields of the results of ``--json``, from the dataclasses."""
    lines = [
        "# JSON fields",
        "",
        "`--json` prints one object. It begins with `schema`, which is 1. Later releases may add fields. They",
        "remove none within a major version. An error is `error`: `message`, `where`, `hint` and `exit_code`.",
        "",
        "* `..._ms` is a time since the epoch, or a duration, in milliseconds. `..._bytes` is a size.",
        "* A field is null if its value is not known, or does not apply.",
        "* Offsets that end a range are exclusive.",
        "",
    ]
    for title, model in MODELS:
        rows = [(f"`{each.name}`", _json_type(str(each.type))) for each in fields(model)]
        if model is result.CleaningResult:
            rows = [row for row in rows if row[0] not in {"`name`", "`error`"}]
            rows = [("`topic`", "text"), ("`partition`", "number"), *rows, ("`cause`", _literals(Cause) + " or null")]
        if model is view.PartitionView:
            rows.append(("`state`", "the same as `phase`"))
        lines += [f"## {title}", "", *table(("field", "type"), rows), ""]
    return "\n".join(lines)


_TYPES: Final = {"int": "number", "float": "number", "str": "text", "bool": "true or false", "None": "null"}
_VALUES: Final = {
    each: getattr(module, each)
    for module, names in (
        (view, ("PartitionPhase", "Outlook", "PartitionMode", "Trigger", "RunPhase")),
        (result, ("Outcome",)),
        (reclaimable, ("Method",)),
    )
    for each in names
}


def _literals(values: Iterable[str]) -> str:
    return ", ".join(f"`{each}`" for each in values)


def _json_type(annotation: str) -> str:
    """The type in JSON of a field's annotation."""
    parts = []
    for part in annotation.split(" | "):
        if part in _VALUES:
            parts.append(_literals(get_args(_VALUES[part])))
        elif part.startswith("Literal["):
            parts.append(_literals(ast.literal_eval(part.removeprefix("Literal"))))
        elif part.startswith("tuple"):
            parts.append("array")
        else:
            parts.append(_TYPES.get(part, "object"))
    return " or ".join(parts)


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
