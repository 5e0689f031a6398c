"""Object stores and other file systems, through pyarrow: ``s3``, ``gs``, ``abfs`` and ``hdfs``.

What is written to one is written by ``archive/target.py``.

A file is fetched in ranges of some megabytes, one ahead of the reader, so that a task holds two of them and nothing on
disk. What fails for a moment is tried again, a few times. Who we are is what the library of the store finds in its own
places (environment, configuration files, the machine's role): a URL with credentials in it is refused, and no message
repeats what may be one.
"""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import os
import random
import re
import time
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

import pyarrow as pa

from cleanerd.errors import CleanerdError, ConfigError, MachineError
from cleanerd.log.remote import SEPARATOR, Listed, Ranges, RemotePath, shown_url
from cleanerd.log.same_file import changed
from cleanerd.spark.store_clients import HDFS_NEEDS, account_of, client_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow.fs as pafs

T = TypeVar("T")

SCHEMES: Final = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "gcs": "gs", "abfs": "abfs", "abfss": "abfss",
                  "hdfs": "hdfs", "viewfs": "viewfs"}  # fmt: skip
"""As a URL may say it, and as we do."""

AHEAD_BYTES: Final = 8 << 20
"""So much is fetched at once while a file is read from one end to the other."""

LEAST_BYTES: Final = 64 << 10
TRIES: Final = 8
PART_TRIES: Final = 3
"""Of a part of an object that is sent; all of the object is tried as often as anything else."""

FIRST_PAUSE_SECONDS: Final = 0.2
LONGEST_PAUSE_SECONDS: Final = 5.0

_ERRORS: Final = (OSError, NotImplementedError, ValueError, pa.ArrowException)
"""What pyarrow raises when a store or its library does not do what was asked."""

_HADOOP: Final = "what Hadoop says of it stands on standard error, a task's on its executor's"

_WILD: Final = re.compile(r"[*?\[]")
_ABSENT: Final = re.compile("No such file or directory")
"""What Google's library says without the number of that error."""

_GONE: Final = re.compile(
    r"NO_SUCH_BUCKET|NoSuchBucket|bucket does not exist|ContainerNotFound|Bucket  ?not found", re.I
)
_DENIED: Final = re.compile(
    r"ACCESS_DENIED|AccessDenied|INVALID_ACCESS_KEY|INVALID_CLIENT_TOKEN|SIGNATURE|UNRECOGNIZED_CLIENT|"
    r"HTTP status 40[13]|response code: 40[13]|EXPIRED|credential|access token|Permission denied|"
    r"authenticat|authoriz|Forbidden",
    re.I,
)  # fmt: skip


class StorePath(RemotePath):
    """A place in a store that pyarrow knows."""

    def children(self) -> list[RemotePath]:
        """By the store, one level deep."""
        return self._list(recursive=False)

    def files_below(self) -> list[RemotePath]:
        """By requests of the store for all levels."""
        return [each for each in self._list(recursive=True) if each.listed is not None and not each.listed.is_dir]

    def status(self) -> Listed | None:
        """By a question to the store."""
        return tried(self, "cannot be looked at", self._looked_at)

    def opened(self, upto: int = 0) -> Ranges:
        """By a question for its size; what follows are ranges."""
        return _StoreFile(self, upto)

    @property
    def system(self) -> pafs.FileSystem:
        """Its file system, one a process."""
        return _system(os.getpid(), self.parts[0].removesuffix(":"), self.parts[1])

    @property
    def writing_system(self) -> pafs.FileSystem:
        """The same to write with: it sends a part of an object again, where one who reads asks again himself."""
        return _system(os.getpid(), self.parts[0].removesuffix(":"), self.parts[1], PART_TRIES)

    @property
    def inner(self) -> str:
        """Its name as that file system has it."""
        scheme = self.parts[0]
        host, *rest = self.parts[1:]
        if scheme in ("hdfs:", "viewfs:"):
            return "/" + "/".join(rest)
        return "/".join([host.partition("@")[0], *rest])

    def _looked_at(self) -> Listed | None:
        """As :meth:`status`, once, with the errors of the library.

        Google's library says that nothing is there when it is throttled, libhdfs when the name node does not answer,
        and Azure's overlooks a directory beside which ``NAME-2`` lies: it is listed before that is believed.
        """
        info = self.system.get_file_info(self.inner)
        if info.type.name == "NotFound" and self.parts[0] != "s3:":
            try:
                self.system.get_file_info(_selector(self.inner))
            except _ERRORS as error:
                if not _is_absence(error):
                    raise
                return None
            info = self.system.get_file_info(self.inner)
            return _listed(info) if info.type.name != "NotFound" else Listed.of(0, 0, is_dir=True)
        return _listed(info) if info.type.name != "NotFound" else None

    def _list(self, *, recursive: bool) -> list[RemotePath]:
        # Google's library leaves out a directory for which no object of its own stands, and asks for all below anyway.
        is_flat = self.parts[0] == "gs:" and not recursive
        above = len(self.inner.rstrip("/")) + 1
        selector = _selector(self.inner, recursive=recursive or is_flat)
        found: list[RemotePath] = []
        dirs = set()
        for info in tried(self, "cannot be listed", lambda: self.system.get_file_info(selector)):
            name, listed = info.path[above:].strip("/"), _listed(info)  # a key may have an empty name in it
            if is_flat and ("/" in name or listed.is_dir):
                name, listed = name.partition("/")[0], Listed.of(0, 0, is_dir=True)
                if name in dirs:
                    continue
                dirs.add(name)
            child = self / name
            child.listed = listed
            found.append(child)
        return sorted(found)


def _selector(inner: str, *, recursive: bool = False) -> pafs.FileSelector:
    import pyarrow.fs as pafs  # noqa: PLC0415 - what is local needs none

    return pafs.FileSelector(inner, recursive=recursive)


def path_of(text: str | Path) -> Path:
    """The path that ``text`` names: of this machine, or a URL's.

    Raises:
        ConfigError: a URL that nobody here can read, or with credentials in it.
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
            "holds credentials or settings",
            where=shown_url(plain),
            hint="leave them out: the store's own library finds them in the environment or its files",
        )
    host = url.netloc or ("default" if scheme == "hdfs" else "")
    if not host:
        raise ConfigError("names no bucket", where=shown_url(plain), hint=f"{scheme}{SEPARATOR}BUCKET/PATH")
    if scheme.startswith("abfs"):
        account_of(host, shown_url(plain))
    rest = plain.partition(SEPARATOR)[2].partition("/")[2]
    return StorePath(f"{scheme}:", host, *[part for part in rest.split("/") if part])


def matching(pattern: Path) -> list[Path]:
    """The directories in a store that a path with wildcards names, or the one without.

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
        with contextlib.suppress(CleanerdError):  # not everybody may ask for it
            is_there = bucket.status() is not None
        raise ConfigError("no such directory", where=str(pattern)) if is_there else _no_bucket(pattern)
    return list(there)


class _StoreFile(Ranges):
    """One object. Held are the last range and, from the second one in a row on, the next, fetched meanwhile."""

    def __init__(self, path: StorePath, upto: int) -> None:
        super().__init__()
        self._path = path
        self._file = tried(path, "cannot be opened", lambda: path.system.open_input_file(path.inner))
        self._pool: ThreadPoolExecutor | None = None
        self._ahead: tuple[int, int, Future[bytes]] | None = None
        self._held = (0, b"")
        size = tried(path, "cannot be opened", self._file.size)
        written_ns, self.tag = self._about()
        self.listed = Listed.of(size, written_ns)
        if size < upto:
            raise changed(f"it became shorter: {upto} bytes were listed, it ends at {size}", str(path))
        self._upto = upto

    def _about(self) -> tuple[int, str]:
        """The store's time of this object, and its name for these very bytes, where its answer has them."""
        fields: dict[str, Any] = {}
        with contextlib.suppress(*_ERRORS):
            fields = {key.lower(): value.decode() for key, value in (self._file.metadata() or {}).items()}
        tag = fields.get("etag", "")
        with contextlib.suppress(KeyError, ValueError):
            written = fields.get("last-modified") or fields["updated"]
            return int(_time(written).timestamp()) * 1_000_000_000, tag
        found = self._path.status()
        return 0 if found is None else found.st_mtime_ns, tag

    def read_into(self, room: Any, position: int) -> int:
        """From ranges that are held, under way, or new."""
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
        """By opening it once more."""
        with _StoreFile(self._path, 0) as now:
            if (now.listed, now.tag) != (self.listed, self.tag):
                raise changed("another object has its name now", str(self._path))

    def close(self) -> None:
        """Give back what it held."""
        if not self.closed:
            super().close()
            self._held, self._ahead = (0, b""), None
            if self._pool is not None:
                self._pool.shutdown(wait=True, cancel_futures=True)
            with contextlib.suppress(Exception):
                self._file.close()

    def _piece(self, position: int, wanted: int) -> memoryview:
        """Some bytes from ``position`` on: what is held, what is on its way, else a range of its own."""
        start, data = self._held
        if not start <= position < start + len(data):
            in_a_row = bool(data) and position == start + len(data)
            start, data = self._arriving(position) or (position, self._fetch(position, max(wanted, LEAST_BYTES)))
            self._held = (start, data)
            if in_a_row:
                self._fetch_ahead(start + len(data))
        return memoryview(data)[position - start :]

    def _arriving(self, position: int) -> tuple[int, bytes] | None:
        """What was fetched ahead, if ``position`` lies in it."""
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
        data: bytes = tried(self._path, "cannot be read", lambda: self._file.read_at(count, position), whole=count)
        return data


def tried(path: RemotePath, what: str, call: Callable[[], T], *, whole: int | None = None) -> T:
    """The answer of a store, asked again a few times when it has none. ``whole``: so many bytes are an answer.

    Raises:
        SegmentChangedError: the object is gone, or shorter.
        ConfigError: there is no such bucket or directory, or we may not look.
        MachineError: nothing helped.
    """
    for number in range(TRIES):
        try:
            answer = call()
        except _ERRORS as error:
            if _is_absence(error):
                raise _absent(path, what, error) from None
            _raise_if_final(path, error)
            if number == TRIES - 1:
                hint = _HADOOP if path.parts[0] in ("hdfs:", "viewfs:") else None
                raise MachineError(
                    f"{what}, tried {TRIES} times: {_brief(error)}", where=str(path), hint=hint
                ) from None
        else:
            if whole is None or len(answer) == whole:  # type: ignore[arg-type]
                return answer
            if number == TRIES - 1:
                raise changed(f"it became shorter: {whole} bytes were asked for, {len(answer)} came", str(path))  # type: ignore[arg-type]
        pause = min(FIRST_PAUSE_SECONDS * 2**number, LONGEST_PAUSE_SECONDS)
        time.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - so that tasks do not come back together
    raise AssertionError


def _is_absence(error: Exception) -> bool:
    return isinstance(error, FileNotFoundError) or _ABSENT.match(str(error)) is not None


def _absent(path: RemotePath, what: str, error: Exception) -> CleanerdError:
    if _GONE.search(re.sub(r"'[^']*'", "", str(error))):
        return _no_bucket(path)
    if what == "cannot be listed":
        return ConfigError("no such directory", where=str(path))
    return changed("it is gone", str(path))


def _raise_if_final(path: RemotePath, error: Exception) -> None:
    text = re.sub(r"'[^']*'", "", str(error))  # a topic may be called what an error is
    if _GONE.search(text):
        raise _no_bucket(path) from None
    if isinstance(error, PermissionError) or _DENIED.search(text):
        raise ConfigError(
            "the store refuses: no credentials, wrong ones, or ones that may not read this",
            where=str(path),
            hint="the store's own library looks for them in the environment or its files, on every executor",
        ) from None
    if re.search(r"INVALID_RANGE|416|Read out of bounds", text):
        raise changed("it became shorter while it was read", str(path)) from None
    if re.search("libhdfs|libjvm|HADOOP_HOME|HDFS connection failed", text):
        raise ConfigError(_brief(error), where=str(path), hint=HDFS_NEEDS) from None


def _no_bucket(path: RemotePath) -> CleanerdError:
    return ConfigError(f"there is no bucket or container {path.parts[1].partition('@')[0]}", where=str(path))


def _brief(error: Exception) -> str:
    """A line of it, without anything after a question mark: signatures stand there."""
    return re.sub(r"\?\S*", "", str(error).split("\n", maxsplit=1)[0])[:300]


def _listed(info: pafs.FileInfo) -> Listed:
    return Listed.of(info.size or 0, info.mtime_ns or 0, is_dir=info.type.name == "Directory")


def _time(text: str) -> datetime:
    """As HTTP writes it, or as ISO does."""
    with contextlib.suppress(ValueError):
        return parsedate_to_datetime(text)
    found = datetime.fromisoformat(text)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


@functools.lru_cache(maxsize=16)
def _system(_process: int, scheme: str, host: str, tries: int = 1) -> pafs.FileSystem:
    """One a process: what was made before a fork is not used after it. ``tries``: of each of its requests."""
    try:
        return client_of(scheme, host, tries)
    except _ERRORS as error:
        where = StorePath(f"{scheme}:", host)
        _raise_if_final(where, error)
        raise ConfigError(_brief(error), where=str(where)) from None
