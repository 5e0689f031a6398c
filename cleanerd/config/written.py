"""Effective settings as a file, for a child process with the same settings.

A file instead of ``--set``, because TOML delimits a table's name even with dots in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from cleanerd.config.keys import DAEMON_FIELDS, kafka_text, kind_of
from cleanerd.config.load import DEFAULT_ORIGIN, Settings
from cleanerd.config.names import TOPICS
from cleanerd.config.sources import ENVIRONMENT_PREFIX

_ALWAYS = frozenset({"cleanerd.state.dir"})
"""Always written, because their defaults depend on the environment."""


def as_toml(settings: Settings, more: Mapping[str, str]) -> str:
    """All settings from every source, and ``more`` broker-level keys, which override them."""
    return "\n".join(_lines(settings, more)) + "\n"


def without_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without variables that would override the file."""
    return {name: value for name, value in environ.items() if not name.startswith(ENVIRONMENT_PREFIX)}


def _lines(settings: Settings, more: Mapping[str, str]) -> Iterator[str]:
    for key, field in DAEMON_FIELDS.items():
        value, kind = settings.value(key), kind_of(field)
        if key in more:
            yield _line(key, more[key])
        elif (settings.origins[key] != DEFAULT_ORIGIN or key in _ALWAYS) and (value is not None or kind.writes_none):
            yield _line(key, kind.write(value))
    for table in settings.tables:
        yield f"[{TOPICS}.{_quoted(table.name)}]"
        for key, (value, _) in table.values.items():
            yield _line(key, kafka_text(value))


def _line(key: str, text: str) -> str:
    return f"{_quoted(key)} = {_quoted(text)}"


def _quoted(text: str) -> str:
    # JSON's escapes are valid in TOML, except pairs of surrogates (not produced here) and DEL, which TOML wants
    # escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
