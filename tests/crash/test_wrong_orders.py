"""Negative controls: the classifier must find every wrong way to swap, or the other tests prove little."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

import pytest

from cleanerd.cleaner.manifest import staged_name
from cleanerd.swap.files import FileOperation
from cleanerd.swap.group_swap import final_name, swap_name
from cleanerd.swap.recover import recover
from tests.crash.classify import Classifier
from tests.crash.scenario import CONFIG, NOW_MS, PLAN, TOPIC_DIR, data, new_segments, record, swap_all
from tests.crash.states import crash_states
from tests.crash.volume import Disk, RecordingFiles, State, Window, prefixes
from tests.kafka.judge import Segment

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.crash.scenario import Scenario
    from tests.kafka.judge import Judge

pytestmark = [pytest.mark.kafka]


def first_problem(states: Iterable[State], classifier: Classifier, *, like: str = "") -> str | None:
    """The classifier's first problem that contains ``like``."""
    problems = (verdict.problem for verdict in classifier.judged(states) if verdict.problem is not None)
    return next((problem for problem in problems if like in problem), None)


def without_barrier(operations: list[FileOperation], number: int) -> list[FileOperation]:
    """Omit the ``number``-th flush of the partition directory."""
    counter = count()
    return [
        operation
        for operation in operations
        if not (operation.kind == "fsync_directory" and operation.name == "." and next(counter) == number)
    ]


@pytest.mark.long
@pytest.mark.parametrize(
    ("step", "number"),
    [
        ("S-34", 1),
        *(
            pytest.param(step, number, marks=pytest.mark.long)
            for step, number in (("S-31", 0), ("S-35", 2), ("S-36", 3))
        ),
    ],
)
def test_each_barrier_is_needed(
    scenario: Scenario, operations: list[FileOperation], classifier: Classifier, step: str, number: int
) -> None:
    """S-31 .. S-36: without the barrier after the step some subset is wrong."""
    states = crash_states(scenario.old, without_barrier(operations, number), 500, seed=number)
    assert first_problem(states, classifier), f"no test noticed that {step} was not flushed"


def test_outputs_that_are_not_flushed_are_noticed(
    scenario: Scenario, operations: list[FileOperation], classifier: Classifier
) -> None:
    """X-18: without a flush the names may be on the disk, and the records not."""
    unflushed = [operation for operation in operations if operation.kind != "fsync"]
    assert len(unflushed) < len(operations)
    assert first_problem(crash_states(scenario.old, unflushed, 500, seed=18), classifier)


@pytest.mark.long
def test_groups_in_the_wrong_order_are_noticed(scenario: Scenario, classifier: Classifier, tmp_path: Path) -> None:
    """S-30: with descending groups a crash in between leaves a later group new and an earlier one old."""
    scenario.old.write(tmp_path / TOPIC_DIR)
    with RecordingFiles(tmp_path / TOPIC_DIR) as files:
        swap_all(files, scenario, scenario.groups[::-1])
    states = [state for _, state in prefixes(scenario.old, files.operations)]
    assert first_problem(states, classifier, like="not a prefix")


def test_an_index_before_its_log_is_noticed(scenario: Scenario, classifier: Classifier) -> None:
    """X-16: index ``.swap`` before log ``.swap``, without a ``.cleaned`` to cover it."""
    staged = {staged_name(PLAN, 0, kind): content for kind, content in scenario.outputs[0].items()}
    start = replace(scenario.old, files={**scenario.old.files, **staged})
    moves = [
        FileOperation("rename", staged_name(PLAN, 0, kind), target=swap_name(0, kind))
        for kind in ("index", "timeindex")
    ]
    states = [state for _, state in prefixes(start, moves)]
    assert [verdict.problem is None for verdict in classifier.judged(states)] == [True, False, False]


def test_a_log_renamed_over_the_old_one_is_noticed(scenario: Scenario, classifier: Classifier) -> None:
    """X-15: new log, old index."""
    files = {**scenario.old.files, final_name(0, "log"): scenario.outputs[0]["log"]}
    assert first_problem([replace(scenario.old, files=files)], classifier)


def test_a_final_index_before_its_log_is_noticed(
    scenario: Scenario, operations: list[FileOperation], classifier: Classifier
) -> None:
    """X-17: S-37 before S-36; the loader deletes the right index and makes an empty one."""
    step = next(step for step, operation in enumerate(operations) if operation.name == swap_name(0, "log"))
    state = dict(prefixes(scenario.old, operations))[step]
    files = dict(state.files)
    files[final_name(0, "index")] = files.pop(swap_name(0, "index"))
    assert first_problem(
        [replace(state, files=files)], classifier, like=f"{final_name(0, 'index')} differs from the written one"
    )


@pytest.mark.long
def test_a_dropped_last_batch_is_noticed(judge_43: Judge, scenario: Scenario, tmp_path: Path) -> None:
    """X-14, S-09: an output that ends before its sources do brings a removed segment back."""
    segments = [
        Segment(60, (data(70, 10, keep=(77,)), data(80, 20, keep=(80, 99)))) if segment.base == 60 else segment
        for segment in new_segments()
    ]
    short = tmp_path / "short" / TOPIC_DIR
    judge_43.make(short, segments, now_ms=NOW_MS, config=CONFIG)
    made = State.read(short)
    outputs = {kind: made.files[final_name(60, kind)] for kind in scenario.outputs[60]}
    wrong = replace(scenario, outputs={**scenario.outputs, 60: outputs})
    operations = record(wrong, tmp_path / "recorded" / TOPIC_DIR)
    classifier = Classifier(wrong, judge_43, tmp_path / "loaded")
    states = crash_states(wrong.old, operations, 200, seed=1)
    problem = first_problem(states, classifier, like="neither old nor new")
    assert problem is not None
    assert f"{120:020d}.log" in problem


@pytest.mark.long
def test_a_recovery_without_its_first_barrier_is_noticed(
    scenario: Scenario, operations: list[FileOperation], classifier: Classifier, workspace: Path
) -> None:
    """A killed process leaves its renames unflushed; a recovery that builds on them must flush them first."""
    step = next(step for step, operation in enumerate(operations) if operation.name == final_name(0, "index"))
    disk = Disk.holding(scenario.old)
    for operation in operations[: step - 1]:  # all but the barrier of S-34
        disk.perform(operation)
    place = workspace / "topic-0"
    disk.seen().write(place)
    with RecordingFiles(place) as files:
        recover(files)
    assert files.operations[0] == FileOperation("fsync_directory", ".")
    for operation in files.operations[1:]:
        if operation.kind == "fsync_directory":
            break
        disk.perform(operation)
    assert first_problem(Window(step, disk).subsets(500, random.Random(1)), classifier)
