"""State files: one mechanism to read, validate, replace and lock them, for every kind of document.

A document is JSON: the fields of a dataclass, which pydantic validates, beside ``format`` and the writer's release.
Unknown fields are ignored. Such a file may contain any bytes: reading one gives :class:`UnreadableState`, a warning, or
one of :data:`DAMAGE`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from cleanerd import __version__
from cleanerd.format.adapters import adapter_of
from cleanerd.fsio.json_text import document_bytes, line_bytes
from cleanerd.fsio.safe_open import MAX_SMALL_FILE_BYTES
from cleanerd.fsio.state_files import (
    DAMAGE,
    LOCK_WAIT_SECONDS,
    NewerFormatError,
    UnreadableState,
    describe_damage,
    locked,
    make_directory,
    owner_of,
    read_state_file,
    write_state_file,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Head:
    format: Any


class Document(Generic[T]):
    """One kind of state file, ``name`` in the state directory.

    ``body``: the dataclass of its fields. ``version``: the format that this release writes and reads. ``check`` raises
    ValueError if valid fields do not fit together. ``only_known``: an unknown field is damage instead of being ignored.
    """

    def __init__(
        self,
        name: str,
        body: type[T],
        version: int = 1,
        *,
        check: Callable[[T], None] | None = None,
        max_bytes: int = MAX_SMALL_FILE_BYTES,
        only_known: bool = False,
    ) -> None:
        self.name = name
        self._body = body
        self._version = version
        self._check = check
        self._max_bytes = max_bytes
        self._only_known = only_known

    def parse(self, data: bytes) -> T:
        """The document in ``data``.

        Raises:
            NewerFormatError: a newer release wrote it, and this one cannot read it. Another of :data:`DAMAGE`: it is
                not such a document.
        """
        found = validated(_Head, data).format
        if type(found) is int and found > self._version:
            raise NewerFormatError(f"written by a newer cleanerd (format {found}, this one knows {self._version})")
        if type(found) is not int or found != self._version:
            raise ValueError(f"its format is {found!r}, not {self._version}")
        if self._only_known:  # ``body`` rejects unknown fields
            own = {"format", "cleanerd"}
            data = line_bytes({name: value for name, value in json.loads(data).items() if name not in own})
        body = validated(self._body, data)
        if self._check is not None:
            self._check(body)
        return body

    def to_bytes(self, body: T, **more: str | int) -> bytes:
        """The text from which :meth:`parse` makes ``body``, with further fields for other readers."""
        return document_bytes(more | self._values(body))

    def to_line(self, body: T) -> bytes:
        """The same text in one line, without a line end."""
        return line_bytes(self._values(body))

    def _values(self, body: T) -> dict[str, Any]:
        values = {field.name: getattr(body, field.name) for field in fields(body)}  # type: ignore[arg-type]
        return {"format": self._version, "cleanerd": __version__, **values}

    def get(self, state_dir: Path) -> T | None:
        """The document; None if the file does not exist. Raises OSError, or what :meth:`parse` raises."""
        try:
            data = read_state_file(state_dir / self.name, max_bytes=self._max_bytes)
        except FileNotFoundError:
            return None
        return self.parse(data)

    def read(self, state_dir: Path) -> T | UnreadableState | None:
        """The document; None if the file does not exist."""
        path = state_dir / self.name
        try:
            return self.get(state_dir)
        except OSError as error:
            return UnreadableState.refused(path, error)
        except DAMAGE as error:
            return UnreadableState(str(path), f"is {describe_damage(error)}")

    def load(self, state_dir: Path, warnings: list[str]) -> T | None:
        """The document; None if the file does not exist or cannot be used, with a warning in ``warnings``."""
        found = self.read(state_dir)
        if isinstance(found, UnreadableState):
            warnings.append(found.warning)
            return None
        return found

    def write(self, state_dir: Path, body: T) -> None:
        """Replace the file atomically; creates a missing state directory. Raises OSError."""
        owner = owner_of(state_dir)
        make_directory(state_dir, owner)
        write_state_file(state_dir / self.name, self.to_bytes(body), owner)

    def try_write(self, state_dir: Path, body: T) -> str:
        """As :meth:`write`; returns why it failed, or an empty text."""
        try:
            self.write(state_dir, body)
        except OSError as error:
            return f"{state_dir / self.name}: cannot be written ({error.strerror})"
        return ""

    @contextmanager
    def locked(self, state_dir: Path, *, wait_seconds: float = LOCK_WAIT_SECONDS) -> Iterator[None]:
        """Lock the file against changes by other processes; creates a missing state directory. Raises OSError."""
        owner = owner_of(state_dir)
        make_directory(state_dir, owner)
        with locked((state_dir / self.name).with_suffix(".lock"), owner, wait_seconds=wait_seconds):
            yield


def validated(kind: type[T], data: bytes) -> T:
    """The ``kind`` in the JSON text ``data``; raises one of :data:`DAMAGE`."""
    adapter = adapter_of(kind)
    try:
        try:
            return adapter.validate_json(data, strict=True)
        except ValidationError as error:
            if error.errors(include_url=False, include_input=False)[0]["type"] != "json_invalid" or b"\\ud" not in data:
                raise
            # A path whose bytes are not valid UTF-8 has lone surrogates, which only this decoder reads.
            return adapter.validate_python(json.loads(data))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"{place}: {first['msg']}" if place else first["msg"]) from None
