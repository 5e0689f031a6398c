"""Every reason that makes a plan stale, one test each (S-29, U-3, U-15, S-59, S-60)."""

from __future__ import annotations

import os
import struct
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from cleanerd.cleaner.manifest import (
    FileKind,
    Manifest,
    ManifestGroup,
    aborted_witnesses,
    staged_name,
    staging_path,
)
from cleanerd.errors import RefusedError, StalePlanError
from cleanerd.format.index import TXN_ENTRY
from cleanerd.format.names import file_name
from cleanerd.policy.transaction import AbortedTransactions
from cleanerd.segments.segment import BatchWitness, Segment
from cleanerd.swap import validate
from cleanerd.swap.files import PartitionFiles
from cleanerd.swap.validate import CurrentFacts, _check_aborted, file_fact, has_fact, validate_plan
from tests.support.logs import keyed_batch
from tests.support.root import needs_root

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PLAN = "20261121t001400-0123abcd"
BASES = (0, 10, 20, 30)
KINDS: tuple[FileKind, ...] = ("log", "index", "timeindex")


@dataclass
class Case:
    """A partition of three closed segments and the active one, with 0 and 10 staged as one group."""

    path: Path
    manifest: Manifest
    facts: CurrentFacts

    def log(self, base: int) -> Path:
        return self.path / file_name(base, ".log")

    def staged(self, kind: FileKind = "log") -> Path:
        return self.path / staged_name(PLAN, 0, kind)

    def validate(self, *, done: tuple[int, ...] = (), checksums: bool = True) -> None:
        with PartitionFiles(self.path) as files:
            validate_plan(files, self.manifest, self.facts, done=done, checksums=checksums)


def segment_bytes(base: int) -> bytes:
    return b"".join(keyed_batch(base + step, [(f"k{step}", "v"), (f"k{step}", "w")]) for step in (0, 2, 4, 6, 8))


@pytest.fixture
def case(tmp_path: Path) -> Case:
    path = tmp_path / "t-0"
    staging = path / staging_path(PLAN)
    staging.mkdir(parents=True)
    witnesses = []
    for base in BASES:
        log = path / file_name(base, ".log")
        log.write_bytes(segment_bytes(base))
        ends = [BatchWitness(base + step, crc_of(segment_bytes(base), step // 2)) for step in (0, 8)]
        witnesses.append(Segment.from_stat(base, log.stat(), frozenset()).witness(*ends))
        (path / file_name(base, ".index")).write_bytes(b"")
    files = {}
    for kind in KINDS:
        staged = path / staged_name(PLAN, 0, kind)
        staged.write_bytes(f"output {kind}".encode())
        staged.chmod(witnesses_mode(path))
        os.utime(staged, ns=(0, (path / file_name(10, ".log")).stat().st_mtime_ns))
        with PartitionFiles(path) as opened:
            files[kind] = file_fact(opened, staged_name(PLAN, 0, kind))
    group = ManifestGroup(0, 20, (0, 10), files)
    topic_id, directory_id = uuid.uuid4(), uuid.uuid4()
    manifest = Manifest(
        plan=PLAN,
        topic="t",
        topic_id=topic_id,
        partition=0,
        directory_id=directory_id,
        log_start_offset=0,
        bound=30,
        strategy_fingerprint="offset/null",
        created_ms=1000,
        max_age_ms=5000,
        witnesses=tuple(witnesses[:3]),
        groups=(group,),
    )
    return Case(path, manifest, CurrentFacts(topic_id, directory_id, 0, 30, "offset/null", 2000))


def witnesses_mode(path: Path) -> int:
    return (path / file_name(0, ".log")).stat().st_mode & 0o777


def crc_of(segment: bytes, number: int) -> int:
    position = 0
    for _ in range(number):
        position += struct.unpack_from(">i", segment, position + 8)[0] + 12
    crc: int = struct.unpack_from(">I", segment, position + 17)[0]
    return crc


def refused(case: Case, reason: str, **options: object) -> None:
    with pytest.raises(StalePlanError, match=reason) as caught:
        case.validate(**options)  # type: ignore[arg-type]
    assert caught.value.where == str(case.path)
    assert caught.value.exit_code == 4


def test_an_unchanged_log_is_valid(case: Case) -> None:
    """S-29; appends to the active segment do not matter."""
    case.validate()
    with case.log(30).open("ab") as active:
        active.write(segment_bytes(40))
    (case.path / file_name(50, ".log")).touch()
    case.validate()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"topic_id": uuid.UUID(int=1)}, "topic was created again"),
        ({"directory_id": None}, "another log directory"),
        ({"log_start_offset": 5}, "log start offset moved"),
        ({"strategy_fingerprint": "timestamp"}, "strategy changed"),
        ({"bound": 29}, "cleanable up to offset 29 only, the plan needs 30"),
        ({"now_ms": 6001}, "5.0 s old"),
        ({"now_ms": 1000 - 300_001}, "made 5 min ahead of the clock"),
    ],
)
def test_identity_limit_strategy_and_age(case: Case, change: dict[str, object], reason: str) -> None:
    """S-29, U-2, U-15."""
    case.facts = replace(case.facts, **change)  # type: ignore[arg-type]
    refused(case, reason)


def test_at_the_edge_it_is_still_valid(case: Case) -> None:
    """The offset may equal the plan's limit, the age the maximum."""
    case.facts = replace(case.facts, bound=30, now_ms=6000)
    case.validate()


def test_the_device_number_may_change(case: Case) -> None:
    """U-3: after a reboot, or on another host: the plan stays valid."""
    witnesses = tuple(replace(witness, dev=witness.dev + 1) for witness in case.manifest.witnesses)
    case.manifest = replace(case.manifest, witnesses=witnesses)
    case.validate()


def rewrite_in_place(path: Path) -> None:
    status = path.stat()
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def replace_by_a_copy(path: Path) -> None:
    status = path.stat()
    copy = path.with_name("copy")
    copy.write_bytes(path.read_bytes())
    os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))
    copy.rename(path)


@pytest.mark.parametrize("base", [0, 20])
@pytest.mark.parametrize(
    "change",
    [lambda path: path.write_bytes(b""), rewrite_in_place, replace_by_a_copy, os.utime],
    ids=["truncated", "rewritten", "copied", "touched"],
)
def test_a_segment_that_was_only_read_counts_too(case: Case, base: int, change: Callable[[Path], None]) -> None:
    """U-3: segment 20 is in no group, but the decision depends on it; inode and ctime show what size and mtime hide."""
    change(case.log(base))
    refused(case, f"{file_name(base, '.log')} changed")


@pytest.mark.parametrize("base", [0, 10, 20])
def test_a_segment_that_vanished(case: Case, base: int) -> None:
    case.log(base).unlink()
    refused(case, f"segment {base} appeared or vanished")


def test_a_segment_that_appeared_in_between(case: Case) -> None:
    (case.path / file_name(15, ".log")).touch()
    refused(case, "segment 15 appeared")


@pytest.mark.parametrize("end", ["first_batch", "last_batch"])
@pytest.mark.parametrize("change", [BatchWitness(8, 0), BatchWitness(7, 0)])
def test_the_first_and_last_batch_are_compared(case: Case, end: str, change: BatchWitness) -> None:
    """CRC and offset of both ends."""
    witnesses = list(case.manifest.witnesses)
    witnesses[0] = replace(witnesses[0], **{end: change})  # type: ignore[arg-type]
    case.manifest = replace(case.manifest, witnesses=tuple(witnesses))
    refused(case, "batches of .* changed")


@pytest.mark.parametrize(
    "index",
    [
        struct.pack(">ii", 5, len(segment_bytes(0)) // 5 * 2),
        struct.pack(">ii", 5, 7),
        struct.pack(">ii", 5, 1 << 30),
        struct.pack(">ii", 5, -1),
        bytes(80),
        b"odd",
    ],
    ids=["right", "astray", "beyond the end", "negative", "padding", "no entry"],
)
def test_an_index_only_saves_time(case: Case, index: bytes) -> None:
    """The last batch is found whatever the index says: a wrong index does not prevent the cleaning."""
    (case.path / file_name(0, ".index")).write_bytes(index)
    case.validate()


def test_without_an_index_a_segment_is_read_in_chunks(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """S-29: without an index, finding the last batch takes one read per mebibyte, not per batch."""
    (case.path / file_name(0, ".index")).unlink()
    real, reads = os.pread, []

    def counted(descriptor: int, size: int, position: int) -> bytes:
        reads.append(position)
        return real(descriptor, size, position)

    # the number of reads is visible only in the time
    monkeypatch.setattr(os, "pread", counted)
    # chunk borders anywhere in a batch's frame
    for chunk_bytes in (1 << 20, 12, 13, 97, 100, 101, 200, 203):
        monkeypatch.setattr(validate, "_CHUNK_BYTES", chunk_bytes)
        case.validate(checksums=False)
        if chunk_bytes == 1 << 20:
            # per segment, three of them: the walk, the first and the last batch
            assert len(reads) == 9


def test_an_empty_segment_has_no_batches(case: Case) -> None:
    """100 % of an empty segment is unchanged."""
    case.log(20).write_bytes(b"")
    witness = Segment.from_stat(20, case.log(20).stat(), frozenset()).witness(None, None)
    case.manifest = replace(case.manifest, witnesses=(*case.manifest.witnesses[:2], witness))
    case.validate()


def test_staged_files_that_changed(case: Case) -> None:
    """S-29: sizes always, checksums unless switched off."""
    content = case.staged("index").read_bytes()
    status = case.staged("index").stat()
    case.staged("index").write_bytes(content[::-1])
    os.utime(case.staged("index"), ns=(0, status.st_mtime_ns))
    refused(case, "another checksum")
    case.validate(checksums=False)
    case.staged("index").write_bytes(content[:-1])
    refused(case, "missing or has another size", checksums=False)
    case.staged("index").unlink()
    refused(case, "missing", checksums=False)


@needs_root
def test_staged_files_of_another_owner(case: Case) -> None:
    """S-60, H-19: an index that the broker cannot write takes the directory offline at the first lookup."""
    os.chown(case.staged("timeindex"), 1234, -1)
    refused(case, "another owner or mode")


def test_staged_files_with_another_mode(case: Case) -> None:
    """S-60."""
    case.staged("index").chmod(0o444)
    refused(case, "another owner or mode")


def test_staged_files_with_another_time(case: Case) -> None:
    """S-59: it controls the retention of segments without timestamps; Java reads milliseconds."""
    mtime_ns = case.log(10).stat().st_mtime_ns
    os.utime(case.staged(), ns=(0, mtime_ns // 10**6 * 10**6))
    case.validate()
    os.utime(case.staged(), ns=(0, mtime_ns - 2 * 10**6))
    refused(case, "modification time")


@pytest.mark.parametrize("name", [file_name(20, ".log.swap"), file_name(7, ".index.cleaned")])
def test_an_unfinished_swap_is_refused(case: Case, name: str) -> None:
    """S-21."""
    (case.path / name).touch()
    with pytest.raises(RefusedError, match="unfinished swap") as caught:
        case.validate()
    assert not isinstance(caught.value, StalePlanError)


def test_outputs_of_finished_groups_replace_their_sources(case: Case) -> None:
    """X-12: after the first group, its outputs replace its sources in the preconditions."""
    output = case.staged().read_bytes()
    for base in (0, 10):
        case.log(base).unlink()
    case.log(0).write_bytes(output)
    for kind in KINDS:
        case.staged(kind).unlink()
    case.validate(done=(0,))
    refused(case, "segment 10 appeared or vanished")
    case.log(0).write_bytes(output + b"!")
    refused(case, "changed after this cleaning swapped it in", done=(0,))


def test_facts_of_files(case: Case) -> None:
    """Sizes are compared before bytes are read, and bytes before any other fact counts."""
    with PartitionFiles(case.path) as files:
        name = staged_name(PLAN, 0, "log")
        found = file_fact(files, name)
        assert found.bytes == len(case.staged().read_bytes())
        assert has_fact(files, name, found)
        assert not has_fact(files, name, replace(found, crc32c=found.crc32c ^ 1))
        assert not has_fact(files, name, replace(found, bytes=1))
        assert not has_fact(files, "missing", found)


def test_other_aborted_transactions(case: Case) -> None:
    """U-32: an index that differs from the one that was read, unless a group of the plan was swapped there."""

    def reported(*entries: tuple[int, int, int]) -> AbortedTransactions:
        return AbortedTransactions(np.array([(0, 0, *entry, 5) for entry in entries], dtype=TXN_ENTRY))

    known = reported((1, 3, 15), (1, 21, 35))
    manifest = replace(case.manifest, aborted=aborted_witnesses(known, case.manifest.groups))
    assert Manifest.from_json(manifest.to_json(), "x") == manifest
    case.manifest = manifest

    def check(found: AbortedTransactions, *, done: tuple[int, ...] = ()) -> None:
        with PartitionFiles(case.path) as files:
            _check_aborted(files, manifest, found, [group for group in manifest.groups if group.base in done])

    check(known)
    check(reported((1, 21, 35)), done=(0,))
    for other in (reported(), reported((1, 3, 15)), reported((1, 21, 35)), reported((1, 4, 15), (1, 21, 35))):
        with pytest.raises(StalePlanError, match="transaction indexes"):
            check(other)
    with pytest.raises(StalePlanError, match="transaction indexes"):
        check(reported((1, 3, 15)), done=(0,))
    case.facts = replace(case.facts, aborted=reported())
    with pytest.raises(StalePlanError, match="transaction indexes"):
        case.validate()
