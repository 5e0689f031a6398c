"""Kafka's own loader on every crash state of a swap: X-01 .. X-13.

Required: for every group exactly the old or exactly the new log, new groups before old ones, every index the one
written for its log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.crash.classify import STARTS, Classifier, swapped_groups
from tests.crash.scenario import GROUPS, PLAN
from tests.crash.states import AT_LENGTH, SUBSETS, crash_states
from tests.crash.volume import State, prefixes, windows

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.swap.files import FileOperation
    from tests.crash.scenario import Scenario
    from tests.kafka.judge import Judge

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(1200)]


def test_the_recorded_swap_does_what_it_should(scenario: Scenario, operations: list[FileOperation]) -> None:
    """The complete swap gives three new groups and leaves no other file; otherwise the states would test little."""
    last = dict(prefixes(scenario.old, operations))[len(operations)]
    assert last == State(scenario.directory(tuple(GROUPS)), frozenset())
    assert [sorted(scenario.outputs[base]) for base in GROUPS] == [
        ["index", "log", "timeindex", "txnindex"],
        ["index", "log", "timeindex"],
        ["index", "log", "timeindex"],
    ]
    assert scenario.old.files[f"{160:020d}.txnindex"]
    assert scenario.old.files[f"{100:020d}.log"] == b""
    retired = {operation.name for operation in operations if operation.target.endswith(".snapshot.deleted")}
    assert retired == {f"{base:020d}.snapshot" for base in (20, 40, 80, 100, 120, 180)}


def test_the_barriers_are_those_of_the_protocol(scenario: Scenario, operations: list[FileOperation]) -> None:
    """S-31 .. S-38: how much may be uncertain at once, window by window, for the first group."""
    staging = f".kstage/{PLAN}"
    sizes = [
        (operations[window.step].kind, operations[window.step].name, len(window.disk.pending))
        for window in windows(scenario.old, operations)
        if 13 <= window.step <= 62
    ]
    assert sizes == [
        ("fsync_directory", ".", 4),  # S-31
        ("fsync", f"{staging}/journal", 1),  # S-32
        ("fsync_directory", staging, 1),
        ("fsync_directory", ".", 4),  # S-34
        ("fsync_directory", ".", 13),  # S-35: 3 sources, 2 txnindex, 2 snapshots
        ("fsync_directory", ".", 1),  # S-36
        ("fsync_directory", ".", 3),  # S-37
        ("fsync_directory", ".", 13),  # S-38
        ("fsync", f"{staging}/journal", 0),
    ]


def test_every_prefix_and_subset_loads_as_old_or_new(
    scenario: Scenario, operations: list[FileOperation], classifier: Classifier
) -> None:
    """X-01 .. X-13 on a clean start."""
    states = crash_states(scenario.old, operations, SUBSETS, seed=1)
    assert len(states) > 1500
    seen = swapped_groups(states, classifier.judged(states))
    assert min(seen[()], seen[(0,)], seen[(0, 60)], seen[(0, 60, 160)]) > 50


@pytest.mark.long
@pytest.mark.parametrize("start", [start for start in STARTS if start != "clean"])
def test_every_prefix_and_subset_loads_after_an_unclean_stop(
    scenario: Scenario, operations: list[FileOperation], classifier: Classifier, start: str
) -> None:
    """X-01 .. X-13 when the broker recovers the log, all of it or nothing; the second load changes nothing."""
    states = crash_states(scenario.old, operations, 60, seed=2)
    assert len(states) > 500
    swapped_groups(states, classifier.judged(states, start, twice=True))


@pytest.mark.long
@pytest.mark.parametrize(
    "start",
    [
        "unclean, recovery point 0",
        *(pytest.param(start, marks=pytest.mark.long) for start in STARTS if "0" not in start),
    ],
)
def test_the_loader_of_3_9_agrees(
    scenario: Scenario, operations: list[FileOperation], judge_39: Judge, workspace: Path, start: str
) -> None:
    """The oldest release that cleanerd supports has its own loader."""
    states = crash_states(scenario.old, operations, 40, seed=7)
    swapped_groups(states, Classifier(scenario, judge_39, workspace / "loaded").judged(states, start, twice=True))


@pytest.mark.parametrize("start", ["clean", pytest.param("unclean, recovery point 0", marks=pytest.mark.long)])
@pytest.mark.parametrize("profile", [pytest.param("judge_36", marks=pytest.mark.long), "judge_44"])
def test_every_prefix_and_subset_loads_in_other_releases(
    scenario: Scenario,
    operations: list[FileOperation],
    request: pytest.FixtureRequest,
    workspace: Path,
    profile: str,
    start: str,
) -> None:
    """X-01 .. X-13 by the loader in Scala, and by the newest one: .swap, .cleaned and .deleted mean the same."""
    judge: Judge = request.getfixturevalue(profile)
    states = crash_states(scenario.old, operations, 1 if start == "clean" else 20, seed=8)
    seen = swapped_groups(states, Classifier(scenario, judge, workspace / "loaded").judged(states, start))
    assert {(), (0,), (0, 60), (0, 60, 160)} <= set(seen)


@pytest.mark.long
@pytest.mark.parametrize("start", STARTS)
def test_every_prefix_and_subset_at_length(
    scenario: Scenario, operations: list[FileOperation], classifier: Classifier, start: str
) -> None:
    """The same with other subsets, every kind of start, loaded twice."""
    states = crash_states(scenario.old, operations, AT_LENGTH, seed=3)
    assert len(states) > 4 * AT_LENGTH
    swapped_groups(states, classifier.judged(states, start, twice=True))


@pytest.mark.long
def test_prefixes_one_by_one(scenario: Scenario, operations: list[FileOperation], classifier: Classifier) -> None:
    """S-34 is the commit point: the group is old before its last rename and new from then on."""
    states = [state for _, state in prefixes(scenario.old, operations)]
    swapped = [len(verdict.swapped) for verdict in classifier.judged(states)]
    commits = [
        step
        for step, operation in enumerate(operations, 1)
        if operation.target.endswith(".swap") and not operations[step].target.endswith(".swap")
    ]
    assert swapped == [sum(step >= commit for commit in commits) for step in range(len(states))]


def test_workspace_is_left_empty(workspace: Path) -> None:
    """The test leaves no files."""
    assert list(workspace.iterdir()) == []
