"""Kafka's loader and cleanerd's recovery on every crash state of an undo (S-40).

One segment is replaced by several, so the loader sees several ``.log.swap`` files at once (F-12). The log is the one of
the other crash tests in reverse: new at the beginning, old at the end, later groups first.
"""

from __future__ import annotations

import shutil
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from cleanerd.swap.files import PartitionFiles
from cleanerd.swap.recover import recover
from tests.crash.classify import STARTS, Classifier, swapped_groups
from tests.crash.scenario import TOPIC_DIR
from tests.crash.states import crash_states, crashes_while_recovering
from tests.crash.undoing import staged_for_undo, undo_all
from tests.crash.volume import RecordingFiles, State, prefixes

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.swap.files import FileOperation
    from tests.crash.scenario import Scenario
    from tests.kafka.judge import Judge

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(1200)]

SUBSETS = 300


@pytest.fixture(scope="module")
def undo(scenario: Scenario, tmp_path_factory: pytest.TempPathFactory) -> list[FileOperation]:
    """The recorded undo of all three groups."""
    directory = tmp_path_factory.mktemp("undone") / TOPIC_DIR
    staged_for_undo(scenario).write(directory)
    with RecordingFiles(directory) as files:
        undo_all(files, scenario)
        return files.operations


def test_the_recorded_undo_does_what_it_should(scenario: Scenario, undo: list[FileOperation]) -> None:
    """All segments are the old ones to the byte, and no other files are left; the empty segment 100 is back as well."""
    last = dict(prefixes(staged_for_undo(scenario), undo))[len(undo)]
    logs = scenario.log_files(())
    assert {name: last.files.get(name) for name in logs} == logs
    assert last.directories == frozenset()
    assert not [name for name in last.files if name.endswith((".swap", ".cleaned", ".deleted"))]
    assert last.files[f"{100:020d}.log"] == b""


@pytest.mark.long
@pytest.mark.parametrize("subsets", [100, pytest.param(SUBSETS, marks=pytest.mark.long)])
def test_every_prefix_and_subset_loads_as_old_or_new(
    scenario: Scenario, undo: list[FileOperation], classifier: Classifier, subsets: int
) -> None:
    """S-40, F-12: on a clean start every group is old or new, and a later one is never behind an earlier one."""
    states = crash_states(staged_for_undo(scenario), undo, subsets, seed=11)
    assert len(states) > 5 * subsets
    seen = swapped_groups(states, classifier.judged(states))
    assert min(seen[()], seen[(0,)], seen[(0, 60)], seen[(0, 60, 160)]) > 20


@pytest.mark.long
@pytest.mark.parametrize(
    "start",
    [pytest.param(start, marks=[pytest.mark.long] * ("0" not in start)) for start in STARTS if start != "clean"],
)
def test_every_undo_state_loads_after_an_unclean_stop(
    scenario: Scenario, undo: list[FileOperation], classifier: Classifier, start: str
) -> None:
    """The broker recovers the log, all of it or nothing; the second load changes nothing."""
    right_all(crash_states(staged_for_undo(scenario), undo, 30, seed=12), classifier, start)


@pytest.mark.long
def test_the_loader_of_3_9_agrees(
    scenario: Scenario, undo: list[FileOperation], judge_39: Judge, workspace: Path
) -> None:
    """The oldest release that cleanerd supports."""
    states = crash_states(staged_for_undo(scenario), undo, 30, seed=13)
    right_all(states, Classifier(scenario, judge_39, workspace / "loaded"), "clean")


def right_all(states: list[State], classifier: Classifier, start: str) -> None:
    """Loaded twice, with the same outcome."""
    assert len(states) > 300
    swapped_groups(states, classifier.judged(states, start, twice=True))


@pytest.mark.parametrize("subsets", [60, pytest.param(SUBSETS, marks=pytest.mark.long)])
def test_every_prefix_and_subset_is_recovered(
    scenario: Scenario, undo: list[FileOperation], classifier: Classifier, workspace: Path, subsets: int
) -> None:
    """The recovery makes each group old or new, leaves no files, and finds no further work."""
    outcomes = []
    for state in crash_states(staged_for_undo(scenario), undo, subsets, seed=14):
        state.write(workspace / TOPIC_DIR)
        with PartitionFiles(workspace / TOPIC_DIR) as files:
            assert recover(files).foreign == ()
            after = State.read(workspace / TOPIC_DIR)
            recover(files)
        assert State.read(workspace / TOPIC_DIR) == after
        shutil.rmtree(workspace / TOPIC_DIR)
        assert not [name for name in after.files if name.endswith((".swap", ".cleaned", ".deleted"))]
        assert not after.directories
        outcomes.append(after)
    unique = list({outcome.key(): outcome for outcome in outcomes}.values())
    swapped_groups(unique, classifier.judged(unique))
    counted = Counter(len([name for name in outcome.files if name.endswith(".log")]) for outcome in outcomes)
    assert set(counted) == {5, 6, 9, 11}, "cleaned; one, two, three groups restored"


@pytest.mark.long
def test_power_fails_while_recovering(
    scenario: Scenario, undo: list[FileOperation], classifier: Classifier, workspace: Path
) -> None:
    """S-28 after a kill, with a power cut during the recovery."""
    states = crashes_while_recovering(staged_for_undo(scenario), undo, workspace / TOPIC_DIR, per_window=4, seed=15)
    assert len(states) > 200
    swapped_groups(states, classifier.judged(states))


@pytest.mark.long
@pytest.mark.parametrize("wrong", ["no barrier before the first segment", "logs without barriers"])
def test_the_barriers_are_needed(
    scenario: Scenario, undo: list[FileOperation], classifier: Classifier, wrong: str
) -> None:
    """Without the barrier of step 2 or those of step 5 the test finds a mixed state."""
    is_log = [op.kind == "rename" and op.name.endswith(".log.swap") for op in undo]
    is_swap = [op.kind == "rename" and op.target.endswith(".swap") for op in undo]
    between = is_log if wrong.startswith("logs") else is_swap
    kept = [
        op
        for at, op in enumerate(undo)
        if not (op.kind == "fsync_directory" and op.name == "." and between[at - 1] and any(between[at + 1 : at + 2]))
    ]
    assert len(kept) < len(undo)
    verdicts = classifier.judged(crash_states(staged_for_undo(scenario), kept, SUBSETS, seed=16))
    assert any(verdict.problem for verdict in verdicts)
