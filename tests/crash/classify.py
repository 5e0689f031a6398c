"""Classifies a loaded directory: every group exactly old or exactly new, new ones first, with right indexes."""

from __future__ import annotations

import shutil
import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Protocol

from cleanerd.format.index import read_offset_index, read_time_index, read_txn_index
from cleanerd.format.names import parse_file_name
from tests.crash.scenario import NOW_MS, TOPIC_DIR, digest
from tests.crash.volume import State
from tests.kafka.judge import ToLoad

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tests.crash.volume import State
    from tests.kafka.judge import Judge, Loaded

_CHUNK = 400
_CONTROL = 0x20

STARTS = ("clean", "unclean, recovery point above", "unclean, recovery point 0")


class Swapped(Protocol):
    """A log with swapped groups, ascending: ``bases`` of the groups, ``active`` segment's base, log ``end``."""

    @property
    def bases(self) -> tuple[int, ...]: ...

    @property
    def active(self) -> int: ...

    @property
    def end(self) -> int: ...

    def log_files(self, swapped: Iterable[int]) -> dict[str, bytes]:
        """Segment files by name when the groups ``swapped`` are new and the others old."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """``swapped`` are the bases of new groups; ``problem`` is None if the state is right."""

    swapped: tuple[int, ...]
    problem: str | None


class Classifier:
    """Makes Kafka load states, and classifies the results."""

    def __init__(self, scenario: Swapped, judge: Judge, workspace: Path) -> None:
        self._scenario = scenario
        self._judge = judge
        self._workspace = workspace
        bases = scenario.bases
        self._known = {
            digest(scenario.log_files(swapped)): swapped
            for count in range(len(bases) + 1)
            for swapped in combinations(bases, count)
        }

    def judged(self, states: Iterable[State], start: str = "clean", *, twice: bool = False) -> Iterator[Verdict]:
        """Load every state and classify it.

        With ``twice`` it is loaded a second time first (idempotence of a start).
        """
        chunk: list[State] = []
        for state in states:
            chunk.append(state)
            if len(chunk) == _CHUNK:
                yield from self._load(chunk, start, twice=twice)
                chunk = []
        yield from self._load(chunk, start, twice=twice)

    def _load(self, states: list[State], start: str, *, twice: bool) -> Iterator[Verdict]:
        places = [self._workspace / str(number) / TOPIC_DIR for number in range(len(states))]
        for state, place in zip(states, places, strict=True):
            state.write(place)
        try:
            logs = [self._to_load(place, start) for place in places]
            loaded = self._judge.load(logs, now_ms=NOW_MS, config={"index.interval.bytes": "64"})
            if twice:
                loaded = self._judge.load(logs, now_ms=NOW_MS, config={"index.interval.bytes": "64"})
            for result, place in zip(loaded, places, strict=True):
                yield self.verdict(result, place, exact="recovery point 0" not in start)
        finally:
            for place in places:
                shutil.rmtree(place.parent)

    def _to_load(self, place: Path, start: str) -> ToLoad:
        if start == "clean":
            return ToLoad(str(place), clean_shutdown=True)
        point = self._scenario.active if start.endswith("above") else 0
        return ToLoad(str(place), clean_shutdown=False, recovery_point=point)

    def verdict(self, loaded: Loaded, place: Path, *, exact: bool) -> Verdict:
        """Classify a directory that Kafka has just loaded. ``exact``: its indexes must equal the written ones."""
        if loaded.error is not None:
            return Verdict((), f"not loaded: {loaded.error}: {loaded.message}")
        swapped = self._known.get(loaded.digest)
        if swapped is None:
            return Verdict((), f"neither old nor new: {sorted(name for name in loaded.files if '.log' in name)}")
        if swapped != self._scenario.bases[: len(swapped)]:
            return Verdict(swapped, f"new groups {swapped} are not a prefix")
        if loaded.log_end_offset != self._scenario.end:
            return Verdict(swapped, f"the log ends at {loaded.log_end_offset}")
        left = [name for name in loaded.files if name.endswith((".swap", ".cleaned", ".deleted"))]
        if left:
            return Verdict(swapped, f"left over: {left}")
        return Verdict(swapped, self.index_problem(place, swapped, exact=exact))

    def index_problem(self, place: Path, swapped: tuple[int, ...], *, exact: bool) -> str | None:
        """The problem of an index of a closed segment."""
        files = self._scenario.log_files(swapped)
        active = f"{self._scenario.active:020d}"
        for name, expected in files.items():
            if name.startswith(active) or name.endswith(".log"):
                continue
            path = place / name
            if not path.exists():
                return f"{name} is missing"
            content = path.read_bytes()
            if content == expected:
                continue
            if exact:
                return f"{name} differs from the written one"
            problem = _semantic_problem(name, content, expected, files)
            if problem:
                return problem
        strange = {path.name for path in place.glob("*.txnindex")} - files.keys()
        return f"unexpected {strange}" if strange else None


def _hides_the_same(
    rebuilt: list[tuple[int, int, int]], written: list[tuple[int, int, int]], files: dict[str, bytes]
) -> bool:
    """A rebuilt index lacks a transaction whose records are all gone: there is nothing to hide.

    If a transaction's first records are gone, its entry begins with the remaining ones.
    """
    found = {last: (producer, first) for producer, first, last in rebuilt}
    for producer, first, last in written:
        owner, begins = found.pop(last, (producer, last + 1))
        if owner != producer or begins < first or (begins > first and _has_records(files, producer, first, begins - 1)):
            return False
    return not found and rebuilt == sorted(rebuilt, key=lambda entry: entry[2])


def _semantic_problem(name: str, content: bytes, expected: bytes, files: dict[str, bytes]) -> str | None:
    """A rebuilt index may have other entries; each must be right."""
    base, suffix = parse_file_name(name) or (0, "")
    batches = _batches(files[f"{base:020d}.log"])
    if suffix == ".txnindex":
        columns = ["producer_id", "first_offset", "last_offset"]
        rebuilt, written = read_txn_index(content)[columns].tolist(), read_txn_index(expected)[columns].tolist()
        return None if _hides_the_same(rebuilt, written, files) else f"{name} lists other transactions"
    if suffix == ".index":
        ends = {position: last for position, last, _ in batches}
        for offset, position in read_offset_index(content).tolist():
            if ends.get(position) != base + offset:
                return f"{name}: {base + offset} is not the batch at {position}"
        return None
    for timestamp, offset in read_time_index(content).tolist():
        before = [time for _, last, time in batches if last <= base + offset]
        if max(before, default=-1) != timestamp:
            return f"{name}: {timestamp} is not the largest time up to {base + offset}"
    return None


def _has_records(files: dict[str, bytes], producer: int, first: int, last: int) -> bool:
    """Whether data of the producer is left between the offsets."""
    for name, log in files.items():
        for position, end, _ in _batches(log) if name.endswith(".log") else ():
            attributes, of = (
                struct.unpack_from(">h", log, position + 21)[0],
                struct.unpack_from(">q", log, position + 43),
            )
            if of == (producer,) and first <= end <= last and not attributes & _CONTROL:
                return True
    return False


def _batches(log: bytes) -> list[tuple[int, int, int]]:
    """Position, last offset and largest timestamp of every v2 batch."""
    found = []
    position = 0
    while position < len(log):
        base, length = struct.unpack_from(">qi", log, position)
        (delta,) = struct.unpack_from(">i", log, position + 23)
        (largest,) = struct.unpack_from(">q", log, position + 35)
        found.append((position, base + delta, largest))
        position += length + 12
    return found


def swapped_groups(states: Iterable[State], verdicts: Iterable[Verdict]) -> Counter[tuple[int, ...]]:
    """Counts of the sets of new groups; fails on the first state that is neither."""
    seen: Counter[tuple[int, ...]] = Counter()
    for state, verdict in zip(states, verdicts, strict=True):
        assert verdict.problem is None, f"{verdict.problem}\nfrom {sorted(state.files)}"
        seen[verdict.swapped] += 1
    return seen
