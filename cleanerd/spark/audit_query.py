"""What is right, as one SQL query: shares no line with the cleaner, nor with the engine that finds its winners (U-28).

Records meet themselves by offset, then their rivals by key. Of each key below the end of the cleaned part the record
with the highest (has a version, version, offset) stays and no other does (R280-3 to R280-6); a tombstone may be gone
when its time is over and, by version, nothing else has its key (U-1, U-2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cleanerd.spark.record_scan import FACTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOTAL: Final = "total"

BY_OFFSET: Final = """
SELECT part, offset,
    count_if(flags & {BEFORE} != 0) AS befores,
    count_if(flags & {AFTER} != 0) AS afters,
    max(CASE WHEN flags & {BEFORE} != 0 THEN flags END) AS b_flags,
    max(CASE WHEN flags & {AFTER} != 0 THEN flags END) AS a_flags,
    max(CASE WHEN flags & {BEFORE} != 0 THEN key_high END) AS b_key_high,
    max(CASE WHEN flags & {BEFORE} != 0 THEN key_low END) AS b_key_low,
    max(CASE WHEN flags & {BEFORE} = 0 THEN key_high END) AS a_key_high,
    max(CASE WHEN flags & {BEFORE} = 0 THEN key_low END) AS a_key_low,
    max(CASE WHEN flags & {BEFORE} != 0 THEN version END) AS b_version,
    max(CASE WHEN flags & {AFTER} != 0 THEN version END) AS a_version,
    max(CASE WHEN flags & {BEFORE} != 0 THEN digest_high END) AS b_high,
    max(CASE WHEN flags & {AFTER} != 0 THEN digest_high END) AS a_high,
    max(CASE WHEN flags & {BEFORE} != 0 THEN digest_low END) AS b_low,
    max(CASE WHEN flags & {AFTER} != 0 THEN digest_low END) AS a_low,
    max(CASE WHEN flags & {BEFORE} != 0 THEN attributes END) AS b_attributes,
    max(CASE WHEN flags & {AFTER} != 0 THEN attributes END) AS a_attributes,
    max(CASE WHEN flags & {BEFORE} != 0 THEN size END) AS b_size,
    max(CASE WHEN flags & {AFTER} != 0 THEN size END) AS a_size
FROM {records}
GROUP BY part, offset
"""
"""One row a record, with what either side says of it."""

_JUDGED: Final = """
SELECT *,
    befores > 0 AS was, afters > 0 AS stands,
    coalesce(b_flags, a_flags) AS flags,
    coalesce(b_flags, a_flags) & {HAS_KEY} != 0 AS keyed,
    coalesce(b_key_high, a_key_high) AS key_high, coalesce(b_key_low, a_key_low) AS key_low,
    coalesce(b_flags & {VISIBLE} != 0 OR (b_flags & {OPEN} != 0 AND a_flags & {VISIBLE} != 0), false) AS was_seen,
    coalesce(a_flags & {VISIBLE} != 0, false) AS is_seen,
    coalesce(b_flags, a_flags) & {BELOW} != 0 AS is_below,
    coalesce(b_flags, a_flags) & {CLEANED} != 0 AS is_cleaned,
    coalesce(b_flags, a_flags) & {DAMAGED} != 0 AS is_damaged,
    coalesce(b_high != a_high OR b_low != a_low, false) AS is_altered,
    coalesce(b_attributes != a_attributes, false) AS has_other_attributes,
    coalesce(a_attributes = 0 AND b_flags & {ATTRIBUTES} = 0, false) AS may_lose_attributes
FROM {offsets}
"""

_BY_KEY: Final = """
SELECT part,
    max(CASE WHEN was_seen AND keyed AND is_below THEN named_struct(
        'has_version', b_flags & {HAS_VERSION} != 0, 'version', b_version, 'offset', offset, 'is_seen', is_seen,
        'is_tombstone', b_flags & {TOMBSTONE} != 0, 'may_go', b_flags & {MAY_GO} != 0,
        'goes_alone', b_flags & {ALONE} != 0) END) AS winner,
    min(CASE WHEN is_seen AND keyed AND is_below THEN named_struct(
        'has_version', a_flags & {HAS_VERSION} != 0, 'version', a_version, 'offset', offset) END) AS loser,
    count_if(is_seen AND keyed AND is_below) AS left_over,
    count_if(was_seen AND keyed) AS rivals,
    max(is_cleaned) AS is_cleaned,
    count_if(was_seen AND keyed AND is_below AND flags & {DIRTY} != 0) > 0 AS is_dirty,
    count_if(was_seen AND keyed AND is_below AND NOT is_seen AND b_flags & {MAY_GO} = 0) AS gone,
    min(CASE WHEN was_seen AND keyed AND is_below AND NOT is_seen AND b_flags & {MAY_GO} = 0 THEN offset END)
        AS gone_at,
    count_if(was_seen AND is_cleaned AND NOT is_below AND NOT is_seen) AS tail,
    min(CASE WHEN was_seen AND is_cleaned AND NOT is_below AND NOT is_seen THEN offset END) AS tail_at,
    count_if(is_altered OR (has_other_attributes AND NOT may_lose_attributes)) AS altered,
    min(CASE WHEN is_altered OR (has_other_attributes AND NOT may_lose_attributes) THEN offset END) AS altered_at,
    count_if(is_seen AND was AND NOT was_seen) AS unhidden,
    min(CASE WHEN is_seen AND was AND NOT was_seen THEN offset END) AS unhidden_at,
    count_if(stands AND NOT was AND NOT is_damaged) AS invented,
    min(CASE WHEN stands AND NOT was AND NOT is_damaged THEN offset END) AS invented_at,
    count_if(is_seen AND a_flags & {HAS_KEY} = 0 AND is_below AND is_cleaned) AS keyless,
    min(CASE WHEN is_seen AND a_flags & {HAS_KEY} = 0 AND is_below AND is_cleaned THEN offset END) AS keyless_at,
    sum(CASE WHEN afters > 1 AND NOT is_damaged THEN afters - 1 ELSE 0 END) AS again,
    min(CASE WHEN afters > 1 AND NOT is_damaged THEN offset END) AS again_at,
    count_if(is_damaged) AS damaged,
    min(CASE WHEN is_damaged THEN offset END) AS damaged_at,
    count_if(has_other_attributes AND may_lose_attributes AND NOT is_altered) AS zeroed,
    sum(CASE WHEN is_damaged THEN 0 ELSE befores END) AS before_records,
    sum(CASE WHEN is_damaged THEN 0 ELSE afters END) AS after_records,
    count_if(was AND stands AND NOT is_damaged) AS kept_records,
    sum(coalesce(b_size, 0)) AS before_bytes,
    sum(coalesce(a_size, 0)) AS after_bytes,
    bit_xor(b_high) AS b_high, bit_xor(xxhash64(b_low, b_attributes)) FILTER (WHERE was AND NOT is_damaged) AS b_low,
    bit_xor(a_high) AS a_high, bit_xor(xxhash64(a_low, a_attributes)) FILTER (WHERE stands AND NOT is_damaged) AS a_low
FROM {judged}
GROUP BY part, keyed, CASE WHEN keyed THEN key_high ELSE offset END, CASE WHEN keyed THEN key_low ELSE 0L END
"""
"""A row a key; a record without one is a key of its own. Digests do not depend on the order of records."""

_TOLD: Final = """
SELECT part, found_kind AS kind,
    CASE WHEN found_kind = 'total' THEN 0 ELSE pmod(hash(found_at), {examples}) END AS bucket,
    sum(found_many) AS many, min(found_at) AS at,
    sum(CASE WHEN found_kind = 'total' THEN zeroed END) AS zeroed,
    sum(CASE WHEN found_kind = 'total' THEN before_records END) AS before_records,
    sum(CASE WHEN found_kind = 'total' THEN after_records END) AS after_records,
    sum(CASE WHEN found_kind = 'total' THEN kept_records END) AS kept_records,
    sum(CASE WHEN found_kind = 'total' THEN before_bytes END) AS before_bytes,
    sum(CASE WHEN found_kind = 'total' THEN after_bytes END) AS after_bytes,
    bit_xor(CASE WHEN found_kind = 'total' THEN b_high END) AS b_high,
    bit_xor(CASE WHEN found_kind = 'total' THEN b_low END) AS b_low,
    bit_xor(CASE WHEN found_kind = 'total' THEN a_high END) AS a_high,
    bit_xor(CASE WHEN found_kind = 'total' THEN a_low END) AS a_low
FROM (
    SELECT *, inline(filter(array(
        named_struct('kind', 'total', 'many', 1L, 'at', 0L),
        named_struct('kind', 'lost', 'many', CASE
            WHEN winner IS NULL THEN 0L
            WHEN NOT is_dirty THEN gone
            WHEN winner.is_seen OR left_over > 0 THEN 0L
            WHEN winner.may_go AND NOT (winner.goes_alone AND rivals > 1) THEN 0L
            ELSE 1L END, 'at', CASE WHEN is_dirty THEN winner.offset ELSE gone_at END),
        named_struct('kind', 'stale', 'many', CASE WHEN is_dirty AND NOT winner.is_seen AND NOT winner.is_tombstone
            AND left_over > 0 THEN 1L ELSE 0L END, 'at', loser.offset),
        named_struct('kind', 'resurrected', 'many', CASE WHEN is_dirty AND NOT winner.is_seen AND winner.is_tombstone
            AND left_over > 0 THEN 1L ELSE 0L END, 'at', loser.offset),
        named_struct('kind', 'duplicated', 'many', CASE WHEN is_dirty AND is_cleaned AND winner.is_seen
            AND left_over > 1 THEN left_over - 1 ELSE 0L END, 'at', loser.offset),
        named_struct('kind', 'lost', 'many', tail, 'at', tail_at),
        named_struct('kind', 'altered', 'many', altered, 'at', altered_at),
        named_struct('kind', 'resurrected', 'many', unhidden, 'at', unhidden_at),
        named_struct('kind', 'invented', 'many', invented, 'at', invented_at),
        named_struct('kind', 'keyless', 'many', keyless, 'at', keyless_at),
        named_struct('kind', 'duplicated', 'many', again, 'at', again_at),
        named_struct('kind', 'damaged', 'many', damaged, 'at', damaged_at)
    ), each -> each.many > 0)) AS (found_kind, found_many, found_at)
    FROM {keys}
)
GROUP BY part, kind, bucket
"""
"""Counted by partition and kind, with at most ``examples`` places of each kind: the driver gets no more, ever."""


def judge(session: SparkSession, records: DataFrame, examples: int) -> DataFrame:
    """Judge ``records``, both sides of all partitions (``record_scan.SCHEMA``), of which the facts are flags.

    A row per partition, kind and bucket: ``many`` findings and the first place ``at``; kind ``total`` has the counts
    and digests of the partition.
    """
    offsets = session.sql(BY_OFFSET, records=records, **FACTS)
    judged = session.sql(_JUDGED, offsets=offsets, **FACTS)
    keys = session.sql(_BY_KEY, judged=judged, **FACTS)
    return session.sql(_TOLD, keys=keys, examples=examples)
