"""Searches a key in an operator's directory: Parquet of ``cleanerd spark snapshot``, archives, small files.

Parquet needs pyarrow. Files of other kinds are reported, because nothing is proven about them.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cleanerd.errors import CleanerdError
from cleanerd.format.names import SEGMENT_SUFFIX, parse_file_name
from cleanerd.verify.audit import RecordSearch, Term
from cleanerd.verify.certificate import FileStatement
from cleanerd.verify.rules import KAFKAS_RULES
from cleanerd.verify.transactions import InvisibleRanges

_NO_RECORDS: Final = frozenset({".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint"})
_PLAIN: Final = frozenset({"", ".json", ".crc", ".txt", ".csv", ".properties", ".metadata", ".md"})
"""Suffixes of files that are searched byte by byte: these are not compressed."""
_MOST_PLAIN_BYTES: Final = 1024 * 1024 * 1024


@dataclass(slots=True)
class SnapshotSearch:
    """``found``: rows and files with the key."""

    found: int = 0
    files: tuple[FileStatement, ...] = ()
    unsearched: list[str] = field(default_factory=list)


def search_snapshots(directory: Path, term: Term) -> SnapshotSearch:
    """Search every file below ``directory`` for the key of ``term``."""
    result, files = SnapshotSearch(), []

    def note(error: OSError) -> None:
        result.unsearched.append(f"{error.filename}: {error.strerror}")

    for place, _, names in os.walk(directory, onerror=note):
        for name in sorted(names):
            path = Path(place) / name
            try:
                files.append(_searched(path, directory, term, result))
            except CleanerdError as error:
                result.unsearched.append(str(error))
            except OSError as error:
                result.unsearched.append(f"{path}: {error.strerror}")
    result.files = tuple(files)
    return result


def _searched(path: Path, directory: Path, term: Term, result: SnapshotSearch) -> FileStatement:
    """Search one file. Raises OSError; CleanerdError: it cannot be searched, or changed meanwhile."""
    before = os.stat(path)
    result.found += _rows_with(path, term, result)
    digest, after = _digest(path), os.stat(path)
    if _identity(before) != _identity(after):
        raise CleanerdError("changed while it was searched", where=str(path))
    return FileStatement(str(path.relative_to(directory)), "snapshot", before.st_size, digest)


def _identity(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_size, status.st_mtime_ns


def _rows_with(path: Path, term: Term, result: SnapshotSearch) -> int:
    parsed = parse_file_name(path.name)
    if parsed is not None and parsed[1].startswith(SEGMENT_SUFFIX):
        return _records_in(path, term, result)
    if parsed is not None or path.suffix in _NO_RECORDS:
        return 0
    if path.suffix == ".parquet":
        return _parquet_rows_in(path, term.data)
    if path.suffix in _PLAIN and path.stat().st_size <= _MOST_PLAIN_BYTES:
        return int(term.data in path.read_bytes())
    raise CleanerdError("a file of this kind cannot be searched", where=str(path))


def _records_in(path: Path, term: Term, result: SnapshotSearch) -> int:
    import numpy as np  # noqa: PLC0415 - only archives need it

    search = RecordSearch([term], InvisibleRanges(np.empty((0, 3), np.int64)), 0, KAFKAS_RULES)
    search.file(path, "snapshot", lambda _bytes: None)
    result.unsearched += search.result.unread
    return len(search.result.occurrences)


def _parquet_rows_in(path: Path, key: bytes) -> int:
    """Number of rows with a column that is the key, as bytes or as text, in nested columns too."""
    try:
        import pyarrow as pa  # noqa: PLC0415 - an optional package
        import pyarrow.parquet as pq  # noqa: PLC0415
    except ImportError:
        raise CleanerdError(
            "Parquet cannot be searched without pyarrow", where=str(path), hint="install cleanerd[spark]"
        ) from None
    try:
        with pq.ParquetFile(path) as file:
            batches = file.iter_batches()
            return sum(sum(_is_in(value, key) for value in batch.to_pylist()) for batch in batches)
    except (pa.ArrowException, ValueError) as error:
        raise CleanerdError(f"is not a Parquet file that can be read: {error}", where=str(path)) from error


def _is_in(value: Any, key: bytes) -> bool:
    if isinstance(value, bytes):
        return value == key
    if isinstance(value, str):
        return value.encode(errors="surrogatepass") == key
    if isinstance(value, dict):
        return any(_is_in(each, key) for each in value.values())
    return isinstance(value, list | tuple) and any(_is_in(each, key) for each in value)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
