"""Generates a settings file with every key, commented out: its effect, its allowed values, its default.

Lines that begin with ``# `` are comments; ``#"`` and ``#[`` begin settings: remove the ``#`` to use one. A
key without a writable default (a path) shows an example. One key is active: ``cleanerd.mode``, so that the daemon only
observes with an unchanged file.
"""

from __future__ import annotations

import json
import re
import textwrap
from typing import TYPE_CHECKING, Final

from cleanerd.config.keys import DAEMON_FIELDS, TOPIC_FIELDS, kind_of, valid_values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic.fields import FieldInfo

_HEAD: Final = """\
cleanerd's settings, read with --config FILE (repeatable; a directory is read in sorted order).
Without --config, every command reads /etc/cleanerd/cleanerd.toml if it exists (--no-config ignores it).
The environment overrides files, and --set KEY=VALUE overrides both. A variable is named CLEANERD_ and the key, with
'.' written _, '_' written __ and '-' written ___: CLEANERD_LOG_CLEANER_DEDUPE_BUFFER_SIZE=64MiB. Empty: not set.
Settings that Kafka has too (segment sizes, lags, retention) come from the topic, then from the broker. The key here
applies only if neither sets it, or if their configuration cannot be found.
Other settings that Kafka documents are accepted and have no effect, so you can copy a block of a broker's file.
'cleanerd config show' prints every value and its origin, 'cleanerd config check' finds mistakes.
"""

_TOPICS_HEAD: Final = """\
Settings of one topic, or of all topics that match a pattern. They override the topic's configuration in the cluster.
If several match, each key comes from the topic's own name, then from the pattern with the most literal characters.
On the command line: --set topics.orders.v1.cleanup.policy=compact
"""

_IN_USE: Final = frozenset({"cleanerd.mode"})
"""Keys that are active in the file although they have their default, to show that the daemon only observes."""


def generate() -> str:
    """The text of ``config/cleanerd.toml``."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield from _prose(_HEAD)
    for key, field in DAEMON_FIELDS.items():
        yield ""
        yield from _about(field)
        comment = "" if key in _IN_USE else "#"
        yield f'{comment}"{key}" = {_toml(_example(field))}'
    yield ""
    yield ""
    yield from _prose(_TOPICS_HEAD)
    yield '#[topics."orders.v1"]'
    for key, field in TOPIC_FIELDS.items():
        yield ""
        yield from _about(field)
        yield f'#"{key}" = {_toml(_example(field))}'


def _about(field: FieldInfo) -> Iterator[str]:
    yield from _prose(field.description or "")
    yield from _prose(f"Takes {valid_values(field)}.")


def _prose(text: str) -> Iterator[str]:
    for paragraph in text.splitlines():
        yield from (
            f"# {line}" for line in textwrap.wrap(paragraph, 116, break_on_hyphens=False, break_long_words=False)
        )


def _example(field: FieldInfo) -> str:
    if field.examples:
        return str(field.examples[0])
    return str(kind_of(field).write(field.default))


def _toml(text: str) -> str:
    """Plain numbers as in TOML, everything else in quotes."""
    if re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", text):
        return text
    return json.dumps(text)
