"""Racing producers: versioned updates reach a topic out of order, and a dict has the expected winners.

The versions follow the order at the source. Some updates are delayed, some are repeated with the same version, and an
old program writes some without a version.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cleanerd.client.producer import Producer
from cleanerd_lab.demo.broker import BrokerError
from cleanerd_lab.demo.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cleanerd.client.delivery import Delivery
    from cleanerd.client.rules import TopicRules

RACERS: Final = 3
UPDATES_A_KEY: Final = 12
DELETE_SHARE: Final = 0.05
LATE_SHARE: Final = 0.1
LATE_BY: Final = 0.2
"""The longest delay of a late update, as a share of all updates."""
REWRITE_SHARE: Final = 0.03
"""The share of updates with the version of the key's previous update: of equal versions, the higher offset wins."""
UNVERSIONED_SHARE: Final = 0.02
LATE_WRITE_SHARE: Final = 0.1
"""The share of the keys that get an old version after the cleaning."""

LOWEST_VERSION: Final = 1
SEGMENT_MS: Final = 10 * 60_000
_POLL_EVERY: Final = 100


@dataclass(frozen=True, slots=True)
class RecordTimes:
    """Timestamps relative to now: of the first record, the span of the others, and of the last one.

    All are in the past, as brokers require; the last one is more than ``SEGMENT_MS`` after the others, so that it
    begins a new segment. The active segment is never cleaned, so this record has its own key.
    """

    start_ms: int
    span_ms: int
    roll_ms: int
    roll_key: bytes


THE_RACE: Final = RecordTimes(-12 * SEGMENT_MS, 6 * SEGMENT_MS, -4 * SEGMENT_MS, b"first roll")
LATER: Final = RecordTimes(-3 * SEGMENT_MS, 0, 0, b"second roll")


@dataclass(frozen=True, slots=True)
class RaceUpdate:
    """A record to write: ``version`` None: without the header; ``value`` None: a delete."""

    key: bytes
    version: int | None
    value: bytes | None


@dataclass(slots=True)
class RaceResult:
    """The acknowledged records, by offset, and the model: plain dicts without any code of the cleaner."""

    records: dict[int, RaceUpdate] = field(default_factory=dict)

    def winners(self) -> dict[bytes, int]:
        """Each key's offset of the highest version; no version is lowest, of equal ones the last wins."""
        best: dict[bytes, tuple[bool, int, int]] = {}
        for offset, update in self.records.items():
            standing = (update.version is not None, update.version or 0, offset)
            if update.key not in best or standing > best[update.key]:
                best[update.key] = standing
        return {key: offset for key, (_, _, offset) in best.items()}

    def expected(self) -> dict[bytes, bytes | None]:
        """Each key's value at the highest version; None if that is a delete."""
        return {key: self.records[offset].value for key, offset in self.winners().items()}

    def last_values(self) -> dict[bytes, bytes | None]:
        """Each key's value at the highest offset, which Kafka retains."""
        return {update.key: update.value for _, update in sorted(self.records.items())}


@dataclass(frozen=True, slots=True)
class RaceFacts:
    """Statistics of the race.

    ``out_of_order``: below a version that its key already had; ``equal``: the same version.
    """

    records: int
    keys: int
    out_of_order: int
    equal: int
    without_version: int
    deletes: int
    deleted_keys: int


def facts(raced: RaceResult) -> RaceFacts:
    """The statistics of the log, in its own order."""
    highest: dict[bytes, int] = {}
    out_of_order = equal = 0
    for _, update in sorted(raced.records.items()):
        if update.version is None:
            continue
        before = highest.get(update.key)
        out_of_order += before is not None and update.version < before
        equal += update.version == before
        highest[update.key] = update.version if before is None else max(before, update.version)
    expected = raced.expected()
    return RaceFacts(
        records=len(raced.records),
        keys=len(expected),
        out_of_order=out_of_order,
        equal=equal,
        without_version=sum(update.version is None for update in raced.records.values()),
        deletes=sum(update.value is None for update in raced.records.values()),
        deleted_keys=sum(value is None for value in expected.values()),
    )


def updates(count: int, seed: int) -> list[RaceUpdate]:
    """``count`` updates in the order in which producers get them; deterministic for a seed."""
    source = random.Random(seed)  # noqa: S311 - the same traffic in every run, nothing secret
    keys = max(count // UPDATES_A_KEY, 1)
    last_version: dict[bytes, int] = {}
    placed: list[tuple[int, int, RaceUpdate]] = []
    for number in range(count):
        key = b"account-%06d" % source.randrange(keys)
        kind = source.random()
        version: int | None = number + LOWEST_VERSION
        if kind < UNVERSIONED_SHARE:
            version = None
        elif kind < UNVERSIONED_SHARE + REWRITE_SHARE:
            version = last_version.get(key, version)
        if version is not None:
            last_version[key] = version
        value = None if source.random() < DELETE_SHARE else _value(source, number)
        held_up = source.randrange(1, max(int(LATE_BY * count), 2)) if source.random() < LATE_SHARE else 0
        placed.append((number + held_up, number, RaceUpdate(key, version, value)))
    return [update for _, _, update in sorted(placed, key=lambda entry: entry[:2])]


def late_updates(raced: RaceResult, seed: int) -> list[RaceUpdate]:
    """Old versions for some keys, including deleted ones: each is below the winning version, so each must lose."""
    source = random.Random(seed)  # noqa: S311 - as above
    late = []
    for number, (key, offset) in enumerate(sorted(raced.winners().items())):
        version = raced.records[offset].version
        if version is not None and version > LOWEST_VERSION and source.random() < LATE_WRITE_SHARE:
            late.append(RaceUpdate(key, source.randrange(LOWEST_VERSION, version), b'{"late":%d}' % number))
    return late


def write(
    bootstrap: str, topic: str, rules: TopicRules, batch: Sequence[RaceUpdate], when: RecordTimes
) -> dict[int, RaceUpdate]:
    """Write updates with several producers at once, then one record that makes the broker begin a new segment.

    Returns the acknowledged records by offset.

    Raises:
        BrokerError: a record was not acknowledged.
    """
    config = {"bootstrap.servers": bootstrap, "linger.ms": 10, "batch.num.messages": 100, "log_level": 0}
    racers = [Producer(config, rules) for _ in range(RACERS)]
    # It does not support versions, so it writes none.
    old_program = Producer(config)
    everybody = (*racers, old_program)
    source = random.Random(len(batch))  # noqa: S311 - as above
    now_ms = time.time_ns() // 1_000_000
    acknowledged: dict[int, RaceUpdate] = {}
    for number, update in enumerate(batch):
        timestamp_ms = now_ms + when.start_ms + number * when.span_ms // len(batch)
        producer = old_program if update.version is None else source.choice(racers)
        _send(producer, topic, update, timestamp_ms, acknowledged)
        if number % _POLL_EVERY == 0:
            for each in everybody:
                each.poll()
    for each in everybody:
        each.flush(PATIENCE_SECONDS)
    _send(racers[0], topic, RaceUpdate(when.roll_key, LOWEST_VERSION, b""), now_ms + when.roll_ms, acknowledged)
    racers[0].flush(PATIENCE_SECONDS)
    if len(acknowledged) != len(batch) + 1:
        raise BrokerError(f"{len(batch) + 1 - len(acknowledged)} records of {topic} were not acknowledged")
    return acknowledged


def _send(
    producer: Producer, topic: str, update: RaceUpdate, timestamp_ms: int, acknowledged: dict[int, RaceUpdate]
) -> None:
    def report(delivery: Delivery) -> None:
        if delivery.error is None and delivery.offset is not None:
            acknowledged[delivery.offset] = update

    producer.produce(
        topic, update.key, update.value, version=update.version, timestamp_ms=timestamp_ms, on_delivery=report
    )


def _value(source: random.Random, number: int) -> bytes:
    return b'{"update":%d,"balance":%d,"owner":"%s"}' % (
        number,
        source.randrange(100_000),
        source.randbytes(40).hex().encode(),
    )
