"""The servers of stores other than S3 for tests, in a new process.

Google's library holds Python's lock while it waits for an answer (pyarrow checks whether a file is closed), so a proxy
in the same process could never answer. Faults are sent to it as objects, not functions.
"""

from __future__ import annotations

import importlib
import multiprocessing
import re
from dataclasses import dataclass, field
from multiprocessing.managers import BaseManager
from typing import TYPE_CHECKING, Any

import pyarrow.fs as pafs

from tests.spark.faulty import Faulty, now_and_then

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


BUCKET = "archive"


@dataclass(frozen=True)
class Always:
    """This fault, for the requests whose ``METHOD PATH RANGE`` the pattern finds."""

    fault: str
    pattern: str = ""

    def made(self, _store: Served) -> Callable[[int, str, str, str], str | None]:
        """For the proxy."""
        return lambda _number, *requested: self.fault if re.search(self.pattern, " ".join(requested)) else None


@dataclass(frozen=True)
class NowAndThen:
    """This fault, once for every distinct request."""

    fault: str

    def made(self, _store: Served) -> Callable[[int, str, str, str], str | None]:
        """For the proxy."""
        return now_and_then(self.fault)


@dataclass(frozen=True)
class Replace:
    """Before the first request that the pattern finds, another object gets the name."""

    pattern: str
    name: str
    data: bytes

    def made(self, store: Served) -> Callable[[int, str, str, str], str | None]:
        """For the proxy."""

        def replace(_number: int, *requested: str) -> None:
            if re.search(self.pattern, " ".join(requested)):
                store.fault = None
                store.put_bytes(self.name, self.data)

        return replace


@dataclass
class Served(Faulty):
    """In the process of the server.

    ``system``: pyarrow's, without the proxy; ``inner``: the prefix of all names in it.
    """

    system: Any = None
    inner: str = BUCKET

    def put_bytes(self, name: str, data: bytes) -> None:
        with self.system.open_output_stream(f"{self.inner}/{name}", compression=None) as stream:
            stream.write(data)

    def delete(self, name: str) -> None:
        self.system.delete_file(f"{self.inner}/{name}")

    def files(self, prefix: str) -> dict[str, bytes]:
        """All files below a prefix, by their names there."""
        top = f"{self.inner}/{prefix}"
        found = {}
        for info in self.system.get_file_info(pafs.FileSelector(top, recursive=True)):
            if info.is_file:
                with self.system.open_input_stream(info.path, compression=None) as file:
                    found[info.path[len(top) + 1 :]] = file.read()
        return found


class _Control:
    """The calls of the test process."""

    def __init__(self, module: str, words: Mapping[str, Any]) -> None:
        self._store, self._stop = importlib.import_module(module).serve(**words)

    def endpoint(self) -> str:
        return self._store.endpoint  # type: ignore[no-any-return]

    def fail(self, fault: Always | NowAndThen | Replace | None) -> None:
        self._store.fault = None if fault is None else fault.made(self._store)

    def requests(self) -> list[tuple[str, str, str]]:
        return list(self._store.requests)

    def page(self, names: int) -> None:
        self._store.page = names

    def clear(self) -> None:
        self._store.fault = None
        self._store.page = 0
        self._store.requests.clear()

    def put_bytes(self, name: str, data: bytes) -> None:
        self._store.put_bytes(name, data)

    def delete(self, name: str) -> None:
        self._store.delete(name)

    def files(self, prefix: str) -> dict[str, bytes]:
        return self._store.files(prefix)  # type: ignore[no-any-return]

    def stop(self) -> None:
        self._stop()


class _Manager(BaseManager):
    pass


_Manager.register("control", _Control)


@dataclass
class OtherStore:
    """In the test process. ``root``: its URL, as we write it; ``elsewhere``: of a bucket that does not exist.

    ``environment``: the variables with which the code under test finds the server.
    """

    control: Any
    manager: _Manager
    root: str
    elsewhere: str
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def requests(self) -> list[tuple[str, str, str]]:
        """Method, path and range of the proxy's requests."""
        return self.control.requests()  # type: ignore[no-any-return]

    def put(self, directory: Path, prefix: str) -> str:
        """Upload a whole directory; returns its URL."""
        for path in sorted(directory.rglob("*")):
            if path.is_file():
                self.control.put_bytes(f"{prefix}/{path.relative_to(directory)}", path.read_bytes())
        return f"{self.root}/{prefix}"

    def downloaded(self, prefix: str, into: Path) -> Path:
        """All files below a prefix, downloaded."""
        for name, data in self.control.files(prefix).items():
            path = into / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return into

    def stop(self) -> None:
        """Stop the server, and its process."""
        self.control.stop()
        self.manager.shutdown()


def started(module: str, root: str, elsewhere: str, **words: Any) -> OtherStore:
    """The store that ``module.serve(**words)`` makes, in a new process."""
    manager = _Manager(ctx=multiprocessing.get_context("spawn"))
    manager.start()
    control = manager.control(module, words)  # type: ignore[attr-defined]
    return OtherStore(control, manager, root, elsewhere)
