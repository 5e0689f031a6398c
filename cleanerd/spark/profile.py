"""What is in a log, key by key: how many there are, what they weigh, what a cleaning would do and need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cleanerd.spark.audit import new_digest_key
from cleanerd.spark.header_walk import walk_headers
from cleanerd.spark.logs import size_of_all, work_on
from cleanerd.spark.record_scan import COLUMNS, FACTS, SCHEMA, Fact, place_of, scan
from cleanerd.spark.spread import nobody, queries, spread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

    from cleanerd.format.names import TopicPartition
    from cleanerd.spark.logs import Log

SHARES: Final = (0.5, 0.9, 0.99)
"""Of the keys, at which records and bytes a key are told, besides the largest."""

_KEYS: Final = """
SELECT part, counts,
    count(*) AS records,
    sum(size) AS bytes,
    max(CASE WHEN counts THEN named_struct('has_version', flags & {HAS_VERSION} != 0, 'version', version,
        'offset', offset, 'size', size, 'is_tombstone', flags & {TOMBSTONE} != 0) END) AS winner,
    count_if(counts AND flags & {HAS_VERSION} = 0) AS unversioned,
    count_if(counts AND flags & {BAD_VERSION} != 0) AS misversioned,
    count_if(counts AND flags & {TOMBSTONE} != 0) AS tombstones,
    count_if(flags & {SEALED} = 0) AS active,
    count_if(flags & {SEALED} != 0 AND flags & {VISIBLE} = 0) AS unseen,
    sum(CASE WHEN flags & {SEALED} != 0 AND flags & ({VISIBLE} | {OPEN}) = 0 THEN size ELSE 0 END) AS unseen_bytes,
    count_if(flags & {SEALED} != 0 AND flags & {VISIBLE} != 0 AND flags & {HAS_KEY} = 0) AS keyless,
    sum(CASE WHEN flags & {SEALED} != 0 AND flags & {VISIBLE} != 0 AND flags & {HAS_KEY} = 0 THEN size ELSE 0 END)
        AS keyless_bytes,
    sum(CASE WHEN flags & {SEALED} != 0 THEN size ELSE 0 END) AS sealed_bytes,
    count_if(flags & {SEALED} != 0) AS sealed
FROM (SELECT *, flags & {COUNTS} = {COUNTS} AS counts FROM {records} WHERE flags & {DAMAGED} = 0)
GROUP BY part, counts, CASE WHEN counts THEN key_high ELSE offset % 64 END, CASE WHEN counts THEN key_low ELSE 0L END
"""
"""A row a key; what does not compete is dealt out evenly."""

_PARTS: Final = """
SELECT part,
    sum(sealed) AS records, sum(sealed_bytes) AS bytes, sum(active) AS active, sum(unseen) AS unseen,
    sum(unseen_bytes) AS unseen_bytes, sum(keyless) AS keyless, sum(keyless_bytes) AS keyless_bytes,
    count_if(counts) AS keys,
    sum(CASE WHEN counts THEN records END) AS keyed,
    sum(CASE WHEN counts THEN records - 1 END) AS superseded,
    sum(CASE WHEN counts THEN bytes - winner.size END) AS superseded_bytes,
    sum(tombstones) AS tombstones,
    count_if(winner.is_tombstone) AS deleted_keys,
    sum(unversioned) AS unversioned, sum(misversioned) AS misversioned,
    percentile_approx(CASE WHEN counts THEN records END, array(0.5, 0.9, 0.99)) AS records_shares,
    max(CASE WHEN counts THEN records END) AS most_records,
    percentile_approx(CASE WHEN counts THEN bytes END, array(0.5, 0.9, 0.99)) AS bytes_shares,
    max(CASE WHEN counts THEN bytes END) AS most_bytes,
    max(CASE WHEN counts THEN named_struct('records', records, 'offset', winner.offset) END).offset AS hottest
FROM {keys}
GROUP BY part
"""


@dataclass(frozen=True, slots=True)
class Profile:
    """One partition. All but ``active`` is about the segments below the active one, and what readers see of them.

    ``bytes`` are those of records, unpacked; ``stored_bytes`` those of the segments. ``records_a_key`` and
    ``bytes_a_key`` are the values at SHARES of the keys, and the largest. ``unseen``: aborted, open, below log start.
    ``hottest_offset``: where the newest record of the key with most records lies, None without keys.
    """

    name: TopicPartition
    strategy: str
    segments: int
    stored_bytes: int
    records: int
    bytes: int
    active: int
    unseen: int
    keyless: int
    keys: int
    superseded: int
    superseded_bytes: int
    tombstones: int
    deleted_keys: int
    unversioned: int
    misversioned: int
    records_a_key: tuple[int, ...]
    bytes_a_key: tuple[int, ...]
    hottest_offset: int | None
    saved_bytes: int
    damaged: tuple[str, ...]

    @property
    def superseded_share(self) -> float:
        """Of the records with a key."""
        return self.superseded / (self.keys + self.superseded) if self.keys else 0.0


def profile_logs(session: SparkSession, logs: Sequence[Log], advance: Callable[[int], None] = nobody) -> list[Profile]:
    """Profile each of ``logs``.

    Raises:
        CleanerdError: a file cannot be read.
    """
    counts = int(Fact.SEALED | Fact.VISIBLE | Fact.HAS_KEY)
    with queries(session, size_of_all(logs), advance):
        walks = walk_headers(session, [log.segments for log in logs])
        _, items = work_on(logs, walks, new_digest_key())
        records = spread(session, items, scan, SCHEMA, COLUMNS)
        keys = session.sql(_KEYS, records=records, COUNTS=counts, **FACTS)
        found = {row.part: row.asDict() for row in session.sql(_PARTS, keys=keys).collect()}
    return [
        _profile(log, found.get(part), tuple(walked.damaged))
        for part, (log, walked) in enumerate(zip(logs, walks, strict=True))
    ]


def _profile(log: Log, row: dict[str, object] | None, damaged: tuple[str, ...]) -> Profile:
    def number(name: str) -> int:
        value = None if row is None else row[name]
        return int(value) if isinstance(value, int) else 0

    def shares(name: str, most: str) -> tuple[int, ...]:
        values = None if row is None else row[name]
        return (*values, number(most)) if isinstance(values, list) else (0,) * (len(SHARES) + 1)

    unpacked = number("bytes")
    gone = number("superseded_bytes") + number("unseen_bytes") + number("keyless_bytes")
    offset = None if row is None else row["hottest"]
    return Profile(
        name=log.name,
        strategy=log.rules.strategy,
        segments=len(log.segments),
        stored_bytes=log.sealed_bytes,
        records=number("records"),
        bytes=unpacked,
        active=number("active"),
        unseen=number("unseen"),
        keyless=number("keyless"),
        keys=number("keys"),
        superseded=number("superseded"),
        superseded_bytes=number("superseded_bytes"),
        tombstones=number("tombstones"),
        deleted_keys=number("deleted_keys"),
        unversioned=number("unversioned"),
        misversioned=number("misversioned"),
        records_a_key=shares("records_shares", "most_records"),
        bytes_a_key=shares("bytes_shares", "most_bytes"),
        hottest_offset=offset if isinstance(offset, int) and place_of(offset) is None else None,
        # As compressed as everything else in the segments.
        saved_bytes=log.sealed_bytes * gone // unpacked if unpacked else 0,
        damaged=damaged,
    )


def map_bytes(keys: int, *, versioned: bool, load: float) -> int:
    """Memory of an offset map that holds ``keys`` (U-19): 16 bytes an entry, and a version with its bit."""
    return int(keys * (16 + (8.125 if versioned else 0)) / load) + 1
