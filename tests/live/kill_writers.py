"""Producers of three kinds that survive kills of their broker, and the records that consumers must then find."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from tests.live.ledger import Place, Written
from tests.live.load import ABORTED_SHARE, Writing, drop_pending
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    import random

    from tests.live.load import Load

PLAIN: Final = Writing("plain", "plain", "lz4")
IDEMPOTENT: Final = Writing("idempotent", "idempotent", "snappy")
TRANSACTIONAL: Final = Writing("transactional", "transactional", "zstd")
WRITTEN: Final = (PLAIN, IDEMPOTENT, TRANSACTIONAL)
KEYS: Final = 60
TOMBSTONES: Final = 0.05
RECORDS: Final = 300
"""Per partition between two kills, at least."""
PLAIN_BATCH: Final = 10
"""A retry keeps the order of a plain producer only if no other batch is ready, whatever ``max.in.flight`` is."""
A_TRANSACTION: Final = 60
LEFT_OPEN: Final = 20
FATES: Final = ("committed", "aborted", "fenced")
_SILENT: Final = logging.getLogger("tests.live.kill_writers")
"""Suppress messages about an absent broker or a fenced producer."""
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False
_SILENT.setLevel(logging.CRITICAL + 1)
_FENCED: Final = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})


@dataclass
class _Transaction:
    """An open transaction: its acknowledged records, its failed ones, and all numbers sent."""

    acknowledged: list[tuple[Place, int, Written]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    numbers: set[int] = field(default_factory=set)
    first: dict[Place, int] = field(default_factory=dict)


class Writers:
    """One producer of every kind; values carry a number that ascends per partition and is used once.

    ``doomed``: numbers of aborted and fenced transactions. ``unplaced``: records acknowledged without an offset, as for
    a retry of a batch that the broker had already stored.
    """

    def __init__(self, load: Load, dice: random.Random) -> None:
        self._load = load
        self.dice = dice
        self.doomed: set[int] = set()
        self.unplaced: list[tuple[Place, Written]] = []
        self.ended = dict.fromkeys(FATES, 0)
        self._number = 0
        self._open: _Transaction | None = None
        self._plain, self._idempotent = self._producer(PLAIN), self._producer(IDEMPOTENT)
        self._transactional = self._transactional_producer()

    def _producer(self, writing: Writing) -> Producer:
        def on_error(error: KafkaError) -> None:
            if error.code() not in _FENCED:
                self._load.on_error(error)

        servers = {"bootstrap.servers": self._load.broker.bootstrap, "error_cb": on_error}
        own: dict[str, Any] = {"reconnect.backoff.max.ms": 500}  # retry soon after the broker starts
        if writing is PLAIN:
            own["linger.ms"] = 1000  # `write` sends a batch by a flush
        return Producer({**servers, **writing.properties(), **own}, logger=_SILENT)

    def _transactional_producer(self) -> Producer:
        """A new transactional producer; it ends and fences the previous one's open transaction."""
        producer = self._producer(TRANSACTIONAL)
        producer.init_transactions(PATIENCE_SECONDS)
        return producer

    def write(self, records: int = RECORDS) -> None:
        """Write ``count`` records to each partition, all acknowledged.

        Some transactions are aborted, one may stay open. A transaction left open ends first, so that an idle daemon
        gets work before its kill.
        """
        self.settle()
        partitions = self._load.partitions
        for producer, writing in ((self._plain, PLAIN), (self._idempotent, IDEMPOTENT)):
            for each in range(records * partitions):
                self._send(producer, Place(writing.topic, each % partitions))
                if writing is PLAIN and each % (PLAIN_BATCH * partitions) == PLAIN_BATCH * partitions - 1:
                    producer.flush(PATIENCE_SECONDS)
        for _ in range(records * partitions // A_TRANSACTION):
            self._begin(A_TRANSACTION)
            self._end("aborted" if self.dice.random() < ABORTED_SHARE else "committed")
        if self.dice.random() < 0.5:
            self._begin(LEFT_OPEN)
        self.flush()

    def in_flight(self) -> None:
        """Send records without waiting, by the idempotent producer and in the open transaction."""
        for each in range(20):
            self._send(self._idempotent, Place(IDEMPOTENT.topic, each % self._load.partitions))
            if self._open is not None:
                self._send_in(self._open, each)
        self._idempotent.poll(0)

    def flush(self) -> None:
        """Wait until every record outside of the open transaction is acknowledged."""
        for producer in (self._plain, self._idempotent):
            if producer.flush(PATIENCE_SECONDS):
                self._load.ledger.complain("a producer could not send its records")

    def settle(self) -> None:
        """Flush everything and end the open transaction in one of three ways."""
        self.flush()
        if self._open is not None:
            self._end(self.dice.choice(FATES))

    def open_from(self, place: Place) -> int | None:
        """First acknowledged offset of the open transaction in a partition."""
        return None if self._open is None else self._open.first.get(place)

    def _begin(self, records: int) -> None:
        self._transactional.begin_transaction()
        self._open = _Transaction()
        for each in range(records):
            self._send_in(self._open, each)
        self._load.flush(self._transactional, self._open.failed)

    def _end(self, fate: str) -> None:
        """``fenced``: a new producer of the same id takes over, and the old transaction must not commit."""
        transaction = self._open
        assert transaction is not None
        if fate == "fenced":
            former, self._transactional = self._transactional, self._transactional_producer()
            try:
                former.commit_transaction(PATIENCE_SECONDS)
            except KafkaException as error:
                if error.args[0].code() not in _FENCED:
                    self._load.ledger.complain(f"fenced, and got {error}")
            else:
                self._load.ledger.complain("a producer that was fenced could commit")
            drop_pending(former)
            aborted = True
        elif not self._load.flush(self._transactional, transaction.failed):
            former, self._transactional = self._transactional, self._transactional_producer()
            drop_pending(former)
            fate, aborted = "aborted", True
        else:
            aborted = self._load.end(self._transactional, aborted=fate == "aborted" or bool(transaction.failed))
            fate = "aborted" if aborted else "committed"
            if transaction.failed and not aborted:
                self._load.ledger.complain(f"committed without some of its records: {transaction.failed[:3]}")
        if aborted:
            self.doomed |= transaction.numbers
        for place, offset, record in transaction.acknowledged:
            if offset >= 0:
                self._load.ledger.add(place, offset, record, aborted=aborted)
            elif not aborted:
                self.unplaced.append((place, record))
        self._open = None
        self.ended[fate] += 1

    def _send_in(self, transaction: _Transaction, number: int) -> None:
        place = Place(TRANSACTIONAL.topic, number % self._load.partitions)
        transaction.numbers.add(self._number)

        def acknowledged(offset: int, record: Written) -> None:
            transaction.acknowledged.append((place, offset, record))
            if offset >= 0:
                transaction.first[place] = min(offset, transaction.first.get(place, offset))

        self._send(self._transactional, place, acknowledged, transaction.failed.append)

    def _send(self, producer: Producer, place: Place, acknowledged: Any = None, complain: Any = None) -> None:
        """Every so often a tombstone; a value begins with its number."""
        key = b"k%d" % self.dice.randrange(KEYS)
        value = None if self.dice.random() < TOMBSTONES else b"%d:" % self._number + os.urandom(60).hex().encode()
        self._number += 1

        def delivered(error: KafkaError | None, message: Any) -> None:
            if error is not None:
                (complain or self._load.ledger.complain)(f"not delivered: {error}")
                return
            # None: a retry of a batch whose offset the broker no longer knows
            offset = -1 if message.offset() is None else message.offset()
            record = Written(key, value, message.timestamp()[1])
            if acknowledged is not None:
                acknowledged(offset, record)
            elif offset >= 0:
                self._load.ledger.add(place, offset, record)
            else:
                self.unplaced.append((place, record))

        producer.produce(place.topic, key=key, value=value, partition=place.partition, on_delivery=delivered)


def number_of(value: bytes | None) -> int | None:
    """The number at the beginning of a value; None for a tombstone."""
    return None if value is None else int(value.partition(b":")[0])
