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
READ = Fault("read", errno.EIO, ("read",))
LOOK = Fault("look", errno.EIO, ("access",))


@pytest.fixture(scope="module", params=["4.3", pytest.param("3.9", marks=pytest.mark.long)])
def bench(request: pytest.FixtureRequest, judge_43: Judge) -> Iterator[BrokerBench]:
    """One broker of a release."""
    with broker_bench(request.param, judge_43) as here:
        yield here


def test_three_calls(bench: BrokerBench) -> None:
    """A-23, A-24, U-34: what is staged cannot be read; a source cannot be renamed when the group is in already.

    Nor can it be found out whether the broker may read it: that quarantined the partition as one with a wrong owner.
    """
    by_class = bench.count()
    assert min(by_class[each] for each in ("open", "read", "fsync", "rename", "unlink", "stat", "mmap")) > 0, by_class
    done, wrong = bench.fail(READ, by_class["read"] // 2)
    assert (done.hits, wrong) == (1, [])
    done, wrong = bench.fail(LOOK, 0)
    assert (done.hits, wrong) == (1, [])
    assert "quarantined" not in done.words
    done, wrong = bench.fail(RENAME, by_class["rename"] // 4)
    assert done.hits > 0
    assert wrong == []


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
