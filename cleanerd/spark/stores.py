"""Object stores and other file systems, through pyarrow: ``s3``, ``gs``, ``abfs`` and ``hdfs``.

``archive/target.py`` writes to one. A file is fetched in ranges of some megabytes, one ahead of the reader, so that a
task has two of them in memory and none on disk. Transient failures are retried a few times. The store's library finds
credentials in its usual places (environment, configuration files, the machine's role): a URL with credentials is
refused, and messages contain none.
"""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import os
import re
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from cleanerd.errors import CleanerdError, ConfigError
from cleanerd.segments.remote import SEPARATOR, Ranges, RemotePath, StoreEntry, shown_url
from cleanerd.segments.same_file import changed
from cleanerd.spark.store_clients import account_of, client_of
from cleanerd.spark.store_tries import ERRORS, brief, is_absence, no_bucket, raise_if_final, tried

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.fs as pafs

SCHEMES: Final = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "gcs": "gs", "abfs": "abfs", "abfss": "abfss",
                  "hdfs": "hdfs", "viewfs": "viewfs"}  # fmt: skip
"""Schemes in URLs, and cleanerd's names for them."""

AHEAD_BYTES: Final = 8 << 20
"""Bytes to fetch at once while a file is read sequentially."""

LEAST_BYTES: Final = 64 << 10
_HEAD_BYTES: Final = 64
PART_TRIES: Final = 3
"""Tries for a part of an object that is sent; the whole object has further tries."""

_RENAME: Final = "rename it, or keep it elsewhere"

_WILD: Final = re.compile(r"[*?\[]")


class StorePath(RemotePath):
    """A path in a store that pyarrow supports."""

    def children(self) -> list[RemotePath]:
        return sorted(self._child(name, listed) for name, listed in self._list() if _is_plain(name))

    def files_below(self, *, complete: bool = False) -> list[RemotePath]:
        """The files below this path, listed with one request for all levels if the store can."""
        # Microsoft's library never ends if a directory has no name, as in ``DIR//FILE``: list it level by level.
        by_levels = self.parts[0].startswith("abfs")
        found: list[RemotePath] = []
        places: list[StorePath] = [self]
        while places:
            place = places.pop()
            for name, listed in place._list(recursive=not by_levels):  # noqa: SLF001 - one of its kind
                if listed.is_dir and not by_levels:
                    continue
                if not _is_plain(name):
                    if not complete:
                        continue
                    raise ConfigError(
                        f"an object is called {name[:60]!r} there, which no path is", where=str(place), hint=_RENAME
                    )
                child = place._child(name, listed)  # noqa: SLF001
                (places if listed.is_dir else found).append(child)
        return sorted(found)

    def status(self) -> StoreEntry | None:
        return tried(self, "cannot be read", self._status_once)

    def opened(self, upto: int = 0) -> Ranges:
        """By a request for its size; ranges are fetched later."""
        return _StoreFile(self, upto)

    @property
    def system(self) -> pafs.FileSystem:
        """Its file system, one per process."""
        return _system(os.getpid(), self.parts[0].removesuffix(":"), self.parts[1])

    @property
    def writing_system(self) -> pafs.FileSystem:
        """The same for writing: it sends a part of an object again, while reads are repeated here."""
        return _system(os.getpid(), self.parts[0].removesuffix(":"), self.parts[1], PART_TRIES)

    @property
    def inner(self) -> str:
        """Its name in that file system."""
        scheme = self.parts[0]
        host, *rest = self.parts[1:]
        if scheme in ("hdfs:", "viewfs:"):
            return "/" + "/".join(rest)
        return "/".join([host.partition("@")[0], *rest])

    def _status_once(self) -> StoreEntry | None:
        """As :meth:`status`, once, with the errors of the library.

        Google's library reports a missing name when it is throttled, libhdfs when the name node does not answer, and
        Azure's overlooks a directory beside ``NAME-2``. So a missing name is checked in the parent's listing.
        """
        info = self.system.get_file_info(self.inner)
        if info.type.name == "NotFound" and self.parts[0] != "s3:":
            try:
                self.system.get_file_info(_selector(self.inner))
            except ERRORS as error:
                if not is_absence(error):
                    raise
                return None
            info = self.system.get_file_info(self.inner)
            return _listed(info) if info.type.name != "NotFound" else StoreEntry.of(0, 0, is_dir=True)
        return _listed(info) if info.type.name != "NotFound" else None

    def _child(self, name: str, listed: StoreEntry) -> StorePath:
        child = self / name
        child.listed = listed
        return child

    def _list(self, *, recursive: bool = False) -> list[tuple[str, StoreEntry]]:
        """The entries in it, or at any depth below it, by the store's names, relative to this path."""
        # Google's library leaves out a directory without its own object, and requests everything below anyway.
        is_flat = self.parts[0] == "gs:" and not recursive
        above = len(self.inner.rstrip("/")) + 1
        selector = _selector(self.inner, recursive=recursive or is_flat)
        found: list[tuple[str, StoreEntry]] = []
        dirs = set()
        for info in tried(self, "cannot be listed", lambda: self.system.get_file_info(selector)):
            name, listed = info.path[above:], _listed(info)
            if is_flat and ("/" in name or listed.is_dir):
                name, listed = name.partition("/")[0], StoreEntry.of(0, 0, is_dir=True)
                if name in dirs:
                    continue
                dirs.add(name)
            found.append((name.rstrip("/") if listed.is_dir else name, listed))
        return found


def _is_plain(name: str) -> bool:
    """Whether the name can be a path: a key may contain an empty name or dots, which would mean another key.

    Of two objects, ``DIR//FILE`` and ``DIR/FILE``, a path names the second.
    """
    return not {"", ".", ".."}.intersection(name.split("/"))


def _selector(inner: str, *, recursive: bool = False) -> pafs.FileSelector:
    import pyarrow.fs as pafs  # noqa: PLC0415 - what is local needs none

    return pafs.FileSelector(inner, recursive=recursive)


def path_of(text: str | Path) -> Path:
    """The path for ``text``: local, or a URL's.

    Raises:
        ConfigError: an unsupported URL, or one with credentials in it.
    """
    if isinstance(text, Path):
        return text
    plain = text.removeprefix("file://") if text.startswith("file:///") else text.removeprefix("file:")
    if SEPARATOR not in plain:
        return Path(plain)
    try:
        url = urlsplit(plain)
    except ValueError:
        raise ConfigError("is not a URL", where=shown_url(plain)) from None
    scheme = SCHEMES.get(url.scheme.lower())
    if scheme is None:
        raise ConfigError(
            f"nothing here reads {url.scheme}{SEPARATOR}",
            where=shown_url(plain),
            hint=f"one of {', '.join(SCHEMES)}; or mount it, or copy it",
        )
    container, at, _ = url.netloc.rpartition("@")
    if ":" in container or (at and not scheme.startswith("abfs")) or "=" in url.query or "=" in url.fragment:
        raise ConfigError(
            "contains credentials or settings",
            where=shown_url(plain),
            hint="leave them out: the store's own library finds them in the environment or its files",
        )
    host = url.netloc or ("default" if scheme == "hdfs" else "")
    if not host:
        raise ConfigError("names no bucket", where=shown_url(plain), hint=f"{scheme}{SEPARATOR}BUCKET/PATH")
    if scheme.startswith("abfs"):
        account_of(host, shown_url(plain))
    rest = plain.partition(SEPARATOR)[2].partition("/")[2]
    if {".", ".."}.intersection(rest.split("/")):
        raise ConfigError("has . or .. in it, which a store takes for names", where=shown_url(plain))
    return StorePath(f"{scheme}:", host, *[part for part in rest.split("/") if part])


def matching(pattern: Path) -> list[Path]:
    """The directories in a store that match a path with wildcards, or the path without them.

    Raises:
        ConfigError: there is none.
        CleanerdError: a directory cannot be listed.
    """
    assert isinstance(pattern, StorePath)  # noqa: S101 - the caller's promise
    fixed = next((n for n, part in enumerate(pattern.parts) if n > 1 and _WILD.search(part)), len(pattern.parts))
    places: list[RemotePath] = [StorePath(*pattern.parts[:fixed])]
    for part in pattern.parts[fixed:]:
        if _WILD.search(part):
            places = [each for place in places for each in place.dirs() if fnmatch.fnmatchcase(each.name, part)]
        else:
            places = [place / part for place in places]
    there = [place for place in places if (found := place.status()) is not None and found.is_dir]
    if not there:
        bucket = StorePath(*pattern.parts[:2])
        is_there = True
        with contextlib.suppress(CleanerdError):  # the permission for it may be missing
            is_there = bucket.status() is not None
        raise ConfigError("no such directory", where=str(pattern)) if is_there else no_bucket(pattern)
    return list(there)


class _StoreFile(Ranges):
    """One object. The last range is in memory and, from the second sequential one on, the next is fetched ahead."""

    def __init__(self, path: StorePath, upto: int) -> None:
        super().__init__()
        self._path = path
        self._file, size = tried(path, "cannot be opened", self._open_with_size)
        self._pool: ThreadPoolExecutor | None = None
        self._ahead: tuple[int, int, Future[bytes]] | None = None
        self._held = (0, b"")
        self._head = b""
        self._has_jumped = False
        written_ns, self.tag = self._about()
        self.listed = StoreEntry.of(size, written_ns)
        if size < upto:
            raise changed(f"it became shorter: {upto} bytes were listed, it ends at {size}", str(path))
        self._upto = upto

    def _open_with_size(self) -> tuple[pa.NativeFile, int]:
        """The open file and its size, which Google's library reports as None after a failed first answer."""
        file = self._path.system.open_input_file(self._path.inner)
        return file, file.size()

    def _about(self) -> tuple[int, str]:
        """The store's time of this object, and its tag for this content, if its answer has them."""
        fields: dict[str, Any] = {}
        with contextlib.suppress(*ERRORS):
            fields = {key.lower(): value.decode() for key, value in (self._file.metadata() or {}).items()}
        tag = fields.get("etag", "")
        if self._path.parts[0] == "gs:" and fields.get("content-encoding", "") not in ("", "identity"):
            raise self._no_ranges(f"is stored with Content-Encoding {fields['content-encoding'][:20]}")
        with contextlib.suppress(KeyError, ValueError):
            written = fields.get("last-modified") or fields["updated"]
            return int(_time(written).timestamp()) * 1_000_000_000, tag
        found = self._path.status()
        return 0 if found is None else found.st_mtime_ns, tag

    def read_into(self, room: Any, position: int) -> int:
        """Use ranges in memory and those being fetched; request the rest."""
        view = memoryview(room).cast("B")
        done = 0
        wanted = min(len(view), self.listed.st_size - position)
        while done < wanted:
            piece = self._piece(position + done, wanted - done)[: wanted - done]
            if not piece:
                raise changed(f"it ends at {position + done}, and had {self.listed.st_size} bytes", str(self._path))
            view[done : done + len(piece)] = piece
            done += len(piece)
        return max(done, 0)

    def require_unchanged(self) -> None:
        """By opening it again.

        Raises:
            SegmentChangedError, CleanerdError: as its base class.
            ConfigError: the store, or a proxy, does not support ranges.
        """
        with _StoreFile(self._path, 0) as now:
            if (now.listed, now.tag) != (self.listed, self.tag):
                raise changed("another object has its name now", str(self._path))
        self._require_parts()

    def _require_parts(self) -> None:
        """Check that the store answers ranges: Google's and Microsoft's libraries accept a whole object instead."""
        if not self._has_jumped or self._path.parts[0] not in ("gs:", "abfs:", "abfss:"):
            return
        head = self._head or self._fetch(0, _HEAD_BYTES)
        if self._fetch(1, len(head) - 1) != head[1:]:
            raise self._no_ranges("was returned whole although a range was requested")

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._held, self._ahead = (0, b""), None
            if self._pool is not None:
                self._pool.shutdown(wait=True, cancel_futures=True)
            with contextlib.suppress(Exception):
                self._file.close()

    def _no_ranges(self, what: str) -> ConfigError:
        hint = "store its bytes as they are; see that nothing on the way to the store answers for it"
        return ConfigError(f"{what}, so it cannot be read in parts", where=str(self._path), hint=hint)

    def _piece(self, position: int, wanted: int) -> memoryview:
        """Bytes from ``position`` on: from memory, from a range being fetched, or from a new range."""
        start, data = self._held
        if not start <= position < start + len(data):
            in_a_row = bool(data) and position == start + len(data)
            start, data = self._arriving(position) or (position, self._fetch(position, max(wanted, LEAST_BYTES)))
            self._held = (start, data)
            if in_a_row:
                self._fetch_ahead(start + len(data))
        return memoryview(data)[position - start :]

    def _arriving(self, position: int) -> tuple[int, bytes] | None:
        """The range fetched ahead, if it contains ``position``."""
        ahead, self._ahead = self._ahead, None
        if ahead is None or not ahead[0] <= position < ahead[0] + ahead[1]:
            return None
        return ahead[0], ahead[2].result()

    def _fetch_ahead(self, start: int) -> None:
        count = min(self._upto - start, AHEAD_BYTES)
        if count > 0:
            self._pool = self._pool or ThreadPoolExecutor(1)
            self._ahead = (start, count, self._pool.submit(self._fetch, start, count))

    def _fetch(self, position: int, count: int) -> bytes:
        count = min(count, self.listed.st_size - position)
        self._has_jumped |= position > 0
        data: bytes = tried(self._path, "cannot be read", lambda: self._file.read_at(count, position), whole=count)
        if position == 0:
            self._head = data[:_HEAD_BYTES]
        return data


def _listed(info: pafs.FileInfo) -> StoreEntry:
    return StoreEntry.of(info.size or 0, info.mtime_ns or 0, is_dir=info.type.name == "Directory")


def _time(text: str) -> datetime:
    """A time in HTTP's form, or in ISO's."""
    with contextlib.suppress(ValueError):
        return parsedate_to_datetime(text)
    found = datetime.fromisoformat(text)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


@functools.lru_cache(maxsize=16)
def _system(_process: int, scheme: str, host: str, tries: int = 1) -> pafs.FileSystem:
    """One per process: objects from before a fork are not used after it. ``tries``: of each request."""
    try:
        return client_of(scheme, host, tries)
    except ERRORS as error:
        where = StorePath(f"{scheme}:", host)
        raise_if_final(where, error)
        raise ConfigError(brief(error), where=str(where)) from None
