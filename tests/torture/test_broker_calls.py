"""A call of the broker's JVM fails while it swaps: what the log is then, what is said, and what comes next."""

from __future__ import annotations

import errno
import random
from typing import TYPE_CHECKING

import pytest

from tests.support.length import at_length
from tests.torture.broker_calls import BrokerBench, all_cases, broker_bench
from tests.torture.shim import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kafka.judge import Judge

pytestmark = [pytest.mark.kafka, pytest.mark.broker, pytest.mark.timeout(2400)]

RENAME = Fault("rename", errno.EIO, ("rename",), lasting=True)
"""A rename that fails once is tried again by Kafka."""
FOUND = {
    "staged": Fault("what is staged is read", errno.EIO, ("read",), ending=".log"),
    "owner": Fault("may the broker read it", errno.EIO, ("access",)),
    "source": Fault("a source gets out of the way", errno.EIO, ("rename",), lasting=True, ending=".index"),
    "last name": Fault("the new log gets its name", errno.ENOSPC, ("rename",), lasting=True, ending=".log.swap"),
    # The agent looks at it four times before Kafka asks for the last time, and then renames it or not.
    "aborted": Fault("is there a transaction index", errno.EACCES, ("stat",), ending=".txnindex.cleaned"),
    "aborted, swap": Fault("is there a transaction index", errno.EIO, ("stat",), ending=".txnindex.swap"),
}


@pytest.fixture(scope="module", params=["4.3", pytest.param("3.9", marks=pytest.mark.long)])
def bench(request: pytest.FixtureRequest, judge_43: Judge) -> Iterator[BrokerBench]:
    """One broker of a release."""
    with broker_bench(request.param, judge_43) as here:
        yield here


@pytest.mark.parametrize("what", ["owner", "aborted", *(pytest.param(each, marks=pytest.mark.long) for each in FOUND)])
def test_what_was_found(bench: BrokerBench, what: str) -> None:
    """A-23, A-24, U-34, U-12: calls that were answered wrongly.

    A disk that did not say whether the broker may read a file quarantined the partition. Kafka takes a transaction
    index that it cannot ask for as none: it kept its temporary name, and a restart would have shown aborted records.
    And what stopped half-way was told as something that passes.
    """
    done, wrong = bench.fail(FOUND[what], 4 if what == "aborted" else 0)
    assert done.hits > 0
    assert done.call == "stat64" or not what.startswith("aborted"), "it is to be Kafka's own call"
    assert wrong == []
    assert "quarantined" not in done.words


@pytest.mark.long
def test_every_rename(bench: BrokerBench) -> None:
    """A-17..A-24, U-34: one after the other, the last ones of which come when the broker removes what was replaced."""
    found = {call: bench.fail(RENAME, call) for call in range(bench.count()["rename"])}
    assert {call: wrong for call, (_, wrong) in found.items() if wrong} == {}
    assert sum(done.hits > 0 for done, _ in found.values()) > len(found) // 2
    assert bench.restarts > 0


@pytest.mark.long
def test_some_calls(bench: BrokerBench) -> None:
    """OP-10: of all, in every way; ``python -m tests.torture.broker_calls`` plays each."""
    cases = random.Random(15).sample(all_cases("", bench.count()), at_length(20))
    wrong = {case: wrong for case in cases for _, wrong in [bench.play(case)] if wrong}
    assert wrong == {}
