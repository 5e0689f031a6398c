"""``cleanerd clean``: outcomes, exit codes, one line for everything that is wrong (cli.md, formats.md section 5)."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from cleanerd.apply import offline
from tests.cleaner.driver import scratch
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
    lock_holder,
    make,
    write_metadata,
)
from tests.support.log_dirs import (
    CLEAN_SHUTDOWN,
    CLEANER_CHECKPOINT,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    Partition,
    Producer,
    make_log_dir,
    read_checkpoint,
    tree,
)
from tests.support.logs import Record, encode_batch, encode_legacy, encode_marker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def root() -> Iterator[Path]:
    with scratch() as path:
        yield path


@pytest.fixture
def shell(root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    return Shell(root, capsys, monkeypatch)


FIELDS = {
    "topic", "partition", "outcome", "reason", "strategy", "first_dirty_offset", "end_offset", "records_read",
    "records_kept", "bytes_before", "bytes_after", "segments_before", "segments_after", "segments_rewritten", "dropped",
    "shards", "seconds",
}  # fmt: skip


def test_json(root: Path, shell: Shell) -> None:
    """cli.md: every field of the contract, schema 1, nothing but the result on stdout."""
    path = make(root)
    answer = shell.clean(path, "--json")
    assert (answer.code, answer.err) == (0, "")
    document = answer.json
    assert document["schema"] == 1
    (entry,) = document["partitions"]
    assert entry.keys() >= FIELDS
    assert entry["dropped"] == {"superseded": 3, "tombstone": 0, "aborted": 0, "keyless": 1, "marker": 0}
    assert entry["seconds"].keys() == {"index", "decide", "rewrite", "apply"}
    expected = {
        "topic": "orders",
        "partition": 0,
        "outcome": "cleaned",
        "reason": "",
        "strategy": "offset",
        "first_dirty_offset": 0,
        "end_offset": 6,
        "records_read": 6,
        "records_kept": 2,
        "segments_before": 3,
        "segments_after": 1,
        "segments_rewritten": 3,
        "shards": 1,
    }
    assert {name: entry[name] for name in expected} == expected
    assert entry["bytes_after"] == (path / "orders-0" / f"{0:020d}.log").stat().st_size < entry["bytes_before"]
    assert keys(path / "orders-0") == CLEANED


def test_table(root: Path, shell: Shell) -> None:
    """cli.md: a row a partition, notes on stderr."""
    path = make_log_dir(root / "logs", {"orders-0": dirty(), "good-0": good()})
    answer = shell("clean", path, "--yes", "--force", *COMPACT)
    assert answer.code == 0
    lines = answer.out.splitlines()
    assert lines[0].split()[:2] == ["partition", "outcome"]
    assert lines[1].split()[:2] == ["orders-0", "cleaned"]
    assert "good-0" not in answer.out, "nobody said that it is compacted"
    assert any("no KRaft metadata log" in line for line in answer.err.splitlines())
    assert keys(path / "good-0") == {0: [(0, "k")], 1: [(1, "k")], 2: []}


def test_second_run(root: Path, shell: Shell) -> None:
    """Nothing to do is success."""
    path = make(root)
    shell.clean(path)
    before = tree(path)
    answer = shell.clean(path, "--json")
    (entry,) = answer.json["partitions"]
    assert (answer.code, entry["outcome"]) == (0, "skipped")
    assert "nothing to clean" in entry["reason"]
    assert "from offset 6" in entry["reason"]
    assert tree(path) == before


def test_ratio(root: Path, shell: Shell) -> None:
    """C-11: without --force the ratio decides, strictly above; the reason has the numbers and the way out."""
    path = make(root, cleaner_offset=4)
    setting = ("--set", "topics.orders.min.cleanable.dirty.ratio=0.5")
    answer = shell("clean", path, "--yes", "--quiet", "--json", *COMPACT, *setting)
    (entry,) = answer.json["partitions"]
    assert (answer.code, entry["outcome"]) == (0, "skipped")
    assert "min.cleanable.dirty.ratio 0.5" in entry["reason"]
    assert "--force" in entry["reason"]
    answer = shell(
        "clean", path, "--yes", "--quiet", "--json", *COMPACT, "--set", "topics.orders.min.cleanable.dirty.ratio=0.1"
    )
    assert answer.json["partitions"][0]["outcome"] == "cleaned"


def test_needs_a_yes(root: Path, shell: Shell) -> None:
    """cli.md: without a terminal and without --yes it refuses, and nothing was touched."""
    path = make(root)
    before = tree(path)
    process = shell.subprocess("clean", path, "--force", *COMPACT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (4, "")
    assert err.splitlines() == ["cleanerd: nobody to ask: standard input is not a terminal (give --yes)"]
    assert tree(path) == before


def test_dry_run(root: Path, shell: Shell) -> None:
    """--dry-run writes nothing at all: no lock file, no state, no time moves; it tells the exact saving."""
    path = make(root)
    before = tree(root, without=())
    answer = shell("clean", path, "--dry-run", "--force", "--json", *COMPACT)
    assert answer.code == 0
    (entry,) = answer.json["partitions"]
    assert (entry["action"], entry["exact"]["records"], entry["exact"]["kept"]) == ("clean", 6, 2)
    assert tree(root, without=()) == before


def test_as_a_process(root: Path, shell: Shell) -> None:
    """The entry point itself; the lock's second included."""
    path = make(root)
    process = shell.subprocess("clean", path, "--yes", "--force", "--json", *COMPACT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, '"cleaned"' in out, "Traceback" in err) == (0, True, False)
    assert keys(path / "orders-0") == CLEANED


def test_lock_is_held(root: Path, shell: Shell) -> None:
    """S-10, formats.md section 5: a broker's lock (a POSIX record lock, as Java takes it): 4, with who has it."""
    path = make(root)
    with lock_holder(path) as process_id:
        before = tree(path)
        answer = shell.clean(path)
    assert answer.code == 4
    assert len(answer.errors) == 1
    assert str(path / ".lock") in answer.err
    assert str(process_id) in answer.err
    assert answer.out == "", "not: no compacted partition found"
    assert tree(path) == before
    assert shell.clean(path).code == 0


@pytest.mark.parametrize("given", [False, True])
def test_unclean(root: Path, shell: Shell, given: bool) -> None:
    """S-27: no marker of a clean shutdown: skipped with the reason, or cleaned below the recovery point on request."""
    path = make_log_dir(root / "logs", {"orders-0": dirty(recovery_point=5)}, clean_shutdown=False)
    before = tree(path)
    answer = shell.clean(path, "--json", *(["--unclean"] if given else []))
    (entry,) = answer.json["partitions"]
    assert answer.code == 0
    if given:
        assert (entry["outcome"], entry["end_offset"]) == ("cleaned", 4)
        assert not (path / CLEAN_SHUTDOWN).exists()
    else:
        assert entry["outcome"] == "skipped"
        assert "--unclean" in entry["reason"]
        assert tree(path) == before


def test_unclean_with_a_torn_end(root: Path, shell: Shell) -> None:
    """S-27: a power loss leaves half a batch in the active segment: the broker's to cut; below it is cleaned."""
    path = make_log_dir(root / "logs", {"orders-0": dirty(recovery_point=6)}, clean_shutdown=False)
    active = path / "orders-0" / f"{6:020d}.log"
    torn = active.read_bytes() + batch(7, ("y", "1"))[:-9]
    active.write_bytes(torn)
    answer = shell.clean(path, "--unclean")
    assert (answer.code, answer.err) == (0, "")
    assert active.read_bytes() == torn
    active.write_bytes(b"")
    assert keys(path / "orders-0")[0] == CLEANED[0]


def test_marker_stays(root: Path, shell: Shell) -> None:
    """S-27: .kafka_cleanshutdown is never created, changed or removed: it carries the broker epoch."""
    path = make(root)
    before = tree(path)[CLEAN_SHUTDOWN]
    shell.clean(path)
    assert tree(path)[CLEAN_SHUTDOWN] == before


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (("--first-dirty", "8"), 4, "--first-dirty 8 lies outside the log 0..7"),
        (("--up-to", "7"), 4, "--up-to 7 is above the bound 6"),
        (("--first-dirty", "-1"), 2, "--first-dirty"),
        (("--first-dirty", "x"), 2, "--first-dirty"),
        (("--first-dirty", "1", "--from-start"), 2, "exclude each other"),
        (("--partition", "nodash"), 2, "TOPIC-N"),
        (("--partition", "orders-1"), 3, "no such partition"),
        (("--partition", "__cluster_metadata-0"), 4, "never cleaned"),
        (("--set", "no.such.key=1"), 3, "no.such.key"),
        (("--set", "nonsense"), 2, "KEY=VALUE"),
        (("--nonsense",), 2, "--nonsense"),
    ],
)  # fmt: skip
def test_options_that_make_no_sense(root: Path, shell: Shell, options: tuple[str, ...], code: int, says: str) -> None:
    """cli.md: refused before anything is touched."""
    path = make(root)
    before = tree(path)
    answer = shell.clean(path, *options)
    assert answer.code == code
    assert says in answer.err
    assert "Traceback" not in answer.err
    assert tree(path) == before


def test_range_of_offsets(root: Path, shell: Shell) -> None:
    """--first-dirty, --up-to: the end of the log and the bound themselves are allowed."""
    path = make(root)
    answer = shell.clean(path, "--first-dirty", "7", "--json")
    assert (answer.code, answer.json["partitions"][0]["outcome"]) == (0, "skipped")
    answer = shell.clean(path, "--up-to", "4", "--json")
    assert (answer.code, answer.json["partitions"][0]["end_offset"]) == (0, 4)
    assert read_checkpoint(path / CLEANER_CHECKPOINT) == {"orders-0": 4}
    assert shell.clean(path, "--up-to", "6").code == 0
    assert keys(path / "orders-0") == CLEANED


def test_clock(root: Path, shell: Shell) -> None:
    """--now-ms decides about every horizon."""
    path = make_log_dir(root / "logs", {"orders-0": Partition({0: batch(0, ("a", None), ("b", "1")), 2: b""})})
    retention = ("--set", "topics.orders.delete.retention.ms=10", "--from-start")
    assert shell.clean(path, *retention).code == 0
    again = ("clean", path, "--yes", "--force", "--json", "--quiet", *COMPACT, *retention)
    assert shell(*again, "--now-ms", NOW + 9).json["partitions"][0]["dropped"]["tombstone"] == 0
    assert shell(*again, "--now-ms", NOW + 10).json["partitions"][0]["dropped"]["tombstone"] == 1


def test_unknown_policy(root: Path, shell: Shell) -> None:
    """cli.md: an explicit --partition with an unknown policy is an error that names the three ways to say it."""
    path = make_log_dir(root / "logs", {"orders-0": dirty(), "good-0": good()})
    before = tree(path)
    told = shell("clean", path, "--yes", "--force", "--partition", "good-0").err
    assert told.count("policy of this topic is unknown") == 1
    answer = shell("clean", path, "--yes", "--force", "--quiet", "--partition", "good-0")
    assert answer.code == 3
    assert len(answer.errors) == 1
    assert all(
        way in answer.err
        for way in ("cleanerd.metadata.log.dir", '[topics."good"]', "--set topics.good.cleanup.policy=")
    )
    assert tree(path) == before


def test_policy_that_is_not_compact(root: Path, shell: Shell) -> None:
    """The same for one that is known and another."""
    path = make(root)
    delete = "topics.orders.cleanup.policy=delete"
    answer = shell("clean", path, "--yes", "--quiet", "--partition", "orders-0", "--set", delete)
    assert answer.code == 3
    assert "cleanup.policy is delete" in answer.err


def test_policy_from_metadata(root: Path, shell: Shell) -> None:
    """OP-7: compacted topics are those that the cluster's metadata calls so, with their settings."""
    path = make_log_dir(root / "logs", {"orders-0": dirty(), "good-0": good(), "plain-0": good()})
    settings = {"cleanup.policy": "compact", "delete.retention.ms": "7"}
    write_metadata(path, topics={"orders": settings, "plain": {}, "gone": {"cleanup.policy": "compact"}})
    answer = shell("clean", path, "--yes", "--force", "--quiet", "--json", "--now-ms", NOW)
    assert [(entry["topic"], entry["outcome"]) for entry in answer.json["partitions"]] == [("orders", "cleaned")]
    other = make_log_dir(root / "other", {"orders-0": dirty()})
    answer = shell(
        "clean", other, "--yes", "--force", "--quiet", "--json", "--set", f"cleanerd.metadata.log.dir={path}"
    )
    assert answer.json["partitions"][0]["outcome"] == "cleaned"


def test_internal_topics(root: Path, shell: Shell) -> None:
    """R280-12, U-11: __cluster_metadata is never touched, even when somebody calls it compacted."""
    path = make(root)
    write_metadata(path, topics={"orders": {"cleanup.policy": "compact"}})
    before = tree(path / "__cluster_metadata-0")
    answer = shell(
        "clean", path, "--yes", "--force", "--quiet", "--set", "topics.__cluster_metadata.cleanup.policy=compact"
    )
    assert answer.code == 0
    assert tree(path / "__cluster_metadata-0") == before


def test_several_directories(root: Path, shell: Shell) -> None:
    """cli.md: all are cleaned; one that cannot be used does not stop the others (6)."""
    first = make_log_dir(root / "first", {"orders-0": dirty()})
    second = make_log_dir(root / "second", {"orders-1": dirty()})
    answer = shell.clean(first, root / "nowhere", second, "--json")
    assert [entry["log_dir"] for entry in answer.json["partitions"]] == [str(first), str(second)]
    assert answer.code == 6
    assert answer.errors == [
        f"warning: {root / 'nowhere'}: does not exist (name a directory from the broker's log.dirs)"
    ]
    assert keys(first / "orders-0") == keys(second / "orders-1") == CLEANED
    assert shell.clean(root / "nowhere", "--json").code == 3


def transactional(base: int) -> bytes:
    return encode_batch(
        [Record(b"a", b"1")], base_offset=base, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True
    )


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


FIRST, SECOND = batch(0, ("a", "1"), ("b", "1")), batch(2, ("a", "2"))
LOG = f"orders-0/{0:020d}.log"


@pytest.mark.parametrize(
    ("data", "code", "position", "says"),
    [
        pytest.param(FIRST + flipped(SECOND, 64), 5, len(FIRST), "CRC", id="C-56: a flipped bit"),
        pytest.param(FIRST + SECOND[:-1], 5, len(FIRST), "ends inside a batch", id="C-57: cut"),
        pytest.param(FIRST + SECOND + b"\x00" * 40, 5, len(FIRST + SECOND), "", id="C-57: zeros at the end"),
        pytest.param(FIRST + SECOND[:16] + b"\xff" + SECOND[17:], 5, len(FIRST), "magic", id="C-57: magic 0xff"),
        pytest.param(b"\x00" * 8 + b"\x7f" + b"\xff" * 60, 5, 0, "", id="C-57: garbage"),
        pytest.param(FIRST + encode_legacy(2, b"a", b"1", magic=0), 4, -1, "v0", id="v0"),
        pytest.param(FIRST + encode_legacy(2, b"a", b"1", magic=1), 4, -1, "v1", id="v1"),
        pytest.param(FIRST + transactional(2), 4, -1, "transactional", id="transactional data"),
        pytest.param(
            FIRST + encode_marker(2, commit=False, producer_id=1), 4, -1, "transactional", id="a transaction's marker"
        ),
    ],
)  # fmt: skip
def test_bad_segment(root: Path, shell: Shell, data: bytes, code: int, position: int, says: str) -> None:
    """C-74, OP-10: quarantined with one line that names file and byte; the other partition is cleaned."""
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
    assert says in line
    assert (f"at byte {position}:" in line) == (position >= 0)
    assert tree(path / "orders-0") == before
    assert keys(path / "good-0") == {0: [(1, "k")], 2: []}
    assert shell.clean(path).code == code, "alone it is its own exit code"
    assert tree(path / "orders-0") == before


def replaced(content: bytes) -> Callable[[bytes], bytes]:
    return lambda _old: content


def test_bad_segment_in_the_clean_part(root: Path, shell: Shell) -> None:
    """C-57: the clean part is read as well."""
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
        pytest.param(f"orders-0/{ACTIVE}.index", replaced(b"\x01" * 9), 5, NEVER, id="active index, size"),
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
    for verb, arguments in (("clean", ("--yes",)), ("plan", ())):
        answer = shell(verb, path, "--force", "--quiet", *arguments, *COMPACT, *options)
        assert answer.code == code, answer.err
        assert "Traceback" not in answer.err
        told = [line for line in (*answer.errors, *answer.out.splitlines()) if str(file) in line]
        assert len(told) == 1, (verb, answer)
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
    ],
)
def test_file_that_is_made_again(root: Path, shell: Shell, name: str, damage: Callable[[bytes], bytes]) -> None:
    """Indexes of sources are written anew, and a snapshot that is damaged is passed over: the partition is cleaned."""
    path = make(root, snapshots={6: [Producer(1, 3, NOW)]}, index_interval_bytes=1)
    file = path / name
    file.write_bytes(damage(file.read_bytes()))
    answer = shell.clean(path)
    assert (answer.code, answer.err) == (0, "")
    assert keys(path / "orders-0") == CLEANED
    assert not (path / "orders-0" / ".kstage").exists()


def test_damaged_state_file(root: Path, shell: Shell) -> None:
    """formats.md section 3: set aside with a warning; Kafka's checkpoint says what is clean."""
    path = make(root)
    shell.clean(path)
    (state,) = (root / "state").rglob("*.json")
    state.write_bytes(b"{")
    answer = shell.clean(path, "--from-start")
    assert answer.code == 0
    (line,) = answer.errors
    assert str(state) in line


def test_no_state_directory(root: Path, shell: Shell) -> None:
    """formats.md section 3: it works without one."""
    path = make(root)
    (root / "state").write_text("in the way")
    answer = shell.clean(path)
    assert answer.code == 0
    assert keys(path / "orders-0") == CLEANED
    assert all(line.startswith("warning: ") and str(root / "state") in line for line in answer.errors)


@pytest.mark.parametrize(
    ("text", "says"),
    [("compression.type=\\u00g1", "server.properties"), (None, "server.properties")],
    ids=["escape", "missing"],
)
def test_server_properties(root: Path, shell: Shell, text: str | None, says: str) -> None:
    """The broker's own file, when it is named."""
    path = make(root)
    file = root / "server.properties"
    if text is not None:
        file.write_text(text)
    before = tree(path)
    answer = shell.clean(path, "--set", f"cleanerd.broker.properties={file}")
    assert answer.code in {3, 5}
    (line,) = answer.errors
    assert says in line
    assert tree(path) == before


def test_one_wrong_topic(root: Path, shell: Shell) -> None:
    """A topic whose configuration makes no sense does not stop the others (6)."""
    path = make_log_dir(root / "logs", {"orders-0": dirty(), "bad-0": good()})
    crossed = {"cleanup.policy": "compact", "min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}
    write_metadata(path, topics={"bad": crossed})
    answer = shell.clean(path)
    assert (answer.code, len(answer.errors)) == (6, 1)
    assert "min.compaction.lag.ms" in answer.err
    assert keys(path / "orders-0") == CLEANED


def test_unexpected_error(root: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug is one line too, and leaves the log whole."""
    path = make(root)
    before = tree(path)

    def broken(*_arguments: object, **_options: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(offline, "swap_group", broken)
    answer = shell.clean(path)
    assert (answer.code, len(answer.errors)) == (1, 1)
    assert "ZeroDivisionError" in answer.err
    assert tree(path) == before


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        pytest.param(
            "import cleanerd.cleaner.stage as s; s.Staging.finish = wait(s.Staging.finish)", "old", id="while staging"
        ),
        pytest.param(
            "import cleanerd.cleaner.decide as s; s._decide_segment = wait(s._decide_segment)",
            "old",
            id="while deciding",
        ),
        pytest.param(
            "import cleanerd.apply.offline as s; s.swap_group = wait(s.swap_group)", "new", id="while swapping"
        ),
    ],
)
def test_stopped_by_a_signal(root: Path, shell: Shell, script: str, expected: str) -> None:
    """cli.md: 143, old or new and never between, the lock free again, nothing left behind."""
    path = make(root)
    before = tree(path)
    waiting = root / "waiting"
    wrapper = f"""
import time
def wait(real):
    def call(*arguments, **options):
        open({str(waiting)!r}, 'w').close()
        end = time.monotonic() + 1.5
        while time.monotonic() < end: time.sleep(0.02)
        return real(*arguments, **options)
    return call
{script}"""
    process = shell.subprocess("clean", path, "--yes", "--force", *COMPACT, script=wrapper)
    deadline = time.monotonic() + 60
    while not waiting.exists():
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (143, "")
    assert "Traceback" not in err
    assert err.splitlines()[-1] == "cleanerd: stopped by SIGTERM"
    if expected == "old":
        assert tree(path) == before
    else:
        assert keys(path / "orders-0") == CLEANED
    assert not (path / "orders-0" / ".kstage").exists()
    assert shell.clean(path).code == 0
    assert keys(path / "orders-0") == CLEANED


@pytest.fixture
def mounted(root: Path) -> Iterator[Path]:
    """A file system of 1 MiB of its own."""
    target = root / "mounted"
    target.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(target)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("file systems cannot be mounted here")
    try:
        yield target
    finally:
        subprocess.run(["umount", str(target)], check=True)


def test_full_disk(mounted: Path, shell: Shell) -> None:
    """OP-10: a disk that is really full: told, the log as it was, cleaned when there is room."""
    path = make_log_dir(mounted / "logs", {"orders-0": dirty()})
    ballast = mounted / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    before = tree(path)
    answer = shell.clean(path)
    assert (answer.code, len(answer.errors)) == (1, 1)
    assert "space" in answer.err
    assert tree(path) == before
    ballast.unlink()
    assert shell.clean(path).code == 0
    assert keys(path / "orders-0") == CLEANED


def test_disk_that_becomes_full(mounted: Path, shell: Shell) -> None:
    """OP-10: the estimate was too low; the group is given up and the log is as it was."""
    small = [(f"s{number}", "x") for number in range(9)]
    logs = {0: batch(0, *small, ("big", "y" * 500_000)), 10: batch(10, *small), 19: b""}
    path = make_log_dir(mounted / "logs", {"orders-0": Partition(logs)})
    (mounted / "ballast").write_bytes(b"x" * 300_000)
    before = tree(path)
    answer = shell.clean(path)
    assert (answer.code, len(answer.errors)) == (1, 1)
    assert "No space left" in answer.err
    assert tree(path) == before


def test_read_only_file_system(mounted: Path, shell: Shell) -> None:
    """One line that says so."""
    path = make_log_dir(mounted / "logs", {"orders-0": dirty()})
    before = tree(path)
    subprocess.run(["mount", "-o", "remount,ro", str(mounted)], check=True)
    answer = shell.clean(path)
    assert (answer.code, len(answer.errors)) == (1, 1)
    assert "Read-only file system" in answer.err
    assert tree(path) == before
    answer = shell("plan", path, "--exact", "--json", *COMPACT)
    assert (answer.code, answer.json["partitions"][0]["action"]) == (0, "clean")
