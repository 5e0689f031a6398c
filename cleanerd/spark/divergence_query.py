"""What two replicas disagree about, as one SQL query; it shares no line with what cleans, as that of an audit.

A record is BELOW when the other replica was cleaned up to there, so that it may be gone from it; VISIBLE only within
what both have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cleanerd.spark.audit_query import BY_OFFSET
from cleanerd.spark.record_scan import FACTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOTAL: Final = "total"

_COMPARED: Final = """
SELECT *,
    coalesce(b_flags, a_flags) & {HAS_KEY} != 0 AS keyed,
    coalesce(b_key_high, a_key_high) AS key_high, coalesce(b_key_low, a_key_low) AS key_low,
    coalesce(b_flags & {VISIBLE} != 0, false) AS in_one, coalesce(a_flags & {VISIBLE} != 0, false) AS in_other,
    befores > 0 AS one_stores, afters > 0 AS other_stores,
    coalesce(b_flags, a_flags) & {DAMAGED} != 0 AS is_damaged,
    coalesce(b_high != a_high OR b_low != a_low, false) AS is_altered,
    coalesce(b_attributes != a_attributes, false) AS has_other_attributes,
    coalesce((a_attributes = 0 OR b_attributes = 0) AND b_flags & {ATTRIBUTES} = 0, false) AS may_lose_attributes
FROM {offsets}
"""

_BY_KEY: Final = """
SELECT part,
    max(CASE WHEN in_one AND keyed THEN named_struct(
        'rank', named_struct('has_version', b_flags & {HAS_VERSION} != 0, 'version', b_version, 'offset', offset),
        'is_stored', other_stores, 'may_be_gone', b_flags & {BELOW} != 0,
        'is_tombstone', b_flags & {TOMBSTONE} != 0) END) AS one,
    max(CASE WHEN in_other AND keyed THEN named_struct(
        'rank', named_struct('has_version', a_flags & {HAS_VERSION} != 0, 'version', a_version, 'offset', offset),
        'is_stored', one_stores, 'may_be_gone', a_flags & {BELOW} != 0,
        'is_tombstone', a_flags & {TOMBSTONE} != 0) END) AS other,
    count_if(in_one AND in_other AND NOT is_damaged) AS same,
    count_if(in_one AND NOT other_stores AND b_flags & {BELOW} != 0)
        + count_if(in_other AND NOT one_stores AND a_flags & {BELOW} != 0) AS cleaned,
    count_if(in_one AND in_other AND has_other_attributes AND may_lose_attributes AND NOT is_altered) AS zeroed,
    count_if(in_one AND in_other AND (is_altered OR (has_other_attributes AND NOT may_lose_attributes))) AS altered,
    min(CASE WHEN in_one AND in_other AND (is_altered OR (has_other_attributes AND NOT may_lose_attributes))
        THEN offset END) AS altered_at,
    count_if((in_one AND NOT other_stores AND b_flags & {BELOW} = 0)
        OR (in_other AND NOT one_stores AND a_flags & {BELOW} = 0)) AS missing,
    min(CASE WHEN (in_one AND NOT other_stores AND b_flags & {BELOW} = 0)
        OR (in_other AND NOT one_stores AND a_flags & {BELOW} = 0) THEN offset END) AS missing_at,
    count_if(one_stores AND other_stores AND in_one != in_other) AS committed,
    min(CASE WHEN one_stores AND other_stores AND in_one != in_other THEN offset END) AS committed_at,
    count_if(is_damaged) AS damaged, min(CASE WHEN is_damaged THEN offset END) AS damaged_at
FROM {compared}
GROUP BY part, keyed, CASE WHEN keyed THEN key_high ELSE offset END, CASE WHEN keyed THEN key_low ELSE 0L END
"""
"""A row a key; a record without one is a key of its own."""

_WINNERS: Final = """
SELECT *,
    best.is_tombstone AND (second IS NULL OR second.rank.offset > best.rank.offset) AS may_have_expired
FROM (
    SELECT *,
        CASE WHEN other IS NULL OR one.rank > other.rank THEN one ELSE other END AS best,
        CASE WHEN other IS NULL OR one.rank > other.rank THEN other ELSE one END AS second,
        (one IS NULL) != (other IS NULL) OR coalesce(one.rank != other.rank, false) AS differs
    FROM {keys}
)
"""
"""Of a key that both have alike there is nothing more to say. Else ``best`` is not where ``second`` wins, if anything.

A tombstone's time may have been over in one, and nothing of the key be left there; or, by version, only what was
written later. Nothing that was written before it can have come through the cleaning that it came through.
"""

_TOLD: Final = """
SELECT part, found_kind AS kind, sum(found_many) AS many, min(found_at) AS at,
    sum(CASE WHEN found_kind = 'total' THEN same END) AS same,
    sum(CASE WHEN found_kind = 'total' THEN cleaned END) AS cleaned,
    sum(CASE WHEN found_kind = 'total' THEN zeroed END) AS zeroed,
    sum(CASE WHEN found_kind = 'total' AND is_gone AND may_have_expired THEN 1L ELSE 0L END) AS expired
FROM (
    SELECT *, inline(filter(array(
        named_struct('kind', 'total', 'many', 1L, 'at', 0L),
        named_struct('kind', 'latest', 'many', CASE WHEN is_gone AND NOT may_have_expired THEN 1L ELSE 0L END,
            'at', best.rank.offset),
        named_struct('kind', 'altered', 'many', altered, 'at', altered_at),
        named_struct('kind', 'missing', 'many', missing, 'at', missing_at),
        named_struct('kind', 'committed', 'many', committed, 'at', committed_at),
        named_struct('kind', 'damaged', 'many', damaged, 'at', damaged_at)
    ), each -> each.many > 0)) AS (found_kind, found_many, found_at)
    FROM (SELECT *, differs AND NOT best.is_stored AND best.may_be_gone AS is_gone FROM {winners})
)
GROUP BY part, kind
"""
"""What is stored but not read, or was never cleaned away, is told by itself: ``committed``, ``missing``."""


def compare(session: SparkSession, records: DataFrame) -> DataFrame:
    """Compare both replicas of all partitions (``record_scan.SCHEMA``): one is BEFORE, the other one AFTER.

    A row per partition and kind: ``many`` and the lowest offset ``at``; kind ``total`` has the counts.
    """
    offsets = session.sql(BY_OFFSET, records=records, **FACTS)
    compared = session.sql(_COMPARED, offsets=offsets, **FACTS)
    keys = session.sql(_BY_KEY, compared=compared, **FACTS)
    return session.sql(_TOLD, winners=session.sql(_WINNERS, keys=keys))
