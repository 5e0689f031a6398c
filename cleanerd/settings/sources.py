"""Where settings come from: TOML files, the environment, ``--set``. Each source yields assignments, or what is wrong.

All values become text here, so that a value means the same wherever it was written.
"""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from cleanerd.errors import ConfigError
from cleanerd.log.config_values import shown
from cleanerd.settings.keys import DAEMON_FIELDS, TOPIC_FIELDS
from cleanerd.settings.names import (
    TOPICS,
    bad_topic_name,
    cut_topic_name,
    daemon_key_advice,
    dotted_topic_advice,
    topic_key_advice,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

ENVIRONMENT_PREFIX: Final = "CLEANERD_"

_MAX_FILE_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Assignment:
    """One key set in one place. ``topic`` is a topic's name or a glob, None for a broker-level key.

    ``origin`` is what ``config show`` says; ``where()`` is for an error and knows the line of a file.
    """

    topic: str | None
    key: str
    text: str
    origin: str
    where: Callable[[], str]


def from_files(paths: Iterable[Path]) -> Iterator[Assignment | ConfigError]:
    """The files in the order given; a directory stands for its ``*.toml`` files in sorted order."""
    for path in paths:
        try:
            files = _toml_files(path) if path.is_dir() else [path]
        except OSError as error:
            yield ConfigError(f"cannot be read: {error.strerror}", where=str(path))
            continue
        for file in files:
            yield from _from_file(file)


def from_environment(environ: Mapping[str, str]) -> Iterator[Assignment | ConfigError]:
    """``CLEANERD_`` + Kafka's Docker rule: lower case, ``_`` is ``.``, ``__`` is ``_``, ``___`` is ``-``."""
    for variable in sorted(environ):
        if not variable.startswith(ENVIRONMENT_PREFIX):
            continue
        where = f"environment {variable}"
        name = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
        if "____" in name:
            # "_____" could be ".__", "_-", "-_": nobody can tell, so nobody has to guess.
            yield ConfigError(
                "four or more underscores in a row have no meaning", where=where, hint="use --set or a file"
            )
            continue
        dotted = re.sub("_+", lambda run: {1: ".", 2: "_", 3: "-"}[len(run[0])], name)
        yield _assignment(dotted, environ[variable], where, partial(str, where))


def from_options(assignments: Iterable[str]) -> Iterator[Assignment | ConfigError]:
    """``KEY=VALUE`` of ``--set``; the value is everything after the first ``=``."""
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals:
            yield ConfigError("not of the form KEY=VALUE", where=f"--set {assignment}")
            continue
        where = f"--set {key.strip()}"
        yield _assignment(key.strip(), text, "--set", partial(str, where))


def _assignment(name: str, text: str, origin: str, where: Callable[[], str]) -> Assignment | ConfigError:
    """A dotted name, ``topics.NAME.KEY`` included, to what it sets."""
    if not name.startswith(f"{TOPICS}."):
        if name not in DAEMON_FIELDS:
            return ConfigError(f"unknown key {name}", where=where(), hint=daemon_key_advice(name))
        return Assignment(None, name, text, origin, where)
    rest = name.removeprefix(f"{TOPICS}.")
    cut = cut_topic_name(rest)
    if cut is None:
        return ConfigError(f"unknown key {name}", where=where(), hint=dotted_topic_advice(rest))
    return _of_topic(*cut, text, origin, where)


def _of_topic(topic: str, key: str, text: str, origin: str, where: Callable[[], str]) -> Assignment | ConfigError:
    wrong = bad_topic_name(topic)
    if wrong:
        return ConfigError(wrong, where=where())
    if key not in TOPIC_FIELDS:
        return ConfigError(f"unknown key {key} of topic {topic}", where=where(), hint=topic_key_advice(key))
    return Assignment(topic, key, text, origin, where)


def _toml_files(directory: Path) -> list[Path]:
    # Names that begin with a dot are an editor's, or the double of a mounted ConfigMap.
    names = sorted(name for name in os.listdir(directory) if name.endswith(".toml") and not name.startswith("."))
    return [directory / name for name in names]


def _from_file(path: Path) -> Iterator[Assignment | ConfigError]:
    try:
        text = _read_text(path)
        leaves = list(_leaves(tomllib.loads(text), ()))
    except ConfigError as error:
        yield error
        return
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        yield ConfigError(f"not a TOML file: {error}", where=str(path))
        return
    for parts, value in leaves:
        yield _from_leaf(path, text, parts, value)


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
        text = data.decode()
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"not a TOML file: no UTF-8 at byte {error.start}", where=str(path)) from error
    if len(data) > _MAX_FILE_BYTES:
        raise ConfigError("larger than 1 MiB, which no settings file is", where=str(path))
    return text


def _leaves(table: Mapping[str, object], above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], object]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*above, name))
        else:
            yield (*above, name), value


def _from_leaf(path: Path, document: str, parts: tuple[str, ...], value: object) -> Assignment | ConfigError:
    def where() -> str:
        return f"{path}:{line_of(document, parts)}"

    text = _text_of(value)
    name = ".".join(parts)
    if text is None:
        allowed = "text, a number, true or false, or a list of words"
        return ConfigError(f"{name} is {shown(str(value))}, must be {allowed}", where=where())
    origin = f"file {path}"
    if parts[0] == TOPICS and len(parts) > 2:
        # A table's name ends where TOML says it ends; the cut from the end is for dotted names only.
        return _of_topic(parts[1], ".".join(parts[2:]), text, origin, where)
    return _assignment(name, text, origin, where)


def _text_of(value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return ",".join(value)
    return None


def line_of(document: str, parts: tuple[str, ...]) -> int:
    """The line (from 1) where the statement that sets ``parts`` ends.

    tomllib does not say; but a document cut after that line still parses and has the key, and cut before it has not.
    """
    lines = document.split("\n")

    def has(count: int) -> bool | None:
        try:
            value: object = tomllib.loads("\n".join(lines[:count]))
        except tomllib.TOMLDecodeError:
            return None  # cut in the middle of a statement
        for part in parts:
            if not isinstance(value, dict) or part not in value:
                return False
            value = value[part]
        return True

    low, high, found = 1, len(lines), len(lines)
    while low <= high:
        middle = cut = (low + high) // 2
        while cut <= high and (answer := has(cut)) is None:
            cut += 1
        if cut > high:
            high = middle - 1
        elif answer:
            found, high = min(found, cut), middle - 1
        else:
            low = cut + 1
    return found
