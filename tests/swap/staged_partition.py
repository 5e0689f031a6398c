"""A small partition with two staged groups. Its bytes are arbitrary: the swap moves files without reading them."""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cleanerd._kernel import crc32c
from cleanerd.cleaner.manifest import (
    FileFact,
    FileKind,
    Manifest,
    ManifestGroup,
    staged_name,
    staging_path,
    write_manifest,
)
from cleanerd.format.names import file_name, parse_file_name
from cleanerd.segments.segment import Witness
from cleanerd.swap.group_swap import final_name, finish_plan, swap_group
from cleanerd.swap.journal import Journal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cleanerd.swap.files import PartitionFiles

PLAN = "20261121t001400-0123abcd"
BOUND = 50
# base: the kinds of file beside the log
OLD = {
    0: ("log", "index", "timeindex", "txnindex"),
    10: ("log", "index", "timeindex", "snapshot"),
    20: ("log", "index", "timeindex", "snapshot"),
    30: ("log", "index", "timeindex", "snapshot"),
    40: ("log", "index", "timeindex", "snapshot"),
    50: ("log", "index", "timeindex", "snapshot"),
}
NEW: dict[int, tuple[FileKind, ...]] = {
    0: ("log", "index", "timeindex", "txnindex"),
    30: ("log", "index", "timeindex"),
}
GROUPS = {0: (20, (0, 10)), 30: (50, (30, 40))}


class OpenLock:
    """A lock that is always held; counts its checks."""

    def __init__(self) -> None:
        self.checks = 0

    def check(self) -> None:
        self.checks += 1


@dataclass(frozen=True, slots=True)
class StagedPartition:
    """The partition directory ``path`` and the two groups."""

    path: Path
    groups: tuple[ManifestGroup, ...]

    def manifest(self, groups: Sequence[ManifestGroup]) -> Manifest:
        witnesses = tuple(Witness(base, 1, 1, 1, 1, 1, None, None) for base in OLD if base < BOUND)
        return Manifest(
            plan=PLAN,
            topic="t",
            topic_id=uuid.UUID(int=7),
            partition=0,
            directory_id=None,
            log_start_offset=0,
            bound=BOUND,
            strategy_fingerprint="f",
            created_ms=0,
            max_age_ms=1 << 60,
            witnesses=witnesses,
            groups=tuple(groups),
        )

    def swap(self, files: PartitionFiles, *, groups: Sequence[ManifestGroup] | None = None) -> None:
        """Swap all groups in order, then remove the staging directory."""
        chosen = self.groups if groups is None else groups
        for group in chosen:
            swap_group(files, PLAN, group, Journal(files, PLAN), OpenLock(), source_files=source_files(files, group))
        finish_plan(files, PLAN)


def build(path: Path) -> StagedPartition:
    """Write the partition, and stage both groups with their manifest."""
    path.mkdir(parents=True)
    for base, kinds in OLD.items():
        for kind in kinds:
            (path / file_name(base, f".{kind}")).write_bytes(old_bytes(base, kind))
    (path / "leader-epoch-checkpoint").write_text("0\n0\n")
    staging = path / staging_path(PLAN)
    staging.mkdir(parents=True)
    groups = []
    for base, (end, sources) in GROUPS.items():
        files: dict[FileKind, FileFact] = {}
        for kind in NEW[base]:
            content = new_bytes(base, kind)
            (path / staged_name(PLAN, base, kind)).write_bytes(content)
            files[kind] = FileFact(len(content), crc32c(np.frombuffer(content, np.uint8)))
        groups.append(ManifestGroup(base, end, sources, files))
    partition = StagedPartition(path, tuple(groups))
    descriptor = os.open(staging, os.O_RDONLY)
    write_manifest(descriptor, partition.manifest(groups))
    os.close(descriptor)
    return partition


def old_bytes(base: int, kind: str) -> bytes:
    return f"old {base} {kind}".encode()


def new_bytes(base: int, kind: str) -> bytes:
    return f"new {base} {kind}, longer".encode()


def source_files(files: PartitionFiles, group: ManifestGroup) -> dict[int, list[str]]:
    """The content of every source file of ``group``."""
    places = [(name, parse_file_name(name)) for name in sorted(files.names())]
    return {
        source: [name for name, place in places if place is not None and place[0] == source] for source in group.sources
    }


def expected(swapped: Sequence[int]) -> dict[str, bytes]:
    """Every file of the partition directory once exactly these groups are new and all leftovers are removed."""
    files = {"leader-epoch-checkpoint": b"0\n0\n"}
    gone = {source: base for base in swapped for source in GROUPS[base][1]}
    for base, kinds in OLD.items():
        for kind in kinds:
            if base not in gone or (kind == "snapshot" and base == gone[base]):
                files[file_name(base, f".{kind}")] = old_bytes(base, kind)
    for base in swapped:
        files |= {final_name(base, kind): new_bytes(base, kind) for kind in NEW[base]}
    return files


def contents(path: Path) -> dict[str, bytes]:
    """Every file under ``path``; a directory's name ends in a slash."""
    return {
        str(inner.relative_to(path)) + ("/" if inner.is_dir() else ""): b"" if inner.is_dir() else inner.read_bytes()
        for inner in sorted(path.rglob("*"))
    }
