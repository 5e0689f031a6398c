"""The findings of ``tools/prose.py`` on the users' pages: each of its rules, and unnecessary exceptions."""

from __future__ import annotations

import pytest

from tools import prose
from tools.glossary_check import Word

WORDS = [Word(("nobody",), "who it is", frozenset())]
LONG = " ".join(["word"] * 26)


def rules(text: str) -> list[tuple[int, str]]:
    return [(each.line, each.rule) for each in prose.findings_of("page", text, WORDS)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"First.\n\n{LONG}.", [(3, "sentence")]),
        (f"* {LONG}", [(1, "sentence")]),
        (f"| a | {LONG} |", [(1, "sentence")]),
        ("one two " * 12 + ". cleanerd " + "word " * 12, []),
        ("word " * 20 + "[a link](index.md) `some code of many words` " + "word " * 4, [(1, "sentence")]),
        ("Nobody cleans it.", [(1, "word")]),
        ("`nobody` is a user.", []),
        ("```\nnobody on 2026-11-25\n```", []),
        ("It ran on 2026-11-25.", [(1, "date")]),
        ("It ran on 25 November, with a load of 12.", [(1, "date"), (1, "date")]),
        ("```\n" + "x" * 121 + "\n```\n\nnobody", [(2, "width"), (5, "word")]),
        ("    " + "x" * 117, [(1, "width")]),
        ("1. one\n\n    " + "x" * 121 + "\n\nnobody\n\n    " + "x" * 121, [(5, "word"), (7, "width")]),
        ("<!-- nobody\n-->\nnobody", [(3, "word")]),
    ],
)
def test_each_rule(text: str, expected: list[tuple[int, str]]) -> None:
    """Only in text for readers: code has only a width, comments have no rules."""
    assert rules(text) == expected


def test_exceptions() -> None:
    """An exception silences its page and rule; an unnecessary one is reported with its reason."""
    exception = {"page": "a", "rules": ["word"], "reason": "a name"}
    settings = {"exceptions": [exception]}
    assert prose.check({"a": "nobody"}, WORDS, settings) == []
    assert len(prose.check({"a": f"nobody. {LONG}"}, WORDS, settings)) == 1
    (message,) = prose.check({"a": "fine"}, WORDS, settings)
    assert "not needed any more (a name)" in message
    assert prose.check({"b": "fine"}, WORDS, settings) == []
