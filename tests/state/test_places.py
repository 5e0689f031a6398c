"""A copy of a log directory has its own state; a directory that was moved keeps it (U-46)."""

from __future__ import annotations

import json
import os
import shutil
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cleanerd.format.names import TopicPartition, parse_topic_partition_dir
from cleanerd.segments.log_dir import LogDir, read_log_dir
from cleanerd.segments.partition import PartitionLog, read_partition
from cleanerd.state.cleaner_checkpoint import CleanerdCheckpoint, LastSegment, PartitionState, StateStore
from cleanerd.state.other_places import copied_point, rules_of
from cleanerd.state.places import DirectoryPlaces
from tests.support.log_dirs import Partition, make_log_dir, with_directory_id
from tests.support.logs import keyed_batch

if TYPE_CHECKING:
    from pathlib import Path

VERSIONS = "strategy=timestamp;tombstone.mode=null"
KAFKAS = "strategy=offset"
CLOCK_REALTIME_COARSE = 5
SEGMENTS = {0: keyed_batch(0, [("a", "1")] * 5), 5: keyed_batch(5, [("a", "1")] * 5), 10: b""}


def log_dir_at(path: Path) -> Path:
    partition = Partition(SEGMENTS, topic_id=uuid.UUID(int=77), epochs=((0, 0),))
    return make_log_dir(path, {"orders-0": partition, "orders-1": partition})


def read(path: Path, partition: str = "orders-0") -> tuple[LogDir, PartitionLog]:
    log_dir = read_log_dir(path)
    name = parse_topic_partition_dir(partition)
    assert name is not None
    return log_dir, read_partition(log_dir, name)


def cleaned(log: PartitionLog, rules: str) -> PartitionState:
    """The state after a cleaning of ``log`` that wrote both closed segments."""
    return PartitionState(
        CleanerdCheckpoint(10, 0, rules, LastSegment.of(log.segments[1])), None, {"outcome": "cleaned"}
    )


def copy(path: Path, target: Path) -> Path:
    """As ``cp -a``: names, bytes and times are the original's."""
    shutil.copytree(path, target)
    return target


@pytest.fixture
def store(tmp_path: Path) -> StateStore:
    return StateStore(tmp_path / "state")


def test_a_copy_does_not_share_the_originals_state(tmp_path: Path, store: StateStore) -> None:
    """Neither finds the other's state, whichever was there first."""
    original = read(log_dir_at(tmp_path / "logs"))
    copied = read(copy(original[0].path, tmp_path / "copy"))
    store.save(*copied, cleaned(copied[1], VERSIONS))
    assert store.load(*original) is None
    store.save(*original, cleaned(original[1], KAFKAS))
    assert store.load(*copied) == cleaned(copied[1], VERSIONS)
    again = StateStore(store.root)
    assert (again.load(*original), again.load(*copied)) == (cleaned(original[1], KAFKAS), cleaned(copied[1], VERSIONS))


@pytest.mark.parametrize("partition", ["orders-0", "orders-1"])
def test_a_trial_on_a_copy_does_not_affect_the_original(tmp_path: Path, store: StateStore, partition: str) -> None:
    """U-6 needs the other directories' state: the original is older than the trial, so it is not a copy of it."""
    original = log_dir_at(tmp_path / "logs")
    copied = read(copy(original, tmp_path / "copy"))
    wait_a_tick(tmp_path)
    store.save(*copied, cleaned(copied[1], VERSIONS))
    assert rules_of(StateStore(store.root), *read(original, partition), None) is None


@pytest.mark.parametrize("partition", ["orders-0", "orders-1"])
@pytest.mark.parametrize("is_left", [True, False], ids=["the original is there", "the original is missing"])
def test_a_copy_of_a_cleaned_log_has_its_settings(
    tmp_path: Path, store: StateStore, partition: str, is_left: bool
) -> None:
    """U-6: a new disk, or a copy in use, is as protected from forgotten settings as the original was."""
    original = read(log_dir_at(tmp_path / "logs"))
    store.save(*original, cleaned(original[1], VERSIONS))
    copied = copy(original[0].path, tmp_path / "copy")
    if not is_left:
        shutil.rmtree(original[0].path)
    found = read(copied, partition)
    again = StateStore(store.root)
    assert again.load(*found) is None
    assert rules_of(again, *found, None) == VERSIONS
    expected = cleaned(original[1], VERSIONS).cleanerd_checkpoint if partition == "orders-0" else None
    assert copied_point(again, *found) == expected


def test_a_log_that_differs_from_the_cleaned_one(tmp_path: Path, store: StateStore) -> None:
    """Its last cleaned segment has another size: it does not come from that cleaning's result."""
    trial = read(log_dir_at(tmp_path / "trial"))
    point = cleaned(trial[1], VERSIONS).cleanerd_checkpoint
    assert point is not None
    shorter = replace(point, last_segment=replace(point.last_segment, size=1))
    store.save(*trial, PartitionState(shorter, None, None))
    assert rules_of(store, *read(log_dir_at(tmp_path / "logs")), None) is None


@pytest.mark.parametrize("how", ["renamed", "its files were moved"])
def test_a_directory_that_was_moved_keeps_its_state(tmp_path: Path, store: StateStore, how: str) -> None:
    """The inodes prove it; the next write updates the description, and a copy in the old place starts from zero."""
    before = read(log_dir_at(tmp_path / "logs"))
    state = cleaned(before[1], VERSIONS)
    store.save(*before, state)
    target = tmp_path / "moved"
    if how == "renamed":
        before[0].path.rename(target)
    else:
        target.mkdir()
        for each in before[0].path.iterdir():
            each.rename(target / each.name)
        before[0].path.rmdir()
    after = read(target)
    again = StateStore(store.root)
    assert again.load(*after) == state
    again.save(*after, state)
    left = read(copy(target, tmp_path / "logs"))
    third = StateStore(store.root)
    assert (third.load(*left), third.load(*after)) == (None, state)
    third.save(*left, cleaned(left[1], KAFKAS))
    assert StateStore(store.root).load(*after) == state


def test_a_copy_replaces_the_original(tmp_path: Path, store: StateStore) -> None:
    """The original was moved away for a trial, and comes back."""
    path = log_dir_at(tmp_path / "logs")
    original = read(path)
    store.save(*original, cleaned(original[1], VERSIONS))
    path.rename(tmp_path / "aside")
    trial = read(copy(tmp_path / "aside", path))
    second = StateStore(store.root)
    assert second.load(*trial) is None
    second.save(*trial, cleaned(trial[1], KAFKAS))
    assert StateStore(store.root).load(*read(tmp_path / "aside")) == cleaned(original[1], VERSIONS)
    shutil.rmtree(path)
    (tmp_path / "aside").rename(path)
    assert StateStore(store.root).load(*read(path)) == cleaned(original[1], VERSIONS)


def test_another_file_system_with_the_same_inode(tmp_path: Path, store: StateStore) -> None:
    """A mount point has the same inode on every disk: only a segment that a cleaning left proves the move."""
    log_dir, log = read(log_dir_at(tmp_path / "logs"))
    store.save(log_dir, log, cleaned(log, VERSIONS))
    renumbered = replace(log_dir, place=replace(log_dir.place, file_system=log_dir.place.file_system + 1))
    assert StateStore(store.root).load(renumbered, log) == cleaned(log, VERSIONS)
    for name in ("orders-0", "orders-1"):
        shutil.copytree(log_dir.path / name, tmp_path / name)
        shutil.rmtree(log_dir.path / name)
        (tmp_path / name).rename(log_dir.path / name)
    assert StateStore(store.root).load(renumbered, log) is None


def test_one_directory_under_two_paths(tmp_path: Path, store: StateStore) -> None:
    """A link, like a bind mount, shows the same directory: it has one state."""
    before = read(log_dir_at(tmp_path / "logs"))
    store.save(*before, cleaned(before[1], VERSIONS))
    (tmp_path / "link").symlink_to(before[0].path)
    assert StateStore(store.root).load(*read(tmp_path / "link")) == cleaned(before[1], VERSIONS)
    moved = replace(before[0].place, path=str(tmp_path / "link"))
    assert DirectoryPlaces(store.root).name_of(moved) == store.directory_name(before[0])


@pytest.mark.parametrize("text", [None, "{", '{"format": 2}', '{"format": 1, "place": 7}'])
def test_a_place_without_a_readable_description(tmp_path: Path, store: StateStore, text: str | None) -> None:
    """Its own directory is found by its name; in other directories it may be about this log, and its settings count."""
    before = read(log_dir_at(tmp_path / "logs"))
    store.save(*before, cleaned(before[1], VERSIONS))
    (described,) = store.root.rglob("place")
    described.unlink()
    if text is not None:
        described.write_text(text)
    again = StateStore(store.root)
    assert again.load(*before) == cleaned(before[1], VERSIONS)
    before[0].path.rename(tmp_path / "moved")
    moved = read(tmp_path / "moved")
    assert again.load(*moved) is None
    assert rules_of(again, *moved, None) == VERSIONS


def test_copies_of_another_directory(tmp_path: Path, store: StateStore) -> None:
    """Of two state directories with one id the existing one counts: that of a deleted trial copy does not."""
    one, two = (with_directory_id(log_dir_at(tmp_path / name), uuid.UUID(int=9)) for name in ("trial", "real"))
    trial, real = read(one), read(two)
    store.save(*trial, cleaned(trial[1], VERSIONS))
    store.save(*real, cleaned(real[1], KAFKAS))
    shutil.rmtree(one)
    assert rules_of(StateStore(store.root), *read(log_dir_at(tmp_path / "logs")), None) == KAFKAS


def test_a_broker_that_is_upgraded_gets_an_id(tmp_path: Path, store: StateStore) -> None:
    """The directory is the same, so its state stays."""
    path = log_dir_at(tmp_path / "logs")
    described = (path / "meta.properties").read_text()
    (path / "meta.properties").write_text(described[: described.index("directory.id")])
    before = read(path)
    store.save(*before, cleaned(before[1], VERSIONS))
    (path / "meta.properties").write_text(described)
    assert StateStore(store.root).load(*read(path)) == cleaned(before[1], VERSIONS)


def test_a_place_has_its_first_time(tmp_path: Path, store: StateStore) -> None:
    """A copy is identified by the time of the first cleaning: updates of the description keep it."""
    before = read(log_dir_at(tmp_path / "logs"))
    store.save(*before, cleaned(before[1], VERSIONS))
    (described,) = store.root.rglob("place")
    first = json.loads(described.read_text())["since_ns"]
    assert first <= os.stat(described).st_ctime_ns
    before[0].path.rename(tmp_path / "moved")
    after = read(tmp_path / "moved")
    StateStore(store.root).save(*after, cleaned(after[1], VERSIONS))
    document = json.loads(described.read_text())
    assert (document["since_ns"], document["path"]) == (first, str(tmp_path / "moved"))


def test_a_clock_that_was_set_back(tmp_path: Path, store: StateStore) -> None:
    """A first time in the future is ignored: a copy counts as one."""
    original = read(log_dir_at(tmp_path / "logs"))
    store.save(*original, cleaned(original[1], VERSIONS))
    (described,) = store.root.rglob("place")
    document = json.loads(described.read_text())
    described.write_text(json.dumps({**document, "since_ns": document["since_ns"] + 10**15}))
    assert rules_of(StateStore(store.root), *read(copy(original[0].path, tmp_path / "copy")), None) == VERSIONS


def test_the_first_cleanings_of_a_directory_end_at_once(tmp_path: Path) -> None:
    """Each of them describes the place: none fails because another one does it too."""
    log_dir, log = read(log_dir_at(tmp_path / "logs"))
    logs = [replace(log, name=TopicPartition("orders", number)) for number in range(8)]
    with ThreadPoolExecutor(len(logs)) as threads:
        for round_ in range(30):
            store = StateStore(tmp_path / f"state{round_}")
            list(threads.map(lambda each, to=store: to.save(log_dir, each, cleaned(each, VERSIONS)), logs))
            assert store.warnings == []


def wait_a_tick(tmp_path: Path) -> None:
    """Wait until the clock of the file systems is past every change so far.

    A kernel may give a changed file a finer, later time than that clock shows at the moment.
    """
    probe = tmp_path / "probe"
    probe.touch()
    probe.chmod(0o600)
    changed_ns = os.stat(probe).st_ctime_ns
    while time.clock_gettime_ns(CLOCK_REALTIME_COARSE) <= changed_ns:
        time.sleep(0.001)
