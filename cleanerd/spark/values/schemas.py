"""Schemas, and their sources: a registry (``registry.py``) or a directory (``folder.py``)."""

from __future__ import annotations

import importlib.util
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from cleanerd.errors import ConfigError

AVRO: Final = "avro"
PROTOBUF: Final = "protobuf"
JSON: Final = "json"
KINDS: Final = (AVRO, PROTOBUF, JSON)

NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    AVRO: ("fastavro",),
    PROTOBUF: ("google.protobuf", "grpc_tools"),
    JSON: (),
}
"""Packages of the extra ``values``, by the kind that they decode."""

MOST_BYTES: Final = 4 << 20
"""Limit of a schema's text, or of all files in a directory of schemas."""

_MOST_LEVELS: Final = 200
_INSTALL: Final = "pip install '/path/to/cleanerd-VERSION.whl[spark,values]'"


class UndecodableError(Exception):
    """A value contradicts its schema, or its schema is not found; the text is the reason for the side table."""


@dataclass(frozen=True, slots=True)
class Schema:
    """``kind``: one of :data:`KINDS`.

    ``references``: name and text of schemas that it needs, each after its own references.
    """

    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class NamedSchema:
    """A schema found by name. ``label``: its name in messages (``orders-value version 3``)."""

    schema: Schema
    label: str


class Schemas(ABC):
    """A source of schemas: a registry, or a directory."""

    where: str
    """Its name in messages."""

    @abstractmethod
    def by_id(self, number: int) -> Schema | None:
        """The schema with which a record was written; None: there is none with that id.

        Raises:
            CleanerdError: the registry does not answer, or gives an invalid answer, so it is unknown.
        """

    @abstractmethod
    def named(self, name: str) -> NamedSchema:
        """``SUBJECT``: its newest schema; ``SUBJECT:VERSION``: that one.

        Raises:
            ConfigError: there is none.
            CleanerdError: as :meth:`by_id`.
        """


def require_installed(kind: str) -> None:
    """Check that the package for ``kind`` is installed.

    Raises:
        ConfigError: the extra ``values`` is missing.
    """
    missing = [name for name in NEEDED[kind] if not _is_there(name)]
    if missing:
        raise ConfigError(f"{kind}: not installed: {', '.join(missing)}", where="the extra values", hint=_INSTALL)


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # its parent package is missing too
        return False


def parsed_json(text: str, label: str) -> Any:
    """A schema that is JSON.

    Raises:
        UndecodableError: it is not, or lists and objects are nested too deeply.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UndecodableError(f"{label} is not JSON: {error}") from None
    level = [found]
    for _ in range(_MOST_LEVELS):
        level = [
            child
            for each in level
            if isinstance(each, dict | list)
            for child in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return found
    raise UndecodableError(f"{label}: more than {_MOST_LEVELS} levels of lists and objects in each other")
