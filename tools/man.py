"""Write the man pages: ``python tools/man.py OUT_DIR``. One for cleanerd, one for each command, from their ``--help``.

The pages have the text of the command definitions and nothing else, so they cannot disagree with ``--help``.
"""

from __future__ import annotations

import gzip
import inspect
import os
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cleanerd import __version__
from cleanerd.cli.main import cli

if TYPE_CHECKING:
    from collections.abc import Iterator


def pages(command: click.Command, name: str, parent: click.Context | None = None) -> Iterator[tuple[str, str]]:
    """(name of the page, its roff), for the command and each subcommand."""
    context = click.Context(command, info_name=name, parent=parent)
    yield context.command_path.replace(" ", "-"), page(context)
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            below = command.get_command(context, each)
            if below is not None and not below.hidden:
                yield from pages(below, each, context)


def page(context: click.Context) -> str:
    """The roff of one command."""
    command, path = context.command, context.command_path
    day = time.strftime("%Y-%m-%d", time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", "0"))))
    title = path.replace(" ", "-")
    lines = [
        f'.TH {title.upper()} 1 "{day}" "cleanerd {__version__}" "cleanerd"',
        ".SH NAME",
        f"{escaped(title)} \\- {escaped(command.get_short_help_str(limit=200))}",
        ".SH SYNOPSIS",
        f".B {escaped(path)}",
        escaped(" ".join(command.collect_usage_pieces(context))),
        ".SH DESCRIPTION",
        *paragraphs(inspect.cleandoc(command.help or "").partition("\f")[0]),
    ]
    # A group's short lines of its commands come without an import of each.
    if isinstance(command, click.Group):
        lines.append(".SH COMMANDS")
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None and not below.hidden:
                lines += [".TP", f".B {escaped(name)}", escaped(below.get_short_help_str(limit=200))]
    lines.append(".SH OPTIONS")
    for option in command.get_params(context):
        record = option.get_help_record(context)
        if record and record[1]:
            lines += [".TP", f".B {escaped(record[0])}", escaped(record[1])]
    lines += [".SH SEE ALSO", "The pages in /opt/cleanerd/share/doc/cleanerd."]
    return "\n".join(lines) + "\n"


def paragraphs(text: str) -> Iterator[str]:
    """Help text as roff: a paragraph that click would not wrap again keeps its lines."""
    for paragraph in re.split(r"\n\s*\n", text):
        if paragraph.startswith("\b"):
            yield from (".PP", ".nf", *map(escaped, paragraph.splitlines()[1:]), ".fi")
        else:
            yield from (".PP", escaped(" ".join(paragraph.split())))


def escaped(text: str) -> str:
    """``text`` for roff: no control character at the start of a line, every dash an ASCII one."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text


def main() -> None:
    """Write them, compressed as Debian and RPM want them."""
    out_dir = Path(sys.argv[1])
    out_dir.mkdir(parents=True, exist_ok=True)
    for name, text in pages(cli, "cleanerd"):
        (out_dir / f"{name}.1.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()
