"""A disk that loses its power: which states can the recorded operations leave behind?

The model is harsher than a journaling file system, and follows what POSIX promises:

* a change of names is certain once the directory it happened in was flushed; until then any subset of the changes may
  be on the disk, whatever their order (a rename is one change, certain with the directory of its target);
* the bytes of a file are certain once the file was flushed; until then it may be as it was before, whole, or cut.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cleanerd.swap.files import FileOperation, PartitionFiles

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Sequence
    from pathlib import Path


class RecordingFiles(PartitionFiles):
    """The real thing, which remembers what it did."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.operations: list[FileOperation] = []

    def perform(self, operation: FileOperation) -> None:
        super().perform(operation)
        self.operations.append(operation)


@dataclass(frozen=True, slots=True)
class State:
    """What is on the disk: path to contents, and the directories."""

    files: dict[str, bytes]
    directories: frozenset[str]

    def key(self) -> tuple[object, ...]:
        return (self.directories, *sorted(self.files.items()))

    def write(self, directory: Path) -> None:
        """Make ``directory``, new, hold this state."""
        directory.mkdir(parents=True)
        for name in sorted(self.directories):
            (directory / name).mkdir()
        for name, content in self.files.items():
            descriptor = os.open(directory / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            os.write(descriptor, content)
            os.close(descriptor)

    @classmethod
    def read(cls, directory: Path) -> State:
        files, directories = {}, set()
        for path in directory.rglob("*"):
            name = str(path.relative_to(directory))
            if path.is_dir():
                directories.add(name)
            else:
                files[name] = path.read_bytes()
        return cls(files, frozenset(directories))


@dataclass(frozen=True, slots=True)
class Change:
    """A change of names that is not certain yet. ``inode`` is what it is about, -1 for a directory."""

    directory: str
    inode: int
    remove: str | None
    add: str | None


@dataclass(slots=True)
class Disk:
    """Names and contents, certain and seen. Feed it operations; ask it what a crash leaves."""

    names: dict[str, int]
    certain_names: dict[str, int]
    contents: dict[int, bytes]
    certain_contents: dict[int, bytes]
    directories: set[str]
    pending: list[Change] = field(default_factory=list)

    @classmethod
    def holding(cls, state: State) -> Disk:
        """Everything in ``state`` is certain."""
        names = {name: inode for inode, name in enumerate(sorted(state.files))}
        contents = {inode: state.files[name] for name, inode in names.items()}
        return cls(dict(names), dict(names), dict(contents), dict(contents), set(state.directories))

    def perform(self, operation: FileOperation) -> None:
        name = operation.name
        match operation.kind:
            case "rename":
                inode = self.names.pop(name)
                self.names[operation.target] = inode
                self._change(operation.target, inode, remove=name, add=operation.target)
            case "unlink":
                self._change(name, self.names.pop(name), remove=name, add=None)
            case "rmdir":
                self._change(name, -1, remove=name, add=None)
            case "append" | "write":
                if operation.kind == "write" and name in self.names:  # a new file in the place of the old one
                    self._change(name, self.names.pop(name), remove=name, add=None)
                inode = self._opened(name)
                before = self.contents[inode] if operation.kind == "append" else b""
                self.contents[inode] = before + operation.data
            case "fsync":
                inode = self.names[name]
                self.certain_contents[inode] = self.contents[inode]
            case "fsync_directory":
                self._settle([change for change in self.pending if change.directory == name])

    def seen(self) -> State:
        """What a process sees, and what a killed process leaves."""
        return self._state(range(len(self.pending)), self.contents)

    def after_crash(self, chosen: Sequence[int], chance: random.Random | None = None) -> State:
        """What a machine crash leaves when of the uncertain changes just the ``chosen`` reached the disk.

        Uncertain contents are as certain as they were (``chance`` None), or one of before, whole, and cut.
        """
        contents = dict(self.certain_contents)
        for inode, content in self.contents.items():
            before = self.certain_contents.get(inode, b"")
            contents[inode] = before
            if chance is not None and before != content:
                contents[inode] = chance.choice((before, content, content[: chance.randint(len(before), len(content))]))
        return self._state(chosen, contents)

    def settle_in_order(self, directory: str) -> None:
        """Where the order of names is kept a flush of ``directory`` brings along all before its last change."""
        last = max((at for at, change in enumerate(self.pending) if change.directory == directory), default=-1)
        self._settle(self.pending[: last + 1])

    def after_ordered_crash(self, done: int, chance: random.Random) -> State:
        """What is left where the order of names is kept: the first ``done`` uncertain changes, and any uncertain bytes.

        Of a file that was not flushed: what it was before, all, a part, or room alone, which reads as zeros.
        """
        contents = {}
        for inode, content in self.contents.items():
            before = self.certain_contents.get(inode, b"")
            cut = content[: chance.randint(0, len(content))]
            contents[inode] = (
                content if content == before else chance.choice((before, content, cut, bytes(len(content))))
            )
        return self._state(range(done), contents)

    def _opened(self, name: str) -> int:
        if name not in self.names:
            inode = max(self.contents, default=-1) + 1
            self.names[name] = inode
            self.contents[inode] = b""
            self._change(name, inode, remove=None, add=name)
        return self.names[name]

    def _change(self, name: str, inode: int, *, remove: str | None, add: str | None) -> None:
        self.pending.append(Change(os.path.dirname(name) or ".", inode, remove, add))

    def _settle(self, changes: list[Change]) -> None:
        _apply(changes, self.certain_names, self.directories)
        self.pending = [change for change in self.pending if change not in changes]

    def _state(self, chosen: Sequence[int], contents: dict[int, bytes]) -> State:
        names = dict(self.certain_names)
        directories = set(self.directories)
        _apply([self.pending[index] for index in sorted(chosen)], names, directories)
        # A directory that is gone took along what was still in it.
        directories = {name for name in directories if directories.issuperset(_above(name))}
        files = {
            name: contents.get(inode, b"") for name, inode in names.items() if directories.issuperset(_above(name))
        }
        return State(files, frozenset(directories))


def _above(name: str) -> list[str]:
    """The directories that lead to ``name``."""
    parts = name.split("/")[:-1]
    return ["/".join(parts[: depth + 1]) for depth in range(len(parts))]


def _apply(changes: list[Change], names: dict[str, int], directories: set[str]) -> None:
    for change in changes:
        if change.inode < 0:
            directories.discard(str(change.remove))
            continue
        if change.remove is not None and names.get(change.remove) == change.inode:
            del names[change.remove]
        if change.add is not None:
            names[change.add] = change.inode


@dataclass(frozen=True, slots=True)
class Window:
    """The moment before a barrier, when most is uncertain. ``step`` is the number of operations done."""

    step: int
    disk: Disk

    @property
    def size(self) -> int:
        """How many subsets of the uncertain changes there are."""
        return 1 << len(self.disk.pending)

    def subsets(self, count: int, chance: random.Random) -> Iterator[State]:
        """All subsets if there are at most ``count``, else that many different ones."""
        bits = len(self.disk.pending)
        masks = range(self.size) if self.size <= count else chance.sample(range(self.size), count)
        for mask in masks:
            chosen = [bit for bit in range(bits) if mask >> bit & 1]
            yield self.disk.after_crash(chosen, chance)


def prefixes(start: State, operations: Sequence[FileOperation]) -> Iterator[tuple[int, State]]:
    """What a process leaves that is killed after the first 0, 1, 2, .. operations."""
    disk = Disk.holding(start)
    yield 0, disk.seen()
    for step, operation in enumerate(operations, 1):
        disk.perform(operation)
        yield step, disk.seen()


def windows(start: State, operations: Sequence[FileOperation]) -> Iterator[Window]:
    """The disk before every barrier and at the end, as long as something is uncertain. Use each before the next."""
    disk = Disk.holding(start)
    for step, operation in enumerate(operations):
        if operation.kind.startswith("fsync") and (disk.pending or disk.contents != disk.certain_contents):
            yield Window(step, disk)
        disk.perform(operation)
    if disk.pending:
        yield Window(len(operations), disk)
