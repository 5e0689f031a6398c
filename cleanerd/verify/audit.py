"""Searches a partition's files for keys, key prefixes and parts of values, for erasure requests.

Key hashes and a search in the decompressed columns find candidate batches; the decoded records decide.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from cleanerd import _kernel
from cleanerd.errors import CleanerdError, CorruptionError
from cleanerd.format.batch import CONTROL
from cleanerd.format.names import CLEANED_SUFFIX, DELETED_SUFFIX, SEGMENT_SUFFIX, SWAP_SUFFIX, parse_file_name
from cleanerd.host.memory import batch_bytes
from cleanerd.segments.batch_file import read_batches
from cleanerd.verify.finding import Findings
from cleanerd.verify.listing import STAGING, bytes_of, list_partition, names_in, size_of
from cleanerd.verify.partition_log import HeaderWalk
from cleanerd.verify.producers import ProducerExpiry
from cleanerd.verify.records import DataRecords, hashes_of, new_hash_key, read_rows, records_in
from cleanerd.verify.rules import KAFKAS_RULES, KeyRules
from cleanerd.verify.transactions import InvisibleRanges

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from cleanerd.format.record import Record
    from cleanerd.verify.record_places import RecordPlace
    from cleanerd.verify.walk import Damage

LIVE: Final = "live"
KEY_HASHES: Final = "removed_tombstones.keys"
"""The file of a staged versioned cleaning: a hash key of 16 bytes, then two little-endian words per tombstone key."""
_HASH_KEY_BYTES: Final = 16
_STATES: Final = {
    SEGMENT_SUFFIX: LIVE,
    SEGMENT_SUFFIX + DELETED_SUFFIX: "deleted",
    SEGMENT_SUFFIX + CLEANED_SUFFIX: "cleaned",
    SEGMENT_SUFFIX + SWAP_SUFFIX: "swap",
}


TermKind = Literal["key", "key_prefix", "value_contains"]


@dataclass(frozen=True, slots=True)
class Term:
    """What to search: a whole key, a key's prefix, or bytes inside a value or a header's value."""

    kind: TermKind
    data: bytes

    def is_in(self, record: Record) -> bool:
        """Whether the record matches."""
        if self.kind == "value_contains":
            values = (record.value, *(value for _, value in record.headers))
            return any(value is not None and self.data in value for value in values)
        if record.key is None:
            return False
        return record.key == self.data if self.kind == "key" else record.key.startswith(self.data)


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A record that matches. ``state``: live, or why the file exists; ``visible``: a consumer can still get it.

    ``terms``: the positions of the terms that it matches. ``key``: the record's own. ``position``: that of the batch in
    ``file``. ``record``: the record's number in the batch. ``value_bytes``: -1 for null. ``version``: by the topic's
    strategy, None without one. ``is_tombstone``: by its mode.
    """

    key: bytes | None
    terms: tuple[int, ...]
    file: str
    state: str
    position: int
    record: int
    offset: int
    timestamp_ms: int
    value_bytes: int
    visible: bool
    version: int | None
    is_tombstone: bool


@dataclass(slots=True)
class KeySearchResult:
    """The matches of a search. ``unread``: bytes that could not be decoded, so they may contain a match."""

    occurrences: list[Occurrence] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    files: int = 0
    size_bytes: int = 0

    def add(self, other: KeySearchResult) -> None:
        """Add the matches of another place of the same partition."""
        self.occurrences += other.occurrences
        self.unread += other.unread
        self.files += other.files
        self.size_bytes += other.size_bytes


def files_of(partition: Path) -> list[tuple[Path, str]]:
    """Every file of a partition that has records, with its state, including staged ones.

    Raises:
        CleanerdError: a directory cannot be listed.
    """
    found = []
    for name in names_in(partition):
        parsed = parse_file_name(name)
        if parsed is not None and parsed[1] in _STATES:
            found.append((partition / name, _STATES[parsed[1]]))
    # A plan has its directory; in that of a Spark cleaning each attempt has one, which a killed driver leaves.
    waiting = [partition / STAGING]
    for place in waiting:
        names = names_in(place) if place.is_dir() else []
        found += [(place / name, "staged") for name in names if name.endswith(SEGMENT_SUFFIX) or name == KEY_HASHES]
        waiting += [place / name for name in names if (place / name).is_dir() and not (place / name).is_symlink()]
    return found


def audit(
    partition: Path,
    terms: Sequence[Term],
    advance: Callable[[int], None],
    *,
    log_start: int = 0,
    rules: KeyRules = KAFKAS_RULES,
) -> KeySearchResult:
    """Search ``terms`` in every file of the partition directory. Consumers see nothing below ``log_start``.

    ``unread`` has files that cannot be read, or were removed meanwhile; then it is unknown what is visible.

    Raises:
        CleanerdError: the directory cannot be read.
    """
    segments = list_partition(partition).segments
    unread = []
    try:
        walk = HeaderWalk(Findings(), ProducerExpiry(0, 0), lambda _bytes: None, indexes=False)
        invisible = walk.walk(segments).invisible
    except CleanerdError as error:
        unread.append(str(error))
        invisible = InvisibleRanges(np.empty((0, 3), np.int64))
    search = RecordSearch(terms, invisible, log_start, rules)
    unread += search.files(files_of(partition), advance)
    search.result.unread += dict.fromkeys(unread)
    return search.result


def audit_place(
    place: RecordPlace, terms: Sequence[Term], advance: Callable[[int], None], *, rules: KeyRules = KAFKAS_RULES
) -> KeySearchResult:
    """As :func:`audit`, for files that no broker serves: their records are not visible.

    ``unread`` has a directory that cannot be listed; one that was removed meanwhile is empty.
    """
    search = RecordSearch(terms, InvisibleRanges(np.empty((0, 3), np.int64)), 0, rules)
    try:
        files = [(path, place.state if state == LIVE else state) for path, state in files_of(place.path)]
        search.result.unread += search.files(files, advance)
    except CleanerdError as error:
        search.result.unread.append(str(error))
    return search.result if place.path.exists() else KeySearchResult()


class RecordSearch:
    """Searches file by file; ``result`` grows. Records below ``log_start`` or in ``invisible`` are not visible."""

    def __init__(self, terms: Sequence[Term], invisible: InvisibleRanges, log_start: int, rules: KeyRules) -> None:
        self.result = KeySearchResult()
        self._terms = terms
        self._invisible = invisible
        self._log_start = log_start
        self._rules = rules
        self._hash_key = new_hash_key()
        self._has_parts = any(term.kind != "key" for term in terms)
        wanted = hashes_of([term.data for term in terms if term.kind == "key"], self._hash_key)
        self._low, self._high = wanted[:, 0], wanted[:, 1]

    def files(self, files: Iterable[tuple[Path, str]], advance: Callable[[int], None]) -> list[str]:
        """Search files with their states; returns why some could not be read."""
        unread = []
        for path, state in files:
            try:
                self.file(path, state, advance)
            except CleanerdError as error:
                # A running broker deletes and replaces files; a file that replaced this one is newer than the listing.
                unread.append(str(error))
        return unread

    def file(self, path: Path, state: str, advance: Callable[[int], None]) -> None:
        """Search one file.

        Raises:
            CleanerdError: it cannot be read.
        """
        size = size_of(path)
        self.result.files += 1
        self.result.size_bytes += size
        if path.name == KEY_HASHES:
            self._search_hashes(path)
            return

        def damaged(damage: Damage) -> None:
            if not (damage.zeros and state == LIVE):
                self.result.unread.append(f"{path} at byte {damage.position}: {damage.reason}")

        for data, rows in read_rows(path, size, self._hash_key, damaged, checksums=True):
            advance(len(data))
            self._take(path, state, data, rows)

    def _search_hashes(self, path: Path) -> None:
        """Search for the hash of a key, which is a trace of it: a guessed key can be recognised by its hash."""
        data = bytes_of(path) or b""
        keys = [term.data for term in self._terms if term.kind == "key"]
        words = np.frombuffer(data[_HASH_KEY_BYTES : len(data) - len(data) % 16], "<u8").reshape(-1, 2)
        if not keys or not len(words):
            return
        wanted = hashes_of(keys, data[:_HASH_KEY_BYTES])
        if (np.isin(words[:, 0], wanted[:, 0]) & np.isin(words[:, 1], wanted[:, 1])).any():
            way_out = "run cleanerd apply or cleanerd stage, or delete the directory that it is in"
            self.result.unread.append(
                f"{path}: a staged cleaning has the hash of a key that is searched for ({way_out})"
            )

    def _take(self, path: Path, state: str, data: NDArray[np.uint8], rows: DataRecords) -> None:
        # One half alone, or even both, may match by chance: the bytes decide.
        hit = np.isin(rows.key_hash[:, 0], self._low) & np.isin(rows.key_hash[:, 1], self._high) & rows.has_key
        if self._has_parts:
            try:
                hit |= self._may_hold_parts(data, rows)
            except _kernel.CorruptLogError as error:
                self.result.unread.append(f"{path} at byte {error.position}: {error.reason}")
        if not hit.any():
            return
        hidden = self._invisible.batches(rows.batches)
        for row in np.unique(rows.batch[hit]):
            self._batch(path, state, int(rows.batches.position[row]), visible=state == LIVE and not hidden[row])

    def _may_hold_parts(self, data: NDArray[np.uint8], rows: DataRecords) -> NDArray[np.bool_]:
        """[n]: the records whose columns have the start of a prefix or of a part of a value. Raises CorruptLogError."""
        batches = rows.batches
        first = batches.first_record.astype(np.int64)
        keep = np.repeat((batches.attributes & CONTROL) == 0, first[1:] - first[:-1])
        position = int(batches.position[0])
        found = _kernel.read_contents(data, position, keep, verify_crc=False, max_unpacked=batch_bytes())
        keys, values, headers = (each.tobytes() for each in (found.key_data, found.value_data, found.header_value_data))
        hit = np.zeros(len(rows.batch), np.bool_)
        for term in self._terms:
            if term.kind == "key_prefix":
                hit[_rows_with(term.data, keys, found.key_offsets)] = True
            elif term.kind == "value_contains":
                hit[_rows_with(term.data, values, found.value_offsets)] = True
                of_headers = _rows_with(term.data, headers, found.header_value_offsets)
                hit[np.searchsorted(found.first_header, of_headers, side="right") - 1] = True
        return hit

    def _batch(self, path: Path, state: str, position: int, *, visible: bool) -> None:
        try:
            stored = next(read_batches(path, start=position, cut_tail_ends=True, limit_bytes=batch_bytes()))
            records = records_in(stored.data, position)
        except (StopIteration, OSError, CorruptionError) as error:
            self.result.unread.append(f"{path} at byte {position}: {error}")
            return
        for number, record in enumerate(records):
            matched = tuple(at for at, term in enumerate(self._terms) if term.is_in(record))
            if matched:
                self.result.occurrences.append(
                    Occurrence(
                        key=record.key,
                        terms=matched,
                        file=str(path),
                        state=state,
                        position=position,
                        record=number,
                        offset=record.offset,
                        timestamp_ms=record.timestamp,
                        value_bytes=-1 if record.value is None else len(record.value),
                        visible=visible and record.offset >= self._log_start,
                        version=self._rules.version_of(record),
                        is_tombstone=self._rules.is_tombstone(record, stored.frame.magic),
                    )
                )


def _rows_with(part: bytes, data: bytes, offsets: NDArray[np.int32]) -> list[int]:
    """The rows of a column in which ``part`` begins; it may end in the next row, which the records decide."""
    rows = []
    at = data.find(part)
    while at >= 0:
        row = int(np.searchsorted(offsets, at, side="right")) - 1
        rows.append(row)
        at = data.find(part, int(offsets[row + 1]))
    return rows
