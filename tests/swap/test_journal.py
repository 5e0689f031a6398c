"""The journal: whole lines count, torn ones are ignored (S-32, S-38)."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import pytest

from cleanerd.cleaner.manifest import staging_path
from cleanerd.swap.journal import Journal, JournalEntries
from tests.support.failing_files import FailingFiles
from tests.swap.staged_partition import PLAN, StagedPartition

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def files(partition: StagedPartition) -> Iterator[FailingFiles]:
    with FailingFiles(partition.path) as opened:
        yield opened


@pytest.fixture
def place(partition: StagedPartition) -> Path:
    return partition.path / staging_path(PLAN) / "journal"


def test_begin_and_done(files: FailingFiles, partition: StagedPartition, place: Path) -> None:
    """S-32, S-38: one line each, with the plan, the group and a checksum."""
    journal = Journal(files, PLAN)
    assert journal.entries() == JournalEntries(set(), set())
    journal.begin(partition.groups[0])
    assert journal.entries() == JournalEntries({0}, set())
    journal.done(partition.groups[0])
    journal.begin(partition.groups[1])
    assert journal.entries() == JournalEntries({0, 30}, {0})
    line = f"begin {PLAN} 0 20"
    assert place.read_bytes().splitlines()[0] == b"%s %08x" % (line.encode(), zlib.crc32(line.encode()))


@pytest.mark.slow
def test_a_truncated_last_line_is_ignored(files: FailingFiles, partition: StagedPartition, place: Path) -> None:
    """A torn last line is ignored; lines appended after it are valid."""
    journal = Journal(files, PLAN)
    journal.begin(partition.groups[0])
    first = place.read_bytes()
    journal.done(partition.groups[0])
    whole = place.read_bytes()
    for length in range(len(first), len(whole) - 1):
        place.write_bytes(whole[:length])
        assert journal.entries() == JournalEntries({0}, set()), length
        journal.begin(partition.groups[1])
        assert journal.entries() == JournalEntries({0, 30}, set()), length


def test_zeros_and_flipped_bits_are_ignored(files: FailingFiles, partition: StagedPartition, place: Path) -> None:
    """A file that grew before its data was written contains zeros."""
    journal = Journal(files, PLAN)
    journal.begin(partition.groups[0])
    good = place.read_bytes()
    place.write_bytes(good.replace(b" 20 ", b" 21 ") + bytes(30) + b"\xff\xfe 00\n")
    assert journal.entries() == JournalEntries(set(), set())
