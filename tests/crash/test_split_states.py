"""Kafka's loader and cleanerd's recovery on every crash state while a segment is split (C-67, F-12).

The swap is that of an undo (``test_undo_states.py``), recorded from a real split of a real overflowed segment. There
are only two right logs: the old one and the split one, with the same batches.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from cleanerd.format.names import parse_file_name
from cleanerd.swap import round as one_round
from cleanerd.swap import split
from cleanerd.swap.recover import recover
from tests.cleaner.driver import NAME, clean, config
from tests.cleaner.splitting import enough, force
from tests.crash.scenario import digest
from tests.crash.states import crash_states, crashes_while_recovering
from tests.crash.volume import RecordingFiles, State
from tests.kafka.log_spec import ToLoad
from tests.support.log_dirs import make_log_dir
from tests.support.overflow import END, NOW_MS, PIECES, SPAN, overflowed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from cleanerd.swap.files import FileOperation
    from tests.kafka.judge import Judge

pytestmark = [pytest.mark.kafka]

SUBSETS = 200
OLD, NEW = "old", "split"


@dataclass(frozen=True, slots=True)
class Recorded:
    """A split from the moment when all is staged: the directory then, the operations, and the logs before and after."""

    start: State
    operations: Sequence[FileOperation]
    known: dict[str, str]
    """Digest of the ``.log`` files by log."""
    indexes: dict[str, dict[str, bytes]]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    root = make_log_dir(tmp_path_factory.mktemp("split") / "logs", {NAME: overflowed()})
    place = root / NAME
    old = State.read(place)
    seen: list[tuple[RecordingFiles, int, State]] = []
    real = split.restore_group

    def restore_group(files: RecordingFiles, *others: object) -> None:
        seen.append((files, len(files.operations), State.read(place)))
        real(files, *others)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(one_round, "PartitionFiles", RecordingFiles)
        patch.setattr(split, "restore_group", restore_group)
        patch.setattr(one_round, "_execute", enough)
        assert "enough" in clean(root, force(), config(index_interval_bytes=1)).reason
    ((files, first, start),) = seen
    new = State.read(place)
    assert sorted(bases(new)) == [*PIECES, 3 * SPAN, END]
    known = {digest(logs(old)): OLD, digest(logs(new)): NEW}
    return Recorded(start, files.operations[first:], known, {OLD: indexes(old), NEW: indexes(new)})


def logs(state: State) -> dict[str, bytes]:
    return {name: data for name, data in state.files.items() if name.endswith(".log")}


def bases(state: State) -> list[int]:
    return [place[0] for name in logs(state) if (place := parse_file_name(name)) is not None]


def indexes(state: State) -> dict[str, bytes]:
    """Those of the segments below the active one."""
    others = f"{END:020d}", ".kstage/"
    return {name: data for name, data in state.files.items() if name.endswith("index") and not name.startswith(others)}


def loaded(
    judge: Judge, workspace: Path, recorded: Recorded, states: list[State], *, clean_start: bool = True
) -> Iterator[str]:
    """The log that Kafka finds in each state, loaded twice; asserts that no files are left and every index is right."""
    for begin in range(0, len(states), 300):
        part = states[begin : begin + 300]
        places = [workspace / str(number) / NAME for number in range(len(part))]
        for state, place in zip(part, places, strict=True):
            state.write(place)
        to_load = [ToLoad(str(place), clean_shutdown=clean_start, recovery_point=END) for place in places]
        for _ in range(2):
            answers = judge.load(to_load, now_ms=NOW_MS, config={"index.interval.bytes": "1"})
        for answer, place in zip(answers, places, strict=True):
            assert answer.error is None, answer.message
            assert answer.log_end_offset == END + 1
            assert not [name for name in answer.files if name.endswith((".swap", ".cleaned", ".deleted"))]
            kind = recorded.known[answer.digest]
            found = State.read(place)
            assert indexes(found) == recorded.indexes[kind]
            yield kind
            shutil.rmtree(place.parent)


@pytest.mark.long
def test_every_prefix_and_subset_loads_as_old_or_split(recorded: Recorded, judge_43: Judge, workspace: Path) -> None:
    """C-67, S-31..S-38: no batch is lost or doubled, whatever the last operation."""
    states = crash_states(recorded.start, recorded.operations, SUBSETS, seed=21)
    assert len(states) > 400
    kinds = list(loaded(judge_43, workspace, recorded, states))
    assert min(kinds.count(OLD), kinds.count(NEW)) > 50


def test_after_an_unclean_stop_and_by_3_9(recorded: Recorded, judge_39: Judge, workspace: Path) -> None:
    """The oldest release that cleanerd supports agrees."""
    states = crash_states(recorded.start, recorded.operations, 20, seed=22)
    assert set(loaded(judge_39, workspace, recorded, states, clean_start=False)) == {OLD, NEW}


@pytest.mark.long
def test_every_prefix_and_subset_is_recovered(recorded: Recorded, workspace: Path) -> None:
    """The recovery gives one of the two, with all indexes."""
    outcomes = set()
    for state in crash_states(recorded.start, recorded.operations, SUBSETS, seed=23):
        state.write(workspace / NAME)
        with RecordingFiles(workspace / NAME) as files:
            assert recover(files).foreign == ()
        outcomes.add(classified(recorded, State.read(workspace / NAME)))
        shutil.rmtree(workspace / NAME)
    assert outcomes == {OLD, NEW}


@pytest.mark.long
def test_power_fails_while_recovering(recorded: Recorded, judge_43: Judge, workspace: Path) -> None:
    """S-28 after a kill, with a power cut during the recovery."""
    states = crashes_while_recovering(recorded.start, recorded.operations, workspace / "recovering" / NAME, 4, seed=24)
    assert set(loaded(judge_43, workspace, recorded, states)) == {OLD, NEW}


def classified(recorded: Recorded, state: State) -> str:
    assert not state.directories
    assert not [name for name in state.files if name.endswith((".swap", ".cleaned", ".deleted"))]
    kind = recorded.known[digest(logs(state))]
    assert indexes(state) == recorded.indexes[kind]
    return kind
