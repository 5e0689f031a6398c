"""The place of a table's files, for tasks on any machine, which use the table's own library."""

from __future__ import annotations

import contextlib
import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from cleanerd.errors import CleanerdError, MachineError, system_error
from cleanerd.segments.remote import SEPARATOR

PREFIX: Final = "cleanerd-"
"""The prefix of cleanerd's files."""


class FilesPlace(ABC):
    """Files by their path, as the table's log names them."""

    @abstractmethod
    def new_path(self) -> str:
        """A new, unique path."""

    @abstractmethod
    def _reading(self, path: str) -> Any: ...

    @abstractmethod
    def _writing(self, path: str) -> Any: ...

    @abstractmethod
    def _remove(self, path: str) -> None: ...

    @contextlib.contextmanager
    def reading(self, path: str) -> Iterator[Any]:
        """The file as pyarrow reads one.

        Raises:
            CleanerdError: it cannot be read.
        """
        with translated_errors("cannot be read", path), self._reading(path) as file:
            yield file

    @contextlib.contextmanager
    def writing(self, path: str) -> Iterator[Any]:
        """A new file.

        Raises:
            CleanerdError: it cannot be written.
        """
        with translated_errors("cannot be written", path), self._writing(path) as file:
            yield file

    def remove(self, path: str) -> None:
        """Delete a file that no commit names; if that fails, a vacuum finds it."""
        with contextlib.suppress(Exception):
            self._remove(path)


@dataclass(frozen=True, slots=True)
class DeltaPlace(FilesPlace):
    """Paths are below ``root``, a path or URL."""

    root: str

    def new_path(self) -> str:
        """In the table's directory."""
        return f"{PREFIX}{uuid.uuid4()}.snappy.parquet"

    def _system(self) -> Any:
        import pyarrow.fs as pafs  # noqa: PLC0415

        if SEPARATOR not in self.root:
            return pafs.SubTreeFileSystem(self.root, pafs.LocalFileSystem())
        from deltalake.fs import DeltaStorageHandler  # noqa: PLC0415 - an extra

        return pafs.PyFileSystem(DeltaStorageHandler(self.root))

    def names(self, below: str = "") -> list[str]:
        """The names in it, or in a directory ``below`` it, one level deep."""
        import pyarrow.fs as pafs  # noqa: PLC0415

        with translated_errors("cannot be listed", self.root):
            found = self._system().get_file_info(pafs.FileSelector(below, allow_not_found=True))
        return [info.path.rstrip("/").rpartition("/")[2] for info in found]

    def _reading(self, path: str) -> Any:
        return self._system().open_input_file(path)

    def _writing(self, path: str) -> Any:
        if SEPARATOR not in self.root:
            os.makedirs(self.root, exist_ok=True)
        return self._system().open_output_stream(path)

    def _remove(self, path: str) -> None:
        self._system().delete_file(path)


@dataclass(frozen=True, slots=True)
class IcebergPlace(FilesPlace):
    """Paths are absolute; new ones are in the ``data`` directory of ``location``.

    ``properties``: those of the catalog.
    """

    location: str
    properties: Mapping[str, str]

    def new_path(self) -> str:
        """In the directory that Iceberg's writers use."""
        return f"{self.location.rstrip('/')}/data/{PREFIX}{uuid.uuid4()}.snappy.parquet"

    def _io(self) -> Any:
        from pyiceberg.io import load_file_io  # noqa: PLC0415 - an extra

        return load_file_io(dict(self.properties), self.location)

    def _reading(self, path: str) -> Any:
        return self._io().new_input(path).open()

    def _writing(self, path: str) -> Any:
        return self._io().new_output(path).create()

    def _remove(self, path: str) -> None:
        self._io().delete(path)


@contextlib.contextmanager
def translated_errors(what: str, where: str) -> Iterator[None]:
    """Translate exceptions of a store or a library.

    Raises:
        CleanerdError: what was raised.
    """
    try:
        yield
    except CleanerdError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise system_error(what, where, error) from error
        text = str(error).split("\n", maxsplit=1)[0].partition("?")[0][:300]
        raise MachineError(f"{what}: {text}", where=where) from error
