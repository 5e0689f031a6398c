"""The last full ISR of partitions that have no full ISR now: ``replicas-PLACE.json`` in the state directory (U-72).

A metadata snapshot has the ISR, but not the time when it was full. The metadata log shows that for partitions whose ISR
is full. The JSON file has a time per topic id and partition, and times only increase. Without it tombstones wait until
the ISR is full again.

Each place of a log directory has its own file (U-46). A clone of a cluster has the same topic ids, and its replicas
may be complete while one of the original's is away: that must not end the original's tombstones.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cleanerd.policy.replicas import UNKNOWN_MS, ReplicaFacts
from cleanerd.state.document import Document

KEPT_MS: Final = 90 * 24 * 60 * 60_000
"""A topic without a full ISR for this long was deleted, or its cluster was."""

FullIsr = dict[str, dict[int, int]]
"""Milliseconds by topic id (32 hex digits) and partition."""


@dataclass(frozen=True, slots=True)
class _FullIsrs:
    topics: FullIsr = field(default_factory=dict)


def full_isr_document(place: str) -> Document[_FullIsrs]:
    """The file of the log directory whose state has the name ``place``."""
    return Document(f"replicas-{place}.json", _FullIsrs)


def remember_full_isr(
    state_dir: Path, place: str, facts: ReplicaFacts, now_ms: int, warnings: list[str]
) -> Mapping[str, Mapping[int, int]]:
    """The stored full ISRs of the partitions in ``facts``, updated from these. ``place``: of the log directory.

    Nothing is read or written if every ISR is full. Nothing is added while the controllers' clock is ahead, or if the
    state directory is missing or cannot be written.
    """
    short = {
        topic_id.hex: {number: facts.full_ms(each) for number, each in partitions.items() if _is_short(each)}
        for topic_id, partitions in facts.topics.items()
    }
    short = {topic_id: partitions for topic_id, partitions in short.items() if partitions}
    is_ahead = facts.newest_ms > now_ms + facts.margin_ms
    if not (short or is_ahead or facts.unread):
        return {}
    latest_ms = now_ms + facts.margin_ms
    document = full_isr_document(place)
    known = _load(document, state_dir, latest_ms, warnings)
    if is_ahead or facts.unread or not os.access(state_dir, os.W_OK) or not _grows(known, short):
        return known
    try:
        with document.locked(state_dir):
            known = _merged(_load(document, state_dir, latest_ms, warnings), short, now_ms - KEPT_MS)
            document.write(state_dir, _FullIsrs(known))
    except OSError as error:
        problem = f"cannot be written ({error.strerror}): tombstones may wait longer than their replicas need"
        warnings.append(f"{state_dir / document.name}: {problem}")
    return known


def _load(document: Document[_FullIsrs], state_dir: Path, latest_ms: int, warnings: list[str]) -> FullIsr:
    """Times after ``latest_ms`` are left out, because they are in the future."""
    return {
        topic_id: {number: full_ms for number, full_ms in partitions.items() if full_ms <= latest_ms}
        for topic_id, partitions in (document.load(state_dir, warnings) or _FullIsrs()).topics.items()
    }


def _is_short(replicas: Any) -> bool:
    return not replicas.is_alone and not replicas.is_full()


def _grows(known: FullIsr, short: FullIsr) -> bool:
    return any(
        full_ms > known.get(topic_id, {}).get(number, UNKNOWN_MS)
        for topic_id, partitions in short.items()
        for number, full_ms in partitions.items()
    )


def _merged(known: FullIsr, short: FullIsr, since_ms: int) -> FullIsr:
    merged: FullIsr = {}
    for topic_id in known.keys() | short.keys():
        ours, theirs = known.get(topic_id, {}), short.get(topic_id, {})
        times = {each: max(ours.get(each, UNKNOWN_MS), theirs.get(each, UNKNOWN_MS)) for each in ours.keys() | theirs}
        kept = {number: full_ms for number, full_ms in times.items() if full_ms > since_ms}
        if kept:
            merged[topic_id] = kept
    return merged
