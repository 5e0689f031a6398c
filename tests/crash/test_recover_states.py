"""The recovery of every crash state: exactly old or exactly new, no leftovers, repeatable."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.crash.classify import swapped_groups
from tests.crash.scenario import recovered
from tests.crash.states import AT_LENGTH, SUBSETS, crash_states, crashes_while_recovering

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.swap.files import FileOperation
    from tests.crash.classify import Classifier
    from tests.crash.scenario import Scenario

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(1200)]


@pytest.mark.parametrize("subsets", [80, *(pytest.param(n, marks=pytest.mark.long) for n in (SUBSETS, AT_LENGTH))])
def test_every_prefix_and_subset_is_recovered(
    scenario: Scenario, operations: list[FileOperation], classifier: Classifier, workspace: Path, subsets: int
) -> None:
    """S-28 on X-01 .. X-13, and Kafka's loader agrees."""
    states = crash_states(scenario.old, operations, subsets, seed=1)
    outcomes = recovered(states, scenario, workspace)
    assert sorted(outcomes) == [0, 1, 2, 3]
    swapped_groups(outcomes.values(), classifier.judged(outcomes.values()))


@pytest.mark.long
def test_power_fails_while_recovering(
    scenario: Scenario, operations: list[FileOperation], classifier: Classifier, workspace: Path
) -> None:
    """S-28 after a kill: the first barrier of the recovery must cover the killed process's unflushed changes."""
    states = crashes_while_recovering(scenario.old, operations, workspace / "topic-0", per_window=3, seed=4)
    assert len(states) > 250
    swapped_groups(states, classifier.judged(states))
    recovered(states, scenario, workspace)


@pytest.mark.long
@pytest.mark.parametrize("start", ["clean", "unclean, recovery point 0"])
def test_power_fails_while_recovering_at_length(
    scenario: Scenario, operations: list[FileOperation], classifier: Classifier, workspace: Path, start: str
) -> None:
    """The same with many more subsets."""
    states = crashes_while_recovering(scenario.old, operations, workspace / "topic-0", per_window=40, seed=5)
    swapped_groups(states, classifier.judged(states, start, twice=True))
    recovered(states, scenario, workspace)
