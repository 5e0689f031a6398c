"""U-33: cleanerd's own files in log and state directories, as their hostile owner may write them.

A right checksum is not an authentication, and valid syntax may be absurd. No such file stops the run for other
partitions, or changes a file that the broker reads.
"""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from cleanerd._kernel import crc32c
from cleanerd.cleaner.manifest import READY, STAGING
from cleanerd.cleaner.survey import CleaningOptions
from cleanerd.errors import StalePlanError
from cleanerd.format.names import TopicPartition
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.state.cleaner_checkpoint import StateStore
from cleanerd.swap.apply_staged import apply_partition
from cleanerd.swap.files import PartitionFiles
from cleanerd.swap.journal import Journal, JournalEntries
from cleanerd.swap.kept_segments import KeptSegments
from cleanerd.swap.round import stage_partition
from tests.cleaner.driver import NAME, Silent, config, resources, scratch
from tests.cli.clean_log_dirs import make
from tests.support.log_dirs import CLEANER_CHECKPOINT, Partition, make_log_dir, read_checkpoint, tree, write_checkpoint
from tests.support.logs import Record, encode_batch
from tests.swap.offline_round import NOW, TOPIC, batch, clean_and_keep, force, opened, two_groups
from tests.swap.staged_partition import PLAN

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cleanerd.cleaner.result import CleaningResult
    from cleanerd.config.topic_config import TopicConfig

ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def root() -> Iterator[Path]:
    with scratch() as path:
        yield path


@pytest.mark.parametrize("base", ["x", "", "-1", "1_0", "1e5", "9" * 20, "9" * 5000, "٣"])
def test_a_journal_with_right_checksums(root: Path, base: str) -> None:
    """S-32: another user may own the directory; ``int`` of its content used to stop the run for all partitions."""
    place = root / STAGING / PLAN
    place.mkdir(parents=True)
    lines = [f"begin {PLAN} {base} 14", f"done {PLAN} {base} 14", f"begin {PLAN} 30 {base}", f"begin {PLAN} 7 14"]
    data = b"".join(line.encode() + b" %08x\n" % zlib.crc32(line.encode()) for line in lines)
    (place / "journal").write_bytes(data)
    with PartitionFiles(root) as files:
        assert Journal(files, PLAN).entries() == JournalEntries({7}, set())


def staged(root: Path, topic: TopicConfig = TOPIC, options: CleaningOptions | None = None) -> Path:
    """A plan that waits for ``apply``; returns its ``ready.json``."""
    store = StateStore(root / "state")
    log_dir = read_log_dir(root / "logs")
    requested = options or force()
    assert stage_partition(log_dir, store, resources(), ORDERS, topic, requested, Silent()).outcome == "staged"
    (ready,) = (root / "logs" / NAME / STAGING).rglob(READY)
    return ready


def applied(root: Path, topic: TopicConfig = TOPIC, **options: Any) -> CleaningResult:
    (root / "kept").mkdir(exist_ok=True)
    with opened(root) as locked:
        return apply_partition(locked, ORDERS, topic, CleaningOptions(NOW, force=True, **options))


ODD: dict[str, tuple[object, ...]] = {
    "clean_to": (2**63, 2**64, -5, 0, True, 1.0, "8", [], {}),
    "strategy": (None, 3),
    "keep_replaced": (3, ["/"]),
    "change_strategy": ("yes", 1),
    "removed_tombstones": ({"bytes": "x", "crc32c": 0}, {"bytes": -1, "crc32c": 0}, [], {}, 7),
    "result": (None, []),
}
ODD_RESULT = {
    "end_offset": (None, "x", 2**70, float("inf"), [8], {}),
    "records_kept": ("x", [], True, None),
    "map_utilization": ([], {}, float("inf"), "0.5"),
    "seconds": (None, [], {"index": None}, {"index": "x"}),
    "removed": ([1], {"superseded": "x"}, {"superseded": None}, {"superseded": float("inf")}),
    "next_purge_ms": ("soon", float("nan"), []),
    "strategy": (3, None, []),
}


@pytest.mark.long
@pytest.mark.parametrize("inside", [False, True])
def test_an_absurd_record_of_a_staged_plan(root: Path, inside: bool) -> None:
    """S-29: no such plan is applied; log and Kafka's checkpoint stay: an invalid number there stops the broker.

    ``clean_to`` used to be copied into that file.
    """
    make_log_dir(root / "logs", {NAME: two_groups()})
    before = tree(root / "logs" / NAME, without=())
    checkpoint = read_checkpoint(root / "logs" / CLEANER_CHECKPOINT)
    for key, values in (ODD_RESULT if inside else ODD).items():
        for value in values:
            ready = staged(root)
            document = json.loads(ready.read_bytes())
            (document["result"] if inside else document)[key] = value
            ready.write_text(json.dumps(document))
            result = applied(root)
            assert isinstance(result.error, StalePlanError), (key, value, result)
            assert tree(root / "logs" / NAME, without=()) == before
            assert read_checkpoint(root / "logs" / CLEANER_CHECKPOINT) == checkpoint


def test_a_plan_that_claims_to_clean_all(root: Path) -> None:
    """S-50: it is applied, and counts as far as it goes."""
    make_log_dir(root / "logs", {NAME: two_groups()})
    ready = staged(root)
    document = json.loads(ready.read_bytes())
    assert document["clean_to"] == 8
    ready.write_text(json.dumps({**document, "clean_to": 10**12}))
    assert applied(root).outcome == "cleaned"
    assert read_checkpoint(root / "logs" / CLEANER_CHECKPOINT) == {NAME: 8}


def test_a_log_truncated_below_its_checkpoint(root: Path) -> None:
    """S-50, U-10: the broker truncated the log inside the clean section and lowered its checkpoint.

    A plan below stays valid.

    The log was clean up to 7, in the middle of a segment, which an earlier cleaning reached with a small offset map. A
    tombstone that came there since must not count as clean: the records that it deletes would stay and outlive it.
    """
    tombstone_batch = encode_batch([Record(b"gone", None, NOW - 9000)], base_offset=0, delete_horizon=NOW - 5000)
    clean_part = batch(5, ("b", "1")) + batch(6, ("c", "1")) + batch(7, ("d", "1"))
    logs = {0: tombstone_batch + batch(1, ("k", "1")), 2: batch(2, ("a", "1")), 5: clean_part, 9: b""}
    # the high watermark excludes the rest; a tombstone to remove makes the cleaning worthwhile
    partition = Partition(logs, high_watermark=5)
    path = make_log_dir(root / "logs", {NAME: partition})
    write_checkpoint(path / CLEANER_CHECKPOINT, {NAME: 7})
    staged(root, options=force(tombstone_removal=True))
    write_checkpoint(path / CLEANER_CHECKPOINT, {NAME: 6})
    assert applied(root, tombstone_removal=True).outcome == "cleaned"
    assert read_checkpoint(path / CLEANER_CHECKPOINT) == {NAME: 6}


@pytest.mark.parametrize("odd_bytes", [1, 16, 17, 31, 33, 40])
def test_incomplete_keys(root: Path, odd_bytes: int) -> None:
    """U-1: the file and its entry in ``ready.json`` match, but contain no valid keys."""
    topic = config(segment_bytes=3000, compaction_strategy="timestamp", delete_retention_ms=0)
    tombstone = encode_batch([Record(b"gone", None, NOW - 9000)], base_offset=0, delete_horizon=NOW - 5000)
    logs = {0: tombstone + batch(1, ("a", "1")), 2: batch(2, ("a", "2")), 3: batch(3, ("b", "1"))}
    make_log_dir(root / "logs", {NAME: Partition(logs)})
    ready = staged(root, topic)
    document = json.loads(ready.read_bytes())
    assert document["removed_tombstones"]["bytes"] == 32, "U-26: a tombstone is removed, and its key is stored"
    data = bytes(odd_bytes)
    (keys,) = ready.parent.glob("removed_tombstones.keys")
    keys.write_bytes(data)
    document["removed_tombstones"] = {"bytes": odd_bytes, "crc32c": crc32c(np.frombuffer(data, np.uint8))}
    ready.write_text(json.dumps(document))
    result = applied(root, topic)
    assert isinstance(result.error, StalePlanError), result


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("entry", "sources"), {}),
        (("entry", "cleaned_ms"), 10**18),
        (("entry", "end_offset"), -1),
        (("entry", "groups"), [{"base": 0, "end": 9, "segments": [], "output": {}, "output_log": None}]),
    ],
)
def test_an_absurd_undo_entry(root: Path, place: tuple[str, str], value: object) -> None:
    """S-40: ignored like any damaged entry; its time crashed ``undo --list``, its segments ``undo``."""
    (root / "kept").mkdir()
    make(root)
    assert clean_and_keep(root).outcome == "cleaned"
    (path,) = (root / "state" / "trash").iterdir()
    head, *groups = path.read_text().splitlines()
    document = json.loads(head)
    document[place[0]][place[1]] = value
    path.write_text("\n".join([json.dumps(document), *groups]) + "\n")
    kept = KeptSegments(root / "state")
    assert kept.entries() == ()
    assert len(kept.warnings) == 1


@pytest.mark.parametrize("change", [{"segments": []}, {"end": 0}, {"base": 1}, {"output": {}}])
def test_an_absurd_group_of_an_undo_entry(root: Path, change: dict[str, object]) -> None:
    """S-40: the same for a line of its own."""
    (root / "kept").mkdir()
    make(root)
    assert clean_and_keep(root).outcome == "cleaned"
    (path,) = (root / "state" / "trash").iterdir()
    head, first, *more = path.read_text().splitlines()
    path.write_text("\n".join([head, json.dumps({**json.loads(first), **change}), *more]) + "\n")
    kept = KeptSegments(root / "state")
    assert kept.entries() == ()
    assert len(kept.warnings) == 1
