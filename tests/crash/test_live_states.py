"""Crash states of a *live* swap, by the operations of the broker's own JVM: for Kafka's loader and for cleanerd.

The broker flushes the directory once per group, after its last rename. So the file system decides the order of names on
the disk, as for Kafka's own cleaner. A killed broker leaves a prefix, and so does a power cut if that order is kept.
Power cuts without that order are checked too: Kafka mixes old and new there.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.crash.classify import Classifier, swapped_groups
from tests.crash.live_swap import LiveSwap, record_live_swap, recovered_live
from tests.crash.scenario import TOPIC_DIR
from tests.crash.states import crash_states, crashes_while_recovering_from, killed, ordered_cuts

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.judge import Judge

pytestmark = [pytest.mark.kafka, pytest.mark.broker, pytest.mark.timeout(1200), pytest.mark.long]

ABOVE = "unclean, recovery point above"
ZERO = "unclean, recovery point 0"


@pytest.fixture(scope="module", params=["4.3", pytest.param("3.9", marks=pytest.mark.long)])
def live(request: pytest.FixtureRequest) -> LiveSwap:
    """The recorded swap of a release."""
    return record_live_swap(request.param)


def check_live_swap(live: LiveSwap, judge: Judge, workspace: Path, *, stride: int) -> int:
    """Every ``stride``-th prefix by Kafka and by cleanerd, and again after a power cut during cleanerd's recovery."""
    classifier = Classifier(live, judge, workspace / "loaded")
    states = killed(live.old, live.operations)
    seen = swapped_groups(states, classifier.judged(states, ABOVE, twice=True))
    assert set(seen) == {live.bases[:count] for count in range(len(live.bases) + 1)}
    chosen = states[::stride]
    swapped_groups(chosen, classifier.judged(chosen, ZERO))
    recovered_live(states, live, workspace)
    cut = crashes_while_recovering_from(chosen, workspace / TOPIC_DIR, 2, seed=3)
    swapped_groups(cut, classifier.judged(cut, ABOVE))
    recovered_live(cut, live, workspace)
    return len(states) + len(cut)


def test_every_prefix_loads_as_old_or_new(live: LiveSwap, judge_43: Judge, workspace: Path) -> None:
    """A-17..A-22, S-28: a broker killed at any operation of its swap; then cleanerd's recovery, killed as well."""
    assert check_live_swap(live, judge_43, workspace, stride=12) > 100


def test_every_prefix_at_length(live: LiveSwap, judge_43: Judge, workspace: Path) -> None:
    """The same with every prefix of both kinds."""
    assert check_live_swap(live, judge_43, workspace, stride=1) > 700


@pytest.mark.parametrize("each", [1, pytest.param(8, marks=pytest.mark.long)])
def test_power_cuts_that_keep_the_order(live: LiveSwap, judge_43: Judge, workspace: Path, each: int) -> None:
    """A-18, S-28: staged, swapped, then a power cut: a prefix of the names, and any part of unflushed bytes."""
    states = ordered_cuts(live.before, [*live.staging, *live.operations], each, seed=each)
    seen = swapped_groups(
        states, Classifier(live, judge_43, workspace / "loaded").judged(states, ABOVE, twice=each > 1)
    )
    assert set(seen) == {live.bases[:count] for count in range(len(live.bases) + 1)}
    assert len(states) > 60
    recovered_live(states, live, workspace)


def test_a_swap_of_unflushed_files_is_noticed(live: LiveSwap, judge_43: Judge, workspace: Path) -> None:
    """A-18: a staged file that is not flushed before the swap is lost in a power cut."""
    staging = [operation for operation in live.staging if operation.kind != "fsync"]
    assert len(staging) < len(live.staging)
    swap = [operation for operation in live.operations if operation.kind != "fsync"]
    states = ordered_cuts(live.before, [*staging, *swap], 1, seed=1)
    verdicts = list(Classifier(live, judge_43, workspace / "loaded").judged(states, ABOVE))
    assert any("neither old nor new" in (verdict.problem or "") for verdict in verdicts)


def test_kafkas_own_replacement_loses_records_without_ordered_renames(
    live: LiveSwap, judge_43: Judge, workspace: Path
) -> None:
    """K-9: with unordered names Kafka's own swap loses records, because of its one flush per group.

    So the test finds mixtures of a live swap; docs/reliability.md names this limit.
    """
    states = crash_states(live.old, live.operations, 100, seed=1)
    verdicts = Classifier(live, judge_43, workspace / "loaded").judged(states, ABOVE)
    assert any("neither old nor new" in (verdict.problem or "") for verdict in verdicts)


def test_a_swap_of_another_order_is_noticed(live: LiveSwap, judge_43: Judge, workspace: Path) -> None:
    """X-15: if old segments are removed before the new one has its ``.swap`` name, the loader misses them."""
    at = [op.target.endswith(".log.swap") for op in live.operations].index(True)
    retired = next(n for n, op in enumerate(live.operations) if op.target.endswith(".log.deleted"))
    operations = list(live.operations)
    operations.insert(at, operations.pop(retired))
    states = killed(live.old, operations)
    verdicts = list(Classifier(live, judge_43, workspace / "loaded").judged(states, ABOVE))
    assert Counter(verdict.problem is None for verdict in verdicts)[False] > 0
