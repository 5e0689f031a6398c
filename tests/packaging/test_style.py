"""Checks that linters do not have: unreadable calls, empty docstrings, and test files used as libraries."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
MOST_BY_POSITION = 7
FEWEST_WORDS = 4
IMPORT = re.compile(r"^[ \t]*(?:from (tests[\w.]*) import (\([^)]*\)|.*)|import (tests[\w., ]*))$", re.MULTILINE)
TEST_MODULE = re.compile(r"\btest_\w+")
TEST_FILE = re.compile(r"\btests/\w+/[\w/]+\.py\b")
CHECKED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Call)


@cache
def _nodes() -> list[tuple[str, ast.AST]]:
    """Every node of the checked modules, with its place."""
    return [
        (f"{name}:{getattr(node, 'lineno', 1)}", node)
        for package in ("cleanerd", "cleanerd_lab")
        for name in sorted(str(file.relative_to(TOP)) for file in (TOP / package).rglob("*.py"))
        for node in ast.walk(ast.parse((TOP / name).read_text()))
        if isinstance(node, CHECKED)
    ]


def _by_position(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


@pytest.mark.slow
def test_more_than_a_few_arguments_have_names() -> None:
    """Keyword-only arguments, or a value object that is built with names."""
    many = [
        f"{place}: {node.name} takes {_by_position(node)}"
        for place, node in _nodes()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and _by_position(node) > MOST_BY_POSITION
    ]
    calls = [
        f"{place}: {ast.unparse(node.func)} is given {len(node.args)}"
        for place, node in _nodes()
        if isinstance(node, ast.Call) and len(node.args) > MOST_BY_POSITION
    ]
    assert [*many, *calls] == []


@pytest.mark.slow
def test_a_docstring_adds_information() -> None:
    """``Write and close.`` below ``def close`` only repeats the name."""
    short = [
        f"{place}: {text}"
        for place, node in _nodes()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module))
        and (text := ast.get_docstring(node)) is not None
        and len(text.split()) < FEWEST_WORDS
    ]
    assert short == []


def _imports_of_test_modules(text: str) -> list[str]:
    """The imports in ``text`` of a test module, or of a name from one."""
    return [
        found[0].strip()
        for found in IMPORT.finditer(text)
        if TEST_MODULE.search(f"{found[1] or found[3]}")
        or any(name.strip("( ").startswith("test_") for name in re.split(r"[,\n]", found[2] or ""))
    ]


def test_no_file_imports_a_test_module() -> None:
    """A helper that another file imports is in a helper module: a test file can be renamed or split at any time."""
    found = {
        str(file.relative_to(TOP)): imports
        for file in (TOP / "tests").rglob("*.py")
        if (imports := _imports_of_test_modules(file.read_text()))
    }
    assert found == {}


def test_an_import_of_a_test_module_is_found() -> None:
    """In every form, and no helper is reported as one."""
    forms = (
        "from tests.cli.test_undo import DIRTY",
        "    from tests.cli.test_undo import (\n    DIRTY,\n)",
        "from tests.cli import test_undo",
        "from tests.cli import (\n    conftest,\n    test_undo,\n)",
        "import tests.cli.test_undo",
    )
    assert [len(_imports_of_test_modules(text)) for text in forms] == [1] * len(forms)
    assert _imports_of_test_modules("from tests.cli.undoing import DIRTY\nimport testing\n") == []


def test_every_test_file_that_is_named_exists() -> None:
    """On pages, in helpers and in mutants: a renamed file is renamed there as well."""
    pages = [page for page in (*TOP.glob("*.md"), *(TOP / "docs").glob("*.md")) if page.name != "CHANGELOG.md"]
    missing = {
        f"{file.relative_to(TOP)}: {name}"
        for file in (*pages, *(TOP / "tests").rglob("*.py"))
        for name in TEST_FILE.findall(file.read_text())
        if not (TOP / name).exists()
    }
    assert missing == set()
