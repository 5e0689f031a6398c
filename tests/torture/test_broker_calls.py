"""A call of the broker's JVM fails during a swap: state of the log, messages, and the next cleaning."""

from __future__ import annotations

import errno
import random
from typing import TYPE_CHECKING

import pytest

from tests.support.length import at_length
from tests.torture.broker_bench import BrokerBench, broker_bench
from tests.torture.broker_calls import all_cases, play
from tests.torture.shim import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kafka.judge import Judge

pytestmark = [pytest.mark.kafka, pytest.mark.broker, pytest.mark.timeout(2400), pytest.mark.long]

RENAME = Fault("rename", errno.EIO, ("rename",), lasting=True)
"""Kafka retries a failed rename once."""
FOUND = {
    "staged": Fault("what is staged is read", errno.EIO, ("read",), ending=".log"),
    "owner": Fault("may the broker read it", errno.EIO, ("access",)),
    "source": Fault("a source gets out of the way", errno.EIO, ("rename",), lasting=True, ending=".index"),
    "last name": Fault("the new log gets its name", errno.ENOSPC, ("rename",), lasting=True, ending=".log.swap"),
    # The agent checks the file four times before Kafka's last check, and then renames it or not.
    "aborted": Fault("is there a transaction index", errno.EACCES, ("stat",), ending=".txnindex.cleaned"),
    "aborted, swap": Fault("is there a transaction index", errno.EIO, ("stat",), ending=".txnindex.swap"),
}


@pytest.fixture(scope="module", params=["4.3", pytest.param("3.9", marks=pytest.mark.long)])
def bench(request: pytest.FixtureRequest, judge_43: Judge) -> Iterator[BrokerBench]:
    """One broker of a release."""
    with broker_bench(request.param, judge_43) as broker:
        yield broker


@pytest.fixture(scope="module", params=["4.3", "3.9"])
def many(request: pytest.FixtureRequest, judge_43: Judge) -> Iterator[BrokerBench]:
    """A broker for several cases at once."""
    with broker_bench(request.param, judge_43, 8) as broker:
        yield broker


@pytest.mark.parametrize("what", ["owner", "aborted", *(pytest.param(each, marks=pytest.mark.long) for each in FOUND)])
def test_broker_calls_that_were_handled_wrongly(bench: BrokerBench, what: str) -> None:
    """A-23, A-24, U-34, U-12: calls whose failures were handled wrongly.

    The partition was quarantined because the disk could not report whether the broker may read a file. Kafka treats an
    unreadable transaction index as absent: it kept its temporary name, and a restart would have shown aborted records.
    And a half-finished swap was reported as transient.
    """
    done, wrong = bench.fail(FOUND[what], 4 if what == "aborted" else 0)
    assert done.hits > 0
    assert done.call == "stat64" or not what.startswith("aborted"), "this must be Kafka's own call"
    assert wrong == []
    assert "quarantined" not in done.output


def test_every_rename(many: BrokerBench) -> None:
    """A-17..A-24, U-34: every rename; the last ones happen when the broker removes the replaced segments."""
    renames = range(many.count()["rename"])
    batches = [renames[first : first + many.size] for first in range(0, len(renames), many.size)]
    played = [case for batch in batches for case in many.fail_each([(RENAME, call) for call in batch])]
    assert {call: wrong for call, (_, wrong) in zip(renames, played, strict=True) if wrong} == {}
    assert sum(done.hits > 0 for done, _ in played) > len(played) // 2
    assert 0 < many.restarts <= 2 * len(batches)


def test_some_calls(many: BrokerBench) -> None:
    """OP-10: a sample of all faults; ``python -m tests.torture.broker_calls`` runs each."""
    cases = random.Random(15).sample(all_cases("", many.count()), at_length(20))
    assert {case: wrong for case, _, wrong, _ in play(many, cases) if wrong} == {}
