"""A partition's strategy is on the disk before its first segment is replaced (U-6), in every mode."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.config.fingerprint import KAFKAS_FINGERPRINT, fingerprint
from cleanerd.fsio import state_files
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.segments.partition import read_partition
from cleanerd.state import cleaner_checkpoint
from cleanerd.state.cleaner_checkpoint import StateStore
from cleanerd.state.other_places import rules_of
from cleanerd.swap import apply_staged, offline_swap, undo
from cleanerd.swap.agent_swap import Swapper
from cleanerd.swap.restore import restore_group
from cleanerd.swap.round import clean_partition
from tests.cleaner.driver import NAME, Silent, clean, config, scratch
from tests.support.failing_files import Killed
from tests.support.log_dirs import make_log_dir, read_segments, tree
from tests.swap.live_round import clean_beside, running
from tests.swap.offline_round import PARTITION, TOPIC, force, opened, two_groups
from tests.swap.offline_round import undo_last as undone
from tests.swap.versioned_round import apply_versioned, stage_versioned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from cleanerd.cleaner.result import CleaningResult
    from cleanerd.config.topic_config import TopicConfig
    from cleanerd.fsio.state_files import UnreadableState

VERSIONED = config(segment_bytes=3000, compaction_strategy="timestamp")
RULES = fingerprint(VERSIONED)

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"


@pytest.fixture
def root() -> Iterator[Path]:
    with scratch() as path:
        yield path / "logs"


def remembered(root: Path) -> str | UnreadableState | None:
    """The strategies that a newly started process knows."""
    log_dir, store = read_log_dir(root), StateStore(root.parent / "state", keeps_damaged=True)
    log = read_partition(log_dir, log_dir.partitions[0])
    return rules_of(store, log_dir, log, store.load(log_dir, log))


def offline(root: Path, topic: TopicConfig) -> CleaningResult:
    if not root.exists():
        make_log_dir(root, {NAME: two_groups()})
    return clean(root, force(), topic)


def by_apply(root: Path, topic: TopicConfig) -> CleaningResult:
    if not root.exists():
        make_log_dir(root, {NAME: two_groups()})
    if not (root / NAME / ".kstage").exists():
        stage_versioned(root, topic)
        assert remembered(root) is None, "no cleaning used the strategy so far"
    return apply_versioned(root, topic)


def live(root: Path, topic: TopicConfig) -> CleaningResult:
    with running(root) as agent:
        return clean_beside(agent, topic=topic)


WAYS: dict[str, tuple[Any, Any, str]] = {
    "offline": (offline, offline_swap, "swap_group"),
    "apply": (by_apply, apply_staged, "swap_group"),
    "live": (live, Swapper, "swap"),
}
"""A live cleaning, and the place where it swaps one group."""


@pytest.mark.parametrize("way", WAYS)
def test_killed_between_two_groups(root: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """U-6: the first group has lost its superseded records; a later run without --config is refused."""
    act, place, name = WAYS[way]
    real, known = getattr(place, name), []

    def swap(*arguments: Any, **more: Any) -> Any:
        known.append(remembered(root))
        if len(known) == 2:
            raise Killed
        return real(*arguments, **more)

    with monkeypatch.context() as patch:
        # Killed between two groups, in every way.
        patch.setattr(place, name, swap)
        with suppress(Killed):
            act(root, VERSIONED)
    assert known == [RULES, RULES], "before the first swap"
    assert remembered(root) == RULES
    before = log_tree(root)
    assert {"a", "b", "c"} > {name.decode() for name in first_keys(root)}, "one group was swapped"
    refused = clean(root, force(), TOPIC)
    assert (refused.outcome, log_tree(root)) == ("refused", before)
    assert "was last cleaned by timestamp; these settings say offset (was --config forgotten?" in refused.reason
    (root / CLEAN_SHUTDOWN).touch()
    assert clean(root, force(), VERSIONED).outcome == "cleaned"


def log_tree(root: Path) -> dict[str, tuple[object, ...]]:
    """The log, without files that wait for another ``apply``."""
    return {name: reported for name, reported in tree(root / NAME).items() if not name.startswith(".kstage")}


def first_keys(root: Path) -> set[bytes]:
    """Keys of the records of the first segment."""
    (_, batches), *_ = sorted(read_segments(root / NAME).items())
    return {record.key for stored in batches for record in stored.records if record.key is not None}


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From now on the state directory's disk is full."""

    def refuse(path: Path, *_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    # only the state directory's disk is full, and only from then on
    return lambda: monkeypatch.setattr(cleaner_checkpoint, "write_state_file", refuse)


@pytest.mark.parametrize("way", WAYS)
def test_no_segment_is_replaced_if_the_strategy_cannot_be_stored(
    root: Path, monkeypatch: pytest.MonkeyPatch, full: Callable[[], None], way: str
) -> None:
    """U-6: a full or read-only state directory: no segment is replaced, a plan stays, and no quarantine."""
    act, *_ = WAYS[way]
    full()
    result = act(root, VERSIONED)
    assert (result.outcome, remembered(root)) == ("failed", None)
    assert "the topic's strategy timestamp cannot be stored: No space left on device" in result.reason
    assert "free space for the state directory, or make it writable" in result.reason
    assert first_keys(root) == {b"a", b"b", b"c"}
    if way == "live":
        return
    monkeypatch.undo()
    assert act(root, VERSIONED).outcome == "cleaned", "a plan was kept"


@pytest.mark.parametrize("way", WAYS)
def test_known_strategies_need_no_state_directory(root: Path, full: Callable[[], None], way: str) -> None:
    """U-10: by Kafka's strategy, or a remembered one, a full state directory only costs repeated work."""
    act, *_ = WAYS[way]
    full()
    assert act(root, TOPIC).outcome == "cleaned"


def test_a_remembered_strategy_is_not_written_again(root: Path, full: Callable[[], None]) -> None:
    make_log_dir(root, {NAME: two_groups()})
    log_dir, store = read_log_dir(root), StateStore(root.parent / "state")
    log = read_partition(log_dir, log_dir.partitions[0])
    store.require_rules(log_dir, log, KAFKAS_FINGERPRINT)
    assert not store.root.exists()
    store.require_rules(log_dir, log, RULES)
    full()
    store.require_rules(log_dir, log, RULES)
    assert clean(root, force(), VERSIONED).outcome == "cleaned"


def test_an_undo_that_is_killed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """U-6: while the log has cleaned segments of that strategy, it is remembered; afterwards it is not."""
    make_log_dir(root, {NAME: two_groups()})
    (root.parent / "kept").mkdir()
    with opened(root.parent) as locked:
        assert clean_partition(locked, PARTITION, VERSIONED, force(), Silent()).outcome == "cleaned"
    real, calls = restore_group, []

    def restore(*arguments: Any) -> None:
        calls.append(remembered(root))
        if len(calls) == 2:
            raise Killed
        real(*arguments)

    with monkeypatch.context() as patch:
        # Killed between two groups.
        patch.setattr(undo, "restore_group", restore)
        with suppress(Killed):
            undone(root.parent)
    assert [*calls, remembered(root)] == [RULES, RULES, RULES]
    assert undone(root.parent).outcome in ("undone", "unchanged")
    assert remembered(root) is None
    assert clean(root, force(), TOPIC).outcome == "cleaned"


def test_new_directories_of_the_state_are_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut between two groups loses no directory in which the strategy was stored."""
    flushed = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        flushed.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    # flushes leave no trace on a disk
    monkeypatch.setattr(os, "fsync", fsync)
    state = tmp_path / "above" / "state"
    for directory in (state, state / "partitions", state / "partitions" / "id"):
        state_files.make_directory(directory, tmp_path.stat(), state)
        assert flushed[-1] == str(directory.parent)
    flushed.clear()
    state_files.make_directory(state / "partitions", tmp_path.stat(), state)
    assert flushed == [], "it was there"
