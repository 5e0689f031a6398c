"""Histories of records for the latest-state view, and a plain model of the resulting state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from cleanerd.client.latest_state import ReadingStart
from cleanerd.client.record import ConsumedRecord
from cleanerd.client.rules import TopicRules
from cleanerd.policy.version import MAX_VERSION, MIN_VERSION, encode_version
from tests.support.logs import Record, encode_batch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cleanerd.client.rules import Headers, Strategy, TombstoneMode

KEYS = (b"a", b"b", b"c", None)
VERSIONS = (None, MIN_VERSION, -1, 0, 1, 2, MAX_VERSION, "malformed")


@dataclass(frozen=True, slots=True)
class Write:
    """A producer's write. ``version``: a number, None for no header, "malformed" for one of three bytes."""

    key: bytes | None
    value: bytes | None
    version: int | str | None
    timestamp_ms: int
    marked: bool
    """The flag, or the tombstone header."""

    @property
    def headers(self) -> Headers:
        found: list[tuple[str, bytes | None]] = [("v", b"\x7f" * 8)] if self.version == "malformed" else []
        if isinstance(self.version, int):
            found.append(("v", encode_version(self.version, "long")))
        elif self.version is not None:
            found.append(("v", b"abc"))
        if self.marked:
            found.append(("gone", b"1"))
        return tuple(found)

    def record(self, offset: int, rules: TopicRules, partition: int = 0) -> ConsumedRecord:
        return ConsumedRecord(
            "t", partition, offset, self.timestamp_ms, self.key, self.value, self.headers, rules, flagged=self.marked
        )


WRITES = st.builds(
    Write,
    key=st.sampled_from(KEYS),
    value=st.sampled_from((b"1", b"2", b"", None)),
    version=st.sampled_from(VERSIONS),
    timestamp_ms=st.integers(-1, 3),
    marked=st.booleans(),
)


def rules_of(strategy: Strategy, tombstones: TombstoneMode) -> TopicRules:
    return TopicRules(strategy, "v", "long", tombstones, "gone")


def left_of(writes: Mapping[int, Write], strategy: str, tombstones: str) -> dict[bytes, tuple[int, bool]]:
    """The offset of the retained record by key, and whether it deletes, following the requirements alone."""
    winners: dict[bytes, tuple[tuple[object, ...], int, bool]] = {}
    for offset, write in sorted(writes.items()):
        if write.key is None:
            continue
        place: tuple[object, ...] = ()
        if strategy == "timestamp":
            place = (write.timestamp_ms,)
        elif strategy == "header":
            place = (1, write.version) if isinstance(write.version, int) else (0, 0)
        deletes = {
            "null": write.value is None,
            "flag": write.marked,
            "header": write.value is None or write.marked,
        }[tombstones]
        held = winners.get(write.key)
        if held is None or place >= held[0]:
            winners[write.key] = (place, offset, deletes)
    return {key: (offset, deletes) for key, (_, offset, deletes) in winners.items()}


class ListSource:
    """A topic of one partition in a list. Records below ``log_start`` are deleted; ``end`` grows with every read."""

    def __init__(self, writes: Sequence[Write], rules: TopicRules, ends: Sequence[int]) -> None:
        self.log_start = 0
        self.rounds = 0
        self._writes, self._rules, self._ends, self._position, self._end = writes, rules, list(ends), 0, 0

    def begin(self) -> Mapping[int, ReadingStart]:
        self._end = self._ends.pop(0)
        first, self.rounds = self.rounds == 0, self.rounds + 1
        self._position = max(self._position, self.log_start)
        return {0: ReadingStart(self.log_start, again=first)}

    def reread(self, partition: int) -> None:  # noqa: ARG002
        self._position = self.log_start

    def records(self, timeout_s: float) -> Iterator[ConsumedRecord]:  # noqa: ARG002
        while self._position < self._end:
            self._position += 1
            yield self._writes[self._position - 1].record(self._position - 1, self._rules)

    def close(self) -> None: ...


def batch_of(writes: list[Write], base: int, codec: int, tombstones: str) -> bytes:
    records = [
        Record(
            write.key,
            write.value,
            write.timestamp_ms,
            headers=tuple((name.encode(), value) for name, value in write.headers),
            attributes=0x20 if write.marked and tombstones == "flag" else 0,
        )
        for write in writes
    ]
    return encode_batch(records, base_offset=base, codec=codec)
