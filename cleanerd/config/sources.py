"""The sources of settings: TOML files, the environment, ``--set``. Each source yields assignments, or faults.

All values become text here, so that a value means the same in every source.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from cleanerd.config.kafka_names import is_broker_name, topic_names
from cleanerd.config.kafka_values import shown
from cleanerd.config.keys import DAEMON_FIELDS, TOPIC_FIELDS, kind_of, valid_values
from cleanerd.config.names import (
    TOPICS,
    cut_topic_name,
    daemon_key_advice,
    dotted_topic_advice,
    topic_key_advice,
)
from cleanerd.config.topic_patterns import bad_topic_name
from cleanerd.errors import ConfigError

ENVIRONMENT_PREFIX: Final = "CLEANERD_"
OWN: Final = "cleanerd."
"""The prefix of cleanerd's own keys; their variables begin with it twice."""

SCHEMA_REGISTRY: Final = frozenset(
    f"{ENVIRONMENT_PREFIX}SCHEMA_REGISTRY_{name}"
    for name in ("USER", "PASSWORD", "CA", "CERTIFICATE", "KEY", "KEY_PASSWORD", "ANSWER_SECONDS")
)
"""No settings: ``spark/values/`` reads these variables itself, without importing this module."""

RETRIES: Final = frozenset(f"{ENVIRONMENT_PREFIX}SPARK_{name}" for name in ("TRIES", "PAUSE_SECONDS"))
"""No settings: ``spark/retries.py`` reads these variables."""

_MOST_WRONG: Final = 20
"""Limit of reported keys per file: each is compared with all keys, and its line is searched."""

_PARSED_FOR_LINES: Final = 1 << 20
"""How many characters of a file are parsed again to find lines: at most as for the largest file."""

_IS_IT: Final = "is it a file of cleanerd's settings? 'cleanerd config generate' writes one"
_MAX_FILE_BYTES: Final = 1 << 20
_MOST_BITS: Final = 4096
"""Limit of bits of a number; no setting accepts a larger one."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """One key with its value from one source. ``topic`` is a topic's name or a glob, None for a broker-level key.

    ``origin`` is what ``config show`` prints; ``where()`` is for errors and adds the line of a file.
    """

    topic: str | None
    key: str
    text: str
    origin: str
    where: Callable[[], str]


@dataclass(frozen=True, slots=True)
class UnsupportedKey:
    """A setting of Kafka that cleanerd ignores: ``key`` as it was written, with ``topics.NAME.``."""

    key: str
    origin: str


@dataclass(frozen=True, slots=True)
class IgnoredVariable:
    """A text that looks like a setting but sets nothing, such as a variable without a key; ``text`` explains it."""

    text: str


Found: TypeAlias = Assignment | UnsupportedKey | IgnoredVariable | ConfigError


def from_files(paths: Iterable[Path]) -> Iterator[Found]:
    """The settings of files in the given order; a directory stands for its ``*.toml`` files in sorted order."""
    for path in paths:
        try:
            files = _toml_files(path) if path.is_dir() else [path]
        except OSError as error:
            yield ConfigError(f"cannot be read: {error.strerror}", where=str(path))
            continue
        if not files:
            yield IgnoredVariable(f"{path}: the directory contains no .toml file, so it sets nothing")
        for file in files:
            yield from _from_file(file)


def from_environment(environ: Mapping[str, str]) -> Iterator[Found]:
    """The settings of environment variables.

    Names are ``CLEANERD_`` and the key by Kafka's Docker rule: ``_`` is ``.``, ``__`` is ``_``, ``___`` is ``-``. A
    variable that does not name a key is not an error: Kubernetes sets some for every service, and one may be called
    cleanerd. An empty variable is ignored: Docker Compose sets empty ones for missing values.
    """
    for variable in sorted(environ):
        if not variable.startswith(ENVIRONMENT_PREFIX) or not environ[variable]:
            continue
        if variable in SCHEMA_REGISTRY or variable in RETRIES:
            continue
        where = f"environment {variable}"
        name = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
        if "____" in name:
            # "_____" could be ".__", "_-" or "-_", so it is refused instead of guessed.
            yield _stray(
                ConfigError(
                    "four or more underscores in a row have no meaning", where=where, hint="use --set or a file"
                )
            )
            continue
        dotted = re.sub("_+", lambda run: {1: ".", 2: "_", 3: "-"}[len(run[0])], name)
        found = _assignment(dotted, environ[variable], where, partial(str, where))
        if isinstance(found, ConfigError) and f"{OWN}{dotted}" in DAEMON_FIELDS:
            meant = ENVIRONMENT_PREFIX + OWN.replace(".", "_").upper() + variable.removeprefix(ENVIRONMENT_PREFIX)
            found = ConfigError(found.message, where=where, hint=f"did you mean {meant}?")
        yield _stray(found) if isinstance(found, ConfigError) else found


def _stray(error: ConfigError) -> IgnoredVariable:
    return IgnoredVariable(f"the variable sets nothing: {error}")


def from_options(assignments: Iterable[str]) -> Iterator[Found]:
    """``KEY=VALUE`` of ``--set``; the value is everything after the first ``=``."""
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals:
            yield ConfigError("not of the form KEY=VALUE", where=f"--set {assignment}")
            continue
        where = f"--set {key.strip()}"
        yield _assignment(key.strip(), text, "--set", partial(str, where))


def _assignment(
    name: str, text: str, origin: str, where: Callable[[], str]
) -> Assignment | UnsupportedKey | ConfigError:
    """The assignment of a dotted name, which may be ``topics.NAME.KEY``."""
    if not name.startswith(f"{TOPICS}."):
        if name in DAEMON_FIELDS:
            return Assignment(None, name, text, origin, where)
        return _no_key(name, origin, where)
    rest = name.removeprefix(f"{TOPICS}.")
    cut = cut_topic_name(rest)
    if cut is None:
        return ConfigError(f"unknown key {name}", where=where(), hint=dotted_topic_advice(rest))
    return _of_topic(*cut, text, origin, where)


def _no_key(name: str, origin: str, where: Callable[[], str]) -> UnsupportedKey | ConfigError:
    """The fault for an unknown broker-level name."""
    # A topic's key here would have no effect, although the operator expects one.
    if is_broker_name(name) or (name in topic_names() and name not in TOPIC_FIELDS):
        return UnsupportedKey(name, origin)
    what = f"{name} is a topic's key" if name in topic_names() else f"unknown key {name}"
    return ConfigError(what, where=where(), hint=daemon_key_advice(name))


def _of_topic(
    topic: str, key: str, text: str, origin: str, where: Callable[[], str]
) -> Assignment | UnsupportedKey | ConfigError:
    wrong = bad_topic_name(topic)
    if wrong:
        return ConfigError(wrong, where=where())
    if key in TOPIC_FIELDS:
        return Assignment(topic, key, text, origin, where)
    if key in topic_names():
        return UnsupportedKey(f"{TOPICS}.{topic}.{key}", origin)
    what = f"{key} is a broker's key, not a topic's" if is_broker_name(key) else f"unknown key {key} of topic {topic}"
    return ConfigError(what, where=where(), hint=topic_key_advice(key))


def _toml_files(directory: Path) -> list[Path]:
    # Names that begin with a dot are an editor's, or the copies of a mounted ConfigMap.
    names = sorted(name for name in os.listdir(directory) if name.endswith(".toml") and not name.startswith("."))
    return [directory / name for name in names]


def _from_file(path: Path) -> Iterator[Found]:
    try:
        text = _read_text(path)
        leaves = list(_leaves(tomllib.loads(text), ()))
    except ConfigError as error:
        yield error
        return
    except (ValueError, RecursionError) as error:
        yield _no_toml(path, error)
        return
    document, wrong = _TomlDocument(path, text), 0
    first: dict[tuple[str | None, str], str] = {}
    for parts, value in leaves:
        found = _from_leaf(document, parts, value)
        if isinstance(found, Assignment):
            # TOML distinguishes "a.b" from [a] b and accepts both; here they are the same key.
            key, written = (found.topic, found.key), _as_written(parts)
            other = first.setdefault(key, written)
            field = (DAEMON_FIELDS if found.topic is None else TOPIC_FIELDS)[found.key]
            if isinstance(value, list) and not kind_of(field).is_list:
                found = ConfigError(f"{found.key} is a list, must be {valid_values(field)}", where=found.where())
            elif other != written:
                found = ConfigError(f"{found.key} is set twice, here and as {other}", where=found.where())
        yield found
        wrong += isinstance(found, ConfigError)
        if wrong == _MOST_WRONG:
            yield ConfigError(f"{wrong} keys are wrong, and there may be more", where=str(path), hint=_IS_IT)
            return


def _as_written(parts: tuple[str, ...]) -> str:
    """The key, with quotes around parts that have dots: ``log."cleaner.threads"``."""
    return ".".join(part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else f'"{part}"' for part in parts)


def _no_toml(path: Path, error: ValueError | RecursionError) -> ConfigError:
    """Why the text is not valid TOML, and how to fix it."""
    what, hint = str(error), 'keys and text are written in quotes: "cleanerd.log.dirs" = "/var/lib/kafka/data"'
    if isinstance(error, RecursionError):
        what, hint = "its values are nested too deeply", _IS_IT
    elif not isinstance(error, tomllib.TOMLDecodeError):  # int() refuses thousands of digits
        what, hint = "a number in it has thousands of digits", _IS_IT
    elif what.startswith("Cannot "):
        hint = "a key, and a [table], may appear in a file only once"
    elif what.startswith(("Illegal character", "Unterminated")) or "end of document" in what:
        hint = "was it written to the end? 'cleanerd config check' reads it again"
    return ConfigError(f"not a TOML file: {what}", where=str(path), hint=hint)


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=str(path)) from error
    if len(data) > _MAX_FILE_BYTES:
        raise ConfigError("larger than 1 MiB, which no settings file is", where=str(path), hint=_IS_IT)
    try:
        # Windows editors begin a file with an invisible byte order mark.
        return data.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"not a TOML file: no UTF-8 at byte {error.start}", where=str(path), hint="save it as UTF-8"
        ) from error


def _leaves(table: Mapping[str, object], above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], object]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*above, name))
        else:
            yield (*above, name), value


def _from_leaf(
    document: _TomlDocument, parts: tuple[str, ...], value: object
) -> Assignment | UnsupportedKey | ConfigError:
    def where() -> str:
        return document.where(parts)

    name = ".".join(parts)
    text = _text_of(value)
    if text is None:
        allowed = "text, a number, true or false, or a list of words"
        return ConfigError(f"{name} is {shown(str(value))}, must be {allowed}", where=where())
    origin = f"file {document.path}"
    if parts[0] == TOPICS and len(parts) > 2:
        # TOML delimits a table's name; only dotted names are split from the end.
        return _of_topic(parts[1], ".".join(parts[2:]), text, origin, where)
    return _assignment(name, text, origin, where)


def _text_of(value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return hex(value)  # repr() takes no number of thousands of digits
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return ",".join(value)
    return None


class _TomlDocument:
    """A file's text, and how much may still be parsed to find the lines of faults."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        # As in TOML; a document cut between \r and \n is not valid.
        self._lines = text.replace("\r\n", "\n").split("\n")
        self._left = _PARSED_FOR_LINES

    def where(self, parts: tuple[str, ...]) -> str:
        """The file with the line that sets ``parts``; only the file if finding the line takes too long."""
        line = self._line_of(parts)
        return str(self.path) if line is None else f"{self.path}:{line}"

    def _line_of(self, parts: tuple[str, ...]) -> int | None:
        """The line (from 1) where the statement that sets ``parts`` ends.

        tomllib does not report it. But a document cut after the key can be parsed and has it; cut before the key, it
        does not.
        """
        low, high, found = 1, len(self._lines), len(self._lines)
        while low <= high:
            middle = cut = (low + high) // 2
            while cut <= high and self._left > 0 and (answer := self._has(cut, parts)) is None:
                cut += 1
            if self._left <= 0:
                return None
            if cut > high:
                high = middle - 1
            elif answer:
                found, high = min(found, cut), middle - 1
            else:
                low = cut + 1
        return found

    def _has(self, count: int, parts: tuple[str, ...]) -> bool | None:
        text = "\n".join(self._lines[:count])
        self._left -= len(text)
        try:
            value: object = tomllib.loads(text)
        except tomllib.TOMLDecodeError:
            return None  # cut in the middle of a statement
        for part in parts:
            if not isinstance(value, dict) or part not in value:
                return False
            value = value[part]
        return True
