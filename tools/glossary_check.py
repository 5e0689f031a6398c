"""Find the words that docs/glossary.md forbids, and print ``file:line word -> use`` for each.

The page's last table has a word, its replacement, and the places that it is held out of: ``names`` (modules, classes,
functions, parameters, variables), ``text`` (strings, also of the status page, and config/), ``prose`` (docstrings and
comments), ``docs`` (README, docs/).

Names in docstrings and comments that the code does not have are found too, as after a rename.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parent.parent
GLOSSARY = "docs/glossary.md"
PACKAGES = ("cleanerd", "cleanerd_lab")
TEXTS = ("config/**/*.toml", "config/**/*.yml", "cleanerd/daemon/http/page/*.js", "cleanerd/daemon/http/page/*.html")
DOCS = ("README.md", "docs/*.md")
PLACES = ("names", "text", "prose", "docs")
QUOTED = re.compile(r'"[^"\n]*"')
CODE_NAME = re.compile(
    r"``([A-Za-z]\w*(?:\.\w+)*)(?:\(\))?``|:\w+:`[.~]?(\w+(?:\.\w+)*)`|(?<!`)`([A-Z]\w+(?:\.\w+)*)`(?!`)"
)
OTHER_LANGUAGES = ("kernel/src/**/*.rs", "agent/src/**/*.java")
NAMES_OF_OTHERS = frozenset({
    "bash_source", "zsh_source", "fish_source", "wait_for", "Partition", "deleteRecordsOnLeader", "StreamTokenizer",
    "pushFilters", "offsetsForTimes",
})  # fmt: skip
"""Names of Kafka, Spark, Java and others that docstrings may use too."""
PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")


class Word(NamedTuple):
    """A row of the table: ``words`` that mean the same, what to ``use``, and the ``places`` without them."""

    words: tuple[str, ...]
    use: str
    places: frozenset[str]

    @property
    def pattern(self) -> re.Pattern[str]:
        """Matches each of the words where it stands alone, across line breaks."""
        each = "|".join(re.escape(word).replace(r"\ ", r"\s+(?:#\s*)?") for word in self.words)
        return re.compile(rf"\b({each})\b", re.IGNORECASE)


class Piece(NamedTuple):
    """A text with its place's kind and line, the first of ``text``."""

    place: str
    line: int
    text: str


def forbidden(page: str) -> list[Word]:
    """The rows of the glossary's last table.

    Raises:
        ValueError: a row names a place that the check does not know.
    """
    words = []
    for row in re.findall(r"^\| (`.*) \| (.*) \|(.*)\|$", page, re.MULTILINE):
        places = frozenset(re.findall(r"\w+", row[2]))
        if not places <= {*PLACES}:
            raise ValueError(
                f"{GLOSSARY}: {row[0]}: held out of {row[2].strip()}, which is not one of {', '.join(PLACES)}"
            )
        words.append(Word(tuple(re.findall(r"`([^`]+)`", row[0])), row[1], places))
    return words


def names_in(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of each definition: classes, functions, parameters, variables, attributes."""
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.lineno, node.name
            case ast.arg():
                yield node.lineno, node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.lineno, node.attr


def pieces(source: str) -> Iterator[Piece]:
    """The names, strings, docstrings and comments of a Python module."""
    tree = ast.parse(source)
    for line, name in names_in(tree):
        yield Piece("names", line, " ".join(PART.findall(name)))
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield Piece("prose" if id(node) in alone else "text", node.lineno, node.value)
    comment = Piece("prose", 0, "")
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if token.start[0] == comment.line + comment.text.count("\n") + 1:
                comment = comment._replace(text=f"{comment.text}\n{token.string}")
            else:
                yield comment
                comment = Piece("prose", token.start[0], token.string)
    yield comment


def _files(root: Path) -> Iterator[tuple[Path, list[Piece]]]:
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            stem = Piece("names", 1, path.stem.replace("_", " "))
            yield path, [stem, *pieces(path.read_text(encoding="utf-8"))]
    for place, patterns in (("text", TEXTS), ("docs", DOCS)):
        for path in sorted(each for pattern in patterns for each in root.glob(pattern)):
            text = path.read_text(encoding="utf-8")
            if path.suffix == ".js":
                yield path, [Piece(place, text.count("\n", 0, at.start()) + 1, at[0]) for at in QUOTED.finditer(text)]
                continue
            if path == root / GLOSSARY:
                text = text.partition("\n## Words that we do not use")[0]
            yield path, [Piece(place, 1, text)]


def stale_names(root: Path, files: Sequence[tuple[Path, list[Piece]]]) -> Iterator[tuple[Path, int, str]]:
    """Names in docstrings and comments that occur nowhere else: with path and line."""
    python = [
        (path, [part for part in parts if part.place == "prose"]) for path, parts in files if path.suffix == ".py"
    ]
    sources = [path for path, _ in python] + [path for pattern in OTHER_LANGUAGES for path in root.glob(pattern)]
    words = Counter(word for path in sources for word in re.findall(r"\w+", path.read_text(encoding="utf-8")))
    words.subtract(word for _, parts in python for part in parts for word in re.findall(r"\w+", part.text))
    known = {word for word, count in words.items() if count > 0} | {path.stem for path in sources} | NAMES_OF_OTHERS
    for path, parts in python:
        for part in parts:
            for match in CODE_NAME.finditer(part.text):
                is_code = match[1] is None or re.search(r"_|[a-z][A-Z]", match[1])
                if is_code and not known.issuperset((match[1] or match[2] or match[3]).split(".")):
                    yield path, part.line + part.text.count("\n", 0, match.start()), match[0]


def check(root: Path) -> list[str]:
    """``file:line word -> use`` for each forbidden word or stale name below ``root``, by file and line."""
    words = forbidden((root / GLOSSARY).read_text(encoding="utf-8"))
    held = {place: [(word.pattern, word.use) for word in words if place in word.places] for place in PLACES}
    files = list(_files(root))
    found = [
        (str(path.relative_to(root)), line, name, "a name that the code has")
        for path, line, name in stale_names(root, files)
    ]
    for path, parts in files:
        for part in parts:
            for pattern, use in held[part.place]:
                for match in pattern.finditer(part.text):
                    line = part.line + part.text.count("\n", 0, match.start())
                    found.append((str(path.relative_to(root)), line, " ".join(match[0].replace("#", "").split()), use))
    return [f"{path}:{line} {word} -> {use}" for path, line, word, use in sorted(set(found))]


if __name__ == "__main__":
    lines = check(ROOT)
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.exit(1 if lines else 0)
