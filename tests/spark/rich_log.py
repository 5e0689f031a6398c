"""Random logs with all that a decision can depend on: versions with ties, kinds of tombstones, transactions."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tests.cleaner.driver import NAME, config
from tests.support.log_dirs import Partition, Producer, make_log_dir
from tests.support.logs import BASE_TIMESTAMP_MS, Record, encode_batch, encode_legacy, encode_marker, encode_wrapper

if TYPE_CHECKING:
    from pathlib import Path

NOW_MS = BASE_TIMESTAMP_MS + 1_000_000
EXPIRED_MS = NOW_MS - 10
WAITING_MS = NOW_MS + 10
FLAG = 0x20
BY_HEADER = config(compaction_strategy="header", compaction_strategy_header="version", delete_retention_ms=100)


@dataclass
class RichLog:
    """Writes segments with ``keys`` different keys; versions come from a small range, so that there are ties."""

    seed: int
    codec: int = 0
    transactions: bool = False
    legacy: bool = False
    keys: int = 40
    offset: int = 0
    pick: random.Random = field(init=False)
    open: dict[int, int] = field(default_factory=dict)
    segments: dict[int, bytes] = field(default_factory=dict)
    aborted: dict[int, list[tuple[int, int, int, int]]] = field(default_factory=dict)
    sequences: dict[int, int] = field(default_factory=dict)
    last: dict[int, Producer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.pick = random.Random(self.seed)

    def write(self, path: Path, segments: int, batches: int, **partition: object) -> Path:
        """A log directory with this number of segments below the active one."""
        for number in range(segments + 1):
            base, opened = self.offset, dict(self.open)
            old = self.legacy and number < segments // 3
            self.segments[base] = b"".join(self._legacy() if old else self._batch(base) for _ in range(batches))
        active = max(self.segments)
        known = [replace(each, open_from=opened.get(each.producer_id, -1)) for each in self.last.values()]
        snapshots = {active: known} if known else {}
        made = Partition(
            self.segments,
            aborted=self.aborted,
            snapshots=snapshots,
            index_interval_bytes=300,
            **partition,  # type: ignore[arg-type]
        )
        return make_log_dir(path, {NAME: made})

    def _batch(self, base: int) -> bytes:
        pick = self.pick
        if self.transactions and pick.random() < 0.3 and self.open:
            return self._marker(base)
        if pick.random() < 0.1:
            self.offset += pick.randint(1, 5)
        records = [self._record() for _ in range(pick.randint(1, 6))]
        producer_id, transactional = -1, False
        if self.transactions and pick.random() < 0.7:
            producer_id, transactional = pick.randint(1, 3), True
            self.open.setdefault(producer_id, self.offset)
        first = self.offset
        self.offset += len(records)
        sequence = self.sequences.get(producer_id, 0)
        data = encode_batch(
            records,
            base_offset=first,
            codec=self.codec,
            transactional=transactional,
            producer_id=producer_id,
            producer_epoch=-1 if producer_id < 0 else 0,
            base_sequence=-1 if producer_id < 0 else sequence,
            delete_horizon=pick.choice((None, None, EXPIRED_MS, WAITING_MS)),
        )
        if producer_id >= 0:
            self.sequences[producer_id] = sequence + len(records)
            self.last[producer_id] = Producer(
                producer_id, self.offset - 1, NOW_MS, last_sequence=self.sequences[producer_id] - 1
            )
        return data

    def _marker(self, base: int) -> bytes:
        producer_id = self.pick.choice(sorted(self.open))
        first = self.open.pop(producer_id)
        commit = self.pick.random() < 0.5
        horizon = self.pick.choice((None, None, EXPIRED_MS, WAITING_MS))
        if not commit:
            stable = min([*self.open.values(), self.offset])
            self.aborted.setdefault(base, []).append((producer_id, first, self.offset, stable))
        data = encode_marker(self.offset, commit=commit, producer_id=producer_id, delete_horizon=horizon)
        self.offset += 1
        return data

    def _record(self) -> Record:
        pick = self.pick
        key = None if pick.random() < 0.03 else b"key-%d" % pick.randrange(self.keys)
        headers: list[tuple[bytes, bytes | None]] = []
        if pick.random() < 0.9:
            version = pick.choice((-1, 0, 1, 2, 3, 1 << 60)).to_bytes(8, "big", signed=True)
            headers.append((b"version", pick.choice((version, version, version, None, b"bad"))))
        if pick.random() < 0.2:
            headers.append((b"deleted", pick.choice((b"1", b"0", None))))
        return Record(
            key=key,
            value=None if pick.random() < 0.3 else b"value-%d" % pick.randrange(1000),
            timestamp=BASE_TIMESTAMP_MS + pick.randrange(8),
            headers=tuple(headers),
            attributes=FLAG if pick.random() < 0.2 else 0,
        )

    def _legacy(self) -> bytes:
        pick = self.pick

        def message(offset: int) -> bytes:
            value = None if pick.random() < 0.2 else b"old-%d" % offset
            return encode_legacy(offset, b"key-%d" % pick.randrange(self.keys), value, timestamp=BASE_TIMESTAMP_MS)

        if pick.random() < 0.5:
            self.offset += 1
            return message(self.offset - 1)
        count = pick.randint(1, 4)
        inner = b"".join(message(row) for row in range(count))
        self.offset += count
        return encode_wrapper(self.offset - 1, inner, timestamp=BASE_TIMESTAMP_MS)
