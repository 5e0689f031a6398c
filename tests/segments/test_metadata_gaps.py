"""A metadata log with a gap is refused: the changes in the gap are unknown."""

import struct
from pathlib import Path

import pytest

from cleanerd.errors import CorruptionError
from tests.segments.metadata_logs import ID1, ID2, LOG, read
from tests.support.format_bytes import (
    config,
    metadata_batch,
    snapshot,
    topic,
)


def test_gap_between_snapshot_and_log(directory: Path) -> None:
    """Settings from the gap would be missed silently."""
    (directory / "00000000000000000002-0000000001.checkpoint").write_bytes(snapshot(topic("a", ID1)))
    (directory / "00000000000000000005.log").write_bytes(metadata_batch(5, topic("b", ID2)))
    with pytest.raises(CorruptionError, match="log starts at offset 5, the newest complete snapshot ends at 2"):
        read(directory)


@pytest.mark.parametrize("end", [0, 3, 4, 5])
def test_gap_inside_the_log(directory: Path, end: int) -> None:
    """A segment lost, for example in a backup: its settings would be missed silently, too.

    With a snapshot the first relevant segment may end before the snapshot does, and the next one begin after it.
    """
    if end:
        (directory / f"{end:020d}-0000000001.checkpoint").write_bytes(snapshot(topic("a", ID1)))
    (directory / LOG).write_bytes(metadata_batch(0, topic("a", ID1), config(2, "a", "cleanup.policy", "compact")))
    (directory / "00000000000000000004.log").write_bytes(metadata_batch(4, topic("b", ID2)))
    if end >= 4:  # nothing but the snapshot's content is missing
        assert read(directory).topics == ({"a": ID1, "b": ID2} if end == 4 else {"a": ID1})
        return
    with pytest.raises(CorruptionError, match=rf"0004\.log at byte 0: .* offset 4: {end or 2} is missing"):
        read(directory)


def test_an_index_that_leads_too_far(directory: Path) -> None:
    """An index entry has a later batch's position, which is valid, so only the offsets show what was skipped."""
    first, second = metadata_batch(0, topic("a", ID1)), metadata_batch(1, config(2, "a", "cleanup.policy", "compact"))
    (directory / LOG).write_bytes(first + second + metadata_batch(2, topic("b", ID2)))
    (directory / "00000000000000000001-0000000001.checkpoint").write_bytes(snapshot(topic("a", ID1)))
    (directory / LOG.replace(".log", ".index")).write_bytes(struct.pack(">ii", 0, len(first + second)))
    with pytest.raises(CorruptionError, match="begins at offset 2: 1 is missing"):
        read(directory)
