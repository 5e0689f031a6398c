"""States in which a broker does not start, or drops a partition: reported, with a fix that works (U-60)."""

from __future__ import annotations

import re
import shutil
import uuid
from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from cleanerd.format.names import broker_takes_dir, uuid_to_base64
from cleanerd_lab.demo.broker import BrokerError
from tests.brokers.ledger import Partition
from tests.brokers.node import cleanerd
from tests.brokers.readers import read_with_librdkafka
from tests.cli.clean_log_dirs import COMPACT, NOW, dirty, good, make, write_metadata
from tests.kafka.fixtures import produce
from tests.support.log_dirs import (
    CLUSTER_ID,
    HIGH_WATERMARKS,
    LOG_STARTS,
    make_log_dir,
    read_checkpoint,
    tree,
    with_directory_id,
    write_checkpoint,
)
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cleanerd_lab.demo.broker import Broker
    from tests.cli.clean_log_dirs import Answer, Shell
    from tests.kafka.fixtures import StartBroker

MOVED = f"t-0.{'0123456789abcdef' * 2}-future"
FUTURE = f"orders-0.{'0123456789abcdef' * 2}-future"
ID = uuid.UUID("32453738-4541-3537-3035-324434333642")
COMPACTED = {"orders": {"cleanup.policy": "compact"}}


def message(answer: Answer) -> list[tuple[str, str, str]]:
    """For each warning about the broker's start: the text, the end of its path, the fix."""
    return [
        (found["what"], found["where"].rpartition("/")[2], found["fix"])
        for found in answer.json["findings"]
        if found["check"] == "broker start" and found["level"] == "warning"
    ]


@pytest.mark.parametrize("name", ["t-0", "x-01", "a-b-+3", "remote-log-index-cache", FUTURE, "t-0.x-delete", "-1-1"])
def test_directories_that_a_broker_accepts(name: str) -> None:
    assert broker_takes_dir(name)


@pytest.mark.parametrize(
    "name", ["lost+found", ".snapshot", "data", "backup-x", "foo-delete", "a-1-stray", "t-", "-0", "t-2147483648"]
)
def test_directories_that_a_broker_does_not_take(name: str) -> None:
    assert not broker_takes_dir(name)


@pytest.mark.parametrize("name", ["lost+found", "data", ".snapshot"])
def test_a_foreign_directory(root: Path, shell: Shell, name: str) -> None:
    """U-60: cleaning continues; a file of that name, or Kafka's own directory, does no harm."""
    path = make(root)
    (path / "remote-log-index-cache").mkdir()
    (path / "notes").write_text("")
    assert message(shell("doctor", path, "--json")) == []
    (path / name).mkdir()
    ((what, where, fix),) = message(shell("doctor", path, "--json"))
    assert "does not start" in what
    assert where == name
    assert ("below the mount point" in fix) is (name == "lost+found")
    for command in (("plan",), ("stage", "--force"), ("clean", "--yes", "--force")):
        answer = shell(command[0], path, *command[1:], "--now-ms", NOW, *COMPACT)
        assert answer.code == 0
        assert "does not start" in answer.err, command


def test_a_move_within_a_directory(root: Path, shell: Shell) -> None:
    """U-60: no broker completes it, so waiting does not help; the partition waits for the existing one."""
    path = make(root)
    (path / FUTURE).mkdir()
    ((_, where, fix),) = message(shell("doctor", path, "--json"))
    assert (where, fix) == (FUTURE, "delete it")
    answer = shell.clean(path, "--json")
    (entry,) = answer.json["partitions"]
    assert "delete the -future directory" in str(entry)
    assert "wait until" not in str(entry)
    (path / FUTURE).rmdir()
    assert shell.clean(path, "--json").json["partitions"][0]["outcome"] == "cleaned"


def test_a_log_that_starts_beyond_its_end(root: Path, shell: Shell) -> None:
    """U-60: the broker deletes all its segments; beside a running broker the checkpoint is only older than the log."""
    path = make(root)
    (end,) = read_checkpoint(path / HIGH_WATERMARKS).values()
    write_checkpoint(path / LOG_STARTS, {"orders-0": end, "gone-0": 99})
    assert message(shell("doctor", path, "--json")) == []
    write_checkpoint(path / LOG_STARTS, {"orders-0": end + 1, "gone-0": 99})
    ((what, where, fix),) = message(shell("doctor", path, "--json"))
    assert f"in {LOG_STARTS}: the broker deletes all of its segments" in what
    assert (where, fix) == ("orders-0", "if no other replica has its records, write 0 for it in that file")
    assert "deletes all of its segments" in shell("plan", path, "--now-ms", NOW, *COMPACT).err


@pytest.mark.parametrize(("content", "what"), [(None, "renames it"), (b"", "does not start")])
def test_no_topic_id(root: Path, shell: Shell, content: bytes | None, what: str) -> None:
    """U-60: the message has the lines to write, with the id from the metadata log."""
    path = make(root, topic_id=ID)
    write_metadata(path, topics=COMPACTED)
    file = path / "orders-0" / "partition.metadata"
    assert message(shell("doctor", path, "--json")) == []
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    ((reported, where, fix),) = message(shell("doctor", path, "--json"))
    assert what in reported
    assert where == file.name
    assert f"'topic_id: {uuid_to_base64(ID)}'" in fix
    assert "topic_id: " in shell("clean", path, "--yes", "--force", "--now-ms", NOW).err


def test_a_partition_in_two_directories(root: Path, shell: Shell) -> None:
    """U-60: neither is cleaned, as you may keep either.

    A copy, with the same directory id, does not count as a second one.
    """
    path = make(root)
    other = make_log_dir(root / "other", {"orders-0": dirty(), "good-0": good()})
    assert message(shell("doctor", path, other, "--json")) == []
    with_directory_id(other, ID)
    reported = message(shell("doctor", path, other, "--json"))
    assert [where for _, where, _ in reported] == ["logs", "other"]
    assert all("orders-0" in what and "good-0" not in what for what, _, _ in reported)
    before = tree(path), tree(other)
    answer = shell.clean(path, other, "--json")
    assert [entry["outcome"] for entry in answer.json["partitions"]] == ["refused", "refused"]
    assert f"{path} and {other}" in answer.out
    assert (tree(path), tree(other)) == before
    shutil.rmtree(other / "orders-0")
    assert shell.clean(path, other, "--json").json["partitions"][0]["outcome"] == "cleaned"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (CLUSTER_ID, "another", ("cluster another", f"cluster {CLUSTER_ID}")),
        ("node.id=1", "node.id=7", ("node 7", "node 1")),
        ("", "", ("the directory.id of",)),
    ],
)
def test_directories_that_do_not_belong_together(
    root: Path, shell: Shell, old: str, new: str, words: tuple[str, ...]
) -> None:
    """U-60: about the broker's log.dirs; two brokers of a host may have their directories on one command line."""
    path, other = make(root), make_log_dir(root / "other", {"good-0": good()})
    meta = other / "meta.properties"
    if old:
        with_directory_id(other, ID)
        meta.write_text(meta.read_text().replace(old, new))
    assert message(shell("doctor", path, other, "--json")) == []
    (root / "server.properties").write_text(f"log.dirs={path},{other}\n")
    named = ("--set", f"cleanerd.broker.properties={root / 'server.properties'}")
    ((what, _, fix),) = message(shell("doctor", path, "--json", *named))
    assert all(word in what for word in words)
    assert "log.dirs" in fix


@pytest.mark.parametrize(
    "name",
    ["cleaner-offset-checkpoint", "recovery-point-offset-checkpoint", "orders-0/leader-epoch-checkpoint"],
)
def test_a_file_of_zeros(root: Path, shell: Shell, name: str) -> None:
    """U-60: the message names the file, and the fix, to delete it, works."""
    path = make(root)
    (path / name).write_bytes(bytes(8))
    answer = shell("doctor", path, "--json", *COMPACT)
    found = next(found for found in answer.json["findings"] if name in found["where"])
    assert found["level"] == "problem"
    assert "delete it" in found["fix"]
    (path / name).unlink()
    assert shell("doctor", path, "--json", *COMPACT).code == 0


def test_identity_of_zeros(root: Path, shell: Shell) -> None:
    """U-60: this is not a broker in ZooKeeper mode, and nothing is cleaned."""
    path = make(root)
    (path / "meta.properties").write_bytes(bytes(90))
    before = tree(path)
    answer = shell("doctor", path, "--json", *COMPACT)
    assert answer.code == 5
    assert "ZooKeeper" not in answer.out
    assert "node.id=" in answer.out
    assert shell.clean(path).code == 5
    assert tree(path) == before


def test_an_unknown_file_of_a_segment(root: Path, shell: Shell) -> None:
    """S-49: it is reported, and cleaning continues; a file that is about to be deleted is not reported."""
    path = make(root)
    (path / "orders-0" / f"{0:020d}.bloom.deleted").write_bytes(b"")
    assert "beside the segments" not in shell("plan", path, "--json", *COMPACT).out
    (path / "orders-0" / f"{0:020d}.bloom").write_bytes(b"x")
    (entry,) = shell.clean(path, "--json").json["partitions"]
    assert entry["outcome"] == "cleaned"
    assert any(f"{0:020d}.bloom" in note for note in entry["notes"])


def _zeros(name: str) -> tuple[Callable[[Path, Path], object], Callable[[Path, Path], object]]:
    return lambda home, _: (home / name).write_bytes(bytes(8)), lambda home, _: (home / name).unlink()


def _identity(home: Path, other: Path) -> None:
    lines = (other / "meta.properties").read_text().splitlines()
    (home / "meta.properties").write_text("".join(f"{row}\n" for row in lines if not row.startswith("directory.id")))


def _empty_identity(home: Path, _other: Path) -> None:
    (home / "t-0" / "partition.metadata").write_bytes(b"")


def _write_identity(home: Path, _other: Path) -> None:
    """As the fix in the message says."""
    lines = re.findall(r"'([a-z_]+: \S+)'", _obstacle(home)["fix"])
    (home / "t-0" / "partition.metadata").write_text("\n".join(lines))


def _another_cluster(_home: Path, other: Path) -> None:
    meta = other / "meta.properties"
    meta.write_text(re.sub(r"(?m)^cluster\.id=.*", "cluster.id=another", meta.read_text()))


def _obstacle(home: Path) -> dict[str, str]:
    """The finding of ``doctor`` about the broker's next start."""
    properties = home.parent / "server.properties"
    found = cleanerd("doctor", [home], home.parent / "state", "--set", f"cleanerd.broker.properties={properties}")
    assert found.document is not None, found.stderr
    (obstacle,) = (each for each in found.document["findings"] if each["check"] == "broker start")
    assert obstacle["level"] == "warning"
    return dict(obstacle)


STATES: dict[str, tuple[Callable[[Path, Path], object], Callable[[Path, Path], object]]] = {
    "lost+found": (lambda home, _: (home / "lost+found").mkdir(), lambda home, _: (home / "lost+found").rmdir()),
    "cleaner": _zeros("cleaner-offset-checkpoint"),
    "epochs": _zeros("t-0/leader-epoch-checkpoint"),
    "twice": (
        lambda home, other: shutil.copytree(home / "t-0", other / "t-0"),
        lambda _, other: shutil.rmtree(other / "t-0"),
    ),
    "identity": (lambda home, _: (home / "meta.properties").write_bytes(bytes(90)), _identity),
    "future": (
        lambda home, _: shutil.copytree(home / "t-0", home / MOVED),
        lambda home, _: shutil.rmtree(home / MOVED),
    ),
    "no topic id": (lambda home, _: (home / "t-0" / "partition.metadata").unlink(), _write_identity),
    "empty topic id": (_empty_identity, _write_identity),
    "cluster": (_another_cluster, lambda *_: None),
}
"""By name: how to make the state, and the fix; of ``cluster``, the directory leaves log.dirs."""
STARTING: Final = frozenset({"cleaner", "epochs", "no topic id"})
"""In these the broker may start: it drops the log directory, or the partition."""
WITH_OBSTACLE: Final = frozenset({"lost+found", "twice", "future", "no topic id", "empty topic id", "cluster"})


@pytest.mark.kafka
@pytest.mark.broker
@pytest.mark.long
@pytest.mark.parametrize("state", STATES)
def test_the_fix_works(broker_43: StartBroker, state: str) -> None:
    """U-60: a real broker does not start, or drops something; after the fix it starts, with every record."""
    broker = broker_43(log_dirs=2)
    home = _with_a_topic(broker)
    (other,) = (path for path in broker.log_dirs if path != home)
    broker.stop()
    saved = {path: path.with_suffix(".saved") for path in broker.log_dirs}
    for path, copy in saved.items():
        shutil.copytree(path, copy)
    break_it, repair = STATES[state]
    break_it(home, other)
    if state in WITH_OBSTACLE:
        assert _obstacle(home)["fix"]
    try:
        broker.start()
    except BrokerError:
        pass
    else:
        log_text = broker.log_text()
        assert state in STARTING
        assert any(words in log_text for words in ("has failed", "Malformed line", "-stray")), log_text[-4000:]
        assert str(home) in log_text
    broker.kill()
    for path, copy in saved.items():
        shutil.rmtree(path)
        copy.rename(path)
    break_it(home, other)
    repair(home, other)
    if state == "cluster":
        broker.log_dirs = (home,)
    broker.start()
    if state == "identity":  # the directory has another id now, and the controller learns it at the first start
        broker.stop()
        broker.start()
    (read,) = read_with_librdkafka(broker.bootstrap, [Partition("t", 0)]).partitions.values()
    assert [record.value for record in read.records] == [b"1"]


def _with_a_topic(broker: Broker) -> Path:
    """The log directory in which the broker has created ``t-0``."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("t", 1, 1)])["t"].result(PATIENCE_SECONDS)
    produce(broker, [b"1"])
    return next(path for path in broker.log_dirs if (path / "t-0").is_dir())
