"""Observations of every step of the lifecycle: facts without assertions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.brokers.ledger import Dropped, Partition, Record
    from tests.brokers.node import Run
    from tests.brokers.readers import Answers, Reading, Times

    Files = dict[Partition, dict[str, tuple[object, ...]]]
    Sequences = tuple[tuple[int, int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Uncleaned:
    """After writing, before any cleaning."""

    reading: Reading
    expected: Mapping[Partition, tuple[Record, ...]]


@dataclass(frozen=True, slots=True)
class Control:
    """Stopped and started without cleaning, and stopped again."""

    complaints: frozenset[str]


@dataclass(frozen=True, slots=True)
class Cleaning:
    """A ``clean``: the files before and after, and the records that the model removes.

    ``ends`` are the expected limits.
    """

    run: Run
    before: Files
    after: Files
    ends: Mapping[Partition, int]
    dropped: Mapping[Partition, Dropped]
    checkpoint: Mapping[Partition, int]
    idle: Sequences


@dataclass(frozen=True, slots=True)
class Seen:
    """Observations by clients and in the broker's log after a start, and the expected ones.

    ``expected_times`` comes from the records, ``searched`` from Kafka's search applied to the files. ``producer_ids``
    are (id, epoch) by writer over all partitions, ``sequences`` those of ``rd-idle``'s batches in its partitions,
    ``problems`` any errors of producers.
    """

    log_text: str
    complaints: frozenset[str]
    expected: Mapping[Partition, tuple[Record, ...]]
    readings: Mapping[str, Reading]
    requested: Times
    expected_times: Answers
    searched: Answers
    times: Mapping[str, Answers]
    sequences: Sequences
    producer_ids: Mapping[str, frozenset[tuple[int, int]]]
    problems: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Beside:
    """The broker runs; cleanerd was tried beside it."""

    young: Run
    plan: Run
    refused: Run
    before: Files
    after: Files


@dataclass(frozen=True, slots=True)
class Crash:
    """Killed; ``skipped`` is the clean without ``--unclean``, ``recovery_points`` those on disk."""

    skipped: Run
    skipped_changed: bool
    recovery_points: Mapping[Partition, int]
    cleaning: Cleaning


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Kafka's own cleaner continued from cleanerd's checkpoint."""

    started_at: Mapping[Partition, int]
    ended_at: Mapping[Partition, int]
    log_text: str
    seen: Seen
