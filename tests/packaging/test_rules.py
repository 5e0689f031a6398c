"""docs/rules.md explains every id in the tree, no id has two meanings, and the targets of the pages exist."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

from tests.packaging.rule_ids import FAMILIES, ID

TOP = Path(__file__).resolve().parents[2]
BOOK = TOP / "docs" / "rules.md"
RANGE = re.compile(rf"(?<![\w.-])({FAMILIES})-(\d+(?:\.\d+)?) ?\.\. ?(?:\1-)?(\d+(?:\.\d+)?)")
ROW = re.compile(rf"^\| ((?:{FAMILIES})-[0-9a-z.]+) \|(.*)\|$")
PATH = re.compile(r"`((?:agent|cleanerd|cleanerd_lab|kernel|tests|tools|config|docs|systemd)(?:/[\w./-]*)?)`")
PRODUCT = ("agent/src/", "agent/stub/", "agent/unix/", "cleanerd/", "cleanerd_lab/", "kernel/src/")
POINTER = re.compile(r"`((?:[\w-]+/)+[\w-]+\.(?:py|rs|java|js|md|sh|service|pyi)|[\w-]+\.py)(?:: ([\w.]+))?`")
"""`path/module.py` or `path/module.py: name` in ARCHITECTURE.md, docs/where.md, relative to the tree or the package."""


@cache
def _texts() -> dict[str, str]:
    """Every text file in git, by its path."""
    listed = subprocess.run(["git", "ls-files"], cwd=TOP, capture_output=True, text=True, check=True).stdout
    suffixes = {".py", ".pyi", ".rs", ".java", ".md", ".toml", ".yml", ".yaml", ".service", ".sh", ".js", ".html"}
    names = [name for name in listed.split("\n") if Path(name).suffix in suffixes and (TOP / name).is_file()]
    return {name: (TOP / name).read_text() for name in names}


@cache
def _ids_by_file() -> dict[str, frozenset[str]]:
    """The ids in each file; of ``X-01 .. X-13`` the ends."""
    return {name: frozenset(ID.findall(text)) for name, text in _texts().items()}


def _rows() -> list[tuple[str, str]]:
    """(id, the rest of the row) of every row of the page."""
    return [(found[1], found[2]) for line in BOOK.read_text().split("\n") if (found := ROW.match(line))]


def test_every_id_in_the_tree_is_explained() -> None:
    """The repository alone has to explain every line of it."""
    known = {rule for rule, _ in _rows()}
    assert len(known) > 200
    left_out = {"docs/rules.md", "tests/packaging/test_rules.py", "CHANGELOG.md"}
    unknown = {
        f"{name}: {rule}" for name, ids in _ids_by_file().items() if name not in left_out for rule in ids - known
    }
    assert sorted(unknown) == []


def test_a_test_names_every_rule() -> None:
    """By its id, or by a range that contains it, such as ``C-37..C-52``."""
    named: set[str] = set()
    for name, text in _texts().items():
        is_test = name.startswith(("tests/", "kernel/")) and name != "tests/packaging/test_rules.py"
        if is_test and Path(name).suffix in {".py", ".md", ".rs"}:
            named |= set(ID.findall(text))
            for family, first, last in RANGE.findall(text):
                named |= _between(family, first, last)
    assert [rule for rule, _ in _rows() if rule not in named] == []


def _between(family: str, first: str, last: str) -> set[str]:
    """``C-05..C-07`` and ``A-23.2 .. A-23.7``: all ids in between, with and without a leading zero."""
    head, _, below = first.rpartition(".")
    begin, end = int(below), int(last.rpartition(".")[2])
    numbers = {text for number in range(begin, end + 1) for text in (f"{number}", f"{number:02d}")}
    return {f"{family}-{head}.{number}" if head else f"{family}-{number}" for number in numbers}


def test_no_id_has_two_meanings() -> None:
    """One row per id, ascending in its family, so that a second one is noticed."""
    ids = [rule for rule, _ in _rows()]
    assert [rule for rule in ids if ids.count(rule) > 1] == []


def test_every_rule_has_a_sentence() -> None:
    """An id alone explains nothing."""
    for rule, rest in _rows():
        assert len(rest.split("|")[0].split()) >= 2, rule


def test_a_rule_has_the_module_that_implements_it() -> None:
    """The path exists; if the product names the rule, the path is one of these places."""
    for rule, rest in _rows():
        places = set(PATH.findall(rest))
        if rule.startswith("T-"):
            assert ID.search(rest), f"{rule} names the rule that avoids it"
            continue
        assert places, rule
        assert {place for place in places if not (TOP / place).exists()} == set(), rule
        holders = {name for name, ids in _ids_by_file().items() if name.startswith(PRODUCT) and rule in ids}
        assert not holders or places & holders, f"{rule}: {sorted(places)}, but it is named in {sorted(holders)}"


def test_every_file_and_name_in_the_architecture_exists() -> None:
    """Every `file.py: name` of ARCHITECTURE.md and docs/where.md: the file exists, and has the name."""
    missing = []
    story, places = (TOP / "ARCHITECTURE.md").read_text(), (TOP / "docs" / "where.md").read_text()
    assert len(story.split("\n")) <= 151, "a story; docs/where.md leads to single modules"
    for path, name in POINTER.findall(story + places):
        homes = [home for home in (TOP / path, TOP / "cleanerd" / path) if home.exists()]
        if "/" not in path and not homes:
            homes = list(TOP.glob(f"cleanerd*/*/{path}"))
        last = re.compile(rf"\b{name.split('.')[-1]}\b")
        if not any(last.search(home.read_text()) for home in homes):
            missing.append(f"{path}: {name}" if name else path)
    assert missing == []
