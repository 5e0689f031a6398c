"""The crash states of a recorded swap, each once."""

from __future__ import annotations

import copy
import random
import shutil
from typing import TYPE_CHECKING

from cleanerd.swap.recover import recover
from tests.crash.volume import Disk, RecordingFiles, State, Window, prefixes, windows
from tests.support.length import at_length

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from cleanerd.swap.files import FileOperation


SUBSETS = 400
"""Subsets of the uncertain changes before each barrier; some windows have fewer."""
AT_LENGTH = at_length(500)


def crash_states(start: State, operations: Sequence[FileOperation], per_window: int, seed: int) -> list[State]:
    """Every prefix, and ``per_window`` subsets of the uncertain changes before each barrier, or all if few."""
    chance = random.Random(seed)
    found: dict[tuple[object, ...], State] = {}
    for _, state in prefixes(start, operations):
        found.setdefault(state.key(), state)
    for window in windows(start, operations):
        for state in window.subsets(per_window, chance):
            found.setdefault(state.key(), state)
    return list(found.values())


def crashes_while_recovering(
    start: State, operations: Sequence[FileOperation], place: Path, per_window: int, seed: int
) -> list[State]:
    """Killed after every step; recovery begins, and power fails during the recovery.

    The killed process's changes are then still partly uncertain: only the recovery flushes them.
    """
    chance = random.Random(seed)
    found: dict[tuple[object, ...], State] = {}
    disk = Disk.holding(start)
    for operation in operations:
        disk.perform(operation)
        for state in _recovery_states(disk, place, per_window, chance):
            found.setdefault(state.key(), state)
    return list(found.values())


def killed(start: State, operations: Sequence[FileOperation]) -> list[State]:
    """Every prefix, each once: of a killed broker, or of a power cut with ordered names."""
    found: dict[tuple[object, ...], State] = {}
    for _, state in prefixes(start, operations):
        found.setdefault(state.key(), state)
    return list(found.values())


def ordered_cuts(start: State, operations: Sequence[FileOperation], each: int, seed: int) -> list[State]:
    """Power fails after any operation, on a file system that keeps the order of names: ext4, XFS, btrfs.

    A prefix of the uncertain names is on the disk, and any part of unflushed bytes: ``each`` random states after each
    operation, each state once.
    """
    chance = random.Random(seed)
    found: dict[tuple[object, ...], State] = {}
    disk = Disk.holding(start)
    for operation in operations:
        if operation.kind == "fsync_directory":
            disk.settle_in_order(operation.name)
        disk.perform(operation)
        for _ in range(each):
            state = disk.after_ordered_crash(chance.randint(0, len(disk.pending)), chance)
            found.setdefault(state.key(), state)
    return list(found.values())


def crashes_while_recovering_from(states: Iterable[State], place: Path, per_window: int, seed: int) -> list[State]:
    """Power fails while each of the ``states``, all flushed by then, is recovered."""
    chance = random.Random(seed)
    found: dict[tuple[object, ...], State] = {}
    for state in states:
        for each in _recovery_states(Disk.holding(state), place, per_window, chance):
            found.setdefault(each.key(), each)
    return list(found.values())


def _recovery_states(disk: Disk, place: Path, per_window: int, chance: random.Random) -> Iterator[State]:
    disk = copy.deepcopy(disk)
    disk.seen().write(place)
    with RecordingFiles(place) as files:
        recover(files)
    shutil.rmtree(place)
    for step, operation in enumerate(files.operations):
        if operation.kind.startswith("fsync"):
            yield from Window(step, disk).subsets(per_window, chance)
        disk.perform(operation)
    yield from Window(len(files.operations), disk).subsets(per_window, chance)
