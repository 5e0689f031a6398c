"""Keys that have a value in several partitions of a topic, in ``plan`` and ``explain`` (OP-27)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cleanerd.config.load import load_settings
from cleanerd.format.names import TopicPartition
from cleanerd.resolution.shared_keys import MOST_KEYS, MOST_OF_TOPIC, SAMPLE_BYTES, SharedKeys
from tests.cli.clean_log_dirs import COMPACT, NOW
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import keyed_batch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.cli.clean_log_dirs import Shell

SHARED = re.compile(r"at least ([\d,]+ keys?) of ([\d,]+) sampled also have a value in another partition.*\((.*?);")
CONFIG = load_settings([], ["topics.orders.cleanup.policy=compact"]).topic_config("orders")


def log_dir(root: Path, partitions: Mapping[str, Sequence[tuple[str | None, str | None]]]) -> Path:
    """A log directory in which all partitions have these entries, the last one in the active segment."""
    logs = {}
    for name, entries in partitions.items():
        last = len(entries) - 1
        logs[name] = Partition({0: keyed_batch(0, entries[:-1]), last: keyed_batch(last, entries[-1:])})
    return make_log_dir(root, logs)


MOVED: Mapping[str, Sequence[tuple[str | None, str | None]]] = {
    "orders-0": [("a", "1"), ("b", "1"), ("d", "1"), ("d", None), (None, "x")],
    "orders-1": [("c", "1"), ("d", "2"), ("e", None), ("a", "2")],
    "orders-2": [("e", "1"), ("f", "1")],
    "other-0": [("b", "1"), ("c", "1")],
}
"""``a`` has two values. ``d`` and ``e`` were deleted where they no longer belong."""


def test_plan_and_explain_name_them(shell: Shell, tmp_path: Path) -> None:
    """OP-27: a key in the active segment counts; a deleted one, or one of another topic, does not."""
    path = log_dir(tmp_path / "logs", MOVED)
    both = (*COMPACT, "--set", "topics.other.cleanup.policy=compact")
    planned = shell("plan", path, "--json", "--now-ms", NOW, *both).json["partitions"]
    notes = {f"{row['topic']}-{row['partition']}": SHARED.findall(str(row["notes"])) for row in planned}
    assert notes == {
        "orders-0": [("1 key", "2", "1")],
        "orders-1": [("1 key", "3", "0")],
        "orders-2": [],
        "other-0": [],
    }
    for_people = shell("plan", path, "--now-ms", NOW, *both)
    assert SHARED.findall(for_people.out + for_people.err) == [("1 key", "2", "1")]  # once per topic
    explained = shell("explain", "orders-1", path, "--now-ms", NOW, *COMPACT)
    assert SHARED.findall(explained.out + explained.err) == [("1 key", "3", "0")]
    assert "sampled" not in shell("explain", "orders-2", path, "--now-ms", NOW, *COMPACT).err


def test_partitions_of_another_log_directory(shell: Shell, tmp_path: Path) -> None:
    """OP-27: a topic's partitions are compared across log directories."""
    one = log_dir(tmp_path / "one", {"orders-0": [("a", "1"), ("b", "1")]})
    two = log_dir(tmp_path / "two", {"orders-1": [("a", "1"), ("b", "1")]})
    for command in (("plan", one, two), ("explain", "orders-0", one, two)):
        answer = shell(*command, "--now-ms", NOW, *COMPACT)
        assert ("2 keys", "2", "1") in SHARED.findall(answer.out + answer.err)


def test_it_shows_how_much_was_compared(tmp_path: Path) -> None:
    """OP-27: a limited number of partitions of a topic, and of keys in each."""
    path = log_dir(tmp_path / "logs", {f"orders-{number}": [("a", "1"), ("b", "1")] for number in range(40)})
    keys = SharedKeys()
    keys.add_topic(name := TopicPartition("orders", 30), path / "orders-30", CONFIG, [path])
    (note,) = keys.notes(name)
    assert f"compared with {MOST_OF_TOPIC - 1})" in note
    assert keys.notes(TopicPartition("orders", 31)) == ()


def test_a_sample_of_a_large_partition(tmp_path: Path) -> None:
    """OP-27: the beginning of a segment is read; both partitions use the keys with the lowest hashes."""
    entries = [(f"key-{number}", "v" * 9) for number in range(30_000)]
    batches = b"".join(keyed_batch(at, entries[at : at + 500]) for at in range(0, len(entries), 500))
    assert len(batches) > 2 * SAMPLE_BYTES
    path = make_log_dir(tmp_path / "logs", {f"orders-{number}": Partition({0: batches}) for number in (0, 1)})
    keys = SharedKeys()
    for number in (0, 1):
        keys.add(TopicPartition("orders", number), path / f"orders-{number}", CONFIG)
    ((found, sampled, _),) = SHARED.findall(str(keys.notes(TopicPartition("orders", 0))))
    assert (found, sampled) == (f"{MOST_KEYS:,} keys", f"{MOST_KEYS:,}")


def test_partitions_without_a_result(tmp_path: Path) -> None:
    """A damaged segment, an empty directory, and none."""
    path = log_dir(tmp_path / "logs", {"orders-0": [("a", "1"), ("b", "1")], "orders-1": [("a", "1"), ("x", "1")]})
    (path / "orders-1" / f"{0:020d}.log").write_bytes(b"\xff" * 99)
    (path / "orders-2").mkdir()
    keys = SharedKeys()
    for number in range(4):
        keys.add(TopicPartition("orders", number), path / f"orders-{number}", CONFIG)
    assert [keys.notes(TopicPartition("orders", number)) for number in range(4)] == [()] * 4
