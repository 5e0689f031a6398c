"""What ``tools/prose.py`` finds on the users' pages: each of its rules, and exceptions that are not needed."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import ModuleType

TOOL = Path(__file__).parents[2] / "tools" / "prose.py"
WORDS = {"nobody": "who it is"}
LONG = " ".join(["word"] * 26)


@pytest.fixture(scope="module")
def prose() -> ModuleType:
    spec = importlib.util.spec_from_file_location("prose", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def rules(prose: ModuleType, text: str) -> list[tuple[int, str]]:
    return [(each.line, each.rule) for each in prose.findings_of("page", text, WORDS)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"First.\n\n{LONG}.", [(3, "sentence")]),
        (f"* {LONG}", [(1, "sentence")]),
        (f"| a | {LONG} |", [(1, "sentence")]),
        ("one two " * 12 + ". cleanerd " + "word " * 12, []),
        ("word " * 20 + "[a link](page.md) `some code of many words` " + "word " * 4, [(1, "sentence")]),
        ("Nobody cleans it.", [(1, "word")]),
        ("`nobody` is a user.", []),
        ("```\nnobody on 2026-11-25\n```", []),
        ("It ran on 2026-11-25.", [(1, "date")]),
        ("It ran on 25 November, with a load of 12.", [(1, "date"), (1, "date")]),
        ("```\n" + "x" * 121 + "\n```\n\nnobody", [(2, "width"), (5, "word")]),
        ("    " + "x" * 117, [(1, "width")]),
        ("<!-- nobody\n-->\nnobody", [(3, "word")]),
    ],
)
def test_each_rule(prose: ModuleType, text: str, expected: list[tuple[int, str]]) -> None:
    """Only in text for readers: code has a width and nothing else, comments have nothing."""
    assert rules(prose, text) == expected


def test_exceptions(prose: ModuleType) -> None:
    """One silences its page and rule; one that silences nothing is reported with its reason."""
    exception = {"page": "a.md", "rules": ["word"], "reason": "a name"}
    settings = {"words": WORDS, "exceptions": [exception]}
    assert prose.check({"a.md": "nobody"}, settings) == []
    assert len(prose.check({"a.md": f"nobody. {LONG}"}, settings)) == 1
    (message,) = prose.check({"a.md": "fine"}, settings)
    assert "not needed any more (a name)" in message
    assert prose.check({"b.md": "fine"}, settings) == []
