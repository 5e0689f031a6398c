"""The columns: those of Spark's ``kafka`` source, with the same names and types, and further facts from a log."""

from __future__ import annotations

from typing import Final

HEADERS: Final = "headers"

KAFKA: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    HEADERS: "array<struct<key:string,value:binary>>",
}
"""The columns of Spark's ``kafka`` source, in its order. ``headers`` is null for a record without any, as there.

``timestamp`` is null if a record has none (format v0), or one outside of Spark's range; ``timestampType`` is -1 if the
format has none, 0 for the producer's time, 1 for the broker's.
"""

FURTHER: Final = {
    "leader_epoch": "int",
    "producer_id": "bigint",
    "producer_epoch": "int",
    "sequence": "int",
    "transactional": "boolean",
    "control": "boolean",
    "is_tombstone": "boolean",
    "version": "bigint",
    "batch_offset": "bigint",
    "segment": "string",
    "position": "bigint",
    "visible": "boolean",
    "in_clean_part": "boolean",
    "damaged": "string",
}
"""Columns on demand. Missing numbers are -1, as in Kafka; a missing ``version`` is null.

``is_tombstone`` and ``version``: by the topic's strategy. ``batch_offset``, ``segment`` (a path), ``position`` (bytes):
the batch's place. ``visible``: a consumer of committed records gets it. ``in_clean_part``: below Kafka's first dirty
offset, null without a checkpoint entry. ``damaged``: null, except in a row for unreadable bytes, which exists only with
``onCorruption=skip``.
"""

TYPES: Final = {**KAFKA, **FURTHER}
