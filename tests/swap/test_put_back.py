"""A log restored from a backup, while the state directory was not (U-10)."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from cleanerd.cleaner.survey import CleaningOptions
from cleanerd.format.names import TopicPartition
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.state.cleaner_checkpoint import StateStore
from cleanerd.swap.apply_staged import apply_partition
from cleanerd.swap.round import stage_partition
from tests.cleaner.driver import NAME, Silent, clean, config, resources, scratch
from tests.support.fake_agent import FakeAgent
from tests.support.log_dirs import Partition, make_log_dir, read_segments
from tests.swap.live_round import clean_beside, held
from tests.swap.offline_round import NOW, batch, force, opened, state_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RETENTION_MS = 1000
TOPIC = config(segment_bytes=100, delete_retention_ms=RETENTION_MS)
LAST = 5
"""The last closed segment is the same before and after the cleaning, so it shows nothing about the others."""


@pytest.fixture
def root() -> Iterator[Path]:
    with scratch() as path:
        make_log_dir(path / "logs", {NAME: Partition(_logs())})
        yield path


def _logs() -> dict[int, bytes]:
    return {
        0: batch(0, ("k", "old"), ("a", "1")),
        2: batch(2, ("k", None), ("b", "1")),
        4: batch(4, ("c", "x" * 3000)),
        LAST: batch(LAST, ("e", "1")),
        6: b"",
    }


def _by_clean(root: Path) -> None:
    assert clean(root / "logs", force(), TOPIC, state=root / "state").outcome == "cleaned"


def _by_apply(root: Path) -> None:
    log_dir, store, name = read_log_dir(root / "logs"), StateStore(root / "state"), TopicPartition("orders", 0)
    assert stage_partition(log_dir, store, resources(), name, TOPIC, force(), Silent()).outcome == "staged"
    (root / "kept").mkdir()
    with opened(root) as locked:
        assert apply_partition(locked, name, TOPIC, CleaningOptions(NOW, force=True)).outcome == "cleaned"


def _by_agent(root: Path) -> None:
    logs = root / "logs"
    (logs / ".kafka_cleanshutdown").rename(root / "stopped")
    with held(logs), FakeAgent(logs, logs / ".cleanerd-agent.sock") as agent:
        assert clean_beside(agent, topic=TOPIC).outcome == "cleaned"
    (root / "stopped").rename(logs / ".kafka_cleanshutdown")


@pytest.mark.parametrize("by", [_by_clean, _by_apply, _by_agent])
def test_a_volume_restored_from_a_snapshot(root: Path, by: object) -> None:
    """U-10: inodes, times and Kafka's checkpoint are restored, cleanerd's state is not.

    A deleted key came back for good.

    The tombstone was in the clean section, although the deleted record was back: after its horizon it was removed
    alone.
    """
    assert callable(by)
    logs, partition, snapshot = root / "logs", root / "logs" / NAME, root / "snapshot"
    files = {file.relative_to(logs) for file in (*partition.iterdir(), *logs.glob("*-checkpoint")) if file.is_file()}
    for file in files:
        (snapshot / file).parent.mkdir(parents=True, exist_ok=True)
        os.link(logs / file, snapshot / file)
    by(root)
    assert (0, b"k") not in content(root)
    for file in [*partition.glob("0*"), *logs.glob("*-checkpoint")]:
        file.unlink()
    for file in files - {file.relative_to(logs) for file in partition.iterdir()}:
        os.link(snapshot / file, logs / file)
    assert (0, b"k") in content(root), "U-26: the log is restored"
    point = json.loads(state_file(logs).read_text())["cleanerd_checkpoint"]
    assert point["last_segment"]["inode"] == (partition / f"{LAST:020d}.log").stat().st_ino, "U-26: it looks the same"
    for later in (1, 2, 4):
        options = force(NOW + later * RETENTION_MS, tombstone_removal=True)
        result = clean(logs, options, TOPIC, state=root / "state")
        assert result.error is None
        assert (0, b"k") not in content(root)
    assert (2, b"k") not in content(root), "U-26: the tombstone has gone"


def test_a_cleaning_without_a_swap(root: Path) -> None:
    """U-10: the outputs of an earlier cleaning stay remembered as long as they exist."""
    _by_clean(root)
    logs = root / "logs"
    known = json.loads(state_file(logs).read_text())["cleanerd_checkpoint"]["last_output"]
    assert known["inode"] == (logs / NAME / f"{2:020d}.log").stat().st_ino
    again = clean(logs, force(from_start=True), TOPIC, state=root / "state")
    assert again.outcome == "unchanged"
    assert json.loads(state_file(logs).read_text())["cleanerd_checkpoint"]["last_output"] == known


def content(root: Path) -> list[tuple[int, bytes | None]]:
    """Offset and key of every record."""
    batches = (batch for found in read_segments(root / "logs" / NAME).values() for batch in found)
    return [(record.offset, record.key) for batch in batches for record in batch.records]
