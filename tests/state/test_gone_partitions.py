"""cleanerd.state.gone_partitions: stored state is removed with a partition, except settings that still matter."""

from __future__ import annotations

import errno
import json
import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.config.fingerprint import KAFKAS_FINGERPRINT
from cleanerd.format.names import uuid_to_base64
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.segments.partition import read_partition
from cleanerd.state.cleaner_checkpoint import CleanerdCheckpoint, LastSegment, PartitionState, StateStore
from cleanerd.state.gone_partitions import OtherPlacesOfTopic, SweepResult, delete_gone_state
from cleanerd.state.other_places import rules_of
from tests.support.log_dirs import Partition, make_log_dir, with_directory_id, write_partition
from tests.support.system_calls import system_call

if TYPE_CHECKING:
    from collections.abc import Callable

TOPIC_ID, OTHER_ID = uuid.UUID(int=77), uuid.UUID(int=78)
HEADER = "strategy=header;header=v;encoding=long;tombstone.mode=null"
FUTURE = f"orders-0.{'0123456789abcdef' * 2}-future"


class Moves:
    """``orders-0`` was cleaned by its versions in the first of three log directories, and is missing there now."""

    def __init__(self, root: Path) -> None:
        names = ("d1", "d2", "d3")
        self.dirs = [
            with_directory_id(make_log_dir(root / each, {}), uuid.UUID(int=1 + i)) for i, each in enumerate(names)
        ]
        self.store = StateStore(root / "state")
        self.put(0)
        self.remember(0, full_state(self.dirs[0]))
        self.leave(0)

    def put(self, number: int, topic_id: uuid.UUID | None = TOPIC_ID, name: str = "orders-0") -> None:
        write_partition(self.dirs[number] / name, Partition({0: b""}, topic_id=topic_id))

    def leave(self, number: int) -> None:
        (self.dirs[number] / "orders-0").rename(self.dirs[number] / f"orders-0.{'0' * 31}{number}-delete")

    def remember(self, number: int, state: PartitionState) -> Path:
        log_dir = read_log_dir(self.dirs[number])
        log = read_partition(log_dir, log_dir.partitions[0])
        self.store.save(log_dir, log, state)
        return self.store.path(log_dir, log)

    def sweep(self, number: int = 0, *, id_now: uuid.UUID | None = None, all_seen: bool = True) -> SweepResult:
        others = tuple(each for each in self.dirs if each != self.dirs[number])
        where = OtherPlacesOfTopic(others, lambda topic: id_now if topic == "orders" else None, all_seen)
        return delete_gone_state(self.store, read_log_dir(self.dirs[number]), where)

    def rules(self, number: int) -> object:
        """The stored settings that a scan of the partition finds."""
        log_dir = read_log_dir(self.dirs[number])
        log = read_partition(log_dir, log_dir.partitions[0])
        return rules_of(self.store, log_dir, log, self.store.load(log_dir, log))


def full_state(path: Path, rules: str = HEADER) -> PartitionState:
    log_dir = read_log_dir(path)
    log = read_partition(log_dir, log_dir.partitions[0])
    return PartitionState(
        CleanerdCheckpoint(0, 0, rules, LastSegment.of(log.segments[0])), "bad", {"outcome": "cleaned"}
    )


@pytest.fixture
def moves(tmp_path: Path) -> Moves:
    return Moves(tmp_path)


def test_a_partition_that_moved_keeps_its_settings(moves: Moves) -> None:
    """U-6: the new directory has none, so the old one's file stays: its settings, nothing about the deleted log."""
    moves.put(1)
    assert moves.sweep() == SweepResult(kept=1)
    assert moves.rules(1) == HEADER
    (file,) = (moves.store.root / "partitions").rglob("*.json")
    state = {key: value for key, value in json.loads(file.read_text()).items() if value is not None}
    assert state == {"format": 1, "cleanerd": state["cleanerd"], "topic": "orders", "partition": 0, "rules": HEADER}
    written = file.stat()
    assert moves.sweep() == SweepResult(kept=1)
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (written.st_ino, written.st_mtime_ns)
    moves.leave(1)
    moves.put(0)
    assert moves.sweep() == SweepResult()
    assert moves.rules(0) == HEADER, "it came back"


def unreadable(moves: Moves) -> None:
    moves.put(1)
    (moves.dirs[1] / "orders-0" / "partition.metadata").write_text("version: 7\n")


@pytest.mark.parametrize(
    ("where", "options"),
    [
        pytest.param(lambda moves: moves.put(2), {}, id="in the third"),
        pytest.param(lambda moves: moves.put(1, None), {}, id="its new place does not say its id yet"),
        pytest.param(lambda moves: moves.put(1, name=FUTURE), {}, id="on its way"),
        pytest.param(unreadable, {}, id="its new place cannot be read"),
        pytest.param(lambda _: None, {"id_now": TOPIC_ID}, id="it left the broker, or moved to an unknown directory"),
        pytest.param(lambda _: None, {"all_seen": False}, id="a log directory is silent"),
    ],
)
def test_the_topic_may_still_exist(moves: Moves, where: Callable[[Moves], None], options: dict[str, Any]) -> None:
    """U-6: in doubt its settings stay."""
    where(moves)
    assert moves.sweep(**options) == SweepResult(kept=1)


@pytest.mark.parametrize(
    ("where", "options"),
    [
        pytest.param(lambda _: None, {}, id="deleted"),
        pytest.param(lambda _: None, {"id_now": OTHER_ID}, id="created again elsewhere"),
        pytest.param(lambda moves: moves.put(0, OTHER_ID), {"id_now": OTHER_ID}, id="created again here"),
        pytest.param(lambda moves: moves.put(1, OTHER_ID), {"id_now": OTHER_ID}, id="created again in another place"),
    ],
)
def test_a_deleted_topic(moves: Moves, where: Callable[[Moves], None], options: dict[str, Any]) -> None:
    """S-51: one of the same name with another id inherits nothing."""
    where(moves)
    assert moves.sweep(**options) == SweepResult(removed=1)


@pytest.mark.parametrize("rules", [None, KAFKAS_FINGERPRINT])
def test_kafkas_settings_need_no_storage(tmp_path: Path, rules: str | None) -> None:
    """U-6: they are the default of every cleaning without stored settings."""
    moves = Moves(tmp_path)
    moves.put(1)
    (file,) = (moves.store.root / "partitions").rglob("*.json")
    file.write_text(json.dumps(json.loads(file.read_text()) | {"cleanerd_checkpoint": None, "rules": rules}))
    assert moves.sweep() == SweepResult(removed=1)


def test_a_topic_without_an_id(tmp_path: Path) -> None:
    """S-51: by its name alone it cannot be distinguished from one that is created later."""
    moves = Moves(tmp_path)
    moves.put(1, None)
    (file,) = (moves.store.root / "partitions").rglob("*.json")
    file.rename(file.with_name("name-orders-0.json"))
    assert moves.sweep() == SweepResult(removed=1)


def test_settings_stay_until_the_new_directory_has_them(moves: Moves) -> None:
    """U-6: a quarantine, or an unreadable file, has no settings; a cleaning there stores them, whatever they are."""
    moves.put(1)
    file = moves.remember(1, PartitionState(None, "damaged", None))
    assert moves.sweep() == SweepResult(kept=1)
    reported = file.read_bytes()
    file.write_bytes(b"{")
    assert moves.sweep() == SweepResult(kept=1)
    file.write_bytes(reported)
    moves.remember(1, full_state(moves.dirs[1], KAFKAS_FINGERPRINT))
    assert moves.sweep() == SweepResult(removed=1)
    assert moves.rules(1) == KAFKAS_FINGERPRINT


def test_a_partition_that_moved_twice(moves: Moves) -> None:
    """U-6: neither of two directories that it left relies on the other: both threads sweep at the same time."""
    moves.put(1)
    moves.remember(1, full_state(moves.dirs[1]))
    moves.leave(1)
    moves.put(2)
    assert [moves.sweep(0), moves.sweep(1)] == [SweepResult(kept=1), SweepResult(kept=1)]
    assert moves.rules(2) == HEADER


def test_a_damaged_file_stays(moves: Moves) -> None:
    """U-6: it may contain any settings."""
    (file,) = (moves.store.root / "partitions").rglob("*.json")
    file.write_bytes(b"{")
    assert moves.sweep() == SweepResult()
    assert file.exists()


def test_a_path_that_a_disk_cannot_report_is_not_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Path.exists() of Python 3.14 returns False for it."""
    root = make_log_dir(tmp_path / "logs", {"here-0": Partition({0: b""})})
    log_dir, store = read_log_dir(root), StateStore(tmp_path / "state")
    store.save(log_dir, read_partition(log_dir, log_dir.partitions[0]), PartitionState(None, None, None))
    real = os.stat

    def stat(path: Any, *arguments: Any, **options: Any) -> os.stat_result:
        if str(path).endswith("here-0"):
            raise OSError(errno.EIO, "Input/output error", str(path))
        return real(path, *arguments, **options)

    system_call(monkeypatch, "stat", stat)
    # As Python 3.14 has them; these tests run with older ones.
    monkeypatch.setattr(Path, "exists", os.path.exists)
    monkeypatch.setattr(Path, "is_dir", os.path.isdir)
    assert delete_gone_state(store, log_dir, OtherPlacesOfTopic()) == SweepResult()


def test_a_removed_partition_is_forgotten(tmp_path: Path) -> None:
    """S-51: its directory is missing, or belongs to another topic; an existing or unreadable one keeps its state."""
    names = ("here-0", "here-1", "again-0", "gone-0", "gone-1", "bare-0")
    partitions = {name: Partition({0: b""}, topic_id=uuid.uuid4()) for name in names}
    partitions["bare-0"] = Partition({0: b""}, topic_id=None)
    root = make_log_dir(tmp_path / "logs", partitions)
    log_dir, store = read_log_dir(root), StateStore(tmp_path / "state")
    paths = {}
    for name in log_dir.partitions:
        log = read_partition(log_dir, name)
        store.save(log_dir, log, PartitionState(None, None, None))
        paths[str(name)] = store.path(log_dir, log)
    assert delete_gone_state(store, log_dir, OtherPlacesOfTopic()) == SweepResult()
    for name in ("gone-0", "gone-1"):
        (root / name).rename(root / f"{name}.0123456789abcdef0123456789abcdef-delete")
    (root / "again-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {uuid_to_base64(TOPIC_ID)}")
    (root / "here-1" / "partition.metadata").write_text("version: 7\n")
    damaged = paths["here-0"].with_name("damaged-0.json")
    damaged.write_text("{}")
    # The other log directory is unknown: its disk may just be unavailable.
    other = paths["here-0"].parent.parent / "another" / "gone-0.json"
    other.parent.mkdir()
    other.write_bytes(paths["gone-0"].read_bytes())
    assert delete_gone_state(store, log_dir, OtherPlacesOfTopic()) == SweepResult(removed=3)
    assert {name for name, path in paths.items() if path.exists()} == {"here-0", "here-1", "bare-0"}
    assert damaged.exists()
    assert other.exists()
