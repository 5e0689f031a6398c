"""The partitions that ``cleanerd explain`` is about: names, topics, patterns, one or several log directories."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cleanerd.format.names import TopicPartition
from cleanerd.host.clock import wall_ms
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.segments.partition import read_partition
from tests.cli.clean_log_dirs import COMPACT, NOW, Shell, dirty, lock_holder, make, write_metadata
from tests.support.log_dirs import make_log_dir

if TYPE_CHECKING:
    from pathlib import Path


def test_several_log_directories(root: Path, shell: Shell) -> None:
    """U-23, U-24: only one of log.dirs has the metadata log; it also applies to partitions in the others."""
    first = make_log_dir(root / "d1", {"stock-0": dirty()})
    second = make_log_dir(root / "d2", {"orders-0": dirty()})
    policies = {name: {"cleanup.policy": "compact"} for name in ("orders", "stock")}
    orders = read_partition(read_log_dir(second), TopicPartition("orders", 0)).topic_id
    assert orders is not None
    write_metadata(first, topics=policies, ids={"orders": orders})
    unknown = shell("explain", "orders-0", second, "--now-ms", NOW)
    assert unknown.code == 3
    assert "name all log directories of the broker" in unknown.err
    one = shell("explain", "orders-0", first, second, "--now-ms", NOW)
    assert (one.code, one.out.splitlines()[0]) == (0, "orders-0 is cleaned at the next run of cleanerd clean.")
    both = shell("explain", "*", first, second, "--json", "--quiet", "--now-ms", NOW)
    assert [row["topic"] for row in both.json["partitions"]] == ["stock", "orders"]
    assert shell("explain", "nope-0", first, second).code == 3


def test_a_topic_too_young_to_be_known_is_reported_as_such(root: Path, shell: Shell) -> None:
    """U-23: a topic created a minute ago is reported as such, not only as a wrong directory."""
    path = make(root)
    write_metadata(path, topics={"orders": {"cleanup.policy": "compact"}}, timestamp=wall_ms())
    with lock_holder(path):
        answer = shell("explain", "orders-0", path, "--now-ms", NOW)
        staged = shell("stage", path, "--partition", "orders-0", "--json", "--now-ms", NOW)
    assert answer.code == staged.code == 4
    assert "orders: the topic is younger than" in answer.err
    assert "orders: the topic is younger than" in staged.err
    assert "the configuration of 1 compacted topic (orders) is younger than" in answer.err
    assert "does not count yet. Try again later" in answer.err


@pytest.mark.parametrize(
    ("partition", "code", "says"),
    [
        ("order", 3, "did you mean orders"),
        ("orders-1", 3, "no such partition"),
        ("__cluster_metadata-0", 4, "never cleaned"),
    ],
)
def test_names_that_cannot_be_explained(root: Path, shell: Shell, partition: str, code: int, says: str) -> None:
    """Exit codes as everywhere."""
    answer = shell("explain", partition, make(root), *COMPACT)
    assert answer.code == code
    assert says in answer.err


@pytest.mark.parametrize("command", ["explain", "audit"])
def test_a_topic_is_all_its_partitions(root: Path, shell: Shell, command: str) -> None:
    """By its name or a pattern, as a list.

    An unknown name is reported without --partition, which explain does not have.
    """
    path = make_log_dir(root / "logs", {"orders-0": dirty(), "orders-1": dirty(), "other-0": dirty()})
    key = ["--key", "a"] if command == "audit" else []
    expected = [str(path / "orders-0"), str(path / "orders-1")] if command == "audit" else [0, 1]
    for word in ("orders", "ord*"):
        rows = shell(command, word, path, "--json", "--quiet", *key, *COMPACT).json["partitions"]
        assert [row["path" if command == "audit" else "partition"] for row in rows] == expected
    text = shell(command, "orders", path, *key, *COMPACT).out
    assert ("orders-0" in text, "orders-1" in text, "other-0" in text) == (True, True, False)
    answer = shell(command, "nope*", path, *key)
    assert answer.code == 3
    assert "nope*: no such partition or topic" in answer.err
    assert "--partition" not in answer.err
