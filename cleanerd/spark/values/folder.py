"""Schemas from a directory, where there is no registry.

==================  ================================================================
``17.avsc``         the schema with id 17
``orders-value.avsc``    the schema of the subject ``orders-value``
``orders-value.2.avsc``  its version 2; without a number it is the newest
==================  ================================================================

``.proto`` and ``.json`` likewise. A ``.proto``'s imports are in the same directory, by the path of the import. The
driver reads all of it, and tasks get it with their work: executors need not see the directory.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final

from cleanerd.errors import ConfigError, system_error
from cleanerd.segments.remote import SEPARATOR, shown_url
from cleanerd.spark.values.schemas import AVRO, JSON, MOST_BYTES, PROTOBUF, NamedSchema, Schema, Schemas

_KINDS: Final = {".avsc": AVRO, ".proto": PROTOBUF, ".json": JSON}
_VERSION: Final = re.compile(r"(.+)\.([0-9]+)", re.ASCII)


class SchemaFolder(Schemas):
    """Schemas in a directory. ``files``: text by path below the directory ``where``."""

    def __init__(self, where: str, files: Mapping[str, str]) -> None:
        self.where = where
        self._files = files
        self._stems: dict[str, list[str]] = {}
        for path in files:
            if "/" not in path:
                self._stems.setdefault(path.rpartition(".")[0], []).append(path)

    @classmethod
    def read(cls, place: str) -> SchemaFolder:
        """The current content of the directory.

        Raises:
            ConfigError: it does not exist, or contains no schemas, or too many.
            CleanerdError: it cannot be read.
        """
        if SEPARATOR in place and not place.startswith("file:"):
            raise ConfigError(
                "schemas come from a registry (http, https) or a local directory",
                where=shown_url(place),
                hint="copy them to the driver's machine",
            )
        root = os.path.abspath(place.removeprefix("file://"))
        if not os.path.isdir(root):
            raise ConfigError("no such directory", where=root, hint="schemas: a registry's URL, or a directory")
        files: dict[str, str] = {}
        size_bytes = 0
        for directory, _, names in os.walk(root):
            for name in names:
                path = os.path.join(directory, name)
                if os.path.splitext(name)[1] not in _KINDS:
                    continue
                text = _read(path)
                size_bytes += len(text)
                if size_bytes > MOST_BYTES:
                    raise ConfigError(
                        f"more than {MOST_BYTES} bytes of schemas", where=root, hint="name their own directory"
                    )
                files[os.path.relpath(path, root)] = text
        if not files:
            raise ConfigError("has no .avsc, .proto or .json file", where=root)
        return cls(root, dict(sorted(files.items())))

    def by_id(self, number: int) -> Schema | None:
        """``NUMBER.avsc``, ``.proto`` or ``.json``; raises as :meth:`named` if there are two."""
        return self._of(str(number))

    def named(self, name: str) -> NamedSchema:
        """``SUBJECT.avsc``, or its highest ``SUBJECT.N.avsc``; ``SUBJECT:N`` is ``SUBJECT.N.avsc``."""
        subject, colon, version = name.rpartition(":")
        stem = f"{subject}.{version}" if colon else self._newest(name)
        found = self._of(stem)
        if found is None:
            raise ConfigError(
                f"no schema {name}", where=self.where, hint=f"a file {stem}.avsc, {stem}.proto or {stem}.json there"
            )
        return NamedSchema(found, self._stems[stem][0])

    def _newest(self, subject: str) -> str:
        if subject in self._stems:
            return subject
        versions = [
            int(found[2]) for stem in self._stems if (found := _VERSION.fullmatch(stem)) and found[1] == subject
        ]
        return f"{subject}.{max(versions)}" if versions else subject

    def _of(self, stem: str) -> Schema | None:
        paths = self._stems.get(stem, [])
        if len(paths) > 1:
            raise ConfigError(
                f"{' and '.join(paths)} define the same schema", where=self.where, hint="leave one of them"
            )
        if not paths:
            return None
        kind = _KINDS[os.path.splitext(paths[0])[1]]
        others: tuple[tuple[str, str], ...] = ()
        if kind == PROTOBUF:
            others = tuple(
                (path, text) for path, text in self._files.items() if path.endswith(".proto") and path != paths[0]
            )
        return Schema(kind, self._files[paths[0]], others)


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(MOST_BYTES + 1)
    except OSError as error:
        raise system_error("cannot be read", path, error) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"is not UTF-8: {error.reason}", where=path) from None
