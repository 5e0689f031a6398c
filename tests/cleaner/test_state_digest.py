"""U-90: replicas have equal digests for any cleanings, and different ones if their latest states differ."""

from __future__ import annotations

import random
import shutil
import uuid
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleanerd.cleaner.map_size import MAP_ENTRY_BYTES, MIN_MAP_BYTES
from cleanerd.errors import CleanerdError
from cleanerd.policy.state_digest import StateDigest, first_difference
from tests.cleaner.driver import NAME, scratch
from tests.cleaner.replica_history import NOW_MS, History, Replica, play
from tests.support.length import at_length
from tests.support.log_dirs import CLEANER_CHECKPOINT, LOG_STARTS, write_checkpoint
from tests.support.logs import Record

if TYPE_CHECKING:
    from pathlib import Path

TOPIC_ID = uuid.UUID(int=7)
EXAMPLES = 30
LONG_HISTORIES = at_length(500)


@given(seed=st.integers(0, 2**32))
@settings(max_examples=EXAMPLES)
def test_replicas_of_a_history_have_the_digests_of_the_model(seed: int) -> None:
    """U-90: transactions, tombstones, retention, cleanings and segments differ between the replicas."""
    with scratch() as root:
        play(seed, root, Counter())


@pytest.mark.long
def test_replicas_of_many_histories_agree() -> None:
    """U-90: as above, many times (100,000 with LENGTH=200), and many pairs of replicas have a state in common."""
    seen: Counter[str] = Counter()
    for seed in range(LONG_HISTORIES):
        with scratch() as root:
            play(seed, root, seen)
    assert seen["compared"] > seen["histories"] // 3
    assert seen["keys"] > seen["digests"]


def values(count: int, prefix: str = "v") -> list[Record]:
    """This many values, each with a key of its own."""
    return [Record(b"k%d" % n, f"{prefix}{n}".encode(), NOW_MS) for n in range(count)]


def history(*batches: list[Record], strategy: str = "offset") -> History:
    """These batches, in order."""
    found = History(strategy, TOPIC_ID)
    for records in batches:
        found.write(records)
    return found


def replica(of: History, root: Path, *, rolled_after: int = 0, cleaned: bool = False) -> Replica:
    """All of the history; a segment ends after this many batches, and a cleaning follows."""
    found, pick = Replica(of, root), random.Random(0)
    found.fetch(rolled_after, roll=0, pick=pick)
    found.fetch(1, roll=1, pick=pick)
    if cleaned:
        found.clean(NOW_MS)
    found.fetch(len(of.batches), roll=0, pick=pick)
    return found


def last(found: Replica) -> StateDigest:
    """The digest of the highest grid offset."""
    return found.digests()[-1]


ORIGINAL = (values(4), values(2, "new"), [Record(b"k3", None, NOW_MS)], values(1, "newer"))

OTHERS = {
    "a lost record": (values(4), [Record(b"x", b"", NOW_MS), *values(2, "new")[1:]], *ORIGINAL[2:]),
    "a changed value": (values(4), values(2, "bad"), *ORIGINAL[2:]),
    "a key that is back": (*ORIGINAL[:2], [Record(b"k9", None, NOW_MS)], ORIGINAL[3]),
    "another time": ([*values(2), Record(b"k2", b"v2", NOW_MS - 1), *values(4)[3:]], *ORIGINAL[1:]),
    "another header": (
        [*values(2), Record(b"k2", b"v2", NOW_MS, headers=((b"h", b""),)), *values(4)[3:]],
        *ORIGINAL[1:],
    ),
}


@pytest.mark.parametrize("what", OTHERS)
@pytest.mark.parametrize("strategy", ["offset", "timestamp"])
def test_a_planted_difference_is_seen(tmp_path: Path, what: str, strategy: str) -> None:
    """U-90: whichever replica was cleaned."""
    one = replica(history(*ORIGINAL, strategy=strategy), tmp_path / "one", rolled_after=2, cleaned=True)
    other = replica(history(*OTHERS[what], strategy=strategy), tmp_path / "other")
    found = first_difference({"1": one.answer(), "2": other.answer()})
    assert found is not None
    assert found.end_offset == 8
    assert found.by_replica["1"].digest != found.by_replica["2"].digest


def test_superseded_records_and_tombstones_do_not_count(tmp_path: Path) -> None:
    """U-90: one replica has removed them, another one still has both."""
    written = history(*ORIGINAL)
    one = replica(written, tmp_path / "one", rolled_after=3, cleaned=True)
    one.clean(NOW_MS + 10_000)
    other = replica(written, tmp_path / "other")
    assert last(one) == last(other)
    assert last(one).keys == 3
    assert last(one).digest == written.state(0, 8)[0]


def test_no_state_is_below_the_active_segment(tmp_path: Path) -> None:
    """U-90: a cleaning may have removed records superseded above a lower offset, whatever the checkpoints are."""
    written = history(*[values(4, f"v{n}") for n in range(7)])
    found = replica(written, tmp_path / "log", rolled_after=5, cleaned=True)
    assert [each.end_offset for each in found.digests()] == [24, 28]
    forget_cleanings(found)
    assert [each.end_offset for each in found.digests()] == [24, 28]
    assert last(found).digest == written.state(0, 28)[0]


def test_no_state_is_below_the_active_segment_where_a_key_is_repeated(tmp_path: Path) -> None:
    """U-90: after ``--first-dirty`` a key is repeated below records that a later one has superseded already."""
    twice = [Record(b"other", value, NOW_MS) for value in (b"1", b"2")]
    written = history(twice, twice, *[values(4, f"v{n}") for n in range(6)])
    found = replica(written, tmp_path / "log", rolled_after=6)
    found.clean(NOW_MS, first_dirty_offset=4)
    forget_cleanings(found)
    assert [each.end_offset for each in found.digests()] == [24, 28]
    assert last(found).digest == written.state(0, 28)[0]


def forget_cleanings(found: Replica) -> None:
    """Lose both checkpoints of a cleaned log."""
    (found.root / CLEANER_CHECKPOINT).unlink(missing_ok=True)
    shutil.rmtree(found.state)


def test_an_open_transaction_ends_the_states(tmp_path: Path) -> None:
    """U-90: records committed above the last stable offset are unknown to a replica that has not fetched them."""
    written = history(values(4))
    written.write(values(2, "open"), producer=7)
    written.write(values(3, "later"))
    found = Replica(written, tmp_path / "log")
    found.fetch(3, roll=0, pick=random.Random(0))
    assert last(found).end_offset == 4
    written.finish(7, commits=False)
    found.fetch(1, roll=0, pick=random.Random(0))
    assert last(found) == StateDigest(0, 10, *written.state(0, 10))


def test_a_marker_above_the_last_stable_offset_counts(tmp_path: Path) -> None:
    """U-90: an aborted transaction that ends behind another, open one: its data are in no state."""
    written = history(values(2))
    written.write(values(2, "aborted"), producer=7)
    written.write(values(1, "open"), producer=8)
    written.finish(7, commits=False)
    found = Replica(written, tmp_path / "log")
    found.fetch(4, roll=0, pick=random.Random(0))
    assert last(found) == StateDigest(0, 4, *written.state(0, 4))
    (found.root / NAME / f"{0:020d}.txnindex").unlink()
    assert last(found) == StateDigest(0, 4, *written.state(0, 4))


def test_keys_that_need_several_passes(tmp_path: Path) -> None:
    """U-90, U-20: the digests are the same."""
    written = history(*[values(4, f"v{n}") for n in range(30)], [Record(b"n%d" % n, b"v", NOW_MS) for n in range(200)])
    found = replica(written, tmp_path / "log", rolled_after=20)
    load = 40 * MAP_ENTRY_BYTES / MIN_MAP_BYTES
    passes = found.digests(map_bytes=1, map_load=load)
    assert passes == found.digests()
    assert passes[-1].keys == 204


def test_no_state_is_below_the_first_repeated_key(tmp_path: Path) -> None:
    """U-90: a replica that copied a cleaned log has no checkpoint of its own, and all of it may be one segment."""
    written = history(*[values(4, f"v{n}") for n in range(6)])
    one = replica(written, tmp_path / "one", rolled_after=5, cleaned=True)
    added = Replica.added_later(one, tmp_path / "added")
    assert [each.end_offset for each in added.digests()] == [24]
    for batch in (values(2, "whole"), values(3, "whole")):
        written.write(batch)
        added.fetch(1, roll=0, pick=random.Random(0))
    assert [each.end_offset for each in added.digests()] == [24, 28, 29]
    assert last(added) == StateDigest(0, 29, *written.state(0, 29))


def test_without_a_repeated_key_only_the_last_state_is_known(tmp_path: Path) -> None:
    """U-90: such a log does not show whether it was cleaned to its end."""
    written = history(*[[Record(b"%d" % (4 * n + m), b"v", NOW_MS) for m in range(4)] for n in range(7)])
    assert [each.end_offset for each in replica(written, tmp_path / "log", rolled_after=5).digests()] == [28]
    written.write([Record(b"27", b"", NOW_MS), Record(b"28", b"", NOW_MS), Record(b"29", b"", NOW_MS)])
    found = replica(written, tmp_path / "longer", rolled_after=5)
    assert [each.end_offset for each in found.digests()] == [28, 30, 31]


def test_log_starts_that_differ_a_little(tmp_path: Path) -> None:
    """U-90: the retained records above a common offset are compared; by version there is no state without a start."""
    for strategy, digests in (("offset", [StateDigest(128, 512, "", 384)]), ("timestamp", [])):
        written = history([Record(b"%d" % n, b"v", NOW_MS) for n in range(512)], strategy=strategy)
        found = []
        for start in (90, 120):
            each = replica(written, tmp_path / f"{strategy}-{start}")
            write_checkpoint(each.root / LOG_STARTS, {NAME: start})
            found.append(each.digests())
        assert found[0] == found[1]
        assert [StateDigest(d.begin_offset, d.end_offset, "", d.keys) for d in found[0]] == digests


def test_offsets_that_do_not_rise_have_no_state(tmp_path: Path) -> None:
    """U-45: readers of such a log disagree on the latest record."""
    written = history(values(2), values(2, "new"))
    found = replica(written, tmp_path / "log")
    found.bytes_ = found.bytes_ * 2
    found.flush()
    with pytest.raises(CleanerdError, match="do not rise"):
        found.digests()
