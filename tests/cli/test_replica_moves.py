"""A replica that is being moved to another log directory is not cleaned (S-21), by any command or the daemon."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from cleanerd.cleaner.survey import CleaningOptions
from cleanerd.config.load import load_settings
from cleanerd.errors import RefusedError
from cleanerd.format.names import TopicPartition, parse_future_dir
from cleanerd.resolution.broker_facts import broker_facts
from cleanerd.resolution.partitions import OfflinePartitions
from cleanerd.segments.log_dir import incoming_replicas, read_log_dir
from cleanerd.state.cleaner_checkpoint import StateStore
from tests.cli.clean_log_dirs import COMPACT, NOW, Shell, dirty, good, make
from tests.support.log_dirs import make_log_dir, tree, write_partition
from tests.support.system_calls import system_call

if TYPE_CHECKING:
    from pathlib import Path

FUTURE = f"orders-0.{'0123456789abcdef' * 2}-future"
OPTIONS = ("--force", "--quiet", "--json", "--now-ms", NOW, *COMPACT)
DONE = {"clean": "cleaned", "stage": "staged"}


@pytest.fixture
def dirs(root: Path) -> tuple[Path, Path]:
    """``orders-0`` and, in another log directory of the broker, the beginning of its copy; ``orders-1`` stays."""
    path = make_log_dir(root / "logs", {"orders-0": dirty(), "orders-1": good()})
    return path, moving(root)


def moving(root: Path) -> Path:
    """Another log directory, into which ``orders-0`` is copied."""
    other = make_log_dir(root / "other", {})
    write_partition(other / FUTURE, dirty())
    return other


@pytest.mark.parametrize("command", ["clean", "stage"])
@pytest.mark.parametrize("how", ["both are named", "server.properties names the other"])
def test_a_replica_that_is_being_moved_is_skipped(
    dirs: tuple[Path, Path], root: Path, shell: Shell, command: str, how: str
) -> None:
    """S-21: the tombstone of a copied record must not be removed before it is copied, or the record comes back.

    Kafka's own cleaner skips such a partition, too. The others are cleaned.
    """
    path, other = dirs
    before = tree(path / "orders-0")
    options = [*OPTIONS, *(["--yes"] if command == "clean" else [])]
    if how == "both are named":
        named = [path, other]
    else:
        (root / "server.properties").write_text(f"log.dirs={path},{other}\n")
        named = [path]
        options += ["--set", f"cleanerd.broker.properties={root / 'server.properties'}"]
    answer = shell(command, *named, *options)
    found = {entry["partition"]: entry for entry in answer.json["partitions"]}
    assert found[0]["outcome"] == "refused"
    assert f"being moved to another log directory, {other}" in found[0]["reason"]
    assert "moved" not in found[1]["reason"], found[1]
    assert tree(path / "orders-0") == before
    (other / FUTURE).rename(other / "orders-0.0-delete")
    answer = shell(command, *named, *options)
    assert {entry["partition"]: entry["outcome"] for entry in answer.json["partitions"]}[0] == DONE[command]


def test_a_staged_cleaning_waits(root: Path, shell: Shell) -> None:
    """S-21: a cleaning that was staged before the move started waits for its end; the broker may start."""
    path = make(root)
    options = ("--quiet", "--json", *COMPACT)
    assert shell("stage", path, *OPTIONS).code == 0
    other = moving(root)
    before = tree(path / "orders-0")
    answer = shell("apply", path, other, *options)
    assert answer.code == 0
    (entry,) = answer.json["partitions"]
    assert entry["outcome"] == "skipped"
    assert "being moved to another log directory" in entry["reason"]
    assert tree(path / "orders-0") == before
    (other / FUTURE).rename(other / "orders-0.0-delete")
    (entry,) = shell("apply", path, other, *options).json["partitions"]
    assert entry["outcome"] == "cleaned"


def test_the_daemon(dirs: tuple[Path, Path], root: Path) -> None:
    """S-21: without a broker, and with one that has no agent; it is scanned again once the move is complete."""
    path, other = dirs
    log_dir = read_log_dir(path)
    settings = load_settings((), [f"cleanerd.state.dir={root / 'state'}", *COMPACT[1::2]], {})
    partitions = OfflinePartitions(log_dir, broker_facts(settings, log_dir, [other]))
    names = TopicPartition("orders", 0), TopicPartition("orders", 1)
    with pytest.raises(RefusedError, match="being moved to another log directory"):
        partitions.read(names[0])
    assert partitions.read(names[1]).name == names[1]
    (other / FUTURE).rename(other / "orders-0.0-delete")
    assert partitions.read(names[0]).survey(StateStore(root / "state"), CleaningOptions(int(NOW))).to_clean


def test_names(tmp_path: Path) -> None:
    """F-5: only Kafka's own form of the name counts; a directory that cannot be listed shows no moves."""
    assert parse_future_dir(FUTURE) == TopicPartition("orders", 0)
    for name in (
        "orders-0",
        FUTURE.replace("future", "delete"),
        FUTURE.replace("a", "g"),
        FUTURE.replace("-0.", "-00."),
    ):
        assert parse_future_dir(name) is None
    assert incoming_replicas(tmp_path / "missing") == frozenset()


def test_many_are_moved_at_once(tmp_path: Path) -> None:
    """S-21: one move starts in the clock tick of the reading: the directory's time does not change."""
    now_ns = time.time_ns()

    def clock_ns() -> int:
        return now_ns

    os.utime(tmp_path, ns=(now_ns, now_ns))
    assert incoming_replicas(tmp_path, clock_ns) == frozenset()
    (tmp_path / FUTURE).mkdir()
    os.utime(tmp_path, ns=(now_ns, now_ns))
    assert incoming_replicas(tmp_path, clock_ns) == {TopicPartition("orders", 0)}


def test_another_disk_is_mounted_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S-21: time, identity and names come from one open directory; read apart, the names of one counted for another."""
    before, after = tmp_path / "before", tmp_path / "after"
    for path in (before, after):
        path.mkdir()
    (after / FUTURE).mkdir()
    for path in (before, after):
        os.utime(path, ns=(10**18, 10**18))
    scanned_dir, arguments = tmp_path / "here", []
    scanned_dir.symlink_to(before)
    real = os.listdir

    def mounted(path: int | Path) -> list[str]:
        if not arguments:
            arguments.append(path)
            scanned_dir.unlink()
            scanned_dir.symlink_to(after)
        return real(path)

    system_call(monkeypatch, "listdir", mounted)  # at this very moment
    incoming_replicas(scanned_dir)
    scanned_dir.unlink()
    scanned_dir.symlink_to(before)
    assert incoming_replicas(scanned_dir) == frozenset()
    scanned_dir.unlink()
    scanned_dir.symlink_to(after)
    assert incoming_replicas(scanned_dir) == {TopicPartition("orders", 0)}
