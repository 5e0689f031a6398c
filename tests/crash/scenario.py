"""A log with three groups to swap, written by Kafka itself: the old segments and their outputs.

The outputs are written by Kafka as well: a second log has the retained records of every group.

::

    0    20   40   | 60   80   100  120  | 140       | 160  180  | 200
    group 0, with    group 60, source      untouched   group 160,  active
    aborted data     100 is empty                      loses its .txnindex
"""

from __future__ import annotations

import hashlib
import shutil
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from cleanerd._kernel import crc32c
from cleanerd.broker.lock_file import FileOwner
from cleanerd.cleaner.manifest import KINDS, MANIFEST, FileFact, Manifest, ManifestGroup, staged_name, staging_path
from cleanerd.format.names import SNAPSHOT_SUFFIX, parse_file_name
from cleanerd.segments.segment import Witness
from cleanerd.swap.group_swap import SOURCE_SUFFIXES, final_name, finish_plan, swap_group
from cleanerd.swap.journal import Journal
from cleanerd.swap.recover import RecoveryReport, recover
from tests.crash.volume import RecordingFiles, State
from tests.kafka.judge import Batch, Marker, Record, Segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from cleanerd.cleaner.manifest import FileKind
    from cleanerd.swap.files import FileOperation
    from tests.kafka.judge import Judge

PLAN = "20261121t001400-0123abcd"
NOW_MS = 1_000_000
CONFIG = {"index.interval.bytes": "64"}
TOPIC_DIR = "topic-0"
END = 205
ACTIVE = 200
GROUPS = {0: (60, (0, 20, 40)), 60: (140, (60, 80, 100, 120)), 160: (200, (160, 180))}


class NoLock:
    """A lock that is always held."""

    def check(self) -> None:
        """All is well."""


def data(base: int, count: int, *, keep: Iterable[int] | None = None, producer: int = -1) -> Batch:
    """``count`` records from ``base`` on, of which ``keep`` (default: all) are retained.

    Transactional with a producer.
    """
    offsets = range(base, base + count)
    kept = [offset for offset in offsets if keep is None or offset in keep]
    records = tuple(Record(offset, 1000 + offset, b"key-%d" % (offset % 9), b"value-%d" % offset) for offset in kept)
    transactional = producer >= 0
    return Batch(
        records,
        base=base,
        last=offsets[-1],
        transactional=transactional,
        producer_id=producer,
        producer_epoch=0 if transactional else -1,
        base_sequence=0 if transactional else -1,
        max_timestamp=None if kept else 1000 + offsets[-1],
    )


def marker(offset: int, producer: int, kind: Literal["commit", "abort"]) -> Batch:
    """The end of a transaction."""
    end = Marker(kind, 1000 + offset)
    return Batch(base=offset, producer_id=producer, producer_epoch=0, transactional=True, control=True, marker=end)


def old_segments() -> list[Segment]:
    """The segments before."""
    return [
        Segment(0, (data(0, 5), data(5, 5), data(10, 10, producer=7))),
        Segment(20, (marker(20, 7, "abort"), data(21, 9), data(30, 10, producer=8))),
        Segment(
            40, (marker(40, 8, "commit"), data(41, 9), data(50, 5, producer=9), marker(55, 9, "abort"), data(56, 4))
        ),
        Segment(60, (data(60, 10), data(70, 10))),
        Segment(80, (data(80, 20),)),
        Segment(100),
        Segment(120, (data(120, 10), data(130, 10))),
        Segment(140, (data(140, 10), data(150, 10))),
        Segment(160, (data(160, 5, producer=10), marker(165, 10, "abort"), data(166, 14))),
        Segment(180, (data(180, 10), data(190, 10))),
        Segment(200, (data(200, 5),)),
    ]


def new_segments() -> list[Segment]:
    """The retained records: every group ends with its last batch, emptied if necessary (S-09)."""
    return [
        Segment(
            0,
            (
                data(5, 5, keep=(6, 8)),
                data(30, 10, keep=(31,), producer=8),
                marker(40, 8, "commit"),
                data(50, 5, keep=(51,), producer=9),
                marker(55, 9, "abort"),
                data(56, 4, keep=(59,)),
            ),
        ),
        Segment(60, (data(70, 10, keep=(77,)), data(80, 20, keep=(80, 99)), data(130, 10, keep=()))),
        Segment(140, (data(140, 10), data(150, 10))),
        Segment(160, (data(166, 14, keep=(170,)), data(190, 10, keep=()))),
        Segment(200, (data(200, 5),)),
    ]


@dataclass(frozen=True, slots=True)
class Scenario:
    """``old``: the partition directory with an empty staging directory; ``outputs``: files by group base."""

    old: State
    outputs: dict[int, dict[FileKind, bytes]]

    @property
    def bases(self) -> tuple[int, ...]:
        """Of the groups, ascending."""
        return tuple(GROUPS)

    @property
    def active(self) -> int:
        """The active segment's base."""
        return ACTIVE

    @property
    def end(self) -> int:
        """The log's end."""
        return END

    @property
    def groups(self) -> tuple[ManifestGroup, ...]:
        return tuple(
            ManifestGroup(base, end, sources, {kind: fact(content) for kind, content in self.outputs[base].items()})
            for base, (end, sources) in GROUPS.items()
        )

    def log_files(self, swapped: Iterable[int]) -> dict[str, bytes]:
        """Segment files by name when the groups ``swapped`` are new and the others old."""
        files = {
            name: content
            for name, content in self.old.files.items()
            if (place := parse_file_name(name)) is not None and place[1] in SOURCE_SUFFIXES
        }
        for base in swapped:
            removed = GROUPS[base][1]
            files = {name: content for name, content in files.items() if parse_file_name(name)[0] not in removed}  # type: ignore[index]
            files |= {final_name(base, kind): content for kind, content in self.outputs[base].items()}
        return files

    def directory(self, swapped: Sequence[int]) -> dict[str, bytes]:
        """All files of the partition directory after cleanerd's swap: the snapshots of merged bases are removed too."""
        removed = {source for base in swapped for source in GROUPS[base][1][1:]}
        others = {
            name: content
            for name, content in self.old.files.items()
            if (place := parse_file_name(name)) is None or (place[1] == SNAPSHOT_SUFFIX and place[0] not in removed)
        }
        return {**others, **self.log_files(swapped)}

    def manifest(self, groups: Sequence[ManifestGroup]) -> Manifest:
        """The manifest once ``groups`` are staged."""
        bases = sorted(parse_file_name(name)[0] for name in self.old.files if name.endswith(".log"))  # type: ignore[index]
        witnesses = tuple(Witness(base, 1, 1, 1, 1, 1, None, None) for base in bases if base < 200)
        return Manifest(
            plan=PLAN,
            topic="topic",
            topic_id=uuid.UUID(int=1),
            partition=0,
            directory_id=None,
            log_start_offset=0,
            bound=200,
            strategy_fingerprint="f",
            created_ms=0,
            max_age_ms=1 << 60,
            witnesses=witnesses,
            groups=tuple(groups),
        )


def fact(content: bytes) -> FileFact:
    """Size and checksum."""
    return FileFact(len(content), crc32c(np.frombuffer(content, np.uint8)))


def build(judge: Judge, workspace: Path) -> Scenario:
    """Make Kafka write both logs."""
    old, new = workspace / "old" / TOPIC_DIR, workspace / "new" / TOPIC_DIR
    judge.make(old, old_segments(), now_ms=NOW_MS, config=CONFIG)
    judge.make(new, new_segments(), now_ms=NOW_MS, config=CONFIG)
    old_state, new_state = State.read(old), State.read(new)
    outputs = {
        base: {kind: new_state.files[name] for kind in KINDS if (name := final_name(base, kind)) in new_state.files}
        for base in GROUPS
    }
    return Scenario(replace(old_state, directories=frozenset({".kstage", staging_path(PLAN)})), outputs)


def stage(files: RecordingFiles, scenario: Scenario, groups: Sequence[ManifestGroup]) -> None:
    """Stage the last of ``groups`` like `cleaner`, but through the recorder."""
    group = groups[-1]
    owner = FileOwner(-1, -1, 0o644)
    for kind, content in scenario.outputs[group.base].items():
        name = staged_name(PLAN, group.base, kind)
        files.write(name, content, owner)
        files.fsync(name)
    files.fsync_directory(staging_path(PLAN))
    manifest = f"{staging_path(PLAN)}/{MANIFEST}"
    files.write(f"{manifest}.tmp", scenario.manifest(groups).to_json(), owner)
    files.fsync(f"{manifest}.tmp")
    files.rename(f"{manifest}.tmp", manifest)
    files.fsync_directory(staging_path(PLAN))


def swap_all(files: RecordingFiles, scenario: Scenario, groups: Sequence[ManifestGroup]) -> None:
    """Group by group (U-16): stage, swap, next; then remove the leftovers."""
    journal = Journal(files, PLAN)
    for number, group in enumerate(groups, 1):
        stage(files, scenario, groups[:number])
        names = files.names()
        sources = {
            base: [name for name in names if (place := parse_file_name(name)) is not None and place[0] == base]
            for base in group.sources
        }
        swap_group(files, PLAN, group, journal, NoLock(), source_files=sources)
    finish_plan(files, PLAN)


def record(scenario: Scenario, directory: Path) -> list[FileOperation]:
    """Every operation of the whole swap, executed in ``directory``."""
    scenario.old.write(directory)
    with RecordingFiles(directory) as files:
        swap_all(files, scenario, scenario.groups)
        return files.operations


def digest(log_files: dict[str, bytes]) -> str:
    """The loader's answer for a directory with these segment files."""
    total = hashlib.sha256()
    for name in sorted(name for name in log_files if name.endswith(".log")):
        total.update(name.encode())
        total.update(hashlib.sha256(log_files[name]).digest())
    return total.hexdigest()


def recovered(states: Iterable[State], scenario: Scenario, workspace: Path) -> dict[int, State]:
    """Recover each state in place, twice; the distinct outcomes by the number of new groups."""
    expected = {
        count: State(scenario.directory(tuple(GROUPS)[:count]), frozenset()) for count in range(len(GROUPS) + 1)
    }
    outcomes: dict[int, State] = {}
    place = workspace / "topic-0"
    for state in states:
        state.write(place)
        with RecordingFiles(place) as files:
            report = recover(files)
            assert report.foreign == (), f"{report.foreign}\nfrom {sorted(state.files)}"
            done = len(files.operations)
            assert recover(files) == RecoveryReport()
            assert len(files.operations) == done, "the second recovery touched something"
        outcome = State.read(place)
        matching = [count for count, right_one in expected.items() if right_one == outcome]
        assert matching, f"recovered to {sorted(outcome.files)}\nfrom {sorted(state.files)}"
        outcomes[matching[0]] = outcome
        shutil.rmtree(place)
    return outcomes
