"""Numbers for people, and text without control sequences."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from cleanerd.cli.output import Column, Output, configure_logging, printable
from cleanerd.humanize import human_bytes, human_count, human_ms

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (2**20 - 1, "1.0 MiB"),  # not 1024.0 KiB
        (2**30, "1.0 GiB"),
        (-2048, "-2.0 KiB"),
        (2**62, "4096.0 PiB"),
    ],
)
def test_human_bytes(count: int, text: str) -> None:
    assert human_bytes(count) == text


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (999.7, "1.0 s"),
        (1500, "1.5 s"),
        (59_949, "59.9 s"),
        (59_950, "1 min"),
        (125_000, "2 min 5 s"),
        (3_600_000, "1 h"),
        (12_000_000, "3 h 20 min"),
        (608_400_000, "7 d 1 h"),
        (-125_000, "-2 min 5 s"),
    ],
)
def test_human_ms(duration_ms: float, text: str) -> None:
    assert human_ms(duration_ms) == text


def test_human_count() -> None:
    assert human_count(1234567) == "1,234,567"


@given(st.text())
def test_printable_text_moves_no_cursor(text: str) -> None:
    shown = printable(text)
    assert all(character.isprintable() or character in "\n\t" for character in shown)
    if text.isprintable():
        assert shown == text


@dataclass(frozen=True, slots=True)
class Facts:
    """A value object as commands use it."""

    path: Path
    count: np.int64


def test_json_accepts_the_values_of_commands(capsys: pytest.CaptureFixture[str]) -> None:
    facts = Facts(Path("/log"), np.int64(5))
    Output(as_json=True).json({"facts": facts, "ratio": np.float64(0.5), "policy": frozenset({"delete", "compact"})})
    assert json.loads(capsys.readouterr().out) == {
        "schema": 1,
        "facts": {"path": "/log", "count": 5},
        "ratio": 0.5,
        "policy": ["compact", "delete"],
    }


def test_an_empty_table_shows_its_titles(capsys: pytest.CaptureFixture[str]) -> None:
    Output().table([Column("TOPIC"), Column("BYTES", right=True)], [])
    assert capsys.readouterr().out == "TOPIC  BYTES\n"


@pytest.fixture
def terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From the call on, both streams count as a terminal."""
    assert capsys

    def begin() -> None:
        for stream in (sys.stdout, sys.stderr):
            monkeypatch.setattr(stream, "isatty", lambda: True)  # pytest's capture is not a terminal

    return begin


LONG = [Column("partition"), Column("size", right=True), Column("why not")]
REASON = "nothing to clean: the log is cleanable up to offset 5"


def test_a_narrow_terminal_gets_the_reason_below(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, terminal: Callable[[], None]
) -> None:
    """Tables are for people; the numbers stay under their titles, the words wrap, nothing is cut."""
    terminal()
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    Output().table(LONG, [["orders-0", "10", REASON], ["orders-1", "5", "clean"]])
    assert capsys.readouterr().out.splitlines() == [
        "partition  size  why not",
        "orders-0     10",
        "    nothing to clean: the log is",
        "    cleanable up to offset 5",
        "orders-1      5  clean",
    ]


def test_a_narrow_terminal_gets_no_spare_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, terminal: Callable[[], None]
) -> None:
    """OP-20: the column with the highest number is dropped first, and none if all fit; a pipe gets all of them."""
    columns = [Column("name"), Column("one", right=True, spare=1), Column("two", right=True, spare=2), Column("why")]
    Output().table(columns, [["orders-0", "1", "2", "clean"]])
    terminal()
    monkeypatch.setenv("NO_COLOR", "1")
    for width in ("23", "22", "18", "17"):
        monkeypatch.setenv("COLUMNS", width)
        Output().table(columns, [["orders-0", "1", "2", "clean"]])
    titles = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("name")]
    every, fewer = ["name", "one", "two", "why"], ["name", "one", "why"]
    assert titles == [every, every, fewer, fewer, ["name", "why"]]


@pytest.mark.parametrize("columns", ["1", "4", "5"])
def test_a_terminal_of_hardly_any_width(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, terminal: Callable[[], None], columns: str
) -> None:
    """As of some pseudo-terminals: every word appears. The indent alone left no width at all: an unexpected error."""
    terminal()
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("NO_COLOR", "1")
    Output().table(LONG, [["orders-0", "10", REASON]])
    assert capsys.readouterr().out.split() == ["partition", "size", "why", "not", "orders-0", "10", *REASON.split()]


def test_a_long_name_folds_the_whole_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, terminal: Callable[[], None]
) -> None:
    """Every number stays under its title and no name is cut, however narrow the terminal."""
    terminal()
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    columns = [
        Column("partition"),
        *(Column(title, right=True) for title in ("size", "dirty from", "cleanable")),
        LONG[2],
    ]
    name = "a.topic.with.quite.a.long.long.name-0"
    Output().table(
        columns, [[name, "10", "5", "4", REASON], ["b-1", "1,000", "77", "99", "clean"], ["c-0", "", "", "", "error"]]
    )
    assert capsys.readouterr().out.splitlines() == [
        "partition",
        "     size  dirty from  cleanable",
        "    why not",
        name,
        "       10           5          4",
        "    nothing to clean: the log is",
        "    cleanable up to offset 5",
        "b-1",
        "    1,000          77         99",
        "    clean",
        "c-0",
        "    error",
    ]


@pytest.mark.parametrize("channel", ["line", "note", "warning", "item"])
def test_no_word_is_broken_at_the_edge(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, terminal: Callable[[], None], channel: str
) -> None:
    """A continued line is indented, and a path stays in one piece so that it can be copied; a pipe gets one line."""
    text = "/var/lib/kafka/data/orders-0: cannot be cleaned now, see /var/lib/kafka/data-with-quite-a-long-name-too"
    out = Output()
    writers = {
        "line": out.line,
        "note": out.note,
        "warning": out.warning,
        "item": lambda text: out.item("warning", text),
    }
    monkeypatch.setenv("COLUMNS", "40")
    writers[channel](text)
    assert "".join(capsys.readouterr()).count("\n") == 1
    terminal()
    writers[channel](text)
    lines = "".join(capsys.readouterr()).splitlines()
    assert " ".join(line.strip() for line in lines).removeprefix("warning: ").removeprefix("warning  ") == text
    indent = " " * (9 if channel == "item" else 2)
    assert len(lines) > 2
    assert all(line.startswith(indent) and line[len(indent)] != " " for line in lines[1:])
    assert all(len(line) <= 40 or " " not in line.strip() for line in lines)


def test_a_pipe_gets_one_line_per_row(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts rely on it, whatever COLUMNS is."""
    monkeypatch.setenv("COLUMNS", "40")
    Output().table(LONG, [["orders-0", "10", REASON]])
    assert capsys.readouterr().out.splitlines()[1:] == [f"orders-0     10  {REASON}"]


def test_names_that_are_not_utf8_are_shown_escaped(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    Output().line("log-\udcff")
    assert capsysbinary.readouterr().out == b"log-\\udcff\n"


def test_a_list_in_a_line_of_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    """``key=value`` for readers of the journal: without Python's brackets and quotes."""
    before = structlog.get_config()
    try:
        configure_logging(verbose=False, quiet=False)
        structlog.get_logger().info(
            "asked for", partitions=("orders-0", "carts-1"), changed=["a.b"], empty=[], why="[x]"
        )
    finally:
        structlog.configure(**before)
    line = capsys.readouterr().err
    assert " partitions=orders-0,carts-1 changed=a.b empty= why=[x]" in line
