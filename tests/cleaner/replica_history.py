"""A random history of a partition, replicas of it that are rolled and cleaned at other times, and a model's state.

The model knows nothing of segments or cleanings: it reads the records in plain Python.
"""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from cleanerd import _kernel
from cleanerd.cleaner.state_digest import state_digests
from cleanerd.cleaner.survey import CleaningOptions, survey
from cleanerd.format.names import TopicPartition
from cleanerd.policy.state_digest import ReplicaDigests, first_difference
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.state.cleaner_checkpoint import StateStore
from tests.cleaner.driver import NAME, clean, config, resources
from tests.support.log_dirs import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    Partition,
    make_log_dir,
    write_aborted,
    write_checkpoint,
    write_segment,
)
from tests.support.logs import BASE_TIMESTAMP_MS, Record, encode_batch, encode_legacy, encode_marker

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Sequence
    from pathlib import Path

    from cleanerd.config.topic_config import TopicConfig
    from cleanerd.policy.state_digest import StateDigest

HOUR_MS = 3_600_000
NOW_MS = BASE_TIMESTAMP_MS + HOUR_MS
ORDERS = TopicPartition("orders", 0)


@dataclass(frozen=True, slots=True)
class Written:
    """One batch of the history. ``ends``: (producer, first offset, commits) of the transaction that it ends."""

    data: bytes
    base: int
    last: int
    ends: tuple[int, int, bool] | None = None


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """A data record; ``version`` None: the offset decides. ``digest``: of its fields, by the kernel."""

    offset: int
    key: bytes | None
    is_tombstone: bool
    version: int
    producer: int
    digest: int


@dataclass(slots=True)
class History:
    """All records ever written, in order, by ``strategy``."""

    strategy: str
    topic_id: uuid.UUID
    batches: list[Written] = field(default_factory=list)
    records: list[ModelRecord] = field(default_factory=list)
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    open: dict[int, int] = field(default_factory=dict)
    sequences: dict[int, int] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return self.batches[-1].last + 1 if self.batches else 0

    @property
    def config(self) -> TopicConfig:
        return config(compaction_strategy=self.strategy, delete_retention_ms=1000, min_cleanable_dirty_ratio=0.01)

    def write(self, records: Sequence[Record], *, producer: int = -1, codec: int = 0) -> None:
        """Write one batch; ``producer``: of its transaction, which it may begin."""
        base = self.end
        sequence = self.sequences.get(producer, 0)
        data = encode_batch(
            records,
            base_offset=base,
            codec=codec,
            transactional=producer >= 0,
            producer_id=producer,
            producer_epoch=min(producer, 0),
            base_sequence=sequence if producer >= 0 else -1,
        )
        if producer >= 0:
            self.open.setdefault(producer, base)
            self.sequences[producer] = sequence + len(records)
        self._add(data, base, base + len(records) - 1, records, producer)

    def write_legacy(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        """Write one message of format v1."""
        data = encode_legacy(self.end, key, value, timestamp=timestamp)
        self._add(data, self.end, self.end, [Record(key, value, timestamp)], -1)

    def finish(self, producer: int, *, commits: bool) -> None:
        """The marker of its transaction."""
        first, at = self.open.pop(producer), self.end
        if not commits:
            self.aborted.append((producer, first, at))
        data = encode_marker(at, commit=commits, producer_id=producer, timestamp=NOW_MS)
        self.batches.append(Written(data, at, at, (producer, first, commits)))

    def _add(self, data: bytes, base: int, last: int, records: Sequence[Record], producer: int) -> None:
        self.batches.append(Written(data, base, last))
        rows = np.frombuffer(data, np.uint8)
        found = _kernel.content_digest(rows, 0, hash_key=self.topic_id.bytes).digest.reshape(-1, 2).tolist()
        for number, (record, (low, high)) in enumerate(zip(records, found, strict=True)):
            version = record.timestamp if self.strategy == "timestamp" else 0
            is_tombstone = record.value is None
            digest = low + (high << 64)
            self.records.append(ModelRecord(base + number, record.key, is_tombstone, version, producer, digest))

    def state(self, begin: int, end: int) -> tuple[str, int]:
        """The digest and the number of keys of the state at ``end``."""
        best: dict[bytes, ModelRecord] = {}
        for each in self.records:
            hidden = any(p == each.producer and f <= each.offset < m for p, f, m in self.aborted)
            if each.offset >= end or each.key is None or hidden:
                continue
            before = best.get(each.key)
            if before is None or (each.version, each.offset) > (before.version, before.offset):
                best[each.key] = each
        counted = [each.digest for each in best.values() if not each.is_tombstone and each.offset >= begin]
        return f"{sum(counted) % (1 << 128):032x}", len(counted)


def random_history(pick: random.Random, topic_id: uuid.UUID, *, late: bool) -> History:
    """Transactions of two producers, tombstones, records without keys, codecs; ``late``: versions out of order."""
    history = History(pick.choice(("offset", "timestamp")), topic_id)
    if history.strategy == "offset" and pick.random() < 0.2:
        for _ in range(pick.randint(1, 6)):
            value = None if pick.random() < 0.2 else b"old"
            history.write_legacy(b"k%d" % pick.randrange(6), value, BASE_TIMESTAMP_MS + history.end)
    for _ in range(pick.randint(1, 30)):
        producer = pick.choice((-1, -1, -1, 7, 8))
        if producer in history.open and pick.random() < 0.6:
            history.finish(producer, commits=pick.random() < 0.5)
            continue
        records = []
        for number in range(pick.randint(1, 4)):
            at = history.end + number
            age = pick.randrange(50) if late else 0
            records.append(
                Record(
                    None if pick.random() < 0.05 else b"k%d" % pick.randrange(6),
                    None if pick.random() < 0.25 else b"v%d" % pick.randrange(3),
                    BASE_TIMESTAMP_MS + at - age,
                    headers=pick.choice(((), ((b"h", b"1"),))),
                )
            )
        history.write(records, producer=producer, codec=pick.choice((0, 0, 1, 4)))
    if pick.random() < 0.7:
        for producer in list(history.open):
            history.finish(producer, commits=pick.random() < 0.5)
    return history


@dataclass(slots=True)
class Replica:
    """A log directory with the fetched part of a history."""

    history: History
    root: Path
    fetched: int = 0
    active: int = 0
    log_start: int = 0
    bytes_: bytearray = field(default_factory=bytearray)
    entries: list[tuple[int, int, int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        make_log_dir(self.root, {NAME: Partition({0: b""}, topic_id=self.history.topic_id)})

    @property
    def end(self) -> int:
        return self.history.batches[self.fetched - 1].last + 1 if self.fetched else 0

    def fetch(self, batches: int, *, roll: float, pick: random.Random) -> None:
        """Fetch this many batches; before each one, roll a segment with the probability ``roll``."""
        for batch in self.history.batches[self.fetched : self.fetched + batches]:
            if self.bytes_ and pick.random() < roll:
                self.flush()
                self.active, self.bytes_, self.entries = batch.base, bytearray(), []
            self.bytes_ += batch.data
            if batch.ends is not None and not batch.ends[2]:
                producer, first, _ = batch.ends
                self.entries.append((producer, first, batch.base, first))
            self.fetched += 1
        self.flush()

    def flush(self) -> None:
        """Write the active segment and the checkpoints."""
        folder = self.root / NAME
        write_segment(folder, self.active, bytes(self.bytes_))
        if self.entries:
            write_aborted(folder, self.active, self.entries)
        for name in (HIGH_WATERMARKS, RECOVERY_POINTS):
            write_checkpoint(self.root / name, {NAME: self.end})

    def clean(self, now_ms: int, *, first_dirty_offset: int | None = None) -> None:
        """Clean it, if anything is dirty."""
        options = CleaningOptions(now_ms=now_ms, force=True, first_dirty_offset=first_dirty_offset)
        result = clean(self.root, options, self.history.config, state=self.state)
        assert result.error is None, result.reason

    @property
    def state(self) -> Path:
        return self.root.parent / f"state-{self.root.name}"

    def delete_start(self, pick: random.Random) -> None:
        """Retention: some of the oldest segments are deleted, except the active one."""
        bases = sorted(int(path.stem) for path in (self.root / NAME).glob("*.log"))
        gone = pick.randrange(len(bases))
        for base in bases[:gone]:
            for path in (self.root / NAME).glob(f"{base:020d}.*"):
                path.unlink()
        self.log_start = bases[gone]
        write_checkpoint(self.root / LOG_STARTS, {NAME: self.log_start})

    @classmethod
    def added_later(cls, source: Replica, root: Path) -> Replica:
        """A new replica that fetched everything from ``source``, into one segment, and has no checkpoint yet."""
        logs = sorted((source.root / NAME).glob("*.log"))
        found = cls(source.history, root, fetched=source.fetched, active=int(logs[0].stem), log_start=source.log_start)
        for path in (root / NAME).glob("0*"):
            path.unlink()
        found.bytes_ += b"".join(path.read_bytes() for path in logs)
        found.entries = [(p, first, at, first) for p, first, at in source.history.aborted if at < source.end]
        found.flush()
        write_checkpoint(root / LOG_STARTS, {NAME: found.log_start})
        return found

    def digests(self, *, map_bytes: int = 1 << 20, map_load: float = 0.85) -> tuple[StateDigest, ...]:
        """The digests that the daemon computes, with a running broker or a stopped one."""
        return tuple(self.answer(map_bytes=map_bytes, map_load=map_load).digests)

    def answer(self, *, map_bytes: int = 1 << 20, map_load: float = 0.85) -> ReplicaDigests:
        """The daemon's status of it."""
        marker = self.root / CLEAN_SHUTDOWN
        if len(self.history.batches) % 2:
            marker.unlink(missing_ok=True)
        options = CleaningOptions(now_ms=NOW_MS, unclean=True, indexes_only=True)
        log_dir = read_log_dir(self.root)
        found = survey(log_dir, ORDERS, self.history.config, StateStore(self.state), options)
        digests = state_digests(log_dir, found, resources(map_bytes=map_bytes, map_load=map_load), options)
        marker.touch()
        return ReplicaDigests(found.bounds.first_dirty_offset, self.history.strategy, digests)


def play(seed: int, root: Path, seen: Counter[str]) -> None:
    """Two replicas of a random history, and a third one that copies the first: their digests are those of the model."""
    pick = random.Random(seed)
    late = pick.random() < 0.5
    history = random_history(pick, uuid.UUID(int=pick.getrandbits(128)), late=late)
    # A value with an old version, written after the removal of its tombstone, really differs between replicas.
    removes = history.strategy == "offset" or not late
    replicas = {name: Replica(history, root / name) for name in ("one", "other")}
    for replica in replicas.values():
        now_ms = NOW_MS
        for _ in range(pick.randint(1, 3)):
            replica.fetch(pick.randint(1, 25), roll=pick.choice((0.1, 0.4)), pick=pick)
            for _ in range(pick.randint(0, 2)):
                replica.clean(now_ms)
                now_ms += 5000 if removes and pick.random() < 0.5 else 0
    replicas["added"] = Replica.added_later(replicas["one"], root / "added")
    for name, replica in replicas.items():
        replica.fetch(len(history.batches), roll=pick.choice((0.0, 0.1, 0.4)), pick=pick)
        if name != "added" and history.strategy == "offset" and pick.random() < 0.2:
            replica.delete_start(pick)
    answers = {name: replica.answer() for name, replica in replicas.items()}
    assert first_difference(answers) is None, seed
    for answer in answers.values():
        for found in answer.digests:
            assert (found.digest, found.keys) == history.state(found.begin_offset, found.end_offset), (seed, found)
            seen["digests"] += 1
            seen["keys"] += found.keys
    common = {(d.begin_offset, d.end_offset) for d in answers["one"].digests}
    seen["compared"] += bool(common & {(d.begin_offset, d.end_offset) for d in answers["other"].digests})
    seen["histories"] += 1
