"""Broker and directory disagree: both views count if either could come true."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import pytest

from cleanerd.policy.producer import LastRecords
from tests.cleaner.driver import NAME, clean, config
from tests.cleaner.strategy_cases import BY_HEADER, NOW, batches, rec
from tests.support.log_dirs import LOG_STARTS, Partition, write_checkpoint
from tests.support.logs import encode_batch, encode_marker
from tests.swap.live_round import clean_beside, content, running
from tests.swap.offline_round import force

if TYPE_CHECKING:
    from pathlib import Path

BY_VERSION: Final = config(**BY_HEADER, segment_bytes=1000, delete_retention_ms=500)
EXPIRED: Final = encode_batch([rec("k", 9, value=None), rec("a", 1)], base_offset=10, delete_horizon=NOW)


def log(**facts: int) -> Partition:
    """An older record of k is below the tombstone, in a segment that stays; the log starts above it."""
    first = batches(rec("k", 1), rec("b", 1), rec("c", 1), first=0)
    return Partition({0: first, 10: EXPIRED, 12: batches(rec("z", 1), first=12)}, **facts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("checkpointed", "removed"),
    [
        pytest.param(None, False, id="not written down yet"),
        pytest.param(0, False, id="written down before"),
        pytest.param(1, True, id="written down"),
    ],
)
def test_a_log_start_that_a_crash_forgets(tmp_path: Path, checkpointed: int | None, removed: bool) -> None:
    """U-1, U-2: DeleteRecords moved the log start, which the broker writes to its checkpoint only once a minute.

    If it is killed within this minute, the record of k is back, and without the tombstone no record would delete it.
    """
    with running(tmp_path / "logs", log(log_start_offset=checkpointed)) as agent:
        agent.facts["log_start"] = 1
        result = clean_beside(agent, force(now_ms=NOW), BY_VERSION)
        assert result.error is None, result.reason
        assert (result.removed.tombstone, result.tombstones_waiting) == ((1, 0) if removed else (0, 1))
        assert (10 in [offset for offset, *_ in content(tmp_path / "logs")]) is not removed
        # no writes happen; the tombstone goes nevertheless once the broker has written the log start
        assert result.next_purge_ms == (None if removed else NOW + 120_000)


def test_a_deleted_record_does_not_delay_its_tombstone(tmp_path: Path) -> None:
    """R534-6: the tombstone of k waits for the visible record, whatever was deleted just now."""
    first = batches(rec("x", 1), rec("b", 1), rec("c", 1), first=0)
    late = batches(rec("k", 1), rec("z", 1), first=12)
    with running(tmp_path / "logs", Partition({0: first, 10: EXPIRED, 12: late})) as agent:
        agent.facts["log_start"] = 1
        result = clean_beside(agent, force(now_ms=NOW), BY_VERSION)
        assert (result.error, result.tombstones_waiting, result.next_purge_ms) == (None, 1, None)


@pytest.mark.parametrize("then", ["offset", "header"])
@pytest.mark.parametrize("killed", [True, False])
def test_a_log_start_that_a_crash_forgot(tmp_path: Path, then: str, *, killed: bool) -> None:
    """U-10, U-2: records below the log start were ignored, and are back: the log is dirty from there on.

    By offset only the horizon would keep the tombstone, and k would come back; by version it would wait without end.
    """
    root = tmp_path / "logs"
    with running(root, log()) as agent:
        agent.facts["log_start"] = 1
        assert clean_beside(agent, force(now_ms=NOW), BY_VERSION).tombstones_waiting == 1
    (root / ".kafka_cleanshutdown").touch()
    write_checkpoint(root / LOG_STARTS, {NAME: 0 if killed else 1})
    rules = BY_VERSION if then == "header" else config(segment_bytes=1000, delete_retention_ms=500)
    done = clean(root, force(now_ms=NOW, tombstone_removal=True, change_strategy=True), rules, state=tmp_path / "state")
    assert done.error is None, done.reason
    assert (0 in [offset for offset, *_ in content(root)]) is not killed
    if then == "offset":
        assert done.removed.tombstone == 1
    assert ("there again" in " ".join(done.notes)) is killed


def test_reading_stops_at_the_brokers_end(tmp_path: Path) -> None:
    """F-1, U-1: after the end follow preallocated space, or half of a batch that the broker is writing."""
    with running(tmp_path / "logs", Partition({0: EXPIRED, 12: batches(rec("z", 1), first=12)})) as agent:
        active = tmp_path / "logs" / NAME / f"{12:020d}.log"
        size = active.stat().st_size
        held = agent.do_log({"topic": "orders", "partition": 0})["segments"]
        with active.open("ab") as file:
            file.write(batches(rec("k", 10), first=13)[:-3])
        os.truncate(active, 1 << 20)
        agent.facts["segments"] = [*held[:-1], [held[-1][0], size, held[-1][2], held[-1][3]]]
        result = clean_beside(agent, force(now_ms=NOW), BY_VERSION)
        assert result.error is None, result.reason
        assert result.removed.tombstone == 1, result.notes


def test_two_epochs_of_a_producer(tmp_path: Path) -> None:
    """R192-1: the broker reports epoch 7, the log below the recovery point epoch 6: both epochs' markers stay.

    A power cut may lose the last marker; then the previous one is all that is known of the producer.
    """
    markers = b"".join(
        encode_marker(offset, commit=True, producer_id=4, producer_epoch=epoch, delete_horizon=1)
        for offset, epoch in ((0, 5), (1, 6), (2, 7))
    )
    data = batches(rec("a", 1), first=3)
    with running(tmp_path / "logs", Partition({0: markers + data, 4: batches(rec("z", 1), first=4)})) as agent:
        agent.producers = [[4, None, 6]]
        result = clean_beside(agent, force(now_ms=NOW), config(segment_bytes=1000, delete_retention_ms=500))
        assert result.error is None, result.reason
        left = sorted((tmp_path / "logs" / NAME).glob("*.log"))[0].read_bytes()
        assert len(left) == 61 + 61 + len(data), "epoch 5 has no batch, the two others lost their records"


def test_both_views_of_the_producers() -> None:
    """R192-1: a batch that either view needs stays."""
    directory = LastRecords.of(data_offsets={40}, marker_epochs={(1, 6), (4, 2)})
    both = directory.also([(1, None, 7), (2, 50, 0), (3, None, 1)])
    assert both.data_offsets.tolist() == [40, 50]
    pairs = list(zip(both.marker_producers.tolist(), both.marker_epochs.tolist(), strict=True))
    assert pairs == [(1, 6), (1, 7), (3, 1), (4, 2)]
