"""The journal: whole lines count, torn ones do not (S-32, S-38)."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import pytest

from cleanerd.cleaner.manifest import staging_path
from cleanerd.swap.journal import Journal, JournalEntries
from tests.support.failing_files import FailingFiles
from tests.swap.staged_partition import PLAN, Scene

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def files(scene: Scene) -> Iterator[FailingFiles]:
    with FailingFiles(scene.path) as opened:
        yield opened


@pytest.fixture
def place(scene: Scene) -> Path:
    return scene.path / staging_path(PLAN) / "journal"


def test_begin_and_done(files: FailingFiles, scene: Scene, place: Path) -> None:
    """S-32, S-38: a line each, with the plan, the group and a checksum."""
    journal = Journal(files, PLAN)
    assert journal.entries() == JournalEntries(set(), set())
    journal.begin(scene.groups[0])
    assert journal.entries() == JournalEntries({0}, set())
    journal.done(scene.groups[0])
    journal.begin(scene.groups[1])
    assert journal.entries() == JournalEntries({0, 30}, {0})
    line = f"begin {PLAN} 0 20"
    assert place.read_bytes().splitlines()[0] == b"%s %08x" % (line.encode(), zlib.crc32(line.encode()))


@pytest.mark.slow
def test_every_cut_of_the_last_line_is_no_line(files: FailingFiles, scene: Scene, place: Path) -> None:
    """A torn last line is ignored, and what is appended after it is not."""
    journal = Journal(files, PLAN)
    journal.begin(scene.groups[0])
    first = place.read_bytes()
    journal.done(scene.groups[0])
    whole = place.read_bytes()
    for length in range(len(first), len(whole) - 1):
        place.write_bytes(whole[:length])
        assert journal.entries() == JournalEntries({0}, set()), length
        journal.begin(scene.groups[1])
        assert journal.entries() == JournalEntries({0, 30}, set()), length


def test_zeros_and_flipped_bits_are_no_lines(files: FailingFiles, scene: Scene, place: Path) -> None:
    """A file that grew before its data was written shows zeros."""
    journal = Journal(files, PLAN)
    journal.begin(scene.groups[0])
    good = place.read_bytes()
    place.write_bytes(good.replace(b" 20 ", b" 21 ") + bytes(30) + b"\xff\xfe 00\n")
    assert journal.entries() == JournalEntries(set(), set())
