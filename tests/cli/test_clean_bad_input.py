"""``cleanerd clean`` on damaged or unexpected files: one clear line, an exit code, nothing lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.cli.clean_log_dirs import (
    CLEANED,
    COMPACT,
    GOOD,
    NOW,
    Shell,
    batch,
    dirty,
    good,
    keys,
    make,
    write_metadata,
)
from tests.support.log_dirs import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    Partition,
    Producer,
    make_log_dir,
    tree,
)
from tests.support.logs import Record, encode_batch, encode_legacy

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def control(key: bytes) -> bytes:
    return encode_batch([Record(key, b"")], base_offset=2, control=True, producer_id=1, producer_epoch=0)


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


FIRST, SECOND = batch(0, ("a", "1"), ("b", "1")), batch(2, ("a", "2"))
LOG = f"orders-0/{0:020d}.log"


@pytest.mark.parametrize(
    ("data", "code", "position", "message"),
    [
        pytest.param(FIRST + flipped(SECOND, 64), 5, len(FIRST), "CRC", id="C-56: a flipped bit"),
        pytest.param(FIRST + SECOND[:-1], 5, len(FIRST), "ends inside a batch", id="C-57: cut"),
        pytest.param(FIRST + SECOND + b"\x00" * 40, 5, len(FIRST + SECOND), "", id="C-57: zeros at the end"),
        pytest.param(FIRST + SECOND[:16] + b"\xff" + SECOND[17:], 5, len(FIRST), "magic", id="C-57: magic 0xff"),
        pytest.param(b"\x00" * 8 + b"\x7f" + b"\xff" * 60, 5, 0, "", id="C-57: garbage"),
        pytest.param(FIRST + flipped(encode_legacy(2, b"a", b"1"), 34), 5, len(FIRST), "CRC-32", id="C-56: v1"),
        pytest.param(FIRST + encode_legacy(2, None, b"", attributes=4), 5, len(FIRST), "zstd", id="C-54: zstd in v1"),
        pytest.param(FIRST + control(b"\0\0\0"), 5, len(FIRST), "control key", id="C-57: a control batch of no type"),
    ],
)  # fmt: skip
def test_bad_segment(root: Path, shell: Shell, data: bytes, code: int, position: int, message: str) -> None:
    """C-74, OP-10: quarantined with one line that has file and byte; the other partition is cleaned."""
    partition = Partition({0: data, 10: batch(10, ("a", "9")), 11: b""})
    path = make_log_dir(root / "logs", {"good-0": good(), "orders-0": partition})
    before = tree(path / "orders-0")
    answer = shell.clean(path, "--json", *GOOD)
    outcomes = {entry["topic"]: entry for entry in answer.json["partitions"]}
    assert {topic: entry["outcome"] for topic, entry in outcomes.items()} == {
        "good": "cleaned",
        "orders": "quarantined",
    }
    assert answer.code == 6
    (line,) = answer.errors
    assert line == f"warning: orders-0: {outcomes['orders']['reason']}"
    assert str(path / LOG) in line
    assert message in line
    assert (f"at byte {position}:" in line) == (position >= 0)
    assert tree(path / "orders-0") == before
    assert keys(path / "good-0") == {0: [(1, "k")], 2: []}
    assert shell.clean(path).code == code, "alone it has its own exit code"
    assert tree(path / "orders-0") == before


def replaced(content: bytes) -> Callable[[bytes], bytes]:
    return lambda _old: content


def test_bad_segment_in_the_clean_section(root: Path, shell: Shell) -> None:
    """C-57: the clean section is read as well."""
    path = make(root, cleaner_offset=2)
    log = path / LOG
    log.write_bytes(flipped(log.read_bytes(), 70))
    answer = shell.clean(path)
    assert (answer.code, len(answer.errors)) == (5, 1)
    assert f"{log} at byte 0" in answer.err


ZERO = f"{0:020d}"
ACTIVE = f"{6:020d}"
NEVER: tuple[str, ...] = ()
SNAPSHOT = f"__cluster_metadata-0/{5:020d}-{1:010d}.checkpoint"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "damage", "code", "options"),
    [
        *(
            pytest.param(name, replaced(content), 5, NEVER, id=f"{name}, {what}")
            for name in (CLEANER_CHECKPOINT, RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS)
            for what, content in (
                ("version", b"1\n0\n"),
                ("words", b"zero\none\n"),
                ("count", b"0\n2\norders 0 1\n"),
                ("fields", b"0\n1\norders 0\n"),
                ("number", b"0\n1\norders 0 x\n"),
                ("bytes", b"\xff\xfe\x00"),
            )
        ),
        pytest.param("meta.properties", replaced(b"version=9\n"), 5, NEVER, id="meta.properties, version"),
        pytest.param("meta.properties", replaced(b"version=1\nnode.id=1\n"), 5, NEVER, id="meta.properties, no id"),
        pytest.param("meta.properties", replaced(b"version=\\u00"), 5, NEVER, id="meta.properties, escape"),
        pytest.param("orders-0/partition.metadata", replaced(b""), 5, NEVER, id="partition.metadata, 0 bytes"),
        pytest.param("orders-0/partition.metadata", replaced(b"version: 1\n"), 5, NEVER, id="topic id, version"),
        pytest.param("orders-0/partition.metadata", lambda old: old[:-3], 5, NEVER, id="partition.metadata, cut"),
        pytest.param("orders-0/leader-epoch-checkpoint", replaced(b"0\n1\n0\n"), 5, NEVER, id="epochs, fields"),
        pytest.param("orders-0/leader-epoch-checkpoint", replaced(b"\xff"), 5, NEVER, id="epochs, bytes"),
        pytest.param(f"orders-0/{ACTIVE}.log", lambda old: old[:-1], 5, NEVER, id="active segment, cut"),
        pytest.param(f"orders-0/{ACTIVE}.log", replaced(b"\xff" * 99), 5, NEVER, id="active segment, garbage"),
        pytest.param(
            f"orders-0/{ZERO}.timeindex",
            replaced(b"\xff" * 12),
            5,
            ("--set", "topics.orders.min.compaction.lag.ms=1"),
            id="time index, negative",
        ),
        pytest.param(
            f"orders-0/{ZERO}.timeindex",
            replaced(b"\x01" * 13),
            5,
            ("--set", "topics.orders.min.compaction.lag.ms=1"),
            id="time index, size",
        ),
        pytest.param(f"__cluster_metadata-0/{ZERO}.log", lambda old: flipped(old, 60), 5, NEVER, id="metadata, CRC"),
        pytest.param(f"__cluster_metadata-0/{ZERO}.log", replaced(b"\x00" * 8 + b"\xff" * 60), 5, NEVER, id="metadata"),
        pytest.param(SNAPSHOT, replaced(b"x" * 99), 5, NEVER, id="metadata snapshot"),
    ],
)  # fmt: skip
def test_bad_file(
    root: Path, shell: Shell, name: str, damage: Callable[[bytes], bytes], code: int, options: tuple[str, ...]
) -> None:
    """Every file that is read: its exit code, one line that names it, no traceback, and nothing changed."""
    path = make(root, log_start_offset=0, cleaner_offset=0)
    write_metadata(path, topics={})
    file = path / name
    file.write_bytes(damage(file.read_bytes() if file.exists() else b""))
    before = tree(path)
    for command, arguments in (("clean", ("--yes",)), ("plan", ())):
        answer = shell(command, path, "--force", "--quiet", *arguments, *COMPACT, *options)
        assert answer.code == code, answer.err
        assert "Traceback" not in answer.err
        reported = [line for line in (*answer.errors, *answer.out.splitlines()) if str(file) in line]
        assert len(reported) == 1, (command, answer)
        assert len(answer.errors) <= 1
        assert tree(path) == before


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        pytest.param(f"orders-0/{ZERO}.index", replaced(b"\x01" * 9), id="index, size"),
        pytest.param(
            f"orders-0/{ZERO}.index", replaced(b"\x00\x00\x00\x01\x00\x00\x00\x05"), id="index, wrong position"
        ),
        pytest.param(f"orders-0/{ZERO}.index", replaced(b"\x7f" * 8), id="index, position past the end"),
        pytest.param(f"orders-0/{ZERO}.timeindex", replaced(b"\xff" * 13), id="time index"),
        pytest.param(f"orders-0/{6:020d}.snapshot", replaced(b"\x00"), id="producer snapshot"),
        pytest.param(f"orders-0/{ACTIVE}.timeindex", replaced(b"\x01"), id="active time index"),
        pytest.param(f"orders-0/{ACTIVE}.index", replaced(b"\x01" * 9), id="active index, size"),
    ],
)
def test_a_damaged_file_that_is_written_again(
    root: Path, shell: Shell, name: str, damage: Callable[[bytes], bytes]
) -> None:
    """Indexes of sources are written again, and a damaged snapshot is ignored: the partition is cleaned."""
    path = make(root, snapshots={6: [Producer(1, 3, NOW)]}, index_interval_bytes=1)
    file = path / name
    file.write_bytes(damage(file.read_bytes()))
    answer = shell.clean(path)
    assert (answer.code, answer.err) == (0, "")
    assert keys(path / "orders-0") == CLEANED
    assert not (path / "orders-0" / ".kstage").exists()


NAMED: Final = (
    "--set", "topics.orders.compaction.strategy=offset", "--set", "topics.orders.tombstone.mode=null",
)  # fmt: skip


def test_damaged_state_file(root: Path, shell: Shell) -> None:
    """Set aside with a warning; Kafka's checkpoint has the first dirty offset, and the settings are known (U-6)."""
    path = make(root)
    shell.clean(path)
    (state,) = (root / "state" / "partitions").rglob("*.json")
    state.write_bytes(b"{")
    before = tree(path)
    refused = shell.clean(path, "--from-start")
    assert refused.code == 4
    assert tree(path) == before
    answer = shell.clean(path, "--from-start", *NAMED)
    assert answer.code == 0
    reported = [line for line in (*refused.errors, *answer.errors) if str(state) in line]
    assert reported
    assert not state.with_suffix(".tmp").exists()
    assert shell.clean(path, "--from-start").code == 0, "it is remembered again"


@pytest.mark.parametrize("place", ["logs", "logs/orders-0", "link"])
@pytest.mark.parametrize("command", ["clean", "stage", "apply", "undo", "clean and keep", "stage and keep"])
def test_state_in_a_log_directory(root: Path, shell: Shell, place: str, command: str) -> None:
    """H-21: a directory that is not a partition keeps a broker from starting: cleanerd creates none in a log directory.

    The hook that runs before the broker's start least of all.
    """
    path = make(root)
    (root / "kept").mkdir()
    (root / "link").symlink_to(path)
    if command == "apply":
        assert shell("stage", path, "--force", "--quiet", "--now-ms", NOW, *COMPACT).code == 0
    before = tree(path, without=())
    shell.root = root / place
    kept = ("--keep-replaced", root / "kept") if command.endswith("keep") else ()
    command = command.partition(" ")[0]
    words = {"apply": (), "undo": ("--yes",), "stage": ("--force",), "clean": ("--force", "--yes")}[command]
    answer = shell(command, path, "--quiet", *words, *kept, *(() if command == "undo" else COMPACT))
    assert answer.code == 3
    assert "is in the log directory" in answer.err
    assert tree(path, without=()) == before


def test_no_state_directory(root: Path, shell: Shell) -> None:
    """It works without one if the settings name the strategy (U-6): nothing below it can be read or written."""
    path = make(root)
    (root / "state").mkdir()
    (root / "state" / "partitions").write_text("in the way")
    before = tree(path)
    assert shell.clean(path).code == 4
    assert tree(path) == before
    answer = shell.clean(path, *NAMED)
    assert answer.code == 0
    assert keys(path / "orders-0") == CLEANED
    assert all(line.startswith("warning: ") and str(root / "state") in line for line in answer.errors)


@pytest.mark.parametrize("below", ["", "deeper"])
@pytest.mark.parametrize(
    "command", ["plan", "clean --yes", "stage", "apply", "undo --yes", "explain orders-0", "doctor"]
)
def test_the_state_directory_is_a_file(root: Path, shell: Shell, command: str, below: str) -> None:
    """An invalid setting, reported once and equally by all commands: exit code 3, and nothing was done."""
    path = make(root)
    (root / "state").write_text("in the way")
    before = tree(root, without=())
    named = ("--set", f"cleanerd.state.dir={root / 'state' / below}")
    answer = shell(*command.split(), path, "--quiet", *COMPACT, *named)
    assert answer.code == 3
    assert (answer.out + answer.err).count("is not a directory") == 1
    assert str(root / "state") in answer.out + answer.err
    assert tree(root, without=()) == before


@pytest.mark.parametrize(
    ("text", "message"),
    [("compression.type=\\u00g1", "server.properties"), (None, "server.properties")],
    ids=["escape", "missing"],
)
def test_server_properties(root: Path, shell: Shell, text: str | None, message: str) -> None:
    """An explicitly configured file of the broker."""
    path = make(root)
    file = root / "server.properties"
    if text is not None:
        file.write_text(text)
    before = tree(path)
    answer = shell.clean(path, "--set", f"cleanerd.broker.properties={file}")
    assert answer.code in {3, 5}
    (line,) = answer.errors
    assert message in line
    assert tree(path) == before


@pytest.mark.parametrize("key", ["node.id", "broker.id"])
def test_server_properties_of_another_node(root: Path, shell: Shell, key: str) -> None:
    """U-24: a broker does not start on directories of another node id, so this file does not apply to them."""
    path = make(root)
    write_metadata(path, topics={"orders": {}})
    file = root / "server.properties"
    file.write_text(f"{key}=2\nlog.cleanup.policy=compact\n")
    before = tree(path)
    answer = shell("clean", path, "--yes", "--force", "--quiet", "--set", f"cleanerd.broker.properties={file}")
    assert answer.code == 3
    assert f"{key} is 2" in answer.err
    assert tree(path) == before
    file.write_text(f"{key}=1\nlog.cleanup.policy=compact\n")
    answer = shell("clean", path, "--yes", "--force", "--quiet", "--set", f"cleanerd.broker.properties={file}")
    assert answer.code == 0
    assert keys(path / "orders-0") == CLEANED


def test_one_wrong_topic(root: Path, shell: Shell) -> None:
    """A topic with an invalid configuration does not stop the others (6)."""
    path = make_log_dir(root / "logs", {"orders-0": dirty(), "bad-0": good()})
    crossed = {"cleanup.policy": "compact", "min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}
    write_metadata(path, topics={"bad": crossed})
    answer = shell.clean(path)
    assert (answer.code, len(answer.errors)) == (6, 1)
    assert "min.compaction.lag.ms" in answer.err
    assert keys(path / "orders-0") == CLEANED
