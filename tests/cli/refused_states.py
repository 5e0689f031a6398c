"""States of one partition that some command refuses to clean: ``test_refusals.py`` runs every command on them."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal
from unittest import mock

from cleanerd.cleaner import metadata_budget
from cleanerd.format.names import uuid_to_base64
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.segments.partition import read_partition
from cleanerd.state.cleaner_checkpoint import CleanerdCheckpoint, LastSegment, PartitionState, StateStore
from tests.cli.clean_log_dirs import NOW, batch, dirty, write_metadata
from tests.support.bombs import zeros_batch
from tests.support.log_dirs import (
    CLEAN_SHUTDOWN,
    CLEANER_CHECKPOINT,
    HIGH_WATERMARKS,
    Partition,
    make_log_dir,
    write_checkpoint,
    write_partition,
)
from tests.support.logs import Record, encode_batch, encode_legacy

if TYPE_CHECKING:
    import contextlib
    from pathlib import Path

    from tests.support.fake_agent import FakeAgent

Mode = Literal["offline", "on-start", "live"]
MODES: Final[tuple[Mode, ...]] = ("offline", "on-start", "live")
POLICY: Final = "topics.orders.cleanup.policy=compact"
MIB: Final = 1024 * 1024


@dataclass
class Scene:
    """One partition, ``orders-0``, in one mode."""

    root: Path
    path: Path
    mode: Mode
    agent: FakeAgent | None
    open: contextlib.ExitStack

    @property
    def partition(self) -> Path:
        """Its directory."""
        return self.path / "orders-0"

    def broker_says(self, **facts: Any) -> None:
        """Let a running broker answer differently."""
        if self.agent is not None:
            self.agent.facts |= facts

    def topic(self, **settings: str) -> None:
        """Set the topic's configuration; keys with underscores."""
        reported = {"cleanup.policy": "compact"} | {key.replace("_", "."): value for key, value in settings.items()}
        write_metadata(self.path, topics={"orders": reported})
        if self.agent is not None:
            self.agent.settings |= reported


def unchanged(_scene: Scene) -> None:
    """No refusal."""


def is_moved(scene: Scene) -> None:
    other = make_log_dir(scene.root / "other", {})
    write_partition(other / f"orders-0.{'0123456789abcdef' * 2}-future", dirty())
    (scene.root / "server.properties").write_text(f"log.dirs={scene.path},{other}\n")
    scene.broker_says(future=True)


def was_created_again(scene: Scene) -> None:
    other = uuid.UUID(int=7)
    write_metadata(scene.path, topics={"orders": {"cleanup.policy": "compact"}}, ids={"orders": other})
    scene.broker_says(topic_id=uuid_to_base64(other))


def is_tiered(scene: Scene) -> None:
    scene.topic(remote_storage_enable="true")


def has_a_tier_file(scene: Scene) -> None:
    (scene.partition / f"{0:020d}.tierstate").write_bytes(bytes(64))


def has_remote_segments(scene: Scene) -> None:
    scene.broker_says(remote=True)


def is_deleted(scene: Scene) -> None:
    scene.broker_says(deleted=True)


def is_not_compacted(scene: Scene) -> None:
    scene.topic(cleanup_policy="delete")


def has_a_bad_setting(scene: Scene) -> None:
    scene.topic(min_cleanable_dirty_ratio="7")


def has_a_swap_file(scene: Scene) -> None:
    (scene.partition / f"{0:020d}.log.swap").write_bytes(b"")


def was_killed(scene: Scene) -> None:
    (scene.path / CLEAN_SHUTDOWN).unlink(missing_ok=True)


def has_no_high_watermarks(scene: Scene) -> None:
    scene.broker_says(hw=7, lso=7, leo=7)
    (scene.path / HIGH_WATERMARKS).unlink()


def is_clean(scene: Scene) -> None:
    write_checkpoint(scene.path / CLEANER_CHECKPOINT, {"orders-0": 6})


def is_clean_enough(scene: Scene) -> None:
    write_checkpoint(scene.path / CLEANER_CHECKPOINT, {"orders-0": 4})


def has_an_open_transaction() -> Partition:
    data = encode_batch([Record(b"a", b"1", NOW)], transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
    return Partition({0: data, 1: batch(1, ("a", "2")), 2: b""})


def the_broker_reports_the_open_transaction(scene: Scene) -> None:
    scene.broker_says(lso=0)


def is_damaged(scene: Scene) -> None:
    log = scene.partition / f"{0:020d}.log"
    status = log.stat()
    log.write_bytes(log.read_bytes()[:-1] + b"\xff")
    os.utime(log, ns=(status.st_atime_ns, status.st_mtime_ns))


def was_cleaned_by_version(scene: Scene) -> None:
    """By ``header:v``; a cleaning without that strategy in its settings is refused."""
    log_dir = read_log_dir(scene.path)
    log = read_partition(log_dir, log_dir.partitions[0])
    rules = "strategy=header;header=v;encoding=long;tombstone.mode=null"
    point = CleanerdCheckpoint(log.segments[1].base, 0, rules, LastSegment.of(log.segments[0]))
    StateStore(scene.root / "state").save(log_dir, log, PartitionState(point, None, None))


def unknown_rules(scene: Scene) -> None:
    """The state file is replaced by a link (U-33)."""
    scene.topic(min_cleanable_dirty_ratio="1")
    was_cleaned_by_version(scene)
    file = _state_file(scene)
    file.rename(scene.root / "elsewhere")
    file.symlink_to(scene.root / "elsewhere")


def has_damaged_state(scene: Scene) -> None:
    scene.topic(min_cleanable_dirty_ratio="1")
    was_cleaned_by_version(scene)
    _state_file(scene).write_text("{")


def has_damaged_kafka_state(scene: Scene) -> None:
    """The broker's own cleaner is not stopped."""
    scene.topic()
    was_cleaned_by_version(scene)
    _state_file(scene).write_text("{")


def has_unlistable_state(scene: Scene) -> None:
    scene.topic(min_cleanable_dirty_ratio="1")
    was_cleaned_by_version(scene)
    directory = _state_file(scene).parent
    directory.rename(scene.root / "elsewhere")
    directory.symlink_to(scene.root / "elsewhere")


def lost_its_delegation(scene: Scene) -> None:
    """The topic may have been delegated and never cleaned: then only this file has the delegation."""
    scene.topic(min_cleanable_dirty_ratio="1")
    _delegations(scene).write_text("{")


def had_its_delegation_set_aside(scene: Scene) -> None:
    scene.topic(min_cleanable_dirty_ratio="1")
    _delegations(scene).with_suffix(".damaged").write_text("{")


def lost_delegations_of_others(scene: Scene) -> None:
    """The broker's own cleaner is not stopped."""
    scene.topic()
    _delegations(scene).write_text("{")


def _delegations(scene: Scene) -> Path:
    state = scene.root / "state"
    state.mkdir(exist_ok=True)
    return state / "delegations.json"


def _state_file(scene: Scene) -> Path:
    (found,) = (scene.root / "state" / "partitions").rglob("*.json")
    return found


def was_cleaned_by_a_newer_release(scene: Scene) -> None:
    scene.topic(min_cleanable_dirty_ratio="1")
    was_cleaned_by_version(scene)
    text = _state_file(scene).read_text()
    assert "strategy=header" in text
    _state_file(scene).write_text(text.replace("strategy=header", "strategy=newest"))


def belongs_to_zookeeper(scene: Scene) -> None:
    """The disk has no topic metadata, and the configured login does not work for its broker (U-40)."""
    meta = scene.path / "meta.properties"
    meta.write_text(meta.read_text().replace("version=1", "version=0").replace("node.id", "broker.id"))
    (scene.root / "client.properties").write_text("security.protocol=SASL_SSL\nsasl.mechanism=GUESSED\n")
    if scene.agent is not None:  # a running broker answers the query itself
        scene.agent.settings |= {"cleanup.policy": "compact"}


def has_damaged_metadata(scene: Scene) -> None:
    log = write_metadata(scene.path, topics={"orders": {"cleanup.policy": "compact"}}) / f"{0:020d}.log"
    data = log.read_bytes()
    at = data.index(b"orders")
    log.write_bytes(data[:at] + b"O" + data[at + 1 :])


def has_properties_of_another_node(scene: Scene) -> None:
    (scene.root / "server.properties").write_text("node.id=2\n")


def was_replaced_a_moment_ago(scene: Scene) -> None:
    """Its broker keeps old files for ten minutes."""
    scene.topic(file_delete_delay_ms="600000")
    (scene.partition / f"{0:020d}.log.deleted").write_bytes(b"")


def has_no_memory_for_its_batches(scene: Scene) -> None:
    # Batches that are too many for this machine's memory would take long to write.
    scene.open.enter_context(mock.patch.object(metadata_budget, "BATCH_BYTES", 2**60))


def is_in_use(scene: Scene) -> None:
    """Another command of cleanerd holds the log directory; with a broker that is not possible."""
    if scene.mode == "offline":
        works = (
            "import pathlib, sys; from cleanerd.swap.lock import LogDirLock\n"
            f"lock = LogDirLock.acquire(pathlib.Path({str(scene.path)!r})); print(flush=True); sys.stdin.read()"
        )
        _beside(scene, works)


def has_garbage(scene: Scene) -> None:
    if scene.agent is not None:  # a real agent does not read that file
        message = scene.agent.do_log({"topic": "orders", "partition": 0})
        vars(scene.agent)["do_log"] = lambda _request: message
    (scene.partition / "leader-epoch-checkpoint").write_text("x")


def holds_old_messages() -> Partition:
    old = b"".join(encode_legacy(offset, b"a", b"1") for offset in range(3))
    return Partition({0: old, 3: batch(3, ("a", "9")), 4: b""})


def holds_a_bomb() -> Partition:
    return Partition({0: zeros_batch(0, 4 * MIB), 1: batch(1, ("a", "9")), 2: b""})


def has_a_file_named_like_the_staging_directory(scene: Scene) -> None:
    (scene.partition / ".kstage").write_text("what is this?")


def is_claimed(scene: Scene) -> None:
    (scene.partition / ".kstage").mkdir()
    claim = os.open(scene.partition / ".kstage" / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    scene.open.callback(os.close, claim)
    fcntl.flock(claim, fcntl.LOCK_EX)


def is_open_in_another_process(scene: Scene) -> None:
    """As by a broker that holds no lock; with a running broker, every segment is open."""
    active = str(scene.partition / f"{6:020d}.log")
    _beside(scene, f"import sys; file = open({active!r}, 'ab'); print(flush=True); sys.stdin.read()")


def _beside(scene: Scene, holds: str) -> None:
    """A process that holds something, reports it with a line, and ends with its input."""
    holder = subprocess.Popen([sys.executable, "-c", holds], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdin is not None
    assert holder.stdout is not None
    scene.open.callback(holder.wait)
    scene.open.callback(holder.stdout.close)
    scene.open.callback(holder.stdin.close)
    holder.stdout.readline()
