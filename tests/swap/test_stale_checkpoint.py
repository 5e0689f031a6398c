"""Kafka's checkpoint beside a broker whose cleaner is off: truncation does not lower it (U-10, S-50).

By it, both records of a key in the new part would stay, and after its tombstone's removal the deleted key would be
back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cleaner.driver import NAME, clean, config, scratch
from tests.support.fake_agent import refuse
from tests.support.log_dirs import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARKS,
    RECOVERY_POINTS,
    Partition,
    make_log_dir,
    read_checkpoint,
    write_checkpoint,
    write_segment,
)
from tests.swap.live_round import clean_beside, content, running
from tests.swap.offline_round import NOW, TOPIC, batch, force

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

    from tests.support.fake_agent import FakeAgent

BY_TIMESTAMP = config(segment_bytes=3000, compaction_strategy="timestamp")
DELETED = (("x", "old"), ("x", None), ("y", "1"))


@pytest.fixture
def root() -> Iterator[Path]:
    with scratch() as path:
        yield path / "logs"


def three_groups(cleaner_offset: int | None = None) -> Partition:
    """Cleanable up to 11; the segment in the middle is too large to be merged."""
    logs = {
        0: batch(0, ("a", "1"), ("b", "1"), ("c", "1")),
        4: batch(4, ("big", "x" * 3000)),
        5: batch(5, ("a", "2"), ("b", "2"), ("a", "3")),
        8: batch(8, ("large", "x" * 3000), ("a", "4"), ("b", "3")),
        11: b"",
    }
    return Partition(logs, cleaner_offset=cleaner_offset)


def truncate(root: Path, *, high_watermark: int = 12) -> None:
    """A new leader has no records from offset 5 on, and writes others up to offset 11."""
    for base in (5, 8, 11):
        for file in (root / NAME).glob(f"{base:020d}.*"):
            file.unlink()
    write_segment(root / NAME, 5, batch(5, *DELETED))
    write_segment(root / NAME, 8, batch(8, ("large", "y" * 3000), ("z", "old"), ("z", None)))
    write_segment(root / NAME, 11, batch(11, ("end", "1")))
    follow(root, high_watermark)


def follow(root: Path, high_watermark: int) -> None:
    for name in (HIGH_WATERMARKS, RECOVERY_POINTS):
        write_checkpoint(root / name, {NAME: high_watermark})


def switch_cleaner_off(agent: FakeAgent) -> None:
    agent.fail("checkpoint", *[refuse("not_eligible")] * 9)


def offsets_of(root: Path, key: bytes) -> list[int]:
    return [offset for offset, found, _ in content(root) if found == key]


def test_an_old_checkpoint_of_a_disabled_cleaner_is_not_believed(root: Path) -> None:
    """It was 8, and the log was truncated at 5: it is older than cleanerd's checkpoint, which is void as well."""
    with running(root, three_groups(cleaner_offset=8)) as agent:
        switch_cleaner_off(agent)
        assert clean_beside(agent).end_offset == 11
        truncate(root)
        assert read_checkpoint(root / CLEANER_CHECKPOINT) == {NAME: 8}
        result = clean_beside(agent)
        assert (result.outcome, result.first_dirty_offset) == ("cleaned", 0)
        assert any("the whole log is dirty" in note for note in result.notes)
        assert (offsets_of(root, b"x"), offsets_of(root, b"z")) == ([6], [10])


def test_a_rejected_checkpoint_stays_rejected(root: Path) -> None:
    """Our checkpoint was 11; after the truncation the log grew to 8, and cleanerd could not lower Kafka's 11."""
    with running(root, three_groups()) as agent:
        assert clean_beside(agent).end_offset == 11
        switch_cleaner_off(agent)
        truncate(root, high_watermark=9)
        result = clean_beside(agent)
        assert (result.first_dirty_offset, result.end_offset) == (0, 8)
        assert read_checkpoint(root / CLEANER_CHECKPOINT) == {NAME: 11}
        follow(root, 12)
        result = clean_beside(agent)
        assert (result.first_dirty_offset, result.end_offset) == (8, 11)
        assert (offsets_of(root, b"x"), offsets_of(root, b"z")) == ([6], [10])


def test_a_rejected_checkpoint_entry_is_lowered(root: Path) -> None:
    """S-50: the broker's cleaner is on again, and would use the 11."""
    with running(root, three_groups()) as agent:
        assert clean_beside(agent).end_offset == 11
        truncate(root, high_watermark=9)
        result = clean_beside(agent)
        assert (result.first_dirty_offset, result.end_offset) == (0, 8)
        assert read_checkpoint(root / CLEANER_CHECKPOINT) == {NAME: 8}


def test_a_checkpoint_raised_during_the_cleaning_stays(root: Path) -> None:
    """U-10: it went further than this cleaning while the cleaning was in progress."""

    def raise_checkpoint(agent: FakeAgent, _request: dict[str, Any]) -> bytes | None:
        write_checkpoint(agent.log_dir / CLEANER_CHECKPOINT, {NAME: 11})
        return None

    with running(root, three_groups()) as agent:
        follow(root, 9)
        agent.fail("swap", raise_checkpoint)
        assert clean_beside(agent).end_offset == 8
        assert (agent.requested("checkpoint"), read_checkpoint(root / CLEANER_CHECKPOINT)) == ([], {NAME: 11})


def test_a_checkpoint_from_before_a_strategy_change_is_old(root: Path) -> None:
    """It was 8 before a cleaning by timestamps up to 11: when offsets decide again, it is outdated."""
    make_log_dir(root, {NAME: three_groups()})
    assert clean(root, force(up_to_offset=8), TOPIC).end_offset == 8
    assert clean(root, force(), BY_TIMESTAMP).end_offset == 11
    truncate(root)
    assert read_checkpoint(root / CLEANER_CHECKPOINT) == {NAME: 8}
    result = clean(root, force(change_strategy=True), TOPIC)
    assert (result.outcome, result.first_dirty_offset) == ("cleaned", 0)
    assert (offsets_of(root, b"x"), offsets_of(root, b"z")) == ([6], [10])


def test_a_checkpoint_of_an_enabled_cleaner_is_believed(root: Path) -> None:
    """It is on, so its checkpoint was truncated with the log, or went further: it is valid."""
    with running(root, three_groups(cleaner_offset=8)) as agent:
        switch_cleaner_off(agent)
        clean_beside(agent)
        truncate(root)
        write_checkpoint(root / CLEANER_CHECKPOINT, {NAME: 5})
        assert clean_beside(agent, force(NOW)).first_dirty_offset == 5
