"""Write the generated pages of the reference: ``python -m tools.reference``.

They are made from the program, so they cannot disagree with it; tests/packaging/test_reference.py compares them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from cleanerd.daemon.log_events import EVENTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

DOCS: Final = Path(__file__).resolve().parent.parent / "docs"


def pages() -> dict[str, str]:
    """Path below docs/ -> text."""
    return {"log-events.md": log_events()}


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table in Markdown."""
    return [f"| {' | '.join(cells)} |" for cells in (titles, ["---"] * len(titles), *rows)]


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
        "`trigger` is why a cleaning began: `ratio`, `overdue`, `purge` or `asked` (by an operator).",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the pages."""
    for path, text in pages().items():
        (DOCS / path).parent.mkdir(exist_ok=True)
        (DOCS / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
