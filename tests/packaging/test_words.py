"""Texts for users have no ids of rules, and no references to documents outside of the tree."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.packaging.rule_ids import ID

if TYPE_CHECKING:
    from collections.abc import Iterator

TOP = Path(__file__).resolve().parents[2]
CARRIERS = ("cleanerd/verify/kinds.py",)
"""Modules whose strings hold ids: the finding's rule in ``verify --json``, next to its name."""

FOR_USERS = ("README.md", "docs", "config", "systemd", "examples", "Dockerfile", "cleanerd/daemon/http/page")
QUOTED = re.compile(r'"(?:[^"\\\n]|\\.)*"')
ELSEWHERE = re.compile(
    r"\b[Ii]ssues? #?[0-9]+|\b[Ss]ection [0-9]+|\u00a7|shared/spec|\b(?:cleaner-semantics|log-format|segment-swap)\b"
)
DOCUMENT = re.compile(r"(?<![\w/.-])(?:[\w-]+/)*[\w-]+\.md\b")


def _files(*places: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--", *places], cwd=TOP, capture_output=True, text=True, check=True
    ).stdout
    return [TOP / name for name in listed.split("\0") if name and (TOP / name).is_file()]


def strings_of(source: str) -> Iterator[tuple[int, str]]:
    """(line, text) of every string that is not a docstring: messages, help texts, log events, metrics' help."""
    tree = ast.parse(source)
    silent = {
        id(line.value)
        for node in ast.walk(tree)
        for line in (node.body if isinstance(getattr(node, "body", None), list) else ())
        if isinstance(line, ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in silent:
            yield node.lineno, node.value


def helps_of(source: str) -> Iterator[tuple[int, str]]:
    """(line, text) of the docstrings of click's commands: their ``--help``."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and any("command" in ast.unparse(each) for each in node.decorator_list):
            yield node.lineno, ast.get_docstring(node) or ""


@pytest.mark.slow
def test_no_message_names_a_rule() -> None:
    """Python: every string that is not a docstring, and the docstrings that are ``--help``."""
    found = []
    for path in _files("cleanerd/*.py"):
        name = str(path.relative_to(TOP))
        if name not in CARRIERS:
            message = (*strings_of(path.read_text()), *helps_of(path.read_text()))
            found += [f"{name}:{line}: {text}" for line, text in message if ID.search(text)]
    assert found == []


def test_no_message_of_the_kernel_or_the_agent_names_a_rule() -> None:
    """Rust and Java: every string in quotes, without comments."""
    found = []
    java = ("agent/src/*.java", "agent/unix/*.java", "agent/stub/*.java")
    for path in _files("kernel/src/*.rs", "kernel/python/src/*.rs", *java):
        for number, line in enumerate(path.read_text().split("\n"), 1):
            code = line.split("//")[0]
            if not code.lstrip().startswith("*") and any(ID.search(text) for text in QUOTED.findall(code)):
                found.append(f"{path.relative_to(TOP)}:{number}: {line.strip()}")
    assert found == []


def test_no_page_for_users_names_a_rule() -> None:
    """README, docs (except the two for developers), settings, units, examples, the status page without its comments."""
    found = []
    for path in _files(*FOR_USERS):
        name = str(path.relative_to(TOP))
        if name in {"docs/rules.md", "docs/where.md"} or path.suffix in {".json", ".png", ".svg"}:
            continue
        text = path.read_text()
        if path.suffix in {".js", ".css"}:
            text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)
        found += [f"{name}: {each}" for each in ID.findall(text)]
    assert found == []


@pytest.mark.slow
def test_every_referenced_document_is_in_the_tree() -> None:
    """Numbers of issues and sections of papers that readers do not have explain nothing."""
    suffixes = {".py", ".pyi", ".rs", ".java", ".md", ".toml", ".yml", ".js", ".sh", ".service"}
    tracked = {str(path.relative_to(TOP)) for path in _files(".")}
    known = {name.rsplit("/", 1)[-1] for name in tracked if name.endswith(".md")}
    found = []
    for path in _files("."):
        name = str(path.relative_to(TOP))
        if path.suffix not in suffixes or name in {"CHANGELOG.md", "mkdocs.yml", "tests/packaging/test_words.py"}:
            continue
        for number, line in enumerate(path.read_text().split("\n"), 1):
            missing = [each for each in DOCUMENT.findall(line) if each.rsplit("/", 1)[-1] not in known]
            if missing or (ELSEWHERE.search(line) and name != "LICENSE"):
                found.append(f"{name}:{number}: {line.strip()}")
    assert found == []


def test_the_search_finds_its_targets() -> None:
    """A message, a part of one, and a help text are found; text for developers is not."""
    source = '@click.command("x")\ndef f():\n    """Help (U-13)."""\n    raise E(f"no {x} (C-45)")\n'
    source += 'def g():\n    """S-09."""\n'
    assert [text for _, text in strings_of(source) if ID.search(text)] == [" (C-45)"]
    assert [text for _, text in helps_of(source)] == ["Help (U-13)."]
    assert ELSEWHERE.search("see issue 6")
    assert DOCUMENT.findall("(kernel.md section 5; docs/metrics.md)") == ["kernel.md", "docs/metrics.md"]
