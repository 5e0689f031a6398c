"""Whether a broker behaves the same on cleanerd's result as on Kafka's, for a history (U-37)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.kafka.alike import Alike

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from tests.differential.history import History, Turn
    from tests.kafka.judge import Judge


def assert_alike(
    judge: Judge,
    history: History,
    turn: Turn,
    *,
    ours: Path,
    before: Path,
    theirs: Path | None = None,
    ends: Collection[tuple[int, int]] = (),
) -> int:
    """Assert that a broker finds the same in both, and deletes no record of cleanerd's early.

    Returns the number of queries.

    ``ends``: base and last offset of empty batches whose time cleanerd may keep (``differential/releases.py``). Without
    ``theirs``, if Kafka's cleaner would clean differently, cleanerd's result is compared only with the log ``before``.
    """
    requested = judge.behave(
        ours,
        theirs=theirs,
        before=before,
        scratch=ours.parent.parent / "behave",
        now_ms=turn.now_ms,
        log_start_offset=history.log_start_offset,
        config={key: value for key, value in history.config.items() if key == "index.interval.bytes"},
        producer_expiration_ms=history.producer_expiration_ms,
    )
    retention_ms = int(history.config.get("retention.ms", "-1"))
    deletes = "delete" in history.config.get("cleanup.policy", "compact")
    alike = Alike(
        requested,
        now_ms=turn.now_ms,
        span_ms=retention_ms // 10 if deletes and retention_ms >= 0 else None,
        producer_expiration_ms=history.producer_expiration_ms,
        ends=ends,
    )
    breaches = alike.breaches()
    assert breaches == [], "\n".join(breaches[:20])
    return requested.queries
