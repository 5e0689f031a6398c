"""cleanerd.state.quarantine: the segment of a failure, and whether it was replaced (OP-10)."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from cleanerd.errors import BatchTooLargeError, CleanerdError, CorruptionError, LogTooLargeError
from cleanerd.format.names import TopicPartition
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.segments.partition import PartitionLog, read_partition
from cleanerd.state.cleaner_checkpoint import PartitionState, StateStore
from cleanerd.state.quarantine import cause_and_fixes, forget_quarantine, is_outdated, quarantined
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import keyed_batch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAME = TopicPartition("orders", 0)


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    segments = {base: keyed_batch(base, [("a", "1")]) for base in range(3)}
    return make_log_dir(tmp_path / "logs", {"orders-0": Partition(segments)})


def read(log_dir: Path) -> PartitionLog:
    return read_partition(read_log_dir(log_dir), NAME)


def segment(log_dir: Path, base: int, suffix: str = ".log") -> Path:
    return log_dir / "orders-0" / f"{base:020d}{suffix}"


ABOUT: dict[str, tuple[Callable[[Path], CleanerdError], int | None]] = {
    "a batch": (lambda path: CorruptionError("bad", where=str(segment(path, 1)), position=4), 1),
    "a large one": (lambda path: BatchTooLargeError("large", where=str(segment(path, 1)), position=4), 1),
    "an index": (lambda path: CorruptionError("bad", where=str(segment(path, 1, ".txnindex"))), 1),
    "the active segment": (lambda path: CorruptionError("bad", where=str(segment(path, 2))), None),
    "a staged one": (lambda path: CorruptionError("bad", where=f"{path}/orders-0/.kstage/x/{0:020d}.log"), None),
    "another file": (lambda path: CorruptionError("bad", where=f"{path}/orders-0/partition.metadata"), None),
    "the partition": (lambda path: LogTooLargeError("large", where=f"{path}/orders-0"), None),
    "nothing": (lambda _path: CleanerdError("bad"), None),
}


@pytest.mark.parametrize("what", ABOUT)
def test_a_quarantine_ends_with_its_segment(log_dir: Path, what: str) -> None:
    """It is outdated when exactly that segment is another file, or is missing; one without a segment is never."""
    make, base = ABOUT[what]
    state = quarantined("bad", make(log_dir), read(log_dir), None)
    assert (None if state.quarantined_segment is None else state.quarantined_segment.base) == base
    assert not is_outdated(state, read(log_dir))
    with segment(log_dir, 2).open("ab") as active:
        active.write(keyed_batch(3, [("b", "1")]))
    os.utime(segment(log_dir, 0), (1, 1))
    assert not is_outdated(state, read(log_dir)), "others continued"
    os.utime(segment(log_dir, 1), (1, 1))
    assert is_outdated(state, read(log_dir)) is (base == 1)
    segment(log_dir, 1).unlink()
    assert is_outdated(state, read(log_dir)) is (base == 1)


def test_the_segment_is_stored_and_cleared(log_dir: Path, tmp_path: Path) -> None:
    """With its segment; the next failure is about another one; an older release's quarantine has none."""
    store, found, log = StateStore(tmp_path / "state"), read_log_dir(log_dir), read(log_dir)
    before = PartitionState(None, None, {"outcome": "cleaned"}, rules="r")
    state = quarantined("bad", CorruptionError("bad", where=str(segment(log_dir, 1))), log, before)
    store.save(found, log, state)
    assert store.load(found, log) == state
    assert quarantined("else", None, log, state).quarantined_segment is None
    document = json.loads(store.path(found, log).read_text())
    del document["quarantined_segment"]
    store.path(found, log).write_text(json.dumps(document))
    older = store.load(found, log)
    assert older is not None
    assert not is_outdated(older, log)
    store.save(found, log, state)
    forget_quarantine(store, found, log)
    assert store.load(found, log) == before


@pytest.mark.parametrize(
    ("reason", "parts"),
    [
        (
            "a.log: CRC (batch at offset 5) (copy it; or wait (a day))",
            ("a.log: CRC (batch at offset 5)", ["copy it", "or wait (a day)"]),
        ),
        ("broken", ("broken", [])),
        ("broken)", ("broken)", [])),
    ],
)
def test_the_way_out_is_separate(reason: str, parts: tuple[str, list[str]]) -> None:
    """OP-10: an error's text ends with it, in parentheses."""
    assert cause_and_fixes(reason) == parts
