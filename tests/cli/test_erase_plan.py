"""``cleanerd erase plan``: every copy of a key on this host, how it is removed, and by when (U-85)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.clean_log_dirs import COMPACT, NOW, Shell, batch, lock_holder, write_metadata
from tests.support.log_dirs import Partition, make_log_dir

if TYPE_CHECKING:
    from pathlib import Path

DAY_MS = 86_400_000
SEGMENTS = {
    0: batch(0, ("a", "1"), ("b", "1")),
    2: batch(2, ("a", None)),
    4: batch(4, ("b", "2"), ("c", "3")),
    6: batch(6, ("z", "1"), ("b", None)),
}
"""The tombstone of ``a`` is in a sealed segment, that of ``b`` in the active one; ``c`` has none."""


@pytest.fixture
def path(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(root))  # it is searched, too
    return known(make_log_dir(root / "logs", {"orders-0": Partition(SEGMENTS)}))


def known(path: Path) -> Path:
    """The metadata log has the topic: Kafka's cleaner cleans it."""
    write_metadata(path, topics={"orders": {"cleanup.policy": "compact"}})
    return path


def plan(shell: Shell, path: Path, key: str, *options: object, code: int = 0) -> list[dict[str, Any]]:
    """The copies of a key."""
    answer = shell(
        "erase", "plan", "orders", path, "--key", key, "--json", "--quiet", "--now-ms", NOW, *COMPACT, *options
    )
    assert answer.code == code, answer.err
    found = answer.json
    assert found["key"] == key
    return [copy for each in found["partitions"] for copy in each["copies"]]


def topic(key: str, value: object) -> tuple[str, str]:
    return "--set", f"topics.orders.{key}={value}"


def unbound(copy: dict[str, Any]) -> list[str]:
    return [step["setting"] for step in copy["steps"] if step["wait_ms"] is None]


def test_each_copy_has_its_steps(path: Path, shell: Shell) -> None:
    """With a maximum lag Kafka's cleaner removes the value in time; only a daemon returns for the tombstone."""
    value, tombstone = plan(shell, path, "a", *topic("max.compaction.lag.ms", DAY_MS))
    assert (value["offset"], value["tombstone"], value["state"]) == (0, False, "live")
    # The oldest dirty record is a second old; a scan and file.delete.delay.ms follow.
    assert value["by_ms"] == NOW - 1000 + DAY_MS + 15_000 + 60_000
    assert (tombstone["offset"], tombstone["tombstone"], tombstone["by_ms"]) == (2, True, None)
    assert [step["setting"] for step in tombstone["steps"] if step["by_ms"] is not None][-1] == "delete.retention.ms"


def test_without_a_bound_the_setting_that_sets_one_is_named(path: Path, shell: Shell) -> None:
    assert next(unbound(each) for each in plan(shell, path, "a")) == ["max.compaction.lag.ms"]
    (first, second, _) = plan(shell, path, "b", *topic("max.compaction.lag.ms", DAY_MS))
    assert [unbound(each) for each in (first, second)] == 2 * [["segment.ms, and a later write"]]
    (untouched,) = plan(shell, path, "c")
    assert unbound(untouched) == ["cleanerd erase request, or the producer that owns the key"]
    answer = shell("erase", "plan", "orders", path, "--key", "c", *COMPACT)
    assert "a tombstone of the key is written: no bound" in answer.out


def test_by_version_the_highest_decides(root: Path, shell: Shell) -> None:
    """A null value with a lower version deletes nothing."""
    later = {0: batch(0, ("k", "1")), 1: batch(1, ("k", None)), 2: b""}
    path = make_log_dir(root / "logs", {"orders-0": Partition(later)})
    (value, _) = plan(shell, path, "k", *topic("compaction.strategy", "timestamp"))
    assert unbound(value) != ["cleanerd erase request, or the producer that owns the key"]  # same time: the offset
    swapped = {0: batch(0, ("k", None)), 1: batch(1, ("k", "1")), 2: b""}
    path = make_log_dir(root / "others", {"orders-0": Partition(swapped)})
    found = plan(shell, path, "k", *topic("compaction.strategy", "timestamp"))
    assert [unbound(each) for each in found] == 2 * [["cleanerd erase request, or the producer that owns the key"]]


def test_a_known_delete_horizon(root: Path, shell: Shell, path: Path) -> None:
    """After the first cleaning the value is gone, and the batch of the tombstone has its delete horizon."""
    assert shell.clean(path, *topic("delete.retention.ms", DAY_MS)).code == 0
    (tombstone,) = plan(shell, path, "a")
    assert tombstone["steps"][0]["by_ms"] == NOW + DAY_MS
    assert tombstone["steps"][0]["setting"] == "delete.retention.ms"


def test_kept_segments_have_an_end(root: Path, kept: Path, shell: Shell, path: Path) -> None:
    """In the directory of the settings the daemon deletes them; in any other an operator has to."""
    assert shell.clean(path, "--keep-replaced", kept).code == 0
    copies = [each for each in plan(shell, path, "a") if each["state"] != "live"]
    assert copies
    assert all(unbound(each) for each in copies)
    named = ("--set", f"cleanerd.keep.replaced.dir={kept}", "--set", f"cleanerd.keep.replaced.retention.ms={DAY_MS}")
    copies = [each for each in plan(shell, path, "a", *named) if each["state"] != "live"]
    for each in copies:
        (step,) = each["steps"]
        assert step["by_ms"] == step["from_ms"] + DAY_MS


@pytest.mark.parametrize(
    ("suffix", "state", "bound"),
    [(".deleted", "deleted", "file.delete.delay.ms"), (".swap", "swap", None), (".cleaned", "cleaned", None)],
)
def test_pending_files(path: Path, shell: Shell, suffix: str, state: str, bound: str | None) -> None:
    file = path / "orders-0" / f"{0:020d}.log{suffix}"
    file.write_bytes(SEGMENTS[0])
    (copy,) = (each for each in plan(shell, path, "a") if each["state"] == state)
    changed_ms = os.stat(file).st_ctime_ns // 1_000_000
    assert copy["by_ms"] == (None if bound is None else changed_ms + 60_000)
    (step,) = copy["steps"]
    assert step["setting"] == (bound or "start the broker, or run cleanerd clean")


def test_a_set_aside_directory(path: Path, shell: Shell) -> None:
    aside = path / f"orders-1.{'0' * 32}-stray"
    aside.mkdir()
    (aside / f"{0:020d}.log").write_bytes(SEGMENTS[0])
    (copy,) = (each for each in plan(shell, path, "a") if each["state"] == "-stray")
    assert copy["by_ms"] is None
    assert copy["steps"][0]["setting"] == "delete it by hand: the broker set it aside"


def test_a_topic_that_is_not_compacted(path: Path, shell: Shell) -> None:
    """Its tombstones delete nothing: only retention removes records."""
    answer = shell(
        "erase", "plan", "orders", path, "--key", "a", "--json", "--set", "topics.orders.cleanup.policy=delete"
    )
    (step,) = answer.json["partitions"][0]["copies"][0]["steps"]
    assert step["setting"].startswith("cleanup.policy=compact")


def test_beside_a_broker(path: Path, shell: Shell) -> None:
    """It changes nothing, and needs no lock."""
    with lock_holder(path):
        value, _ = plan(shell, path, "a", *topic("max.compaction.lag.ms", DAY_MS))
    assert value["by_ms"] is not None


def test_places_that_cannot_be_searched(root: Path, shell: Shell, path: Path) -> None:
    file = path / "orders-0" / f"{0:020d}.log"
    data = bytearray(SEGMENTS[0])
    data[-1] ^= 1
    file.write_bytes(data)
    answer = shell("erase", "plan", "orders", path, "--key", "a", *COMPACT)
    assert answer.code == 5
    assert "a key may be in there" in answer.err


def test_bad_input(root: Path, shell: Shell, path: Path) -> None:
    unknown = shell("erase", "plan", "order", path, "--key", "a")
    assert unknown.code == 3
    assert "did you mean orders" in unknown.err
    odd = shell("erase", "plan", "orders", path, "--key", "abc", "--hex")
    assert (odd.code, "is not a hexadecimal key" in odd.err) == (2, True)
    assert shell("erase", "plan", "orders", path).code == 2
    absent = shell("erase", "plan", "orders", path, "--key", "nowhere", *COMPACT)
    assert (absent.code, absent.out) == (0, "nowhere: not found on this host\n")


def test_kafkas_cleaner_is_off(root: Path, shell: Shell, path: Path) -> None:
    """OP-13: then it keeps no deadline, whatever max.compaction.lag.ms is."""
    properties = root / "server.properties"
    properties.write_text(f"log.dirs={path}\nlog.cleaner.enable=false\n")
    off = ("--set", f"cleanerd.broker.properties={properties}")
    value, _ = plan(shell, path, "a", *topic("max.compaction.lag.ms", DAY_MS), *off)
    assert unbound(value) == ["cleanerd.mode=auto and the agent, or run cleanerd clean --force"]
