"""Tombstones and markers wait for every replica, in every mode and format, and only they do (U-70)."""

from __future__ import annotations

import os
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cleanerd.cleaner.horizons import held_count
from cleanerd.cleaner.plan import rules_of
from cleanerd.cleaner.survey import CleaningOptions
from cleanerd.format.names import parse_topic_partition_dir
from cleanerd.policy.replicas import MARGIN_MS, ExpiryBound, ReplicaFacts, Replicas, TopicReplicas
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.segments.partition import read_partition
from cleanerd.segments.reading import SegmentReader
from cleanerd.state.cleaner_checkpoint import StateStore
from tests.cleaner.driver import NAME, clean, config
from tests.support.log_dirs import CLEANER_CHECKPOINT, Partition, make_log_dir, write_checkpoint
from tests.support.logs import Record, encode_batch, encode_legacy, encode_marker

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.config.topic_config import TopicConfig

T0 = 1_700_000_000_000
HORIZON = T0 + 1000
NOW = T0 + 100 * MARGIN_MS
TOMBSTONE = 0x20
BOTH, FIRST = frozenset({1, 2}), frozenset({1})


def waiting(topic: TopicConfig, full_ms: int | None) -> TopicConfig:
    """The topic, its ISR full until ``full_ms`` and short since; None: one replica."""
    state = Replicas(FIRST, FIRST) if full_ms is None else Replicas(BOTH, FIRST, full_ms, full_ms)
    return replace(topic, replicas=TopicReplicas(ReplicaFacts({}, NOW, NOW), {0: state}))


V2 = [
    pytest.param(encode_batch([Record(b"k", None, T0)], delete_horizon=HORIZON), {}, id="null"),
    pytest.param(
        encode_batch([Record(b"k", b"v", T0, attributes=TOMBSTONE)], delete_horizon=HORIZON),
        {"tombstone_mode": "flag"},
        id="KIP-87's flag",
    ),
    pytest.param(
        encode_batch([Record(b"k", b"v", T0, headers=((b"gone", b"\x01"),))], delete_horizon=HORIZON),
        {"tombstone_mode": "header", "tombstone_header": "gone"},
        id="header",
    ),
    pytest.param(
        encode_batch([Record(b"k", None, T0)], delete_horizon=HORIZON),
        {"compaction_strategy": "timestamp"},
        id="by timestamp",
    ),
    pytest.param(encode_marker(0, commit=True, producer_id=7, delete_horizon=HORIZON), {}, id="COMMIT marker"),
    pytest.param(encode_marker(0, commit=False, producer_id=7, delete_horizon=HORIZON), {}, id="ABORT marker"),
]


@pytest.mark.parametrize(("batch", "settings"), V2)
@pytest.mark.parametrize(
    ("full_ms", "goes"), [(HORIZON + MARGIN_MS - 1, False), (HORIZON + MARGIN_MS, True), (-1, False), (None, True)]
)
def test_it_waits(tmp_path: Path, batch: bytes, settings: dict[str, str], full_ms: int | None, goes: bool) -> None:
    """U-70: to the millisecond, for all forms of tombstones. The time of the next cleaning is known."""
    later = encode_batch([Record(b"z", b"1", T0)], base_offset=1)
    path = make_log_dir(tmp_path / "logs", {NAME: Partition({0: batch + later, 2: b""})})
    topic = waiting(config(**settings), full_ms)
    result = clean(path, CleaningOptions(NOW, force=True, from_start=True), topic)
    assert result.outcome in {"cleaned", "unchanged"}
    assert result.removed.tombstone + result.removed.marker == int(goes)
    assert result.next_purge_ms == (None if goes else HORIZON)


@pytest.mark.parametrize(("full_ms", "goes"), [(T0 + 499 + MARGIN_MS, False), (T0 + 500 + MARGIN_MS, True)])
@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats(tmp_path: Path, magic: int, full_ms: int, goes: bool) -> None:
    """U-70: they have no horizon; the segment's last write plus the retention replaces it."""
    first, second = encode_legacy(0, b"k", None, magic=magic), encode_legacy(1, b"z", b"1", magic=magic)
    path = make_log_dir(tmp_path / "logs", {NAME: Partition({0: first, 1: second, 2: b""}, cleaner_offset=2)})
    for base, time_ms in ((0, T0), (1, T0 + 10_000)):
        os.utime(path / NAME / f"{base:020d}.log", ns=(time_ms * 10**6,) * 2)
    topic = waiting(config(delete_retention_ms=500), full_ms)
    result = clean(path, CleaningOptions(NOW, tombstone_removal=True), topic)
    assert result.removed.tombstone == int(goes)


WRITTEN = HORIZON + 50_000


@pytest.mark.parametrize(
    ("batch", "settings"),
    [
        pytest.param(encode_batch([Record(b"k", None, WRITTEN)], delete_horizon=HORIZON), {}, id="tombstone"),
        pytest.param(
            encode_marker(0, commit=False, producer_id=7, timestamp=WRITTEN, delete_horizon=HORIZON), {}, id="marker"
        ),
        pytest.param(
            encode_legacy(0, b"k", None, magic=1, timestamp=WRITTEN - 500), {"delete_retention_ms": 500}, id="v1"
        ),
    ],
)
@pytest.mark.parametrize(
    ("full_ms", "goes"), [(WRITTEN + MARGIN_MS - 1, False), (WRITTEN + MARGIN_MS, True), (None, True)]
)
def test_a_horizon_of_a_clock_that_was_behind(
    tmp_path: Path, batch: bytes, settings: dict[str, int], full_ms: int | None, goes: bool
) -> None:
    """U-92: it is before the tombstone's own time. A replica that was in the ISR in between need not have it."""
    rest = encode_batch([Record(b"z", b"1", T0)], base_offset=1)
    path = make_log_dir(tmp_path / "logs", {NAME: Partition({0: batch, 1: rest, 2: b""}, cleaner_offset=2)})
    for base, time_ms in ((0, T0), (1, WRITTEN + 10_000)):
        os.utime(path / NAME / f"{base:020d}.log", ns=(time_ms * 10**6,) * 2)
    topic = waiting(config(**settings), full_ms)
    result = clean(path, CleaningOptions(NOW, tombstone_removal=True), topic)
    assert result.removed.tombstone + result.removed.marker == int(goes)
    if batch[16:17] == b"\x02":
        assert result.next_purge_ms == (None if goes else WRITTEN)


@pytest.mark.parametrize("unit", [1000, 1_000_000])
def test_a_time_in_another_unit(tmp_path: Path, unit: int) -> None:
    """U-92, OP-18: in microseconds or nanoseconds it delays nothing."""
    batch = encode_batch([Record(b"k", None, T0 * unit)], delete_horizon=HORIZON)
    path = make_log_dir(tmp_path / "logs", {NAME: Partition({0: batch, 1: b""})})
    topic = waiting(config(), HORIZON + MARGIN_MS)
    assert clean(path, CleaningOptions(NOW, force=True, from_start=True), topic).removed.tombstone == 1


@pytest.mark.parametrize(("newest_ms", "begins"), [(NOW + MARGIN_MS, NOW + MARGIN_MS), (NOW - 1, NOW), (-1, NOW)])
def test_a_new_horizon_by_the_later_clock(tmp_path: Path, newest_ms: int, begins: int) -> None:
    """U-92: the metadata log's time is used if this host's clock is behind; with one replica the clock alone."""
    batches = encode_batch([Record(b"k", None, T0)])
    topic = config(delete_retention_ms=1000)
    facts = ReplicaFacts({}, newest_ms, newest_ms)
    short = replace(topic, replicas=TopicReplicas(facts, {0: Replicas(BOTH, FIRST, T0, T0)}))
    alone = replace(topic, replicas=TopicReplicas(facts, {0: Replicas(FIRST, FIRST)}))
    for name, config_of, expected in (("short", short, begins), ("alone", alone, NOW)):
        path = make_log_dir(tmp_path / name, {NAME: Partition({0: batches, 1: b""})})
        assert clean(path, CleaningOptions(NOW, force=True), config_of).next_purge_ms == expected + 1000


@pytest.mark.parametrize(("shown", "goes"), [(7, True), (8, False)])
def test_a_topic_that_was_created_again(tmp_path: Path, shown: int, goes: bool) -> None:
    """U-70: with a running broker the metadata log may still show the older topic, of one replica."""
    batch = encode_batch([Record(b"k", None, T0)], delete_horizon=HORIZON)
    log = Partition({0: batch, 1: b""}, topic_id=uuid.UUID(int=7))
    path = make_log_dir(tmp_path / "logs", {NAME: log})
    alone = TopicReplicas(ReplicaFacts({}, NOW, NOW), {0: Replicas(FIRST, FIRST)}, topic_id=uuid.UUID(int=shown))
    result = clean(path, CleaningOptions(NOW, force=True, from_start=True), replace(config(), replicas=alone))
    assert result.removed.tombstone == int(goes)


def test_no_other_removal_waits(tmp_path: Path) -> None:
    """U-70: superseded records are removed, lags and new horizons use the clock."""
    batches = encode_batch([Record(b"k", b"1", T0)], base_offset=0) + encode_batch(
        [Record(b"k", None, T0)], base_offset=1
    )
    path = make_log_dir(tmp_path / "logs", {NAME: Partition({0: batches, 2: b""})})
    topic = waiting(config(delete_retention_ms=1000, min_compaction_lag_ms=60_000), -1)
    result = clean(path, CleaningOptions(NOW, force=True), topic)
    assert (result.outcome, result.removed.superseded, result.next_purge_ms) == ("cleaned", 1, NOW + 1000)


def test_an_idle_log(tmp_path: Path) -> None:
    """U-70, U-73: held, with the reason, and one removal when the replica is back."""
    path = make_log_dir(
        tmp_path / "logs", {NAME: Partition({0: encode_batch([Record(b"k", None, T0)], base_offset=0), 1: b""})}
    )
    topic = config(delete_retention_ms=1000)
    assert clean(path, CleaningOptions(NOW, force=True), waiting(topic, T0)).next_purge_ms == NOW + 1000
    later = NOW + 10 * MARGIN_MS
    held = clean(path, CleaningOptions(later, force=True), waiting(topic, T0))
    assert held.outcome == "skipped"
    assert "wait for broker 2, out of the ISR since 2023-11-14T22:13:20Z" in held.reason
    assert clean(path, CleaningOptions(later, force=True), waiting(topic, later)).removed.tombstone == 1


@pytest.mark.parametrize(("batch", "settings"), V2)
@pytest.mark.parametrize(
    ("bound", "counted"),
    [
        pytest.param(ExpiryBound(HORIZON - 1), 1, id="waits"),
        pytest.param(ExpiryBound(HORIZON), 0, id="may go"),
        pytest.param(ExpiryBound(HORIZON, below_offset=0), 1, id="above the checkpoint"),
    ],
)
def test_the_number_of_waiting_records(
    tmp_path: Path, batch: bytes, settings: dict[str, str], bound: ExpiryBound, counted: int
) -> None:
    """U-70, U-79: ``explain`` counts them, whatever a tombstone is."""
    alive = encode_batch([Record(b"z", b"1", T0)], base_offset=1, delete_horizon=HORIZON)
    path = make_log_dir(tmp_path / "logs", {NAME: Partition({0: batch + alive, 2: b""})})
    log, rules = read_partition(read_log_dir(path), parse_topic_partition_dir(NAME)), rules_of(config(**settings))
    with SegmentReader.open(str(path / NAME)) as reader:
        assert held_count(reader, log.segments, bound, NOW, rules, 1 << 20) == counted
        assert held_count(reader, log.segments, bound, HORIZON - 1, rules, 1 << 20) == 0


def test_the_upper_bound_of_waiting_records(tmp_path: Path) -> None:
    """U-94: all that stay and will be removed.

    No marker of a transaction with records, nothing above the cleaned range.
    """
    log = (
        encode_batch([Record(b"a", None, T0), Record(b"b", None, T0), Record(b"c", b"1", T0)])
        + encode_marker(3, commit=False, producer_id=7, delete_horizon=HORIZON)
        + encode_batch([Record(b"d", b"1", T0)], base_offset=4, producer_id=8, transactional=True)
        + encode_marker(5, commit=True, producer_id=8)
        + encode_batch([Record(b"b", b"2", T0)], base_offset=6)
    )
    above = encode_batch([Record(b"e", None, T0)], base_offset=7)
    rest = encode_batch([Record(b"f", b"1", T0)], base_offset=8)
    path = make_log_dir(tmp_path / "logs", {NAME: Partition({0: log, 7: above, 8: rest, 9: b""})})
    topic, state = waiting(config(), T0), tmp_path / "state"
    options = CleaningOptions(NOW, force=True)
    first = clean(path, replace(options, up_to_offset=7), topic, state=state)
    assert (first.outcome, first.tombstones_kept) == ("cleaned", 2)

    def message(up_to: int) -> str:
        result = clean(path, replace(options, up_to_offset=up_to), topic, state=state)
        return next(note for note in result.notes if "wait for broker 2, out of the ISR" in note)

    assert message(7).startswith("up to 2 tombstones or markers wait")
    write_checkpoint(path / CLEANER_CHECKPOINT, {NAME: 8})
    store, directory = StateStore(state), read_log_dir(path)
    log_then = read_partition(directory, parse_topic_partition_dir(NAME))
    known = store.load(directory, log_then)
    assert known is not None
    store.save(
        directory, log_then, replace(known, removal_known_below=8)
    )  # as the daemon after it has read the horizons
    assert message(9).startswith("tombstones or markers wait"), "another cleaner moved the checkpoint"
    assert message(9).startswith("up to 3 tombstones or markers wait"), "and the last segment's"


@pytest.mark.parametrize("wish", [{"waits_for_replicas": False}, {"ignored_replicas": frozenset({2})}])
def test_wishes(tmp_path: Path, wish: dict[str, object]) -> None:
    """U-70: Kafka's rule, and a broker that never returns."""
    batch = encode_batch([Record(b"k", None, T0)], delete_horizon=HORIZON)
    path = make_log_dir(tmp_path / "logs", {NAME: Partition({0: batch, 1: b""})})
    options = CleaningOptions(NOW, force=True, from_start=True, **wish)  # type: ignore[arg-type]
    assert clean(path, options, waiting(config(), T0)).removed.tombstone == 1


def with_peer(topic: TopicConfig, peer_point: int | str) -> TopicConfig:
    """The topic of brokers 1 and 2, always in sync; cleaned at broker 1, and at broker 2 below ``peer_point``."""
    message = peer_point if isinstance(peer_point, str) else {0: peer_point}
    facts, state = ReplicaFacts({}, NOW, NOW), Replicas(BOTH, BOTH)
    return replace(topic, replicas=TopicReplicas(facts, {0: state}, peers={2: message}, own_id=1))


@pytest.mark.parametrize(
    ("peer_point", "removed"),
    [
        pytest.param(2, {"tombstone": 1, "marker": 1}, id="as clean: but only below the checkpoint"),
        pytest.param(9, {"tombstone": 1, "marker": 1}, id="cleaner"),
        pytest.param(1, {"tombstone": 0, "marker": 0}, id="less clean"),
        pytest.param("silent", {"tombstone": 1, "marker": 1}, id="silent for longer than a day"),
    ],
)
def test_it_waits_for_less_clean_replicas(tmp_path: Path, peer_point: int | str, removed: dict[str, int]) -> None:
    """U-79: below its own checkpoint, if no replica is less clean. Batches above it may have come with a horizon."""
    horizon = NOW - 2 * 24 * 60 * 60_000
    tombstone, marker = (
        lambda at: encode_batch([Record(b"k%d" % at, None, horizon)], base_offset=at, delete_horizon=horizon),
        lambda at: encode_marker(at, commit=False, producer_id=at, timestamp=horizon, delete_horizon=horizon),
    )
    rest = encode_batch([Record(b"z", b"1", T0)], base_offset=4)
    segments = {0: tombstone(0) + marker(1), 2: tombstone(2) + marker(3) + rest, 5: b""}
    path = make_log_dir(tmp_path / "logs", {NAME: Partition(segments, cleaner_offset=2)})
    result = clean(path, CleaningOptions(NOW, force=True), with_peer(config(), peer_point))
    assert result.error is None, result.reason
    assert {"tombstone": result.removed.tombstone, "marker": result.removed.marker} == removed
    if peer_point == 1:
        assert any("broker 2 is clean below offset 1, this one below 2" in note for note in result.notes)
    # Records that were above the first dirty offset are below it now.
    again = clean(path, CleaningOptions(NOW, force=True, from_start=True), with_peer(config(), 9))
    assert again.removed.tombstone + removed["tombstone"] == 2
    assert again.removed.marker + removed["marker"] == 2


@pytest.mark.parametrize(
    ("has", "goes"),
    [
        pytest.param("the record and the marker", True, id="has the marker"),
        pytest.param("the record", False, id="has to fetch it"),
        pytest.param("the record and what is behind the marker", False, id="fetched past it"),
    ],
)
@pytest.mark.parametrize("commit", [False, True])
def test_a_marker_waits_for_the_end_of_its_transaction(tmp_path: Path, has: str, goes: bool, commit: bool) -> None:
    """U-79: no checkpoint is above an open transaction, so a replica without the marker delays it, like a tombstone."""
    horizon = NOW - 2 * MARGIN_MS
    record = encode_batch([Record(b"k", b"v", T0)], producer_id=7, transactional=True)
    marker = encode_marker(1, commit=commit, producer_id=7, timestamp=T0, delete_horizon=horizon)
    rest = encode_batch([Record(b"k", b"1", T0), Record(b"z", b"1", T0)], base_offset=2)
    logs = {
        "the record and the marker": {0: record + marker + rest, 4: b""},
        "the record": {0: record, 1: b""},
        "the record and what is behind the marker": {0: record + rest, 4: b""},
    }
    peer = make_log_dir(tmp_path / "peer", {NAME: Partition(logs[has])})
    clean(peer, CleaningOptions(NOW, force=True))
    point = clean(peer, CleaningOptions(NOW, force=True)).first_dirty_offset
    assert point == (4 if goes else 0)
    own = make_log_dir(tmp_path / "own", {NAME: Partition({0: marker + rest, 4: b""}, cleaner_offset=4)})
    result = clean(own, CleaningOptions(NOW, force=True, from_start=True), with_peer(config(), point))
    assert result.removed.marker == int(goes)
