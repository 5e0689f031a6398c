"""Segments whose offset index is empty, as after a crash, from a log that spans more than one segment's range.

Kafka's ``testSegmentGroupingFollowingLoadOfZeroIndex``: a cleaner that reads a segment's last offset from its empty
index assumes that it ends at its base. It merges too many segments, and offsets overflow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.differential.cells.offsets import GAPS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.judge import Judge

pytestmark = pytest.mark.kafka

FAR_APART = ("two segments as far as one reaches", "two segments one further than one reaches")


@pytest.mark.parametrize("name", FAR_APART)
def test_segments_with_empty_indexes(judge_43: Judge, work: Path, name: str) -> None:
    """C-31: groups equal Kafka's, and every record is found by its offset."""
    (cell,) = (cell for cell in GAPS if cell.name == name)
    emptied = []

    class WithoutEntries:
        """Makes logs whose offset indexes are empty."""

        def __getattr__(self, name: str) -> Any:
            return getattr(judge_43, name)

        def make(self, directory: Any, *arguments: Any, **more: Any) -> int:
            end = judge_43.make(directory, *arguments, **more)
            for path in sorted(directory.glob("*.index"))[:-1]:
                path.write_bytes(b"")
                emptied.append(path)
            return end

    judge: Any = WithoutEntries()
    cell.check(judge, work)
    assert emptied
