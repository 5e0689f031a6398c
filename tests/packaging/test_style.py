"""What linters do not know: calls that nobody can read, and docstrings that say nothing."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
MOST_BY_POSITION = 7
FEWEST_WORDS = 4
LOOKED_AT = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Call)


@cache
def _nodes() -> list[tuple[str, ast.AST]]:
    """Every node of the packages' modules that is looked at here, with its place."""
    return [
        (f"{name}:{getattr(node, 'lineno', 1)}", node)
        for package in ("cleanerd", "cleanerd_lab")
        for name in sorted(str(file.relative_to(TOP)) for file in (TOP / package).rglob("*.py"))
        for node in ast.walk(ast.parse((TOP / name).read_text()))
        if isinstance(node, LOOKED_AT)
    ]


def _by_position(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def test_nobody_has_to_count_arguments() -> None:
    """More than a few facts have names: keyword-only arguments, or a value object that is made by name."""
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


def test_a_docstring_says_something() -> None:
    """``Write and close.`` below ``def close`` says nothing that the name did not."""
    short = [
        f"{place}: {text}"
        for place, node in _nodes()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module))
        and (text := ast.get_docstring(node)) is not None
        and len(text.split()) < FEWEST_WORDS
    ]
    assert short == []
