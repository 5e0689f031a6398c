"""``cleanerd explain``: the first rule that applies, its numbers, when it changes, and the sources of settings."""

from __future__ import annotations

import errno
import shlex
import subprocess
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from cleanerd.cli import explain as cli_explain
from cleanerd.errors import MachineError, NoSpaceError
from cleanerd.resolution import explanation
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.segments.partition import read_partition
from cleanerd.state.cleaner_checkpoint import PartitionState, Retry, StateStore
from tests.cli.clean_log_dirs import COMPACT, NOW, Shell, batch, dirty, lock_holder, make, write_metadata
from tests.cli.findings import findings
from tests.kafka.fixtures import produce
from tests.support.log_dirs import CLEAN_SHUTDOWN, HIGH_WATERMARKS, Partition, make_log_dir, tree
from tests.support.logs import Record, encode_batch
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.fixtures import StartBroker


def ask(shell: Shell, path: Path, *options: object) -> dict[str, Any]:
    answer = shell("explain", "orders-0", path, "--json", "--quiet", "--now-ms", NOW, *COMPACT, *options)
    assert (answer.code, answer.err) == (0, "")
    found: dict[str, Any] = answer.json
    return found


def topic(key: str, value: object) -> tuple[str, str]:
    return "--set", f"topics.orders.{key}={value}"


def utc(text: str) -> str:
    return f"2023-11-{text}Z"


def test_will_be_cleaned(root: Path, shell: Shell) -> None:
    """No rule prevents it: it says so, with the numbers; and nothing is written."""
    path = make(root, cleaner_offset=2)
    sizes = [(path / "orders-0" / f"{base:020d}.log").stat().st_size for base in (0, 2, 4)]
    before = tree(root, without=())
    found = ask(shell, path)
    settings = found.pop("settings")
    assert found == {
        "schema": 1,
        "topic": "orders",
        "partition": 0,
        "broker_running": False,
        "cleaned_now": True,
        "rule": None,
        "reason": "",
        "changes": None,
        "first_dirty_offset": 2,
        "first_dirty_origin": "cleaner-offset-checkpoint",
        "end_offset": 6,
        "limits": {"the active segment": 6, "the high watermark": 7, "the recovery point": 7},
        "limited_by": "the active segment",
        "clean_bytes": sizes[0],
        "cleanable_bytes": sizes[1] + sizes[2],
        "dirty_ratio": pytest.approx((sizes[1] + sizes[2]) / sum(sizes)),
        "waits_for_replicas": [],
        "waits_since_ms": None,
        "waits_at": [],
        "held_tombstones": None,
        "overdue_ms": 0,
        "overdue_at_ms": None,
        "quarantine": None,
        "retry": None,
        "next_purge_ms": None,
        "staged": None,
        "notes": [],
        "warnings": [],
        "delegation": "not needed",
        "fingerprint": "strategy=offset;tombstone.mode=null",
        "cleaned_by_fingerprint": None,
        "lowest_magic": 2,
        "highest_magic": 2,
    }
    assert settings["cleanup.policy"] == {"value": "compact", "origin": "--set"}
    assert tree(root, without=()) == before, "not even a lock file"
    assert "orders-0 is cleaned at the next run" in shell("explain", "orders-0", path, *COMPACT).out


@pytest.mark.parametrize(
    ("facts", "options", "rule", "reason", "changes"),
    [
        pytest.param(
            {"cleaner_offset": 6},
            {"segment.ms": "7000"},
            "the active segment",
            "nothing to clean: dirty from offset 6, cleanable up to 6 (set by the active segment)",
            "when the broker rolls the active segment: after segment.ms (7.0 s) or segment.bytes (1.0 GiB)",
            id="C-05, C-16: the active segment",
        ),
        pytest.param(
            {"cleaner_offset": 6},
            {"segment.ms": "604800000", "max.compaction.lag.ms": "7200000"},
            "the active segment",
            "nothing to clean: dirty from offset 6, cleanable up to 6 (set by the active segment)",
            "when the broker rolls the active segment: after max.compaction.lag.ms (2 h) or segment.bytes (1.0 GiB)",
            id="OP-11: the broker's maximum lag rolls it earlier",
        ),
        pytest.param(
            {"cleaner_offset": 6},
            topic("max.compaction.lag.ms", 7_200_000),
            "the active segment",
            "nothing to clean: dirty from offset 6, cleanable up to 6 (set by the active segment)",
            "when the broker rolls the active segment: after segment.ms (7 d) or segment.bytes (1.0 GiB)",
            id="OP-11: cleanerd's own maximum lag does not",
        ),
        pytest.param(
            {"high_watermark": 1},
            (),
            "the high watermark",
            "nothing to clean: dirty from offset 0, cleanable up to 0 (set by the high watermark)",
            "when the in-sync replicas have caught up and the broker has written its checkpoint",
            id="C-05: the high watermark",
        ),
        pytest.param(
            {"recovery_point": 1},
            (),
            "the recovery point",
            "nothing to clean: dirty from offset 0, cleanable up to 0 (set by the recovery point)",
            "when the broker has flushed the log: at the latest at its next clean stop",
            id="S-02: the recovery point",
        ),
        pytest.param(
            {},
            topic("min.compaction.lag.ms", 61_000),
            "min.compaction.lag.ms",
            "nothing to clean: dirty from offset 0, cleanable up to 0 (set by min.compaction.lag.ms)",
            f"at {utc('14T22:31:00')}, in 1 min, when the segment is old enough",
            id="C-05: too young",
        ),
        pytest.param(
            {},
            topic("min.compaction.lag.ms", 2**63 - 1),
            "min.compaction.lag.ms",
            "nothing to clean: dirty from offset 0, cleanable up to 0 (set by min.compaction.lag.ms)",
            "never by that: min.compaction.lag.ms is 106751991167 d 7 h; lower it",
            id="C-05, OP-11: a lag without end is not a record in the future",
        ),
        pytest.param(
            {},
            {"remote.storage.enable": "true"},
            "remote.storage.enable",
            "remote.storage.enable is set: tiered topics are not cleaned",
            "when remote storage is switched off for the topic",
            id="S-49: tiered",
        ),
        pytest.param(
            {"cleaner_offset": 4},
            topic("min.cleanable.dirty.ratio", 1),
            "min.cleanable.dirty.ratio",
            "is not above min.cleanable.dirty.ratio 1 (clean --force",
            "never by this ratio: it cannot exceed 1",
            id="C-11: a ratio that is never exceeded",
        ),
        pytest.param(
            {"cleaner_offset": 4},
            (*topic("min.cleanable.dirty.ratio", 1), *topic("max.compaction.lag.ms", 3_600_000)),
            "min.cleanable.dirty.ratio",
            "is not above min.cleanable.dirty.ratio 1 (clean --force",
            f"never by this ratio: it cannot exceed 1, or at {utc('14T23:29:59')} by max.compaction.lag.ms",
            id="C-10, C-11: nor yet by the lag",
        ),
    ],
)
def test_rules(
    root: Path,
    shell: Shell,
    facts: dict[str, int],
    options: tuple[str, ...] | dict[str, str],
    rule: str,
    reason: str,
    changes: str,
) -> None:
    """The first rule that applies, with its numbers, and when it changes; in JSON and as text."""
    path = make(root, **facts)
    if isinstance(options, dict):
        write_metadata(path, topics={"orders": {"cleanup.policy": "compact", **options}})
        options = ()
    found = ask(shell, path, *options)
    assert (found["cleaned_now"], found["rule"], found["changes"]) == (False, rule, changes)
    assert reason in found["reason"]
    message = shell("explain", "orders-0", path, "--now-ms", NOW, *COMPACT, *options).out
    assert "orders-0 is not cleaned now." in message
    assert f"  rule:    {rule}\n" in message
    assert f"  reason:  {found['reason']}\n" in message
    assert f"  changes: {changes}\n" in message


def test_ratio(root: Path, shell: Shell) -> None:
    """C-11: the number of missing bytes: with one less it still is not cleaned, with that number it is."""
    path = make(root, cleaner_offset=4)
    clean, cleanable = (ask(shell, path)[name] for name in ("clean_bytes", "cleanable_bytes"))
    ratio = topic("min.cleanable.dirty.ratio", 0.75)
    found = ask(shell, path, *ratio)
    assert found["rule"] == "min.cleanable.dirty.ratio"
    assert f"dirty ratio {cleanable / (clean + cleanable):.3f} is not above" in found["reason"]
    (missing,) = (int(word) for word in found["changes"].split() if word.isdigit())
    assert (cleanable + missing) / (clean + cleanable + missing) > 0.75
    assert (cleanable + missing - 1) / (clean + cleanable + missing - 1) <= 0.75
    assert found["changes"] == f"when {missing} more bytes ({missing} B) are cleanable"


def test_an_open_transaction(root: Path, shell: Shell) -> None:
    """S-04: a hanging transaction is named, with its offset and the tool that ends it."""
    hanging = encode_batch(
        [Record(b"a", b"1", NOW)], transactional=True, producer_id=1, producer_epoch=0, base_sequence=0
    )
    path = make_log_dir(root / "logs", {"orders-0": Partition({0: hanging, 1: batch(1, ("a", "2")), 2: b""})})
    found = ask(shell, path)
    assert found["rule"] == found["limited_by"] == "an open transaction"
    assert found["limits"]["an open transaction"] == 0
    assert "dirty from offset 0, cleanable up to 0" in found["reason"]
    assert "kafka-transactions.sh" in found["changes"]


def test_the_transaction_that_limits_a_log_is_named(root: Path, shell: Shell) -> None:
    """OP-14: producer, epoch, start, age, and the command to paste: in explain, plan and doctor."""
    begun_ms = NOW - 7_200_000
    hanging = encode_batch(
        [Record(b"a", b"1", begun_ms), Record(b"b", b"1", begun_ms)], base_offset=3,
        transactional=True, producer_id=4711, producer_epoch=5, base_sequence=0,
    )  # fmt: skip
    before, after = batch(0, ("a", "1"), ("a", "2"), ("b", "1")), batch(5, ("a", "3"))
    reported = "a transaction of producer 4711 (epoch 5) is open since offset 3, for 2 h"
    abort = "abort --topic orders --partition 0 --start-offset 3"
    path = make_log_dir(root / "logs", {"orders-0": Partition({0: before + hanging, 5: after, 6: b""})})
    found = ask(shell, path)
    assert found["rule"] == "an open transaction"
    assert reported in found["reason"]
    assert abort in found["changes"]
    assert reported in shell("plan", path, "--now-ms", NOW, *COMPACT).out
    (finding,) = findings(shell("doctor", path, "--json", *COMPACT), "open transaction")
    assert finding[0] == "warning"
    # Records before it are cleaned nevertheless, and the transaction is a note.
    path = make_log_dir(root / "more", {"orders-0": Partition({0: before, 3: hanging, 5: after, 6: b""})})
    found = ask(shell, path)
    assert found["cleaned_now"]
    assert any(reported in note and abort in note for note in found["notes"])


@pytest.mark.parametrize(
    ("setting", "timestamp", "unit"),
    [
        ("max.compaction.lag.ms", NOW // 1000, "seconds"),
        ("max.compaction.lag.ms", NOW * 1_000_000, "nanoseconds"),
        ("min.compaction.lag.ms", NOW * 1000, "microseconds"),
        ("max.compaction.lag.ms", NOW - 5 * 365 * 86_400_000, None),
        ("min.compaction.lag.ms", NOW + 3_600_000, None),
        ("max.compaction.lag.ms", 5, None),
    ],
)
def test_timestamps_in_another_unit(root: Path, shell: Shell, setting: str, timestamp: int, unit: str | None) -> None:
    """OP-18: file, offset and producer, in explain and plan; an old or a recent record is not such a case."""
    whose = {"producer_id": 4711, "producer_epoch": 0, "base_sequence": 0}
    wrong = encode_batch([Record(b"a", b"1", timestamp), Record(b"b", b"1", timestamp)], base_offset=2, **whose)  # type: ignore[arg-type]
    logs = {0: batch(0, ("a", "1"), ("b", "1")), 2: wrong, 4: batch(4, ("a", "2")), 5: b""}
    path = make_log_dir(root / "logs", {"orders-0": Partition(logs)})
    options = topic(setting, 500)  # the first segment is a second old
    reported = [note for note in ask(shell, path, *options)["notes"] if "timestamp" in note]
    planned = shell("plan", path, "--now-ms", NOW, *COMPACT, *options).err
    if unit is None:
        assert not reported
        assert "the timestamp" not in planned
    else:
        (note,) = reported
        file = f"{path}/orders-0/{2:020d}.log"
        assert note.startswith(f"{file}: the batch at offset 2 of producer 4711 has the timestamp {timestamp}, ")
        assert f"which is in {unit}: " in note
        assert "of producer 4711 has the timestamp" in planned


@pytest.mark.kafka
@pytest.mark.broker
@pytest.mark.long
def test_the_printed_command_aborts_the_transaction(broker_43: StartBroker, shell: Shell) -> None:
    """OP-14: pasted unchanged, with Kafka's own tool and a real broker; then nothing limits the cleaning any more."""
    checkpoints = ("replica.high.watermark", "log.flush.offset", "log.flush.start.offset")
    at_once = {f"{each}.checkpoint.interval.ms": "100" for each in checkpoints}
    broker = broker_43(properties=at_once)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    config = {"cleanup.policy": "compact", "segment.bytes": "1048576", "flush.messages": "1"}
    admin.create_topics([NewTopic("t", 1, 1, config=config)])["t"].result(PATIENCE_SECONDS)
    gone = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "gone"})
    gone.init_transactions(PATIENCE_SECONDS)
    gone.begin_transaction()
    gone.produce("t", key=b"a", value=b"1", partition=0)
    assert gone.flush(PATIENCE_SECONDS) == 0
    produce(broker, [b"x" * 500_000] * 5)
    settings = ("--set", f"cleanerd.broker.properties={broker.properties_file}")

    def requested(*, is_open: bool) -> str:
        """The time of the change, as soon as the checkpoints that explain reads have it."""
        end = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < end:
            found = shell("explain", "t-0", *broker.log_dirs, "--json", *settings, *_T_IS_COMPACTED).json
            if (found["rule"] == "an open transaction", found["rule"] == "the high watermark") == (is_open, False):
                return str(found["changes"])
            time.sleep(0.1)
        raise AssertionError(found)

    name, *words = shlex.split(requested(is_open=True).partition("if its producer no longer runs: ")[2])
    assert (name, words[:2]) == ("kafka-transactions.sh", ["--bootstrap-server", broker.bootstrap])
    tool = ["java", "-cp", f"{broker.libs_dir}/*", "org.apache.kafka.tools.TransactionsCommand"]
    subprocess.run([*tool, *words], check=True, timeout=PATIENCE_SECONDS)
    requested(is_open=False)


_T_IS_COMPACTED = ("--set", "topics.t.cleanup.policy=compact")


def test_the_brokers_address_for_kafkas_tools(root: Path, shell: Shell) -> None:
    """OP-14: from cleanerd's own settings, otherwise the clients' listener; without both, you have to fill it in."""
    data = encode_batch([Record(b"a", b"1", NOW)], transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
    path = make_log_dir(root / "logs", {"orders-0": Partition({0: data, 1: batch(1, ("a", "2")), 2: b""})})
    properties = root / "server.properties"
    named = ("--set", f"cleanerd.broker.properties={properties}")

    def connect(listeners: str, *options: str) -> str:
        properties.write_text(listeners)
        command: str = ask(shell, path, *named, *options)["changes"].partition("kafka-transactions.sh ")[2]
        return command.partition(" abort ")[0]

    assert connect("") == "--bootstrap-server HOST:PORT"
    assert connect("listeners=CONTROLLER://:9093,PLAINTEXT://:9092\n") == "--bootstrap-server localhost:9092"
    both = "listeners=PLAINTEXT://:9092\nadvertised.listeners=SASL_SSL://kafka-1.example:9094\n"
    assert connect(both) == "--bootstrap-server kafka-1.example:9094"
    client = root / "my client.properties"
    client.write_text("")
    ours = ("--set", "bootstrap.servers=k:1,l:2", "--set", f"cleanerd.command.config={client}")
    assert connect(both, *ours) == f"--command-config '{client}' --bootstrap-server k:1,l:2"


def test_not_stopped_cleanly(root: Path, shell: Shell) -> None:
    """S-27: no clean-shutdown file. A running broker has not crashed, so then explain shows what would happen."""
    path = make(root)
    (path / CLEAN_SHUTDOWN).unlink()
    found = ask(shell, path)
    assert (found["rule"], found["changes"]) == (CLEAN_SHUTDOWN, "at the next clean stop of the broker")
    assert "--unclean" in found["reason"]
    with lock_holder(path):
        found = ask(shell, path)
        message = shell("explain", "orders-0", path, *COMPACT).out
    assert (found["broker_running"], found["cleaned_now"]) == (True, True)
    assert "A broker runs on this directory" in message


def test_no_high_watermarks(root: Path, shell: Shell) -> None:
    """C-86: without the checkpoint nothing is committed."""
    path = make(root)
    (path / HIGH_WATERMARKS).unlink()
    found = ask(shell, path)
    assert found["rule"] == HIGH_WATERMARKS
    assert "no high watermark is known" in found["reason"]
    assert found["changes"] == "when the broker has run and written its checkpoints"


def test_leftovers(root: Path, shell: Shell) -> None:
    """S-21: files of an interrupted swap come before all other rules."""
    path = make(root, cleaner_offset=6)
    (path / "orders-0" / f"{0:020d}.log.swap").write_bytes(b"")
    found = ask(shell, path)
    assert found["rule"] == ".swap and .cleaned files"
    assert f"{0:020d}.log.swap" in found["reason"]
    assert "next run of clean" in found["changes"]


def test_order_of_rules(root: Path, shell: Shell) -> None:
    """The first rule decides: a rule that needs a further query is not shown."""
    path = make(root, cleaner_offset=6)
    (path / CLEAN_SHUTDOWN).unlink()
    (path / HIGH_WATERMARKS).unlink()
    ratio = topic("min.cleanable.dirty.ratio", 1)
    assert ask(shell, path, *ratio)["rule"] == CLEAN_SHUTDOWN
    (path / CLEAN_SHUTDOWN).write_text("{}")
    assert ask(shell, path, *ratio)["rule"] == HIGH_WATERMARKS
    (path / CLEAN_SHUTDOWN).unlink()
    write_metadata(path, topics={"orders": {"cleanup.policy": "compact", "remote.storage.enable": "true"}})
    assert ask(shell, path, *ratio)["rule"] == "remote.storage.enable"


def test_it_agrees_with_clean_and_plan(root: Path, shell: Shell) -> None:
    """One verdict for all three commands."""
    path = make(root, cleaner_offset=4)
    ratio = topic("min.cleanable.dirty.ratio", 0.9)
    reason = ask(shell, path, *ratio)["reason"]
    (planned,) = shell("plan", path, "--json", "--quiet", "--now-ms", NOW, *COMPACT, *ratio).json["partitions"]
    cleaned = shell("clean", path, "--json", "--quiet", "--yes", "--now-ms", NOW, *COMPACT, *ratio).json["partitions"]
    assert planned["reason"] == cleaned[0]["reason"] == reason


def test_origins(root: Path, shell: Shell) -> None:
    """U-24: the source of every setting: topic, file of the broker, default, command line."""
    path = make(root)
    write_metadata(path, topics={"orders": {"cleanup.policy": "compact", "delete.retention.ms": "5"}})
    properties = root / "server.properties"
    properties.write_text("log.cleaner.min.compaction.lag.ms=17\n")
    answer = shell(
        "explain", "orders-0", path, "--json", "--quiet", "--now-ms", NOW,
        "--set", f"cleanerd.broker.properties={properties}", *topic("min.cleanable.dirty.ratio", 0.25),
    )  # fmt: skip
    assert (answer.code, answer.err) == (0, "")
    settings = answer.json["settings"]
    values = {key: settings[key]["value"] for key in settings}
    assert (values["cleanup.policy"], values["delete.retention.ms"]) == ("compact", 5)
    assert (values["min.compaction.lag.ms"], values["min.cleanable.dirty.ratio"]) == (17, 0.25)
    origins = {key: settings[key]["origin"] for key in settings}
    assert (
        len({origins[key] for key in ("delete.retention.ms", "min.compaction.lag.ms", "min.cleanable.dirty.ratio")})
        == 3
    )
    assert origins["cleanup.policy"] == origins["delete.retention.ms"]
    assert origins["min.cleanable.dirty.ratio"] == "--set"
    assert "default" in origins["max.message.bytes"]
    message = shell("explain", "orders-0", path, *topic("min.cleanable.dirty.ratio", 0.25)).out
    (line,) = (line for line in message.splitlines() if line.lstrip().startswith("min.cleanable"))
    assert line.split()[-2:] == ["0.25", "--set"]


def test_an_earlier_failure(root: Path, shell: Shell) -> None:
    """C-74: the failure of the last try is shown with the rule."""
    path = make(root)
    log = path / "orders-0" / f"{0:020d}.log"
    whole = log.read_bytes()
    log.write_bytes(whole[:-1] + b"\xff")
    assert shell.clean(path).code == 5
    found = ask(shell, path)
    assert "CRC" in found["quarantine"]
    reported = shell("explain", "orders-0", path, *COMPACT).out
    assert reported.startswith("orders-0 is tried again at the next run of cleanerd clean.\n")
    assert "The last attempt failed:" in reported
    log.write_bytes(whole)


def test_a_quarantine_of_the_daemon_decides_first(root: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """OP-11: not the ratio, and not a next run: what ends the quarantine, in text and as JSON."""
    path = make(root)
    log = path / "orders-0" / f"{0:020d}.log"
    log.write_bytes(log.read_bytes()[:-1] + b"\xff")
    assert shell.clean(path).code == 5
    store, log_dir = StateStore(root / "state"), read_log_dir(path)
    state = store.load(log_dir, read_partition(log_dir, log_dir.partitions[0]))
    assert state is not None
    state = replace(state, retry=Retry(NOW, 2, 1_700_000_000_000))
    store.save(log_dir, read_partition(log_dir, log_dir.partitions[0]), state)
    daemon = {"log_dir": str(path), "phase": "quarantined", "outlook": "no", "mode": "live", "next_purge_ms": None}
    answers = {"orders-0": {**daemon, "reason": state.quarantine}}
    # No daemon runs here.
    monkeypatch.setattr(cli_explain, "daemon_facts", lambda *_: answers)
    ratio = topic("min.cleanable.dirty.ratio", 1)
    lines = shell("explain", "orders-0", path, *COMPACT, *ratio).out.splitlines()
    changes = "when the segment is replaced, or at 2023-11-14T22:13:20Z (2 failures in a row), or with cleanerd retry"
    assert state.quarantine is not None
    cause, _, fixes = state.quarantine.partition(" (copy")
    assert lines[:9] == [
        "orders-0 is not cleaned now.",
        "  rule:    quarantine",
        f"  reason:  {cause}",
        *(f"           -> {fix}" for fix in f"copy{fixes[:-1]}".split("; ")),
        f"  changes: {changes}",
        "  besides: dirty ratio 1.000 is not above min.cleanable.dirty.ratio 1 (clean --force or trigger cleans it)",
    ]
    assert "  The running daemon: quarantined, live" in lines
    assert not any("tried again" in line or "last attempt" in line for line in lines)
    report = ask(shell, path)
    assert (report["cleaned_now"], report["rule"], report["changes"]) == (False, "quarantine", changes)


def test_not_compacted(root: Path, shell: Shell) -> None:
    """For a topic that is not compacted, this is the rule; the source of its policy is shown."""
    path = make_log_dir(root / "logs", {"orders-0": dirty()})
    answer = shell("explain", "orders-0", path, "--set", "topics.orders.cleanup.policy=delete")
    assert answer.code == 0
    assert "rule:    cleanup.policy" in answer.out
    assert "reason:  cleanup.policy is delete, not compact" in answer.out
    assert "--set" in answer.err
    report = shell("explain", "orders-0", path, "--json", "--set", "topics.orders.cleanup.policy=delete").json
    assert (report["cleaned_now"], report["rule"]) == (False, "cleanup.policy")


def test_the_state_of_the_daemon(root: Path, shell: Shell) -> None:
    """The next tombstone removal, and a failure with the time of the next try, as text and as JSON."""
    path = make(root, cleaner_offset=2)
    store, log_dir = StateStore(root / "state"), read_log_dir(path)
    log = read_partition(log_dir, log_dir.partitions[0])
    state = PartitionState(
        None,
        "bad batch",
        None,
        Retry(NOW, 3, NOW + 60_000),
        next_purge_ms=NOW + 5000,
        removal_known_below=2,
    )
    store.save(log_dir, log, state)
    found = ask(shell, path)
    assert found["next_purge_ms"] == NOW + 5000
    assert found["retry"] == {"since_ms": NOW, "failures": 3, "at_ms": NOW + 60_000}
    done = shell("explain", "orders-0", path, *COMPACT)
    assert "3 failures in a row; the daemon tries again at 20" in done.out
    assert "can be removed at 20" in done.out
    store.save(log_dir, log, replace(state, removal_known_below=1))
    assert ask(shell, path)["next_purge_ms"] is None, "another process cleaned it since: unknown"


@pytest.mark.parametrize(
    ("error", "rule", "changes"),
    [
        (MachineError("too many open files", where="x"), "the machine", "once that is fixed"),
        (OSError(errno.EIO, "input/output error", "x"), "the partition's directory", "once that is fixed"),
        (NoSpaceError("not enough free space", where="x", hint="free some"), "free space", "free some"),
    ],
)
def test_a_search_for_obstacles_that_fails(
    root: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch, error: Exception, rule: str, changes: str
) -> None:
    """U-38: an error in the search for obstacles would end a cleaning too: this is an answer, not a failure."""

    def fails(*_: object) -> None:
        raise error

    # No test makes a disk or a machine fail.
    monkeypatch.setattr(explanation, "refuse_obstacles", fails)
    found = ask(shell, make(root, cleaner_offset=2))
    assert (found["cleaned_now"], found["rule"], found["changes"]) == (False, rule, changes)
    assert found["reason"].startswith("x: ")


def test_settings_have_units(root: Path, shell: Shell) -> None:
    """A day, a size, or no unit as text; --json has the numbers."""
    path = make(root)
    lines = shell("explain", "orders-0", path, *COMPACT).out.splitlines()
    rows = {words[0]: words for line in lines if (words := line.split()) and "." in words[0]}
    assert rows["delete.retention.ms"][1:3] == ["1", "d"]
    assert rows["max.compaction.lag.ms"][1] == "none"
    assert rows["segment.bytes"][1:3] == ["1.0", "GiB"]
    settings = ask(shell, path)["settings"]
    assert settings["delete.retention.ms"]["value"] == 86_400_000
    assert settings["max.compaction.lag.ms"]["value"] == 2**63 - 1
