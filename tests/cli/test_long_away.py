"""Replicas that were away for too long: doctor and apply list them (U-76), move-aside removes them (U-77)."""

from __future__ import annotations

import time
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cleanerd.admin.cluster import LeaderAndIsr
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.segments.partition import read_partition
from cleanerd.state.cleaner_checkpoint import PartitionState, StateStore
from tests.cli.clean_log_dirs import batch, lock_holder
from tests.cli.findings import findings
from tests.daemon.serving import serving
from tests.daemon.views import log_dir, view
from tests.daemon.views import partition as view_of
from tests.segments.replica_records import change, partition
from tests.support.format_bytes import config, metadata, metadata_batch, topic
from tests.support.log_dirs import (
    CLEANER_CHECKPOINT,
    CLUSTER_ID,
    HIGH_WATERMARKS,
    RECOVERY_POINTS,
    Partition,
    make_log_dir,
    write_checkpoint,
)
from tests.support.log_dirs import read_checkpoint as checkpoint
from tests.support.logs import Record, encode_batch, encode_marker

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.clean_log_dirs import Shell

ID, OTHER = uuid.UUID(int=7), uuid.UUID(int=8)
HOUR_MS = 3_600_000
NO_OP = metadata(20)
COMPACT = config(2, "orders", "cleanup.policy", "compact")
THREE_DAYS = config(2, "orders", "delete.retention.ms", str(72 * HOUR_MS))
DELEGATED = tuple(
    config(2, "orders", *each)
    for each in (("min.cleanable.dirty.ratio", "1"), ("max.compaction.lag.ms", str(2**63 - 1)))
)
ONE_REPLICA = change(ID, 0, replicas=[1], isr=[1])
CREATED = (topic("orders", ID), COMPACT, partition(ID, 0, [1, 2], [1, 2]))

REPLICATED = "topics.orders.cleanerd.tombstone.replicated"

Batch = tuple[float, tuple[bytes, ...]]


def broker_1(
    root: Path, *batches: Batch, first: tuple[bytes, ...] = CREATED, last_write_hours: float = 0, **facts: int
) -> Path:
    """The log directory of broker 1, its metadata log with a batch at each of these ages in hours."""
    now_ms = time.time_ns() // 1_000_000
    data = encode_batch([Record(b"k", b"v", now_ms - int(last_write_hours * HOUR_MS))])
    others = Partition({0: batch(0, ("a", "1")), 1: b""}, topic_id=OTHER, cleaner_offset=1)
    path = make_log_dir(
        root / "logs",
        {"orders-0": Partition({0: data, 1: b""}, topic_id=ID, cleaner_offset=1, **facts), "other-0": others},
    )
    log, offset = b"", 0
    for hours, values in ((200.0, first), *batches):
        log += metadata_batch(offset, *values, timestamp=now_ms - int(hours * HOUR_MS))
        offset += len(values)
    (path / "__cluster_metadata-0").mkdir()
    (path / "__cluster_metadata-0" / f"{0:020d}.log").write_bytes(log)
    return path


KILLED = ((30.0, (NO_OP,)),)
STOPPED = ((30.0, (NO_OP,)), (29.99, (change(ID, 0, isr=[2]),)))
"""A clean stop: the controller removes the replica from the ISR, and the broker still learns of it."""

CASES = [
    pytest.param(KILLED, True, id="killed"),
    pytest.param(STOPPED, True, id="stopped"),
    pytest.param(((20.0, (NO_OP,)),), False, id="for a shorter time"),
    pytest.param(((50.0, (change(ID, 0, isr=[2]),)), (0.0, (NO_OP,))), True, id="out of the ISR, of a log up to date"),
    pytest.param(((50.0, (change(ID, 0, isr=[1]),)), (0.0, (NO_OP,))), False, id="another broker is away"),
    pytest.param(((50.0, (change(ID, 0, isr=[2]),)), (9.0, (change(ID, 0, isr=[1, 2]),)), (0.0, (NO_OP,))), False,
                 id="it returned"),
    pytest.param(((50.0, (change(ID, 0, isr=[2]),)), (0.05, (change(ID, 0, isr=[1, 2]),)), (0.0, (NO_OP,))), True,
                 id="it returned in the last minutes"),
    pytest.param(((199.0, (change(ID, 0, replicas=[1], isr=[1]),)), (30.0, (NO_OP,))), False, id="one replica"),
    pytest.param(((199.0, (change(ID, 0, replicas=[3, 2], isr=[2]),)), (30.0, (NO_OP,))), False, id="no replica here"),
    pytest.param(((199.0, (change(ID, 0, replicas=[3, 2], isr=[2]),)),
                  (30.02, (change(ID, 0, replicas=[1, 3, 2], isr=[1, 2]),)), (30.0, (NO_OP,))), True,
                 id="added in the last minutes"),
    pytest.param(((199.0, (THREE_DAYS,)), (30.0, (NO_OP,))), False, id="a longer delete.retention.ms"),
    pytest.param(((199.0, (config(2, "orders", "cleanup.policy", "delete"),)), (30.0, (NO_OP,))), False,
                 id="not compacted"),
]  # fmt: skip


@pytest.mark.parametrize(("batches", "named"), CASES)
def test_named_before_the_broker_starts(root: Path, shell: Shell, batches: tuple[Batch, ...], named: bool) -> None:
    """U-76: by doctor and by the hook, which lets the broker start."""
    path = broker_1(root, *batches)
    levels = [level for level, what in findings(shell("doctor", path, "--json"), "replicas") if "orders-0" in what]
    hook = shell("apply", path)
    assert levels == (["warning"] if named else [])
    assert (hook.code, "orders-0: its replica was away" in hook.err) == (0, named)
    assert (f"cleanerd move-aside {path}" in hook.err) == named


def test_a_topic_created_just_before_the_stop(root: Path, shell: Shell) -> None:
    """U-76: the last minutes of a metadata log may be uncommitted (U-71); a replica that they create is not fresh.

    If no other broker has a replica, each is the only one.
    """
    created = (30.05, CREATED)
    path = broker_1(root / "one", created, *KILLED, first=(topic("other", OTHER), partition(OTHER, 0, [1], [1])))
    assert [level for level, _ in findings(shell("doctor", path, "--json"), "replicas")] == ["ok"]
    path = broker_1(root / "two", created, *KILLED, first=(topic("other", OTHER), partition(OTHER, 0, [1, 2], [1, 2])))
    ((level, what),) = findings(shell("doctor", path, "--json"), "replicas")
    assert (level, "orders-0: its replica was away for 1 d 6 h" in what) == ("warning", True)
    assert f"cleanerd move-aside {path}" in shell("apply", path).err


def test_how_long(root: Path, shell: Shell) -> None:
    """U-76: the time is that of the metadata log's end."""
    assert "was away for 1 d 6 h, delete.retention.ms is 1 d" in shell("doctor", broker_1(root, *KILLED)).out


def test_a_log_that_lost_its_end(root: Path, shell: Shell) -> None:
    """U-76: below its high watermark it is as old as its last record, whatever the ISR was."""
    path = broker_1(root, (0.0, (NO_OP,)), last_write_hours=40, high_watermark=5)
    ((level, what),) = findings(shell("doctor", path, "--json"), "replicas")
    assert level == "warning"
    assert "its log ends at offset 1, below its high watermark 5" in what
    assert "away for 1 d 16 h" in what


@pytest.mark.parametrize("strategy", ["timestamp", "offset"])
def test_topics_that_cleanerd_alone_cleans(root: Path, shell: Shell, strategy: str) -> None:
    """U-76: cleanerd elsewhere keeps their tombstones (U-70), so this is a note, and the hook is silent."""
    delegated = (("min.cleanable.dirty.ratio", "1"), ("max.compaction.lag.ms", str(2**63 - 1)))
    path = broker_1(root, (199.0, tuple(config(2, "orders", *each) for each in delegated)), *KILLED)
    settings = ("--set", f"topics.orders.compaction.strategy={strategy}")
    levels = [level for level, _ in findings(shell("doctor", path, "--json", *settings), "replicas")]
    ignoring = (*settings, "--set", "topics.orders.cleanerd.tombstone.replicated=ignore")
    levels += [level for level, _ in findings(shell("doctor", path, "--json", *ignoring), "replicas")]
    assert levels == ["note", "warning"]
    assert "orders-0" not in shell("apply", path, *settings).err


@pytest.mark.parametrize(
    ("batches", "settings", "message"),
    [
        pytest.param((), (), True, id="shared"),
        pytest.param(((199.0, DELEGATED),), (), False, id="delegated"),
        pytest.param(((199.0, (ONE_REPLICA,)),), (), False, id="one replica"),
        pytest.param((), ("topics.orders.cleanerd.tombstone.replicated=ignore",), False, id="ignored"),
        pytest.param((), ("topics.orders.compaction.strategy=timestamp",), False, id="by timestamp"),
        pytest.param((), ("cleanerd.topics.exclude=orders",), False, id="excluded"),
        pytest.param(((199.0, (config(2, "orders", "cleanup.policy", "delete"),)),), (), False, id="not compacted"),
        pytest.param((), ("cleanerd.broker.properties={root}/off.properties",), False, id="Kafka's cleaner is off"),
    ],
)  # fmt: skip
def test_a_topic_that_kafka_cleans_too(
    root: Path, shell: Shell, batches: tuple[Batch, ...], settings: tuple[str, ...], message: bool
) -> None:
    """U-93: there Kafka's cleaner removes the tombstones that cleanerd keeps for a replica."""
    path = broker_1(root, *batches, (0.0, (NO_OP,)))
    (root / "off.properties").write_text(f"log.dirs={path}\nlog.cleaner.enable=false\n")
    given = [word for each in settings for word in ("--set", each.format(root=root))]
    answer = shell("doctor", path, "--json", *given)
    found = [each for each in answer.json["findings"] if each["check"] == "tombstones"]
    assert [(each["level"], "after delete.retention" in each["what"]) for each in found] == (
        [("note", True)] if message else []
    )
    assert all("cleanerd delegate orders" in each["fix"] for each in found)


def test_no_metadata_log(root: Path, shell: Shell) -> None:
    """U-70: doctor reports that Kafka's rule applies."""
    path = make_log_dir(root / "logs", {"orders-0": Partition({0: batch(0, ("a", "1")), 1: b""})})
    ((level, what),) = findings(shell("doctor", path, "--json"), "replicas")
    assert (level, "Kafka's rule" in what) == ("note", True)


def test_moved_aside(root: Path, shell: Shell) -> None:
    """U-77: the directory is next to the log directory; its checkpoint lines are removed, those of others are not."""
    path = broker_1(root, *STOPPED)
    before = sorted(each.name for each in (path / "orders-0").iterdir())
    answer = shell("move-aside", path, "--yes")
    assert answer.code == 0
    (moved,) = (root / "logs.aside").iterdir()
    assert str(moved) in answer.out
    assert moved.name.startswith("orders-0.")
    assert sorted(each.name for each in moved.iterdir()) == before
    assert not (path / "orders-0").exists()
    for file in (CLEANER_CHECKPOINT, HIGH_WATERMARKS, RECOVERY_POINTS):
        assert set(checkpoint(path / file)) == {"other-0"}
    assert "ISR is full again" in answer.out
    assert "Nothing to move" in shell("move-aside", path, "--yes").out


@pytest.mark.parametrize(
    ("batches", "why"),
    [
        pytest.param(KILLED, "with broker 1 in the ISR", id="it may lead"),
        pytest.param(((30.0, (NO_OP,)), (29.99, (change(ID, 0, isr=[]),))), "an empty ISR", id="empty ISR"),
        pytest.param(((199.0, (change(ID, 0, replicas=[1], isr=[1]),)), (30.0, (NO_OP,))), "the only replica",
                     id="one replica"),
        pytest.param(((199.0, (change(ID, 0, replicas=[3, 2], isr=[2]),)), (30.0, (NO_OP,))), "no replica on broker 1",
                     id="no replica here"),
        pytest.param(((50.0, (change(ID, 0, isr=[2]),)), (30.0, (change(ID, 0, isr=[1, 2]),))), "broker 1 in the ISR",
                     id="it returned at the end"),
    ],
)  # fmt: skip
def test_a_replica_that_may_be_needed(root: Path, shell: Shell, batches: tuple[Batch, ...], why: str) -> None:
    """U-77: nothing is moved, and all is as it was."""
    path = broker_1(root, *batches)
    answer = shell("move-aside", path, "--partition", "orders-0", "--yes")
    assert (answer.code, why in answer.err) == (4, True), answer.err
    assert "bootstrap.servers" in answer.err
    assert (path / "orders-0").exists()
    assert set(checkpoint(path / RECOVERY_POINTS)) == {"orders-0", "other-0"}


def test_a_running_broker(root: Path, shell: Shell) -> None:
    """U-77: its directories stay."""
    path = broker_1(root, *STOPPED)
    with lock_holder(path):
        assert shell("move-aside", path, "--yes").code == 4
    assert (path / "orders-0").exists()


def test_the_target_directory(root: Path, shell: Shell) -> None:
    """U-77: never into a log directory, where the broker would load it as a partition."""
    path = broker_1(root, *STOPPED)
    assert shell("move-aside", path, "--yes", "--to", path).code == 4
    assert (path / "orders-0").exists()
    (root / "here").mkdir()
    assert shell("move-aside", path, "--yes", "--to", root / "here").code == 0
    assert len(list((root / "here").iterdir())) == 1


@pytest.mark.parametrize("named", [False, True])
def test_an_erased_key_in_a_moved_replica(root: Path, shell: Shell, named: bool) -> None:
    """U-47: the replica is searched in its new place, by default and with --to."""
    path, place = broker_1(root, *STOPPED), root / ("here" if named else "logs.aside")
    place.mkdir(mode=0o700)
    assert shell("move-aside", path, "--yes", *(("--to", place) if named else ())).code == 0
    answer = shell("audit", "orders-0", path, "--key", "k", "--expect-absent", "--json")
    (key,) = answer.json["keys"]
    ((file, state),) = [(each["file"], each["state"]) for each in key["occurrences"]]
    assert (answer.code, state, file.startswith(f"{place}/orders-0.")) == (1, "moved-aside", True)
    (copy,) = shell("erase", "plan", "orders", path, "--key", "k", "--json").json["partitions"][0]["copies"]
    assert (copy["state"], copy["by_ms"]) == ("moved-aside", None)
    place.rename(root / "renamed")
    answer = shell("audit", "*", path, "--key", "k", "--expect-absent", "--json")
    assert (answer.code, [str(place) in each for each in answer.json["unsearched"]]) == (
        (5, [True]) if named else (0, [])
    )


def test_a_damaged_checkpoint(root: Path, shell: Shell) -> None:
    """U-77: refused before anything has changed."""
    path = broker_1(root, *STOPPED)
    (path / HIGH_WATERMARKS).write_text("0\n1\norders 0\n")
    assert shell("move-aside", path, "--yes").code != 0
    assert (path / "orders-0").exists()
    assert "orders-0" in checkpoint(path / RECOVERY_POINTS)


@pytest.mark.parametrize(
    ("leader", "isr", "topic_id", "needed"),
    [(2, {2}, ID, False), (2, {2}, None, False), (2, {2, 1}, ID, True), (1, {1, 2}, ID, True), (-1, {2}, ID, True),
     (1, {2}, ID, True), (2, {2}, OTHER, True)],
)  # fmt: skip
def test_the_state_of_the_cluster(leader: int, isr: set[int], topic_id: uuid.UUID | None, needed: bool) -> None:
    """U-77: another broker leads the same topic, and this one is out of the ISR."""
    assert bool(LeaderAndIsr(topic_id, leader, frozenset(isr)).why_needed(1, ID)) == needed


def test_the_number_of_waiting_tombstones(root: Path, shell: Shell) -> None:
    """U-70: ``explain`` of one partition counts the tombstones that wait for the broker; of a topic it does not."""
    path = held_by_broker_2(root)
    words = "wait for broker 2, out of the ISR since"
    one, all_of_topic = shell("explain", "orders-0", path), shell("explain", "orders", path)
    assert f"3 tombstones or markers {words}" in one.out + one.err
    assert all_of_topic.err.startswith(f"tombstones or markers {words}")
    assert "3 tombstones" not in all_of_topic.out + all_of_topic.err
    assert shell("explain", "orders-0", path, "--json", "--quiet").json["held_tombstones"] == 3


def test_it_has_returned(root: Path, shell: Shell) -> None:
    """U-71: the last minutes do not count yet, but nothing has to be done any more."""
    path = held_by_broker_2(root, (0.01, (change(ID, 0, isr=[1, 2]),)))
    planned = shell("plan", path)
    text = planned.out + planned.err
    assert "; in the ISR again, confirmed after 5 minutes" in text
    assert "start it" not in text


def test_when_they_can_be_removed(root: Path, shell: Shell) -> None:
    """U-70: a passed delete horizon alone is not the time of the removal."""
    path = held_by_broker_2(root)
    write_checkpoint(path / CLEANER_CHECKPOINT, {"orders-0": 6})
    read = read_log_dir(path)
    log = next(read_partition(read, name) for name in read.partitions if str(name) == "orders-0")
    state = PartitionState(None, None, None, next_purge_ms=time.time_ns() // 1_000_000 - HOUR_MS, removal_known_below=6)
    StateStore(root / "state").save(read, log, state)
    texts = [shell("explain", "orders-0", path, *each).out for each in ((), ("--set", f"{REPLICATED}=ignore"))]
    assert ["when every replica has them, even without new" in text for text in texts] == [True, False]


def held_by_broker_2(root: Path, *later: Batch) -> Path:
    """Three tombstones and markers that wait for broker 2, in a log that ends at offset 6."""
    path = broker_1(root, (30.0, (change(ID, 0, isr=[1]),)), *later, (0.0, (NO_OP,)))
    now_ms = time.time_ns() // 1_000_000
    at = {hours: now_ms + hours * HOUR_MS for hours in (-48, -40, -10, 1)}
    log = path / "orders-0" / f"{0:020d}.log"
    held = [Record(b"a", None, at[-48]), Record(b"b", None, at[-48]), Record(b"c", b"value", at[-48])]
    log.write_bytes(
        encode_batch(held, base_offset=0, delete_horizon=at[-10])
        + encode_marker(3, commit=False, producer_id=7, timestamp=at[-48], delete_horizon=at[-10])
        + encode_batch([Record(b"d", None, at[-48])], base_offset=4, delete_horizon=at[-40])
        + encode_batch([Record(b"e", None, at[-48])], base_offset=5, delete_horizon=at[1])
    )
    (path / "orders-0" / f"{1:020d}.log").rename(path / "orders-0" / f"{6:020d}.log")
    write_checkpoint(path / HIGH_WATERMARKS, {"orders-0": 6})
    write_checkpoint(path / RECOVERY_POINTS, {"orders-0": 6})
    return path


@pytest.mark.parametrize(("first_dirty_offset", "waiting"), [(0, 4), (6, 3)])
def test_the_progress_of_a_missing_replica(root: Path, shell: Shell, first_dirty_offset: int, waiting: int) -> None:
    """U-70: as its broker's daemon reports it, if it does, also if it is less clean as well (U-79)."""
    path = held_by_broker_2(root)
    write_checkpoint(path / CLEANER_CHECKPOINT, {"orders-0": 6})
    shown = view_of("orders", 0, first_dirty_offset=first_dirty_offset, log_end_offset=4)
    directory = log_dir(shown.log_dir, node_id=2, cluster_id=CLUSTER_ID)
    text = "tombstones or markers wait for broker 2, out of the ISR since"

    def explained(address: str) -> str:
        answer = shell("explain", "orders-0", path, "--set", f"cleanerd.cluster.peers=2={address}")
        return next(line for line in (answer.out + answer.err).splitlines() if text in line)

    with serving(view(partitions=(shown,), log_dirs=(directory,))) as served:
        address = f"127.0.0.1:{served.port}"
        found = explained(address)
        assert found.startswith(f"{waiting} ")
        assert "Z; at 4 of 6: " in found
        planned = shell("plan", path, "--set", f"cleanerd.cluster.peers=2={address}")
        assert "Z; at 4 of 6: " in planned.out + planned.err
        served.stage.shown = view(partitions=(replace(shown, log_end_offset=None),), log_dirs=(directory,))
        assert "Z: " in explained(address)
    assert "Z: " in explained(address), "its daemon no longer answers"
