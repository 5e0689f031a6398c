"""Random histories of a topic under a strategy: the writes and the times of cleanings, from a seed.

A script has the facts about every record - its version, kind and visibility - from making its
bytes, not from reading them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from tests.cleaner.strategy_upsets import STATE_LOSSES
from tests.support.logs import Record, encode_batch, encode_legacy, encode_marker, encode_wrapper, varint

if TYPE_CHECKING:
    from collections.abc import Iterator

T0 = 1_700_000_000_000
HEADER = b"version"
MARKER = b"deleted"
FLAG = 0x20
FEW_KEYS = tuple(b"key-%d" % number for number in range(5))
MORE_KEYS = tuple(b"key-%d" % number for number in range(25))
"""With this many keys a tombstone is sometimes the only record of its key, and may be removed."""
EXTREMES = (-(2**63), 2**63 - 1, -1, 0, 1)
MALFORMED = (None, b"", b"\x01", b"\x00" * 7, b"\xff" * 9, b"12345678901")
NO_VARLONG = (None, b"", b"\x80", b"\xff" * 11, b"\x01\x01")


@dataclass(frozen=True, slots=True)
class Shape:
    """The kind of a history. ``expires``: tombstones get past their horizon at times."""

    strategy: str
    encoding: str = "long"
    mode: str = "null"
    guard: str = "horizon"
    expires: bool = False

    @property
    def versioned(self) -> bool:
        return self.strategy != "offset"


@dataclass(frozen=True, slots=True)
class Entry:
    """One record. ``version`` is what ranks it, None if it has none; ``visible`` is False for aborted data.

    ``in_header`` is the version in its header, whatever the strategy.
    """

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[bytes, bytes | None], ...]
    attributes: int
    in_header: int | None
    version: int | None
    tombstone: bool
    legacy: bool
    visible: bool = True

    def under(self, strategy: str) -> Entry:
        """The same record as another strategy ranks it."""
        versions = {"offset": None, "timestamp": self.timestamp, "header": self.in_header}
        return replace(self, version=versions[strategy])

    @property
    def rank(self) -> tuple[bool, int, int]:
        """The highest wins (R280-4..R280-6)."""
        return (self.version is not None, self.version or 0, self.offset)


@dataclass(frozen=True, slots=True)
class Write:
    """Batches for the active segment, after a roll if ``rolls``. ``aborted``: entries of its transaction index."""

    rolls: bool
    base: int
    data: bytes
    entries: tuple[Entry, ...]
    aborted: tuple[tuple[int, int, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class MoveStart:
    """DeleteRecords up to ``offset``; ``deletes``: segments below it are deleted already."""

    offset: int
    deletes: bool


@dataclass(frozen=True, slots=True)
class Truncate:
    """A new leader has nothing from ``offset`` on.

    ``epoch``: of its writes, None if it was not stored. ``cleaner_knows``: the broker's cleaner is on, and lowers its
    checkpoint.
    """

    offset: int
    epoch: int | None
    cleaner_knows: bool


@dataclass(frozen=True, slots=True)
class LoseState:
    """Cleanerd's state is lost in the way ``how`` (``strategy_upsets.STATE_LOSSES``)."""

    how: str


@dataclass(frozen=True, slots=True)
class Clean:
    """A cleaning. ``up_to`` is its upper limit; ``stops_after`` this many chunks of the rewrite, None: never.

    ``min_lag_ms``: the topic's, if not 0; the cleaning may end at any offset then.
    """

    now_ms: int
    up_to: int
    from_start: bool
    first_dirty: int | None
    stops_after: int | None
    shards: bool
    workers: int
    chunk_bytes: int
    segment_bytes: int
    min_lag_ms: int = 0


@dataclass(frozen=True, slots=True)
class Change:
    """From now on the topic has another strategy."""

    strategy: str


Step = Write | MoveStart | Truncate | LoseState | Clean | Change


@dataclass(slots=True)
class Script:
    """A history, step by step. ``upsets``: sometimes the log is truncated, or its stored state is lost."""

    shape: Shape
    seed: int
    rounds: int
    stops: bool = False
    moves: bool = True
    changes: bool = False
    upsets: bool = False
    _offset: int = 0
    _epoch: int = 0
    _now_ms: int = T0
    _start: int = 0
    _bases: list[int] = field(default_factory=list)
    _writes: list[int] = field(default_factory=list)
    _random: random.Random = field(init=False)
    _keys: tuple[bytes, ...] = FEW_KEYS

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._keys = MORE_KEYS if self.shape.expires and self._random.random() < 0.8 else FEW_KEYS

    def steps(self) -> Iterator[Step]:
        """Writes, and a cleaning after every few of them; the last cleaning reaches as far as possible."""
        pick = self._random
        for number in range(self.rounds):
            for _ in range(pick.randint(1, 4)):
                yield self._write(rolls=not self._bases or pick.random() < 0.7)
            if pick.random() < 0.8 or number == self.rounds - 1:
                yield self._write(rolls=True)  # something to clean in any case
            if self.moves and pick.random() < 0.25:
                yield self._move_start()
            if self.upsets:
                yield from self._upset()
            yield self._clean(last=number == self.rounds - 1)
            if self.changes and pick.random() < 0.7:
                yield Change(pick.choice(("offset", "timestamp", "header")))

    def _move_start(self) -> MoveStart:
        self._start = self._random.randint(self._start, self._offset)
        return MoveStart(self._start, deletes=self._random.random() < 0.5)

    def _upset(self) -> Iterator[Step]:
        pick = self._random
        if pick.random() < 0.3:
            yield LoseState(pick.choice(STATE_LOSSES))
        cuts = [offset for offset in self._writes if offset >= self._start]
        if not cuts or pick.random() < 0.5:
            return
        self._offset = pick.choice(cuts)
        self._epoch += 1
        self._bases = [base for base in self._bases if base < self._offset]
        self._writes = [offset for offset in self._writes if offset < self._offset]
        yield Truncate(self._offset, self._epoch if pick.random() < 0.7 else None, cleaner_knows=self.seed % 2 == 0)
        for number in range(pick.randint(1, 4)):
            yield self._write(rolls=number == 0 or pick.random() < 0.5)

    def _clean(self, *, last: bool) -> Clean:
        pick = self._random
        self._now_ms += pick.choice((1, 500, 5000, 5000))
        active = self._bases[-1]
        up_to = active if last or pick.random() < 0.6 else pick.randint(min(self._start, active), active)
        # Kafka's strategy treats everything below as clean: it promises nothing about a skipped range.
        partial = (
            self.shape.versioned
            and not self.changes
            and self.moves
            and not last
            and pick.random() < 0.1
            and self._start < up_to
        )
        return Clean(
            now_ms=self._now_ms,
            up_to=up_to,
            from_start=pick.random() < 0.1,
            first_dirty=pick.randint(self._start, up_to) if partial else None,
            stops_after=pick.randint(1, 4) if self.stops and not last and pick.random() < 0.7 else None,
            shards=pick.random() < 0.3,
            workers=2 if pick.random() < 0.03 else 1,
            chunk_bytes=pick.choice((100, 400, 65536)),
            segment_bytes=pick.choice((150, 400, 1 << 20)),
            min_lag_ms=pick.choice((1, 30, 1000, 6000)) if self.upsets and not last and pick.random() < 0.2 else 0,
        )

    def _write(self, *, rolls: bool) -> Write:
        pick = self._random
        base = self._offset
        self._writes.append(base)
        data, entries, aborted = b"", [], []
        for _ in range(pick.randint(1, 4)):
            kind = pick.random()
            if kind < 0.12:
                more, found, entry = self._transaction(commit=pick.random() < 0.4)
                aborted += entry
            elif kind < 0.2:
                more, found = self._legacy()
            else:
                more, found = self._batch(pick.randint(1, 4))
            data += more
            entries += found
        if rolls:
            self._bases.append(base)
        return Write(rolls, base, data, tuple(entries), tuple(aborted))

    def _batch(self, count: int, **fields: object) -> tuple[bytes, list[Entry]]:
        pick = self._random
        append_time = T0 + pick.randint(0, 2000) if pick.random() < 0.2 else None
        visible = not fields.pop("aborted", False)
        made = [self._record(delta, append_time, visible=visible) for delta in range(count)]
        data = encode_batch(
            [record for record, _ in made],
            base_offset=self._offset,
            codec=pick.choice((0, 0, 0, 1, 2, 3, 4)),
            log_append_time=append_time,
            leader_epoch=self._epoch,
            **fields,  # type: ignore[arg-type]  # by name
        )
        self._offset += count + pick.choice((0, 0, 0, 0, 2))
        return data, [entry for _, entry in made]

    def _record(self, delta: int, append_time: int | None, *, visible: bool) -> tuple[Record, Entry]:
        pick = self._random
        key = None if pick.random() < 0.05 else pick.choice(self._keys)
        deletes = 0.4 if self.shape.expires else 0.2
        value = None if pick.random() < deletes else b"%d" % self._offset
        flagged, marked = (
            pick.random() < deletes,
            pick.choice((None, None, None, None, b"1", b"0", b"false", b"", b"x")),
        )
        headers, version = self._headers()
        if self.shape.mode == "header" and marked is not None:
            headers = (*headers, (MARKER, marked))
        timestamp = T0 + pick.randint(0, 40)  # ties and late ones
        seen = timestamp if append_time is None else append_time
        tombstone = {
            "null": value is None,
            "flag": flagged,
            "header": value is None or (marked or b"") not in (b"", b"0", b"false"),
        }[self.shape.mode]
        entry = Entry(
            offset=self._offset + delta,
            key=key,
            value=value,
            timestamp=seen,
            headers=headers,
            attributes=FLAG if flagged else 0,
            in_header=version,
            version=None,
            tombstone=tombstone,
            legacy=False,
            visible=visible,
        )
        return Record(key, value, timestamp, delta, headers, entry.attributes), entry.under(self.shape.strategy)

    def _headers(self) -> tuple[tuple[tuple[bytes, bytes | None], ...], int | None]:
        """Headers of a record, and the version in the last one of the name."""
        pick = self._random
        others = ((b"a", b"x"),) if pick.random() < 0.3 else ()
        if pick.random() < 0.15:
            return others, None
        version: int | None = pick.choice(EXTREMES) if pick.random() < 0.1 else pick.randint(-2, 8)
        assert version is not None
        value: bytes | None = version.to_bytes(8, "big", signed=True)
        if self.shape.encoding == "varlong":
            value = varint(version)
        if pick.random() < 0.1:
            value, version = pick.choice(NO_VARLONG if self.shape.encoding == "varlong" else MALFORMED), None
        decoy = ((HEADER, (99).to_bytes(8, "big")),) if pick.random() < 0.15 else ()
        return (*others, *decoy, (HEADER, value)), version

    def _transaction(self, *, commit: bool) -> tuple[bytes, list[Entry], list[tuple[int, int, int, int]]]:
        """A batch of a transaction and its marker."""
        producer, first = self._random.choice((7, 8)), self._offset
        data, entries = self._batch(
            self._random.randint(1, 3),
            transactional=True,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=first,
            aborted=not commit,
        )
        marker = self._offset
        data += encode_marker(marker, commit=commit, producer_id=producer, timestamp=T0)
        self._offset += 1
        return data, entries, [] if commit else [(producer, first, marker, first)]

    def _legacy(self) -> tuple[bytes, list[Entry]]:
        """One message of v0 or v1, or a wrapper with two."""
        pick = self._random
        magic, count = pick.choice((0, 1)), pick.choice((1, 1, 2))
        messages, entries = [], []
        for number in range(count):
            key, value = pick.choice(self._keys), None if pick.random() < 0.3 else b"old"
            timestamp = T0 + pick.randint(0, 40) if magic else -1
            place = number if count > 1 and magic else self._offset + number
            messages.append(encode_legacy(place, key, value, magic=magic, timestamp=timestamp))
            entry = Entry(self._offset + number, key, value, timestamp, (), 0, None, None, value is None, legacy=True)
            entries.append(entry.under(self.shape.strategy))
        data = messages[0]
        if count > 1:
            latest = max(entry.timestamp for entry in entries)
            data = encode_wrapper(self._offset + 1, b"".join(messages), magic=magic, timestamp=latest)
        self._offset += count
        return data, entries


SHAPES = st.builds(
    lambda ranking, mode, guard, expires: Shape(*ranking, mode, guard, expires),
    st.sampled_from([("header", "long"), ("header", "long"), ("header", "varlong"), ("timestamp",), ("offset",)]).map(
        lambda ranking: (*ranking, "long")[:2]
    ),
    st.sampled_from(["null", "flag", "header"]),
    st.sampled_from(["horizon", "horizon", "horizon", "forever"]),
    st.booleans(),
)
