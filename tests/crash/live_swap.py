"""A live swap by the broker itself: its JVM's operations on the partition's files, and the log before and after.

A preloaded library (``record_shim.c``) records the calls, so the order of renames and flushes is the real one of the
broker and the agent.
"""

from __future__ import annotations

import multiprocessing
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cleanerd.format.names import parse_file_name
from cleanerd.swap.files import FileOperation
from cleanerd.swap.group_swap import SOURCE_SUFFIXES, final_name
from cleanerd.swap.recover import recover
from cleanerd_lab.demo.broker import Broker
from tests.agent.live import JAR, PROPERTIES, Live, stage_log
from tests.brokers.node import wait_until
from tests.crash.scenario import TOPIC_DIR, digest
from tests.crash.volume import Disk, RecordingFiles, State
from tests.kafka.judge import fetch_jars
from tests.support.patience import PATIENCE_SECONDS
from tests.support.preload import compiled, preloading

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cleanerd.cleaner.manifest import FileKind, Manifest
    from tests.agent.live import Topic

SOURCE: Final = Path(__file__).parent / "record_shim.c"
NOTHING: Final = State({}, frozenset())


@dataclass(frozen=True, slots=True)
class LiveSwap:
    """``old``: the directory before; ``outputs``: the staged files by group base; ``operations``: the JVM's operations.

    ``groups``: base to (end, bases of the sources). ``end`` is the log's end, ``active`` the active segment's base.
    ``before`` is the directory before staging, ``staging`` cleanerd's operations there.
    """

    old: State
    outputs: dict[int, dict[FileKind, bytes]]
    groups: dict[int, tuple[int, tuple[int, ...]]]
    operations: tuple[FileOperation, ...]
    end: int
    active: int
    before: State = NOTHING
    staging: tuple[FileOperation, ...] = ()

    @property
    def bases(self) -> tuple[int, ...]:
        """Of the groups, ascending."""
        return tuple(sorted(self.groups))

    def log_files(self, swapped: Iterable[int]) -> dict[str, bytes]:
        """Segment files by name when the groups ``swapped`` are new and the others old."""
        removed = {source for base in swapped for source in self.groups[base][1]}
        files = {
            name: content
            for name, content in self.old.files.items()
            if (place := parse_file_name(name)) is not None and place[1] in SOURCE_SUFFIXES and place[0] not in removed
        }
        return files | {
            final_name(base, kind): content for base in swapped for kind, content in self.outputs[base].items()
        }


def record_live_swap(profile: str) -> LiveSwap:
    """Start a broker of that release, make it swap all groups of a staged plan, and record its operations."""
    work = Path(tempfile.mkdtemp(prefix=f"live-swap-{profile}-"))
    jars = fetch_jars(profile)
    reported = work / "calls"
    broker = Broker(
        jars.libs, work / "broker", version=jars.version, properties=PROPERTIES, jvm_args=[f"-javaagent:{JAR}"]
    )
    try:
        with preloading(compiled(SOURCE, "record"), RECORD_TO=reported, RECORD_BELOW=broker.log_dirs[0]):
            broker.start()
        topic = Live(broker).topic("recorded")
        before, staging = _stage(topic, work / "staged")
        return replace(_swap(topic, topic.staged(), reported), before=before, staging=staging)
    finally:
        broker.kill()
        shutil.rmtree(work)


def _stage(topic: Topic, reported: Path) -> tuple[State, tuple[FileOperation, ...]]:
    """In a process of its own, which is recorded too: files that it does not flush are uncertain at the swap."""
    topic.wait_until_settled()
    place, before = topic.directory, State.read(topic.directory)
    wanted = (topic.log_dir, topic.name, topic.broker.work_dir / "state")
    process = multiprocessing.get_context("spawn").Process(
        target=stage_log, args=wanted, kwargs={"output_bytes": 12_000}
    )
    with preloading(compiled(SOURCE, "record"), RECORD_TO=reported, RECORD_BELOW=place):
        process.start()
    process.join(PATIENCE_SECONDS)
    assert process.exitcode == 0
    after = State.read(place)
    operations = tuple(_staged(reported.read_text().splitlines(), place, after))
    start = State(before.files, after.directories)
    disk = Disk.holding(start)
    for operation in operations:
        disk.perform(operation)
    seen = disk.seen().files
    differ = [name for name in after.files.keys() | seen.keys() if after.files.get(name) != seen.get(name)]
    assert not differ, [(name, len(seen.get(name, b"")), len(after.files.get(name, b""))) for name in differ]
    return start, operations


def _staged(lines: Iterable[str], place: Path, after: State) -> Iterator[FileOperation]:
    """The content is known from the end: a file has all of its bytes with its last write, and none before."""
    calls = [call for call in (line.split("\t") for line in lines) if Path(call[1]).is_relative_to(place)]
    last = {path: at for at, (call, path, _) in enumerate(calls) if call == "change"}
    for at, (call, path, target) in enumerate(calls):
        name = str(Path(path).relative_to(place))
        if call == "change":
            if last[path] == at:
                final = next((each[2] for each in calls[at:] if each[:2] == ["rename", path]), path)
                yield FileOperation("append", name, data=after.files.get(str(Path(final).relative_to(place)), b""))
        elif call == "create":
            yield FileOperation("append", name)
        elif call == "fsync":
            yield FileOperation("fsync_directory" if name in {".", *after.directories} else "fsync", name)
        elif call == "rename":
            yield FileOperation("rename", name, target=str(Path(target).relative_to(place)))
        else:
            yield FileOperation(call, name)  # type: ignore[arg-type]


def _swap(topic: Topic, manifest: Manifest, reported: Path) -> LiveSwap:
    assert len(manifest.groups) > 2
    assert any(len(group.sources) > 1 for group in manifest.groups)
    assert any("txnindex" in group.files for group in manifest.groups)
    place = topic.directory
    old = State.read(place)
    outputs = {group.base: topic.staged_files(manifest, group) for group in manifest.groups}
    with Live(topic.broker).asking() as agent:
        end = agent.ask("log", topic=topic.name, partition=0)["leo"]
        before = len(reported.read_text().splitlines())
        result = agent.ask("swap", **topic.request(manifest))
    assert result["done"] == [group.base for group in manifest.groups]
    wait_until("the old files are gone", lambda: not list(place.glob("*.deleted")), PATIENCE_SECONDS)
    wait_until("it was sent all of them", lambda: not _not_sent(reported.read_text().splitlines()[before:]))
    operations = tuple(_operations(reported.read_text().splitlines()[before:], place))
    _check(old, operations, State.read(place))
    groups = {group.base: (group.end, tuple(group.sources)) for group in manifest.groups}
    active = max(int(name[:20]) for name in old.files if name.endswith(".log") and name[:1].isdigit())
    return LiveSwap(old, outputs, groups, operations, end, active)  # type: ignore[arg-type]


def _not_sent(lines: Iterable[str]) -> set[str]:
    """Files renamed for deletion without a line for the removal, which is written after the call."""
    found = [line.split("\t") for line in lines]
    deleted = {path for call, path, *_ in found if call == "unlink"}
    return {target for call, _, target in found if call == "rename" and target.endswith(".deleted")} - deleted


def _operations(lines: Iterable[str], place: Path) -> Iterator[FileOperation]:
    """The lines about the partition's directory."""
    for line in lines:
        call, path, target = line.split("\t")
        if not Path(path).is_relative_to(place):
            continue
        name = str(Path(path).relative_to(place))
        if call == "fsync":
            # A file that was flushed under another name is on the disk under any name.
            yield FileOperation("fsync_directory" if name == "." or (place / name).is_dir() else "fsync", name)
        elif call == "rename":
            yield FileOperation("rename", name, target=str(Path(target).relative_to(place)))
        elif call in {"unlink", "rmdir"}:
            yield FileOperation(call, name)  # type: ignore[arg-type]
        else:
            raise AssertionError(f"a swap is not expected to {call} {name}")


def _check(old: State, operations: Iterable[FileOperation], found: State) -> None:
    """The recording is complete: applied to the old files it gives the new ones."""
    disk = Disk.holding(old)
    for operation in operations:
        disk.perform(operation)
    seen = disk.seen()
    assert {name for name in seen.files if name.endswith(tuple(SOURCE_SUFFIXES))} == {
        name for name in found.files if name.endswith(tuple(SOURCE_SUFFIXES))
    }
    differ = [name for name, content in seen.files.items() if found.files.get(name, content) != content]
    assert not differ, differ


def recovered_live(states: Iterable[State], live: LiveSwap, workspace: Path) -> None:
    """The recovery makes each group old or new, new ones first, and leaves no files and no further work."""
    known = {digest(live.log_files(live.bases[:count])) for count in range(len(live.bases) + 1)}
    place = workspace / TOPIC_DIR
    for state in states:
        state.write(place)
        with RecordingFiles(place) as files:
            assert recover(files).foreign == (), sorted(state.files)
            done = len(files.operations)
            recover(files)
            assert len(files.operations) == done, "the second recovery touched something"
        after = State.read(place)
        shutil.rmtree(place)
        assert not after.directories
        assert not [name for name in after.files if name.endswith((".swap", ".cleaned"))]
        assert digest({n: c for n, c in after.files.items() if n.endswith(".log")}) in known, sorted(state.files)
