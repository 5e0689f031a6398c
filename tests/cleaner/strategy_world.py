"""A script run on a real log directory by the real cleaner, and compared with a plain dictionary.

Two properties, for any shards, splits, chunks and threads:

* the log has the records of a dictionary of the highest (has a version, version, offset), record by record;

* no cleaning, complete or stopped between two groups, changes the view of a reader that follows the strategy: the
highest record of a key anywhere in the log, or nothing if that is a tombstone (U-1).
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from cleanerd.cleaner.cleaner import CleaningStopped
from cleanerd.cleaner.survey import CleaningOptions
from cleanerd.cleaner.tombstone_guard import TOO_MANY_KEYS
from cleanerd.format.names import TopicPartition
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.state.cleaner_checkpoint import StateStore
from cleanerd.swap.lock import LogDirLock
from cleanerd.swap.round import clean_partition
from cleanerd.swap.session import LockedDir
from tests.cleaner.driver import NAME, config, resources, scratch
from tests.cleaner.strategy_script import (
    HEADER,
    MARKER,
    Change,
    Clean,
    Entry,
    LoseState,
    MoveStart,
    Script,
    Shape,
    Truncate,
    Write,
)
from tests.cleaner.strategy_upsets import lose_state, lower_checkpoint, truncate
from tests.support.log_dirs import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    Partition,
    make_log_dir,
    read_checkpoint,
    write_aborted,
    write_checkpoint,
    write_segment,
)
from tests.support.stored_records import data_records

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from cleanerd.cleaner.result import CleaningResult
    from cleanerd.config.topic_config import TopicConfig
    from tests.support.stored_records import StoredRecord

FOR_EVER_MS = 10**15
DELETE_RETENTION_MS = 600


def newest(entries: Iterable[Entry]) -> dict[bytes, Entry]:
    """The record per key that a reader of the strategy sees."""
    best: dict[bytes, Entry] = {}
    for entry in entries:
        if entry.visible and entry.key is not None and (entry.key not in best or entry.rank > best[entry.key].rank):
            best[entry.key] = entry
    return best


def seen(entries: Iterable[Entry]) -> dict[bytes, int]:
    """Key -> offset of its value; deleted keys are left out."""
    return {key: entry.offset for key, entry in newest(entries).items() if not entry.tombstone}


def wrong_keys(kept: Iterable[Entry], written: Iterable[Entry], end: int) -> tuple[list[bytes], list[bytes]]:
    """Keys with two records below ``end``, and keys whose one record differs from that of all ever written (U-4)."""
    left: dict[bytes, list[int]] = {}
    for entry in kept:
        if entry.offset < end and entry.visible and entry.key is not None:
            left.setdefault(entry.key, []).append(entry.offset)
    best = newest(entry for entry in written if entry.offset < end)
    twice = [key for key, offsets in left.items() if len(offsets) > 1]
    wrong = [key for key in best.keys() | left.keys() if key not in twice and left.get(key) != [best[key].offset]]
    return twice, wrong


class _StopAfter:
    """Progress that ends the cleaning before a chunk of its rewrite, as a signal would between two groups."""

    def __init__(self, chunks: int | None) -> None:
        self._left = chunks
        self._rewrites = False

    def phase(self, name: str, _total_bytes: int) -> None:
        self._rewrites = name == "rewrite"

    def advance(self, _done_bytes: int) -> None:
        if self._rewrites and self._left is not None:
            self._left -= 1
            if self._left < 0:
                raise CleaningStopped

    def wrote(self, done_bytes: int) -> None:
        """Does nothing."""


class World:
    """The directory, everything ever written, and the log's contents by the dictionary.

    ``map_dir``: keys that do not fit are written to disk there, "" for nowhere; None: in turns (U-43).
    """

    def __init__(self, root: Path, shape: Shape, map_dir: str | None = None) -> None:
        self.shape = shape
        self.map_dir = map_dir
        self.path = root / "logs"
        self.state = root / "state"
        self.written: dict[int, Entry] = {}
        self.log: set[int] = set()
        self.start = 0
        self.clean_to = 0
        self.is_exact = self.is_certain = self.is_fixed = True
        self.rounds = self.removed = self.waited = self.stopped = 0
        self._segments: dict[int, bytes] = {}
        self._epochs = [(0, 0)]
        self._is_forgotten = self._is_reported_wrong = False
        self._aborted: dict[int, list[tuple[int, int, int, int]]] = {}
        make_log_dir(self.path, {NAME: Partition({0: b""})})

    @property
    def partition(self) -> Path:
        return self.path / NAME

    def run(self, script: Script) -> None:
        """Run the script; AssertionError when a cleaning left a wrong log."""
        for step in script.steps():
            if isinstance(step, Write):
                self.write(step)
            elif isinstance(step, MoveStart):
                self.move_start(step)
            elif isinstance(step, Change):
                self.change(step)
            elif isinstance(step, Truncate):
                self.truncate(step)
            elif isinstance(step, LoseState):
                lose_state(self.state, step.how)
                self.is_certain = False
                self._is_forgotten |= step.how != "older"
            else:
                self.clean(step)

    def write(self, step: Write) -> None:
        base = step.base if step.rolls else max(self._segments)
        data = self._segments.get(base, b"") + step.data
        self._segments[base] = data
        write_segment(self.partition, base, data, interval_bytes=100)
        if step.aborted:
            rows = self._aborted.setdefault(base, [])
            rows += step.aborted
            write_aborted(self.partition, base, rows)
        self.written |= {entry.offset: entry.under(self.shape.strategy) for entry in step.entries}
        self.log |= {entry.offset for entry in step.entries if entry.visible}
        self._set_ends()

    def _set_ends(self) -> None:
        end = max(self.written, default=0) + 10
        for name in (HIGH_WATERMARKS, RECOVERY_POINTS):
            write_checkpoint(self.path / name, {NAME: end})

    def move_start(self, step: MoveStart) -> None:
        self.start = step.offset
        write_checkpoint(self.path / LOG_STARTS, {NAME: step.offset})
        if not step.deletes:
            return
        bases = sorted(int(log.stem) for log in self.partition.glob("*.log"))
        for base, following in pairwise(bases):
            if following <= step.offset:
                for file in self.partition.glob(f"{base:020d}.*"):
                    file.unlink()
                self.log = {offset for offset in self.log if not base <= offset < following}

    def truncate(self, step: Truncate) -> None:
        """The clean section stays clean below it.

        A key whose newest record was removed is older than in the dictionary.
        """
        base, data, rows = truncate(self.partition, step.offset)
        self._segments, self._aborted = {base: data}, {base: rows}
        self.written = {offset: entry for offset, entry in self.written.items() if offset < step.offset}
        self.log = {offset for offset in self.log if offset < step.offset}
        self.clean_to = min(self.clean_to, step.offset)
        self.is_exact = self.is_certain = False
        if step.epoch is not None:
            self._epochs.append((step.epoch, step.offset))
            lines = "".join(f"{epoch} {start}\n" for epoch, start in self._epochs)
            (self.partition / "leader-epoch-checkpoint").write_text(f"0\n{len(self._epochs)}\n{lines}")
        self._is_reported_wrong |= not step.cleaner_knows
        if step.cleaner_knows:
            lower_checkpoint(self.path, NAME, step.offset)
        self._set_ends()

    def change(self, step: Change) -> None:
        """Another strategy: the clean section stays as it is (R280-11)."""
        self.shape = replace(self.shape, strategy=step.strategy)
        self.written = {offset: entry.under(step.strategy) for offset, entry in self.written.items()}
        self.is_exact = self.is_fixed = False

    def topic(self, step: Clean) -> TopicConfig:
        shape = self.shape
        return config(
            compaction_strategy=shape.strategy,
            compaction_strategy_header=HEADER.decode(),
            compaction_strategy_header_encoding=shape.encoding,
            tombstone_mode=shape.mode,
            tombstone_header=MARKER.decode(),
            tombstone_guard=shape.guard,
            segment_bytes=step.segment_bytes,
            delete_retention_ms=DELETE_RETENTION_MS if shape.expires else FOR_EVER_MS,
            min_compaction_lag_ms=step.min_lag_ms,
        )

    def clean(self, step: Clean) -> None:
        """One cleaning, and all properties that must hold after it."""
        if self._is_reported_wrong and self._is_forgotten:  # nothing shows that Kafka's checkpoint is wrong
            lower_checkpoint(self.path, NAME, self.clean_to)
        before = self.read()
        view = seen(self._live(before))
        options = CleaningOptions(
            now_ms=step.now_ms,
            force=True,
            from_start=step.from_start,
            first_dirty_offset=None if step.from_start else step.first_dirty,
            up_to_offset=step.up_to if step.up_to >= self.start and not step.min_lag_ms else None,
        )
        bases = sorted(int(log.stem) for log in self.partition.glob("*.log"))
        try:
            result = self._clean(step, options)
        except CleaningStopped:
            result = None
            self.stopped += 1
        after = self.read()
        assert seen(self._live(after)) == view, "a cleaning changed the view of a reader of the strategy"
        self._check_removed(before, after, step, result)
        if result is None:
            self.log = set(after)
            self.is_exact = self.is_certain = False  # how much of the plan was carried out depends on the swap
            return
        assert result.error is None, result.reason
        if result.outcome == "skipped":
            return
        self.rounds += 1
        young = self._young_from([offset for offset in before if offset >= result.first_dirty_offset], step)
        assert result.end_offset <= max(base for base in bases if base <= young), "min.compaction.lag.ms was not kept"
        self._check_start(step, result)
        self._check_records(before, after, result)

    def _clean(self, step: Clean, options: CleaningOptions) -> CleaningResult:
        wished = resources(
            map_bytes=1, map_load=0.001 if step.shards else 0.85, chunk_bytes=step.chunk_bytes, expiration_ms=1
        )
        partition = TopicPartition("orders", 0)
        by_turns = "/var/tmp" if self.rounds % 2 else ""  # noqa: S108
        map_dir = by_turns if self.map_dir is None else self.map_dir
        wished = replace(wished, workers=step.workers, map_dir=map_dir)
        with LogDirLock.acquire(self.path, settle_seconds=0) as lock:
            locked = LockedDir(read_log_dir(self.path), lock, StateStore(self.state), wished)
            return clean_partition(locked, partition, self.topic(step), options, _StopAfter(step.stops_after))

    def read(self) -> dict[int, StoredRecord]:
        """Visible records on disk by offset, each one compared with the written one."""
        found: dict[int, StoredRecord] = {}
        for log in sorted(self.partition.glob("*.log")):
            for one in data_records(log.read_bytes()):
                entry = self.written[one.record.offset]
                record = one.record
                assert (record.key, record.value, record.timestamp, record.headers) == (
                    entry.key,
                    entry.value,
                    entry.timestamp,
                    entry.headers,
                )
                if not one.legacy and not entry.legacy:
                    assert record.attributes == entry.attributes, "R87-5, U-14"
                if entry.visible:
                    assert record.offset not in found
                    found[record.offset] = one
        return found

    def _live(self, found: Iterable[int]) -> list[Entry]:
        return [self.written[offset] for offset in found if offset >= self.start]

    def _young_from(self, dirty: Iterable[int], step: Clean) -> int:
        """The first record that ``min.compaction.lag.ms`` holds back; the log end offset + 1 if there is none."""
        late_ms = step.now_ms - step.min_lag_ms
        young = (offset for offset in dirty if step.min_lag_ms and self.written[offset].timestamp > late_ms)
        return min(young, default=max(self.written) + 1)

    def _check_removed(
        self,
        before: dict[int, StoredRecord],
        after: dict[int, StoredRecord],
        step: Clean,
        result: CleaningResult | None,
    ) -> None:
        """U-1, both ways: a tombstone was removed exactly when it was past its horizon and alone with its key."""
        alive: dict[bytes | None, list[int]] = {}
        for offset in before:
            if offset >= self.start:
                alive.setdefault(self.written[offset].key, []).append(offset)
        for offset, found in before.items():
            entry = self.written[offset]
            if not entry.tombstone or entry.key is None or offset < self.start:
                continue
            late = found.horizon_ms is not None and found.horizon_ms <= step.now_ms
            alone = alive[entry.key] == [offset]
            if not self.shape.versioned or not alone:
                continue
            if offset not in after:
                assert self.shape.guard == "horizon"
                assert late or entry.legacy, "a tombstone was removed before its horizon"
                self.removed += 1
            elif result is not None and result.outcome != "skipped" and late and self.shape.guard == "horizon":
                held = offset >= result.end_offset or self._has_aborted(entry, result.end_offset)
                # A map of three keys: sometimes, by the hash, one of 64 shards has four.
                held = held or (step.shards and TOO_MANY_KEYS in result.notes)
                assert held, "nothing delayed this tombstone"

    def _has_aborted(self, entry: Entry, end: int) -> bool:
        """In the tail a record is evidence, whatever the outcome of its transaction."""
        aborted = (other for other in self.written.values() if not other.visible and other.offset >= end)
        return any(other.key == entry.key for other in aborted)

    def _check_records(
        self, before: dict[int, StoredRecord], after: dict[int, StoredRecord], result: CleaningResult
    ) -> None:
        self.waited += result.tombstones_waiting
        expected = set(self.modelled(result.first_dirty_offset, result.end_offset))
        unseen = {offset for offset in before if offset < self.start}
        if not self.shape.versioned:
            # Below the log start Kafka's rules hold, which are tested elsewhere (U-2).
            expected = (expected - unseen) | (unseen & set(after))
        gone = expected - set(after)
        assert set(after) <= expected, f"{sorted(set(after) - expected)} should be removed"
        if self.shape.expires:
            assert all(self.written[offset].tombstone for offset in gone), "a value is lost"
            if self.shape.versioned:
                for offset in gone:
                    others = [o for o in before if o >= self.start and self.written[o].key == self.written[offset].key]
                    assert others == [offset], f"tombstone {offset} was removed while {others} existed (U-1)"
        else:
            assert not gone, f"{sorted(gone)} are lost"
        self.log = set(after)
        if not self.is_exact or self.shape.expires:
            return
        # U-4: fixed strategy, nothing expired: the same as one pass over everything that was ever written.
        kept = [self.written[offset] for offset in after]
        assert wrong_keys(kept, self.written.values(), self.clean_to) == ([], []), "it depends on the cleanings"

    def _check_start(self, step: Clean, result: CleaningResult) -> None:
        """U-10: it began where the earlier cleanings ended."""
        if self.start:
            self.is_exact = False  # a retained record may be below the log start now
        if step.first_dirty is not None and not step.from_start:
            assert result.first_dirty_offset == step.first_dirty
            self.is_exact = self.is_exact and step.first_dirty <= self.clean_to
            if step.first_dirty > max(self.clean_to, self.start):
                self.is_certain = False  # rewritten segments no longer match the checkpoint's witness
                return
        elif step.from_start:
            assert result.first_dirty_offset == self.start
        elif self.clean_to >= self.start and self.is_certain:
            assert result.first_dirty_offset == self.clean_to
        else:
            assert result.first_dirty_offset <= max(self.clean_to, self.start), "dirty records counted as clean"
        self.clean_to = max(self.clean_to, result.end_offset)
        self._is_forgotten = self._is_reported_wrong = False
        is_kafkas = self.shape.strategy == "offset" and self.shape.mode == "null"
        names_it = NAME in read_checkpoint(self.path / CLEANER_CHECKPOINT)
        if self.is_fixed:
            assert names_it == is_kafkas, "Kafka's checkpoint is for Kafka's strategy (U-10)"

    def modelled(self, first_dirty: int, end: int) -> Iterator[int]:
        """The retained offsets: the highest of every key with a dirty record, and all of the other keys."""
        floor = self.start if self.shape.versioned else 0
        entries = [self.written[offset] for offset in self.log]
        judged = [entry for entry in entries if floor <= entry.offset < end]
        dirty = {entry.key for entry in judged if entry.offset >= first_dirty}
        best = newest(judged)
        for entry in entries:
            stays = entry.key is not None and (entry.key not in dirty or best[entry.key] is entry)
            if stays or not floor <= entry.offset < end:
                yield entry.offset


def run_history(seen: Counter[str], shape: Shape, seed: int, rounds: int, **kinds: bool) -> None:
    with scratch() as root:
        world = World(root, shape)
        world.run(Script(shape, seed, rounds, **kinds))
    exact = world.is_exact and not shape.expires
    seen.update(histories=1, rounds=world.rounds, removed=world.removed, waited=world.waited, stopped=world.stopped)
    seen.update(exact=int(exact))
