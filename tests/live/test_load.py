"""Swaps under load: writers of all kinds, and readers that repeatedly read from the beginning without an error."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.brokers.node import cleanerd, errors, open_files, wait_until
from tests.live.load import WRITINGS, Load, create_topics
from tests.live.metrics import JVM_ARG, Jmx
from tests.live.rounds import Rounds, with_agent

if TYPE_CHECKING:
    from tests.kafka.fixtures import StartBroker

pytestmark = [pytest.mark.kafka, pytest.mark.broker]


@pytest.fixture
def rounds(request: pytest.FixtureRequest, tmp_path: Path) -> Rounds:
    """A broker with the agent and a topic of every kind."""
    start: StartBroker = request.getfixturevalue(f"broker_{request.param}")
    rounds = Rounds(start(log_dirs=2, jvm_args=(*with_agent(), JVM_ARG)), tmp_path / "state")
    rounds.note_swaps()
    return rounds


def swap_under_load(rounds: Rounds, *, swaps: int, partitions: int, seconds: float) -> Load:
    """Clean repeatedly while clients run, then check what they read."""
    broker = rounds.broker
    create_topics(broker, [writing.topic for writing in WRITINGS], partitions=partitions)
    load = Load(broker, partitions=partitions)
    deadline = time.monotonic() + seconds
    with load:
        while (
            len(rounds.dropping) < swaps or load.full_reads < 2 or load.times_requested < 10 or not every_kind(rounds)
        ):
            assert time.monotonic() < deadline, (len(rounds.dropping), load.full_reads, load.ledger.problems)
            assert not load.ledger.problems
            rounds.clean()
            time.sleep(0.5)
    load.check()
    assert {result.outcome for result in rounds.results} <= {"cleaned", "unchanged", "skipped", "refused"}
    refused = [result for result in rounds.results if result.error is not None]
    assert len(refused) <= len(rounds.results) / 10, [result.reason for result in refused]
    return load


def every_kind(rounds: Rounds) -> bool:
    """Whether swaps happened for every kind of writer, and removed records of aborted transactions (U-26)."""
    swapped = {swap.partition.rpartition("-")[0] for swap in rounds.dropping}
    return swapped == {each.topic for each in WRITINGS} and any(result.removed.aborted for result in rounds.results)


def check_swaps(rounds: Rounds, load: Load) -> None:
    """At least a sixth of the swaps merged segments; every kind of writer took part (U-26)."""
    swaps = rounds.dropping
    others = [swap for swap in rounds.swaps if swap not in swaps and not swap.is_merge]
    assert all(swap.partition.startswith("transactional") for swap in others), others
    assert 6 * sum(swap.is_merge for swap in swaps) >= len(swaps)
    assert every_kind(rounds)
    assert any(load.ledger.aborted.values())
    # A pause of the disk or the JVM for seconds appears in one of them; slow code appears in all.
    held_us = sorted(swap.held_us for swap in rounds.swaps)
    assert held_us[len(held_us) * 9 // 10] < 500_000, held_us[-5:]


def check_broker(rounds: Rounds) -> None:
    """The broker's own cleaner is healthy, disk and descriptors are released (LT-10), no error was logged (U-27)."""
    broker = rounds.broker
    assert Jmx(broker).unhealthy() == {}
    topics = {writing.topic for writing in WRITINGS}
    directories = [path for log_dir in broker.log_dirs for topic in topics for path in log_dir.glob(f"{topic}-*")]
    wait_until("replaced segments are deleted", lambda: not [n for d in directories for n in d.glob("*.deleted")])
    held = open_files(broker.pid)
    mapped = Path(f"/proc/{broker.pid}/maps").read_text()
    assert not [name for name in held if "(deleted)" in name and any(topic in name for topic in topics)]
    assert not [line for line in mapped.splitlines() if "(deleted)" in line and any(t in line for t in topics)]
    assert not [name for directory in directories for name in directory.glob(".kstage*")]
    assert not errors(broker.log_text())
    broker.stop()
    assert not errors(broker.log_text())
    verified = cleanerd("verify", broker.log_dirs, rounds.state_dir)
    assert verified.exit_code == 0, (verified.document, verified.stderr)


@pytest.mark.long
@pytest.mark.parametrize(("rounds", "swaps"), [("43", 30), ("39", 30)], indirect=["rounds"])
def test_some_swaps(rounds: Rounds, swaps: int) -> None:
    """LT-2, LT-10, D-08."""
    load = swap_under_load(rounds, swaps=swaps, partitions=1, seconds=600)
    check_swaps(rounds, load)
    check_broker(rounds)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("rounds", ["43", pytest.param("39", marks=pytest.mark.long)], indirect=True)
def test_three_hundred_swaps(rounds: Rounds) -> None:
    """30 compacted partitions."""
    load = swap_under_load(rounds, swaps=300, partitions=6, seconds=900)
    check_swaps(rounds, load)
    check_broker(rounds)
    dropping = rounds.dropping
    merges = sum(swap.is_merge for swap in dropping)
    print(  # noqa: T201 - figures for the report
        f"\n{rounds.broker.version}: {len(dropping)} swaps that drop records, {merges} of them merges; "
        f"{load.full_reads} full reads, {load.times_requested} times requested; appends waited "
        f"{max(swap.held_us for swap in dropping) / 1000:.1f} ms at most"
    )
