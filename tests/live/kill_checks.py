"""Checks after a kill around a live swap, read from the disk and from consumers by independent code."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from cleanerd.cleaner.manifest import STAGING
from tests.brokers.node import names_ending
from tests.live.kill_writers import PLAIN, number_of
from tests.live.ledger import Place
from tests.support.log_dirs import CLEANER_CHECKPOINT, read_checkpoint
from tests.support.patience import PATIENCE_SECONDS
from tests.torture.loader_rules import Segments, as_loaded, records

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd_lab.demo.broker import Broker
    from tests.live.kill_writers import Writers
    from tests.live.load import Load

Records = list[tuple[int, bytes | None, bytes | None, int]]
ISOLATION: Final = ("read_uncommitted", "read_committed")
_SWAP_FILES: Final = (".swap", ".cleaned")
_TEMPORARY: Final = (".tmp", ".damaged")


@dataclass(frozen=True, slots=True)
class Requested:
    """A swap request: the records of its group before and after, by the files on the disk at that time."""

    directory: Path
    plan: str
    base: int
    end: int
    old: Records
    new: Records

    @classmethod
    def of(cls, request: dict[str, Any], directory: Path) -> Requested | None:
        """None if it repeats a request that was carried out."""
        (group,) = request["groups"]
        staged = directory / STAGING / request["plan"] / group["files"]["log"]
        try:
            new = records({group["base"]: {"log": staged.read_bytes()}})
            sources = {each["base"]: (directory / f"{each['base']:020d}.log").read_bytes() for each in group["sources"]}
        except FileNotFoundError:
            return None
        old = records({base: {"log": data} for base, data in sources.items()})
        return cls(directory, request["plan"], group["base"], group["end"], old, new)

    def is_on_the_disk(self) -> bool:
        """Whether its files wait for the swap, or some have their new names already."""
        staged = any((self.directory / STAGING / self.plan).glob("*.log"))
        return staged or any(path.name.endswith(_SWAP_FILES) for path in self.directory.iterdir())

    def outcome(self) -> str | None:
        """``old`` or ``new``; None for a mixture (K-1 .. K-8)."""
        found = [each for each in records(now_loaded(self.directory)) if self.base <= each[0] < self.end]
        if found == self.new:
            return "new"
        return "old" if found == self.old else None


def now_loaded(directory: Path) -> Segments:
    """What a broker start would load from the directory at this moment, even while a broker is running."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            before = sorted((each.name, each.stat().st_ino) for each in directory.iterdir())
            found = as_loaded(directory)
            after = sorted((each.name, each.stat().st_ino) for each in directory.iterdir())
        except FileNotFoundError:
            continue
        if before == after:
            return found
    raise AssertionError(f"{directory} never stops changing")


def checkpoints(log_dir: Path, state: Path) -> list[tuple[str, str, int]]:
    """First dirty offsets by checkpoint and partition: Kafka's checkpoint and cleanerd's state files."""
    checkpoint = log_dir / CLEANER_CHECKPOINT
    found = [("Kafka's", name, at) for name, at in (read_checkpoint(checkpoint) if checkpoint.exists() else {}).items()]
    for path in state.glob("partitions/*/*.json"):
        document = json.loads(path.read_text())
        if document["cleanerd_checkpoint"] is not None:
            name = f"{document['topic']}-{document['partition']}"
            found.append(("our", name, document["cleanerd_checkpoint"]["offset"]))
    return found


def too_high(log_dir: Path, state: Path, writers: Writers) -> list[str]:
    """Checkpoints that are too high: below one, each key is unique and no aborted record exists."""
    wrong: list[str] = []
    points = checkpoints(log_dir, state)
    loaded = {name: records(now_loaded(log_dir / name)) for name in {name for _, name, _ in points}}
    for whose, name, point in points:
        topic, _, partition = name.rpartition("-")
        open_from = writers.open_from(Place(topic, int(partition)))
        if open_from is not None and point > open_from:
            wrong.append(f"{whose} checkpoint {point} of {name}: a transaction is open from {open_from}")
        below = [each for each in loaded[name] if each[0] < point]
        keys = [key for _, key, _, _ in below]
        if len(set(keys)) < len(keys):
            twice = sorted({key for key in keys if keys.count(key) > 1}, key=repr)
            wrong.append(f"{whose} checkpoint {point} of {name} is too high: duplicate keys below it: {twice[:5]}")
        doomed = [at for at, _, value, _ in below if number_of(value) in writers.doomed]
        if doomed:
            wrong.append(f"{whose} checkpoint {point} of {name} is too high: aborted records at {doomed[:5]}")
    return wrong


@dataclass
class Readers:
    """Consumers of both isolation levels that read from the start repeatedly, and their previous results."""

    load: Load
    writers: Writers
    reads: int = 0
    _seen: dict[tuple[str, Place], set[int]] = field(default_factory=dict)
    _up_to: dict[tuple[str, Place], int] = field(default_factory=dict)

    def read(self) -> list[str]:
        """Problems found: a record lost, back, twice, out of order, or of a transaction that did not commit."""
        wrong: list[str] = []
        for isolation in ISOLATION:
            found = self.load.read_all(isolation)
            self.reads += 1
            for place, each in found.items():
                wrong += [f"{isolation}: {place}: {reported}" for reported in self._problems_of(isolation, place, each)]
            if isolation == ISOLATION[0]:
                wrong += self._placed(found)
                self._forget(found)
        wrong += self.load.ledger.problems
        return wrong

    def _problems_of(self, isolation: str, place: Place, found: dict[int, tuple[bytes, bytes | None]]) -> list[str]:
        wrong = []
        # A plain producer may write a batch a second time: the offset in its acknowledgement is the valid one.
        counted = self.load.ledger.places(place) if place.topic == PLAIN.topic else found
        numbers = {at: number for at, (_, value) in found.items() if (number := number_of(value)) is not None}
        acknowledged = [(at, number) for at, number in numbers.items() if at in counted]
        disorder = [(former, later) for former, later in pairwise(acknowledged) if later[1] <= former[1]]
        if disorder:
            wrong.append(f"twice, or out of order: offset and number {disorder[:3]}")
        if isolation == "read_committed" and self.writers.doomed.intersection(numbers.values()):
            wrong.append(f"aborted: {sorted(self.writers.doomed.intersection(numbers.values()))[:5]}")
        which, last = (isolation, place), max(found, default=-1)
        seen, up_to = self._seen.get(which, set()), self._up_to.get(which, -1)
        back = [offset for offset in found if offset <= up_to and offset not in seen]
        if back:
            wrong.append(f"back: {back[:5]}")
        # An open transaction may end this read earlier than the previous one.
        self._seen[which] = set(found) | {offset for offset in seen if offset > last}
        self._up_to[which] = max(up_to, last)
        return wrong

    def _placed(self, found: dict[Place, dict[int, tuple[bytes, bytes | None]]]) -> list[str]:
        """Records that were acknowledged without an offset must exist, too."""
        places = {place: {value: at for at, (_, value) in each.items()} for place, each in found.items()}
        wrong = []
        for place, record in self.writers.unplaced:
            if record.value is None:
                continue
            at = places[place].get(record.value)
            if at is None:
                wrong.append(f"{place}: acknowledged, and not there: {record.key!r} {record.value[:12]!r}")
            else:
                self.load.ledger.add(place, at, record)
        self.writers.unplaced.clear()
        return wrong

    def _forget(self, found: dict[Place, dict[int, tuple[bytes, bytes | None]]]) -> None:
        """Forget removed records: they need no lookup, and their offset shows whether they come back."""
        for place, each in found.items():
            self.load.ledger.forget(place, max(each, default=-1), each.keys())


def leftovers(broker: Broker) -> list[str]:
    """Files that an interrupted swap could leave."""
    return names_ending(broker.log_dirs, STAGING, *_SWAP_FILES)


def left_behind(broker: Broker, state: Path) -> list[str]:
    """Files left by interrupted swaps, completed swaps and other work: none may remain at the end."""
    markers = [str(path) for path in (state / "in-progress").rglob("*") if path.is_file()]
    return [
        *leftovers(broker),
        *names_ending(broker.log_dirs, ".deleted"),
        *markers,
        *names_ending([state], *_TEMPORARY),
    ]
