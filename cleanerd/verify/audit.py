"""Where a key still lies in a partition's files: the proof of an erasure is that it is nowhere.

Hashes find the batches worth a look; only equal bytes count.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from cleanerd.errors import CleanerdError, CorruptionError
from cleanerd.format.names import CLEANED_SUFFIX, DELETED_SUFFIX, SEGMENT_SUFFIX, SWAP_SUFFIX, parse_file_name
from cleanerd.log.batch_file import read_batches
from cleanerd.log.memory import batch_bytes
from cleanerd.verify.finding import Findings
from cleanerd.verify.listing import STAGING, list_partition, names_in, size_of
from cleanerd.verify.partition_log import HeaderWalk
from cleanerd.verify.producers import Clock
from cleanerd.verify.records import hashes_of, new_hash_key, read_rows, records_in
from cleanerd.verify.rules import KAFKAS_RULES
from cleanerd.verify.transactions import Invisible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from cleanerd.verify.record_places import RecordPlace
    from cleanerd.verify.records import Rows
    from cleanerd.verify.rules import KeyRules
    from cleanerd.verify.walk import Damage

LIVE: Final = "live"
_STATES: Final = {
    SEGMENT_SUFFIX: LIVE,
    SEGMENT_SUFFIX + DELETED_SUFFIX: "deleted",
    SEGMENT_SUFFIX + CLEANED_SUFFIX: "cleaned",
    SEGMENT_SUFFIX + SWAP_SUFFIX: "swap",
}


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One record with the key. ``state``: live, or why the file is there; ``visible``: a consumer can still get it.

    ``position`` is that of the batch in ``file``, ``record`` the record's number in the batch, ``value_bytes`` -1 for
    null. ``version`` by the topic's strategy, None without one; ``is_tombstone`` by its mode.
    """

    key: bytes
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
class Audit:
    """What a search found. ``unread`` names the bytes that could not be decoded: the key may be in there."""

    occurrences: list[Occurrence] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    files: int = 0
    size_bytes: int = 0

    def add(self, other: Audit) -> None:
        """What was found in another place of the same partition."""
        self.occurrences += other.occurrences
        self.unread += other.unread
        self.files += other.files
        self.size_bytes += other.size_bytes


def files_of(partition: Path) -> list[tuple[Path, str]]:
    """Every file of a partition that holds records, with its state, staged ones included.

    Raises:
        CleanerdError: a directory cannot be listed.
    """
    found = []
    for name in names_in(partition):
        parsed = parse_file_name(name)
        if parsed is not None and parsed[1] in _STATES:
            found.append((partition / name, _STATES[parsed[1]]))
    # A plan's own directory; below that of a Spark cleaning each attempt has one, which a killed driver leaves.
    waiting = [partition / STAGING]
    for place in waiting:
        names = names_in(place) if place.is_dir() else []
        found += [(place / name, "staged") for name in names if name.endswith(SEGMENT_SUFFIX)]
        waiting += [place / name for name in names if (place / name).is_dir() and not (place / name).is_symlink()]
    return found


def audit(
    partition: Path,
    keys: Sequence[bytes],
    advance: Callable[[int], None],
    *,
    log_start: int = 0,
    rules: KeyRules = KAFKAS_RULES,
) -> Audit:
    """Look for ``keys`` in every file of the partition directory. Below ``log_start`` no consumer sees anything.

    A file that cannot be read, or is gone before it is, is among ``unread``; what is visible is not known then.

    Raises:
        CleanerdError: the directory cannot be read.
    """
    segments = list_partition(partition).segments
    unread = []
    try:
        walk = HeaderWalk(Findings(), Clock(0, 0), lambda _bytes: None, indexes=False)
        invisible = walk.walk(segments).invisible
    except CleanerdError as error:
        unread.append(str(error))
        invisible = Invisible(np.empty((0, 3), np.int64))
    search = KeySearch(keys, invisible, log_start, rules)
    unread += search.files(files_of(partition), advance)
    search.result.unread += dict.fromkeys(unread)
    return search.result


def audit_place(
    place: RecordPlace, keys: Sequence[bytes], advance: Callable[[int], None], *, rules: KeyRules = KAFKAS_RULES
) -> Audit:
    """As :func:`audit`, for files that no broker serves from: nothing in them is visible.

    A directory that cannot be listed is among ``unread``; one that was removed meanwhile holds nothing.
    """
    search = KeySearch(keys, Invisible(np.empty((0, 3), np.int64)), 0, rules)
    try:
        files = [(path, place.state if state == LIVE else state) for path, state in files_of(place.path)]
        search.result.unread += search.files(files, advance)
    except CleanerdError as error:
        search.result.unread.append(str(error))
    return search.result if place.path.exists() else Audit()


class KeySearch:
    """Looks for keys file by file; ``result`` grows. Nothing is visible below ``log_start`` nor in ``invisible``."""

    def __init__(self, keys: Sequence[bytes], invisible: Invisible, log_start: int, rules: KeyRules) -> None:
        self.result = Audit()
        self._keys = frozenset(keys)
        self._invisible = invisible
        self._log_start = log_start
        self._rules = rules
        self._hash_key = new_hash_key()
        wanted = hashes_of(list(self._keys), self._hash_key)
        self._low, self._high = wanted[:, 0], wanted[:, 1]

    def files(self, files: Iterable[tuple[Path, str]], advance: Callable[[int], None]) -> list[str]:
        """Search files with their states; returns why some could not be read."""
        unread = []
        for path, state in files:
            try:
                self.file(path, state, advance)
            except CleanerdError as error:
                # A broker that runs deletes and replaces files; what replaced this one was not there when we looked.
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

        def damaged(damage: Damage) -> None:
            if not (damage.zeros and state == LIVE):
                self.result.unread.append(f"{path} at byte {damage.position}: {damage.reason}")

        for count, rows in read_rows(path, size, self._hash_key, damaged, checksums=True):
            advance(count)
            self._take(path, state, rows)

    def _take(self, path: Path, state: str, rows: Rows) -> None:
        # Either half alone may match by chance, and so may both: the bytes decide.
        hit = np.isin(rows.key_hash[:, 0], self._low) & np.isin(rows.key_hash[:, 1], self._high) & rows.has_key
        if not hit.any():
            return
        hidden = self._invisible.batches(rows.batches)
        for row in np.unique(rows.batch[hit]):
            self._batch(path, state, int(rows.batches.position[row]), visible=state == LIVE and not hidden[row])

    def _batch(self, path: Path, state: str, position: int, *, visible: bool) -> None:
        try:
            stored = next(read_batches(path, start=position, cut_tail_ends=True, limit_bytes=batch_bytes()))
            records = records_in(stored.data, position)
        except (StopIteration, OSError, CorruptionError) as error:
            self.result.unread.append(f"{path} at byte {position}: {error}")
            return
        for number, record in enumerate(records):
            if record.key is not None and record.key in self._keys:
                self.result.occurrences.append(
                    Occurrence(
                        key=record.key,
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
