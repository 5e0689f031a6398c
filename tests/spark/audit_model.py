"""Random pairs of logs, and the audit's expected result in plain dictionaries, without any code of the query."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cleanerd.verify.rules import KeyRules
from tests.spark.cases import Case
from tests.support.logs import Record, encode_batch, encode_marker, varint

if TYPE_CHECKING:
    from collections.abc import Iterable

T0 = 1_700_000_000_000
NOW = T0 + 1_000_000
FLAG = 0x20


@dataclass(frozen=True, slots=True)
class Known:
    """A record as its maker knows it. ``horizon`` is its batch's, -1 for none; ``aborted``: consumers never see it."""

    offset: int
    record: Record
    rank: tuple[bool, int, int]
    tombstone: bool
    horizon: int
    aborted: bool


@dataclass(slots=True)
class _Batch:
    base: int
    last: int
    codec: int
    transactional: bool
    aborted: bool
    horizon: int
    records: list[Known]

    def encode(self, stays: dict[int, Record]) -> bytes:
        """Encode the records of ``stays``, by offset, with their current contents."""
        records = [stays[known.offset] for known in self.records if known.offset in stays]
        producer = {"producer_id": 5, "producer_epoch": 0, "base_sequence": self.base} if self.transactional else {}
        data = encode_batch(
            records,
            base_offset=self.base,
            last_offset_delta=self.last - self.base,
            codec=self.codec if records else 0,
            transactional=self.transactional,
            delete_horizon=self.horizon if self.horizon >= 0 else None,
            **producer,
        )
        if self.transactional:
            data += encode_marker(self.last + 1, commit=not self.aborted, producer_id=5, timestamp=T0)
        return data


@dataclass(slots=True)
class Pair:
    """A log, its cleaned version, and the settings. Everything follows from the seed."""

    seed: int
    rules: KeyRules = field(init=False)
    many_cleanings: bool = field(init=False)
    clean_end: int = 0
    _random: random.Random = field(init=False)
    _batches: list[_Batch] = field(default_factory=list)
    _edges: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        pick = self._random = random.Random(self.seed)
        strategy = pick.choice(("offset", "timestamp", "header"))
        mode = pick.choice(("null", "flag", "header"))
        self.rules = KeyRules(
            strategy,
            b"ver" if strategy == "header" else None,
            pick.choice(("long", "varlong")),
            mode,
            b"del" if mode == "header" else None,
            pick.choice(("horizon", "horizon", "forever")),
        )
        self.many_cleanings = pick.random() < 0.2
        self._make()

    def _make(self) -> None:
        pick, offset = self._random, 0
        for _ in range(pick.randint(3, 12)):
            if not self._edges or pick.random() < 0.3:
                self._edges.append(offset)
            count, transactional = pick.randint(1, 5), pick.random() < 0.2
            aborted = transactional and pick.random() < 0.5
            horizon = pick.choice((-1, -1, NOW - 5, NOW, NOW + 1))
            records = [self._record(offset + row, offset, horizon, aborted=aborted) for row in range(count)]
            last = offset + count - 1
            self._batches.append(_Batch(offset, last, pick.randint(0, 4), transactional, aborted, horizon, records))
            offset = last + 1 + transactional
        self._edges.append(offset)
        self.clean_end = pick.choice(self._edges[1:])

    def _record(self, offset: int, base: int, horizon: int, *, aborted: bool) -> Known:
        pick, rules = self._random, self.rules
        headers: list[tuple[bytes, bytes | None]] = []
        version = pick.randint(-2, 3) if pick.random() < 0.8 else None
        if version is not None:
            packed = varint(version) if rules.encoding == "varlong" else version.to_bytes(8, "big", signed=True)
            headers.append((b"ver", packed))
        marker = pick.choice((None, None, b"1", b"0", b""))
        if marker is not None:
            headers.append((b"del", marker))
        flagged = pick.random() < 0.3
        record = Record(
            None if pick.random() < 0.06 else b"k%d" % pick.randint(0, 5),
            None if pick.random() < 0.3 else b"v%d" % offset,
            T0 + pick.randint(0, 5),
            offset - base,
            tuple(headers),
            FLAG if flagged else 0,
        )
        ranked = {"offset": None, "timestamp": record.timestamp, "header": version}[rules.strategy]
        deleted = {"null": record.value is None, "flag": flagged, "header": record.value is None or marker == b"1"}
        rank = (ranked is not None, ranked or 0, offset)
        return Known(offset, record, rank, deleted[rules.tombstone_mode], horizon, aborted)

    def known(self) -> list[Known]:
        """All records from before."""
        return [known for batch in self._batches for known in batch.records]

    def case(self) -> Case:
        """A right pair, or one with a few faults, and the expected findings."""
        pick = self._random
        stays = {known.offset: known.record for known in self.known() if self._stays(known)}
        for _ in range(pick.choice((0, 0, 1, 1, 2, 5))):
            self._harm(stays)
        return Case(
            self._segments({known.offset: known.record for known in self.known()}),
            self._segments(stays),
            self.expected(stays),
            self.rules,
            self.clean_end,
            many_cleanings=self.many_cleanings,
        )

    def _segments(self, stays: dict[int, Record]) -> dict[int, bytes]:
        found = dict.fromkeys(self._edges, b"")
        for batch in self._batches:
            base = max(edge for edge in self._edges if edge <= batch.base)
            found[base] += batch.encode(stays)
        return found

    def _winners(self) -> dict[bytes, Known]:
        best: dict[bytes, Known] = {}
        for known in self._rivals(self.known()):
            if known.offset < self.clean_end:
                key = known.record.key
                assert key is not None
                best[key] = max(best.get(key, known), known, key=lambda each: each.rank)
        return best

    @staticmethod
    def _rivals(records: Iterable[Known]) -> list[Known]:
        return [known for known in records if not known.aborted and known.record.key is not None]

    def _may_go(self, known: Known) -> bool:
        """Whether a right cleaning may have removed this tombstone."""
        if not known.tombstone or (self.rules.strategy != "offset" and self.rules.tombstone_guard == "forever"):
            return False
        if self.many_cleanings:
            return known.horizon <= NOW
        alone = sum(other.record.key == known.record.key for other in self._rivals(self.known())) == 1
        return 0 <= known.horizon <= NOW and (alone or self.rules.strategy == "offset")

    def _stays(self, known: Known) -> bool:
        if known.offset >= self.clean_end:
            return True
        if known.aborted:
            return self._random.random() < 0.3
        if known.record.key is None or self._winners()[known.record.key] is not known:
            return False
        return not (self._may_go(known) and self._random.random() < 0.6)

    def _harm(self, stays: dict[int, Record]) -> None:
        pick = self._random
        kind = pick.choice(("drop", "keep", "keep", "alter", "swap"))
        if kind == "swap":
            for key, winner in sorted(self._winners().items()):
                losers = [each for each in self._rivals(self.known()) if each.record.key == key and each is not winner]
                below = [each for each in losers if each.offset < self.clean_end]
                if below and winner.offset in stays:
                    del stays[winner.offset]
                    stays[below[0].offset] = below[0].record
                    return
        elif kind == "keep":
            keyless = [each for each in self.known() if each.record.key is None and not each.aborted]
            known = pick.choice(keyless if keyless and pick.random() < 0.4 else self.known())
            stays.setdefault(known.offset, known.record)
        elif stays:
            offset = pick.choice(sorted(stays))
            if kind == "drop":
                del stays[offset]
            else:
                old = stays[offset]
                stays[offset] = Record(
                    old.key, b"altered", old.timestamp, old.offset_delta, (*old.headers, (b"x", None)), old.attributes
                )

    def expected(self, stays: dict[int, Record]) -> dict[str, int]:
        """Findings by kind."""
        found: Counter[str] = Counter()
        for known in self.known():
            now = stays.get(known.offset)
            if now is not None and now != known.record:
                found["altered"] += 1
            if known.aborted:
                continue
            if known.offset >= self.clean_end:
                found["lost"] += now is None
            elif known.record.key is None:
                found["no_key"] += now is not None
        left = Counter(
            known.record.key
            for known in self._rivals(self.known())
            if known.offset in stays and known.offset < self.clean_end
        )
        for key, winner in self._winners().items():
            if winner.offset in stays:
                found["duplicated"] += left[key] - 1
            elif left[key]:
                found["resurrected" if winner.tombstone else "stale"] += 1
            elif not self._may_go(winner):
                found["lost"] += 1
        return {kind: count for kind, count in found.items() if count}
