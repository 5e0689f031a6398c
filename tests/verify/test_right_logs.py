"""``verify`` reports nothing for right logs: written by Kafka, cleaned by Kafka, cleaned by cleanerd."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cleanerd.state.cleaner_checkpoint import StateStore
from cleanerd.verify.finding import Severity
from cleanerd.verify.partition import VerifyRequest, verify_partition
from tests.cleaner.driver import scratch
from tests.differential.duel import NAME, clean_ours, prepare
from tests.differential.history import History, Turn
from tests.differential.random_history import random_history
from tests.kafka.judge import Round
from tests.verify.histories import HOUR_MS, T0, legacy_log, transactional_log

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cleanerd.verify.partition import VerifyResult
    from tests.kafka.judge import Judge
    from tests.kafka.log_spec import Segment

pytestmark = pytest.mark.kafka

DAY_MS = 24 * HOUR_MS
CONFIG = {"delete.retention.ms": str(HOUR_MS), "index.interval.bytes": "200"}
NOWS = (T0 + DAY_MS // 2, T0 + DAY_MS // 2 + 2 * HOUR_MS)
SEEDS = range(1, 9)


@pytest.fixture
def work() -> Iterator[Path]:
    with scratch() as path:
        yield path


def _reported(verdict: VerifyResult, *, but: tuple[str, ...] = ()) -> list[str]:
    return [
        f"{found.severity} {found.rule} {found.file}: {found.what}"
        for found in verdict.findings.in_order()
        if found.severity is Severity.ERROR or found.rule not in but
    ]


def _make(judge: Judge, path: Path, segments: tuple[Segment, ...]) -> int:
    config = {"index.interval.bytes": "200"}
    return judge.make(path, segments, now_ms=NOWS[0], config=config, producer_expiration_ms=2**31 - 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_transactions_cleaned_by_kafka(judge_43: Judge, work: Path, seed: int) -> None:
    """Two cleanings; keys, transaction indexes, snapshots and the copy from before agree (F-8, C-69, F-10, C-45)."""
    path = work / "logs" / str(NAME)
    segments = transactional_log(seed)
    end = _make(judge_43, path, segments)
    raw = verify_partition(path, VerifyRequest(now_ms=NOWS[0]))
    assert _reported(raw) == []
    assert raw.records > 0
    assert raw.end_offset == end
    dropped = 0
    for number, now_ms in enumerate(NOWS):
        before = work / f"before-{number}" / str(NAME)
        shutil.copytree(path, before)
        first = segments[0].base if number == 0 else segments[-1].base // 2
        (cleaned,) = judge_43.clean(path, [Round(now_ms, first)], config=CONFIG)
        question = VerifyRequest(now_ms=now_ms, clean_below=cleaned.end_offset, against=before)
        # A group's last batch may be missing (U-13): Kafka's own cleaner does not keep it.
        assert _reported(verify_partition(path, question), but=("U-13",)) == []
        assert _reported(verify_partition(path, replace(question, against=None))) == []
        dropped += cleaned.messages_read - cleaned.messages_written
    assert dropped, "Kafka had nothing to clean"


@pytest.mark.parametrize("seed", SEEDS)
def test_cleaned_by_cleanerd(judge_43: Judge, work: Path, seed: int) -> None:
    """The same after a cleaning by cleanerd, with transactions: also the last batch of every segment exists (U-13)."""
    segments = transactional_log(seed)
    history = History(segments, config={**CONFIG, "segment.bytes": "1500"})
    _ours_is_right(judge_43, work, history, NOWS)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 13))
def test_random_histories(judge_43: Judge, work: Path, seed: int) -> None:
    """Histories of the differential suite: far offsets, emptied batches, unusual codecs, append time."""
    history = replace(random_history(seed), log_start_offset=0)
    _ours_is_right(judge_43, work, history, [turn.now_ms for turn in history.turns])


@pytest.mark.parametrize("profile", ["judge_39", "judge_43"])
def test_legacy_cleaned_by_kafka(request: pytest.FixtureRequest, work: Path, profile: str) -> None:
    """F-3: magic 0 and 1, wrapped or not; 3.9 leaves them, 4.3 makes v2 batches of them."""
    maker: Judge = request.getfixturevalue("judge_39")
    path = work / "logs" / str(NAME)
    segments = legacy_log(7)
    _make(maker, path, segments)
    assert _reported(verify_partition(path, VerifyRequest(now_ms=NOWS[0]))) == []
    before = work / "before" / str(NAME)
    shutil.copytree(path, before)
    judge: Judge = request.getfixturevalue(profile)
    (cleaned,) = judge.clean(path, [Round(NOWS[0], 0)], config=CONFIG)
    assert cleaned.messages_written < cleaned.messages_read
    question = VerifyRequest(now_ms=NOWS[0], clean_below=cleaned.end_offset, against=before)
    assert _reported(verify_partition(path, question), but=("U-13",)) == []


def _ours_is_right(judge: Judge, work: Path, history: History, nows: object) -> None:
    path = work / "logs" / str(NAME)
    _make(judge, path, history.segments)
    prepare(path.parent)
    assert _reported(verify_partition(path, VerifyRequest(now_ms=T0))) == []
    store = StateStore(work / "state")
    for number, now_ms in enumerate(nows):  # type: ignore[call-overload]
        before = work / f"before-{number}" / str(NAME)
        shutil.copytree(path, before)
        turn = Turn(now_ms, from_start=number > 0)
        result = clean_ours(path.parent, store, history, turn)
        assert result.error is None, str(result.error)
        question = VerifyRequest(
            now_ms=now_ms,
            producer_expiration_ms=history.producer_expiration_ms,
            clean_below=history.segments[-1].base,
            against=before,
        )
        verdict = verify_partition(path, question)
        assert _reported(verdict) == []
        batches = judge.dump(path).batches
        assert (verdict.batches, verdict.records) == (len(batches), sum(batch.count for batch in batches))
