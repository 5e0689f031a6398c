"""A disk that loses power: which states can the recorded operations leave?

The model is harsher than a journaling file system, and follows POSIX:

* a change of names is certain once its directory was flushed; until then any subset of the changes may be on the disk,
  in any order (a rename is one change, certain with the directory of its target);
* the bytes of a file are certain once the file was flushed; until then it may be as it was before, whole, or truncated.
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
    """Real file operations that are recorded."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.operations: list[FileOperation] = []

    def perform(self, operation: FileOperation) -> None:
        super().perform(operation)
        self.operations.append(operation)


@dataclass(frozen=True, slots=True)
class State:
    """The content of the disk: files by path, and the directories."""

    files: dict[str, bytes]
    directories: frozenset[str]

    def key(self) -> tuple[object, ...]:
        return (self.directories, *sorted(self.files.items()))

    def write(self, directory: Path) -> None:
        """Create ``directory`` with this state."""
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
    """An uncertain change of names. ``inode`` is its file, -1 for a directory."""

    directory: str
    inode: int
    remove: str | None
    add: str | None


@dataclass(slots=True)
class Disk:
    """Names and contents, certain and visible. Add operations, then ask for the crash states."""

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
                if operation.kind == "write" and name in self.names:  # a new file at the name of the old one
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
        """The view of a process, which is also the state after a kill."""
        return self._state(range(len(self.pending)), self.contents)

    def after_crash(self, chosen: Sequence[int], chance: random.Random | None = None) -> State:
        """The state after a machine crash if exactly the ``chosen`` uncertain changes reached the disk.

        Uncertain contents stay as they were (``chance`` None), or are an earlier version, whole, or truncated.
        """
        contents = dict(self.certain_contents)
        for inode, content in self.contents.items():
            before = self.certain_contents.get(inode, b"")
            contents[inode] = before
            if chance is not None and before != content:
                contents[inode] = chance.choice((before, content, content[: chance.randint(len(before), len(content))]))
        return self._state(chosen, contents)

    def settle_in_order(self, directory: str) -> None:
        """With ordered names a flush of ``directory`` includes everything before its last change."""
        last = max((at for at, change in enumerate(self.pending) if change.directory == directory), default=-1)
        self._settle(self.pending[: last + 1])

    def after_ordered_crash(self, done: int, chance: random.Random) -> State:
        """The state with ordered names: the first ``done`` uncertain changes, and any uncertain bytes.

        An unflushed file has its earlier content, all bytes, a part, or allocated space that reads as zeros.
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
        # A removed directory loses its remaining files.
        directories = {name for name in directories if directories.issuperset(_above(name))}
        files = {
            name: contents.get(inode, b"") for name, inode in names.items() if directories.issuperset(_above(name))
        }
        return State(files, frozenset(directories))


def _above(name: str) -> list[str]:
    """The parent directories of ``name``."""
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
        """Number of subsets of the uncertain changes."""
        return 1 << len(self.disk.pending)

    def subsets(self, count: int, chance: random.Random) -> Iterator[State]:
        """All subsets if there are at most ``count``, otherwise that many different ones."""
        bits = len(self.disk.pending)
        masks = range(self.size) if self.size <= count else chance.sample(range(self.size), count)
        for mask in masks:
            chosen = [bit for bit in range(bits) if mask >> bit & 1]
            yield self.disk.after_crash(chosen, chance)


def prefixes(start: State, operations: Sequence[FileOperation]) -> Iterator[tuple[int, State]]:
    """The states of a process that is killed after the first 0, 1, 2, .. operations."""
    disk = Disk.holding(start)
    yield 0, disk.seen()
    for step, operation in enumerate(operations, 1):
        disk.perform(operation)
        yield step, disk.seen()


def windows(start: State, operations: Sequence[FileOperation]) -> Iterator[Window]:
    """The disk before every barrier and at the end, while changes are uncertain. Use each before the next."""
    disk = Disk.holding(start)
    for step, operation in enumerate(operations):
        if operation.kind.startswith("fsync") and (disk.pending or disk.contents != disk.certain_contents):
            yield Window(step, disk)
        disk.perform(operation)
    if disk.pending:
        yield Window(len(operations), disk)
