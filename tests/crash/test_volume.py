"""The model of a disk that loses power promises exactly as much as POSIX."""

from __future__ import annotations

import random

from cleanerd.swap.files import FileOperation
from tests.crash.volume import Disk, State, Window, prefixes, windows

START = State({"a": b"1", "b": b"2"}, frozenset({"d"}))
RENAME_A = FileOperation("rename", "a", target="c")
RENAME_B = FileOperation("rename", "b", target="a")
BARRIER = FileOperation("fsync_directory", ".")


def test_a_kill_leaves_every_operation_done_so_far() -> None:
    states = [state.files for _, state in prefixes(START, [RENAME_A, RENAME_B, BARRIER])]
    assert states[:3] == [{"a": b"1", "b": b"2"}, {"c": b"1", "b": b"2"}, {"c": b"1", "a": b"2"}]


def test_before_the_barrier_any_subset_is_possible_and_after_it_only_one() -> None:
    disk = Disk.holding(START)
    disk.perform(RENAME_A)
    disk.perform(RENAME_B)
    found = [state.files for state in Window(2, disk).subsets(10, random.Random(0))]
    assert found == [
        {"a": b"1", "b": b"2"},
        {"c": b"1", "b": b"2"},
        {"a": b"2"},  # the second rename alone: over the file that the first one had moved away
        {"c": b"1", "a": b"2"},
    ]
    disk.perform(BARRIER)
    assert [state.files for state in Window(3, disk).subsets(10, random.Random(0))] == [{"c": b"1", "a": b"2"}]


def test_a_barrier_is_for_its_own_directory_only() -> None:
    disk = Disk.holding(START)
    disk.perform(RENAME_A)
    disk.perform(FileOperation("fsync_directory", "d"))
    assert disk.after_crash([]).files == START.files


def test_bytes_are_certain_only_after_their_own_fsync() -> None:
    disk = Disk.holding(START)
    disk.perform(FileOperation("append", "d/journal", data=b"line"))
    disk.perform(FileOperation("fsync_directory", "d"))
    assert disk.after_crash([]).files["d/journal"] == b""
    disk.perform(FileOperation("fsync", "d/journal"))
    disk.perform(FileOperation("append", "d/journal", data=b" two"))
    assert disk.after_crash([]).files["d/journal"] == b"line"
    chance = random.Random(3)
    torn = {disk.after_crash([], chance).files["d/journal"] for _ in range(100)}
    assert torn == {b"line", b"line ", b"line t", b"line tw", b"line two"}


def test_a_new_name_without_its_directory_barrier_may_be_missing() -> None:
    disk = Disk.holding(START)
    disk.perform(FileOperation("write", "d/new", data=b"x"))
    disk.perform(FileOperation("fsync", "d/new"))
    assert "d/new" not in disk.after_crash([]).files
    disk.perform(FileOperation("rename", "d/new", target="d/final"))
    assert disk.after_crash([1]).files["d/final"] == b"x"


def test_a_removed_directory_loses_its_files() -> None:
    disk = Disk.holding(State({"d/x": b""}, frozenset({"d"})))
    disk.perform(FileOperation("unlink", "d/x"))
    disk.perform(FileOperation("rmdir", "d"))
    assert disk.after_crash([1]) == State({}, frozenset())
    assert disk.after_crash([0]) == State({}, frozenset({"d"}))


def test_there_is_a_window_before_each_barrier() -> None:
    steps = [window.step for window in windows(START, [RENAME_A, BARRIER, RENAME_B, BARRIER, BARRIER])]
    assert steps == [1, 3]


def test_a_state_survives_being_written_and_read(tmp_path_factory) -> None:  # type: ignore[no-untyped-def]
    place = tmp_path_factory.mktemp("state") / "topic-0"
    START.write(place)
    assert State.read(place) == START
