"""The facts about a log's batches and records have a limit, in memory (U-35)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.cleaner.metadata_budget import (
    BATCH_BYTES,
    RECORD_BITS,
    SEGMENT_BATCH_BYTES,
    SEGMENT_RECORD_BITS,
    WRITE_TIME_BYTES,
    MetadataBudget,
)
from cleanerd.cleaner.survey import CleaningOptions, survey
from cleanerd.errors import LogTooLargeError
from cleanerd.format.names import TopicPartition
from cleanerd.host.memory import MIB, Memory, share_of
from cleanerd.policy.rules import Rules
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.segments.producers import PRODUCER_BYTES
from cleanerd.state.cleaner_checkpoint import StateStore
from tests.cleaner.driver import config
from tests.support.log_dirs import Partition, Producer, make_log_dir
from tests.support.logs import BASE_TIMESTAMP_MS, keyed_batch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

KAFKAS = Rules()


def _takes(facts_bytes: int, chunks: Sequence[tuple[int, int, int]], rules: Rules = KAFKAS) -> None:
    """``chunks``: base of the segment, batches, records."""
    plan: Any = SimpleNamespace(path="/logs/orders-0", facts_bytes=facts_bytes, rules=rules)
    sources = {base: SimpleNamespace(base=base) for base, _, _ in chunks}
    room = MetadataBudget(plan)
    for base, batches, records in chunks:
        source: Any = sources[base]
        chunk: Any = SimpleNamespace(batches=range(batches), records=range(records))
        room.reserve(source, chunk)


@pytest.mark.parametrize(
    ("chunks", "needed"),
    [
        pytest.param([(0, 100, 0)], 100 * (BATCH_BYTES + SEGMENT_BATCH_BYTES), id="batches"),
        pytest.param([(0, 50, 0), (0, 50, 0)], 100 * (BATCH_BYTES + SEGMENT_BATCH_BYTES), id="chunks of one segment"),
        pytest.param(
            [(0, 50, 0), (1, 70, 0), (2, 50, 0)], 170 * BATCH_BYTES + 70 * SEGMENT_BATCH_BYTES, id="largest segment"
        ),
        pytest.param([(0, 0, 800)], 100 * (RECORD_BITS + SEGMENT_RECORD_BITS), id="records"),
    ],
)
def test_the_facts_of_all_batches_and_records_are_counted(chunks: list[tuple[int, int, int]], needed: int) -> None:
    """U-35: all batches and records of the log, and once more those of the segment with the most."""
    _takes(needed, chunks)
    with pytest.raises(LogTooLargeError, match=f"needs {needed} bytes of memory, and cleanerd may use {needed - 1}"):
        _takes(needed - 1, chunks)


def test_the_times_that_batches_keep_are_counted() -> None:
    """U-35, U-65: three per batch, with that setting alone."""
    rules = Rules(strategy="timestamp", winner_retention="write-time")
    needed = 100 * (BATCH_BYTES + SEGMENT_BATCH_BYTES + WRITE_TIME_BYTES)
    _takes(needed, [(0, 100, 0)], rules)
    with pytest.raises(LogTooLargeError):
        _takes(needed - 1, [(0, 100, 0)], rules)


@pytest.mark.parametrize("room", [0, -1])
def test_a_survey_takes_its_threads_share(tmp_path: Path, room: int) -> None:
    """U-35: the producers of a log are needed before its plan; each of several threads has a share for them."""
    snapshots = {1: [Producer(number, 1, BASE_TIMESTAMP_MS) for number in range(50)]}
    path = make_log_dir(
        tmp_path / "logs", {"orders-0": Partition({0: keyed_batch(0, [("a", "1")]), 1: b""}, snapshots=snapshots)}
    )
    options = CleaningOptions(BASE_TIMESTAMP_MS, force=True, facts_bytes=50 * PRODUCER_BYTES + room)
    name = TopicPartition("orders", 0)
    if room < 0:
        with pytest.raises(LogTooLargeError, match="50 producers wrote to the log"):
            survey(read_log_dir(path), name, config(), StateStore(tmp_path / "state"), options)
    else:
        assert survey(read_log_dir(path), name, config(), StateStore(tmp_path / "state"), options).to_clean


def test_ordinary_logs_have_room() -> None:
    """U-35: with 512 MiB and the default settings a partition may have four million batches and 100 million records."""
    found = share_of(
        Memory(512 * MIB, "a test"),
        threads=1,
        map_bytes=128 * MIB,
        read_buffer_bytes=4 * MIB,
        max_unpacked_bytes=1024 * MIB,
    )
    _takes(found.facts_bytes, [(0, 4_000_000, 4_000_000)])
    _takes(found.facts_bytes, [(0, 1_000_000, 100_000_000)])
    assert found.map_bytes + found.facts_bytes < 512 * MIB - 96 * MIB
