"""The cost of scans of a log directory: memory, and time when the broker does not answer."""

from __future__ import annotations

import errno
import json
import os
import signal
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.broker.live_broker import LiveBroker
from cleanerd.cleaner.survey import CleaningOptions
from cleanerd.config.load import load_settings
from cleanerd.daemon.directory_snapshot import CONFIG_APPLIED_MS
from cleanerd.daemon.discovery.facts_cache import FactsCache
from cleanerd.daemon.discovery.log_dir_scanner import LogDirScanner
from cleanerd.daemon.limits import DaemonLimits
from cleanerd.daemon.partition_scan import FailedScan, PartitionScan
from cleanerd.daemon.status.view_parts import partition_view
from cleanerd.errors import (
    AgentRefusalError,
    Cause,
    CleanerdError,
    CorruptionError,
    NoSpaceError,
    RefusedError,
    StalePlanError,
    UnsupportedLogError,
)
from cleanerd.format.names import TopicPartition
from cleanerd.fsio import directory_time
from cleanerd.resolution.partitions import LivePartitions
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.state.cleaner_checkpoint import StateStore
from cleanerd.state.in_progress import PLACE, InFlightMarkers
from tests.cleaner.driver import clean as clean_log
from tests.cli.clean_log_dirs import batch
from tests.daemon.registries import NOW, registry_with
from tests.daemon.service import COMPACT, assignments, broker, is_clean, scan_context, serve, until
from tests.segments.metadata_logs import ID1
from tests.segments.replica_records import log_of, partition
from tests.support.fake_agent import FakeAgent, wait
from tests.support.format_bytes import config, metadata, topic
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import Record, encode_batch
from tests.swap.live_round import held
from tests.swap.offline_round import two_groups

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.daemon.discovery.log_dir_scan import LogDirScan
    from cleanerd.daemon.service import Service
    from cleanerd.resolution.broker_facts import BrokerFacts
    from cleanerd.segments.log_dir import LogDir
    from cleanerd.segments.partition import PartitionLog


def test_a_topic_that_is_not_compacted_any_more(root: Path) -> None:
    """U-23: the list of partitions is kept between scans, as long as the same configuration applies."""
    make_log_dir(root, {"orders-0": two_groups()})
    instead: list[BrokerFacts] = []

    class Reported(FactsCache):
        def get(self, *given: Any, **named: Any) -> BrokerFacts:
            return instead[-1] if instead else super().get(*given, **named)

    known, scanner = scan_context(root), LogDirScanner(root, Reported())
    first, second = scanner.scan(known), scanner.scan(known)
    assert [str(each.name) for each in first.scans] == ["orders-0"]
    assert second.present is first.present
    facts = first.facts
    assert facts is not None
    deleted = replace(facts, settings=load_settings([], ["topics.orders.cleanup.policy=delete"], {}))
    instead.append(deleted)
    assert scanner.scan(known).present == frozenset()
    instead.append(facts)
    assert scanner.scan(known).present == first.present
    (root / "orders-1").mkdir()
    assert {str(name) for name in scanner.scan(known).present or ()} == {"orders-0", "orders-1"}


def test_what_prevents_the_brokers_start_is_a_warning(root: Path) -> None:
    """U-60: on the page as in every command; checked when partitions are added or removed, and at intervals."""
    make_log_dir(root, {"orders-0": two_groups()})
    scanner = LogDirScanner(root, limits=DaemonLimits(start_check_seconds=0))
    assert not any("does not start" in warning for warning in scanner.scan(scan_context(root)).warnings)
    (root / "lost+found").mkdir()
    assert any("does not start" in warning for warning in scanner.scan(scan_context(root)).warnings)
    (root / "lost+found").rmdir()
    assert not any("does not start" in warning for warning in scanner.scan(scan_context(root)).warnings)
    rare = LogDirScanner(root)
    rare.scan(scan_context(root))
    (root / "lost+found").mkdir()
    assert not any("does not start" in warning for warning in rare.scan(scan_context(root)).warnings)
    (root / "orders-1").mkdir()
    assert any("does not start" in warning for warning in rare.scan(scan_context(root)).warnings)


def test_the_end_of_a_log_is_in_the_status(root: Path) -> None:
    """U-70: from it, other brokers' daemons learn whether a replica has their tombstones."""
    make_log_dir(root, {"orders-0": Partition({0: batch(0, ("a", "1")), 1: batch(1, ("b", "1"), ("c", "1"))})})
    registry = registry_with()
    registry.merge(LogDirScanner(root).scan(scan_context(root)), NOW)
    (entry,) = (each for each in registry.partitions.values() if each.path == str(root))
    assert partition_view(registry, entry).to_json()["log_end_offset"] == 3


def test_the_tombstones_that_the_last_cleaning_kept_are_in_the_status(root: Path) -> None:
    """U-94: from the state directory, also after a restart of the daemon; unknown before the first cleaning."""
    log = encode_batch([Record(b"a", None), Record(b"b", b"1")])
    make_log_dir(root, {"orders-0": Partition({0: log, 2: b""})})

    def shown() -> object:
        registry = registry_with()
        registry.merge(LogDirScanner(root).scan(scan_context(root)), NOW)
        (entry,) = (each for each in registry.partitions.values() if each.path == str(root))
        return partition_view(registry, entry).to_json()["tombstones_kept"]

    assert shown() is None
    assert clean_log(root, CleaningOptions(time.time_ns() // 1_000_000, force=True)).outcome == "cleaned"
    assert shown() == 1


@pytest.mark.parametrize(
    ("replicated", "records", "words"),
    [
        pytest.param("required", None, "the metadata log of the running broker was not found", id="hidden"),
        pytest.param("required", (partition(ID1, 0, [1], [1]),), "", id="readable"),
        pytest.param("required", (metadata(3, version=99),), "version 99 is not known: update cleanerd", id="too new"),
        pytest.param("ignore", None, "", id="no topic waits"),
    ],
)
def test_unknown_replicas_are_a_warning(
    root: Path, replicated: str, records: tuple[bytes, ...] | None, words: str
) -> None:
    """U-70: if tombstones wait because the replicas are unknown, ``status`` and the page show it, with the solution."""
    with broker(root, 1):
        if records is not None:
            log_of(root / "__cluster_metadata-0", (0, (topic("orders", ID1), *records)))
        context = scan_context(root, f"topics.*.cleanerd.tombstone.replicated={replicated}")
        scanner = LogDirScanner(root)
        scans = scanner.scan(context), scanner.scan(context, [TopicPartition("orders", 0)])
    for scan in scans:
        found = [each for each in scan.warnings if "tombstones wait" in each]
        assert [each.startswith(f"{root}: tombstones wait: ") and words in each for each in found] == [True] * bool(
            words
        )


def test_a_topics_partitions_share_its_configuration(root: Path) -> None:
    """U-23: thousands of them share one, as the broker reports; one that the broker changed differs."""
    with broker(root, 2) as agent:
        scanner, known = LogDirScanner(root), scan_context(root)
        one, two = (scan.config for scan in scanner.scan(known).scans if isinstance(scan, PartitionScan))
        assert one is two
        agent.settings["delete.retention.ms"] = "12345"
        names = scanner.scan(known).present
        changed = scanner.scan(known, names).scans
        three, four = (scan.config for scan in changed if isinstance(scan, PartitionScan))
        assert three is four
        assert (three.delete_retention_ms, one.delete_retention_ms != 12345) == (12345, True)


def test_a_configuration_that_the_broker_applies_later(root: Path) -> None:
    """D-21: the metadata log shows it before the broker applies it. A scan between the two is not the last one."""

    def retention_ms(at_ms: int) -> int | None:
        scans = scanner.scan(replace(context, now_ms=lambda: at_ms)).scans
        return next((each.config.delete_retention_ms for each in scans if isinstance(each, PartitionScan)), None)

    with broker(root, 1) as agent:
        created = (0, (topic("orders", ID1), partition(ID1, 0, [1], [1])))
        log_of(root / "__cluster_metadata-0", created)
        scanner, context = LogDirScanner(root, facts=FactsCache(share=0)), scan_context(root)
        now_ms = time.time_ns() // 1_000_000
        assert retention_ms(now_ms) == 86_400_000
        changed = (1, (config(2, "orders", "delete.retention.ms", "12345"),))
        log_of(root / "__cluster_metadata-0", created, changed)
        assert retention_ms(now_ms) == 86_400_000
        agent.settings["delete.retention.ms"] = "12345"
        assert retention_ms(now_ms + CONFIG_APPLIED_MS) == 12345
        assert retention_ms(now_ms + CONFIG_APPLIED_MS) is None


@pytest.mark.parametrize("running", ["agent", "no agent", "no broker"])
def test_a_partition_holds_no_reference_to_others(root: Path, running: str) -> None:
    """It lives until its next scan: with a listing in each, memory would grow with the square of their number."""

    def scan() -> PartitionScan | FailedScan:
        return next(each for each in LogDirScanner(root).scan(scan_context(root)).scans if str(each.name) == "orders-1")

    if running == "agent":
        with broker(root, 3):
            found = scan()
    else:
        make_log_dir(root, {f"orders-{n}": two_groups() for n in range(3)})
        if running == "no agent":
            with held(root):
                found = scan()
        else:
            found = scan()
    assert isinstance(found, PartitionScan)
    kept = found.log_dir
    assert kept.partitions == (found.name,)
    for offsets in (kept.high_watermarks, kept.recovery_points, kept.cleaner_offsets, kept.log_start_offsets):
        assert set(offsets) <= {found.name}
    assert found.name in kept.high_watermarks


@pytest.mark.long
def test_an_agent_that_hangs_is_waited_for_once_per_scan(root: Path) -> None:
    """2,000 partitions, each with its own time limit, would delay all other directories for hours."""
    with broker(root, 60) as agent:
        agent.fail("log", *[wait(3.0)] * 120)
        found = LogDirScanner(root, limits=DaemonLimits(agent_seconds=0.5)).scan(scan_context(root))
        assert [each.cause for each in found.scans if isinstance(each, FailedScan)] == [Cause.TRANSIENT] * 60
        assert len(agent.requested("log")) < 10


def test_an_invalid_answer_concerns_one_partition(root: Path) -> None:
    """C-14: an agent's answer about the first of three."""
    with broker(root, 3) as agent:

        def nonsense(_agent: Any, request: dict[str, Any]) -> bytes | None:
            return b"{}\n" if request["partition"] == 0 else None

        agent.fail("log", *[nonsense] * 10)
        found = LogDirScanner(root).scan(scan_context(root))
        assert [isinstance(each, PartitionScan) for each in found.scans] == [False, True, True]


def test_a_scan_of_one_partition_does_not_clear_a_failed_directory(root: Path) -> None:
    """The disk is unavailable: a job that ends in the directory a moment later must not start the next one."""
    with broker(root, 1):
        found, context = LogDirScanner(root), scan_context(root)
        (name,) = found.scan(context).present or [None]
        assert name is not None
        assert found.scan(context, {name}).online
        root.rename(root.with_name("away"))
        assert not found.scan(context).online
        glance = found.scan(context, {name})
        assert (glance.online, glance.scans) == (False, ())
        root.with_name("away").rename(root)
        assert found.scan(context, {name}).online


def test_files_deleted_by_the_broker_change_nothing(root: Path) -> None:
    """A minute after a cleaning the broker deletes the replaced segments, which no scan uses."""
    with broker(root, 2):
        scanner, context = LogDirScanner(root), scan_context(root)
        aside = root / "orders-0" / "00000000000000000000.log.deleted"
        aside.write_bytes(b"")
        assert sorted(str(each.name) for each in scanner.scan(context).scans) == ["orders-0", "orders-1"]
        aside.unlink()
        assert scanner.scan(context).scans == ()


def test_a_change_during_a_scan_is_for_the_next_scan(root: Path) -> None:
    """The scan counts as having seen the listing that it used, not the directory at its end."""
    make_log_dir(root, {"orders-0": two_groups()})
    scanner, context = LogDirScanner(root), scan_context(root)

    class Changing(StateStore):
        def load(self, *given: Any) -> Any:
            """The state is loaded after the directory was listed."""
            (root / "orders-0" / "more").touch()
            return super().load(*given)

    assert len(scanner.scan(replace(context, store=Changing(root.parent / "state"))).scans) == 1
    assert len(scanner.scan(context).scans) == 1, "it was created after the listing"
    assert scanner.scan(context).scans == ()


def test_a_segment_created_while_the_broker_answers(root: Path) -> None:
    """D-06: the broker answers and then rolls before its directory is listed: the scan uses the earlier answer."""
    with broker(root, 1) as agent:
        scanner, context = LogDirScanner(root), scan_context(root)

        def rolled_meanwhile(agent: FakeAgent, request: dict[str, Any]) -> bytes:
            answer = {"id": request["id"], "ok": True, "result": agent.do_log(request)}
            (root / "orders-0" / f"{10**6:020d}.log").touch()
            return json.dumps(answer).encode() + b"\n"

        agent.fail("log", rolled_meanwhile)
        (before,) = scanner.scan(context).scans
        assert len(agent.requested("log")) == 1
        (after,) = scanner.scan(replace(context, only_due=True), {before.name}).scans
        assert isinstance(before, PartitionScan)
        assert isinstance(after, PartitionScan)
        assert before.closed != after.closed, "the former active segment is closed"


def test_a_reported_partition_is_scanned_if_it_changed(root: Path) -> None:
    """The scan after a job has seen its swap; an event about the swap a second later finds nothing new."""
    with broker(root, 2):
        scanner, context = LogDirScanner(root), scan_context(root)
        noticed = replace(context, only_due=True)
        (first, second) = sorted(each.name for each in scanner.scan(context).scans)
        assert scanner.scan(noticed, {first, second}).scans == ()
        assert [each.name for each in scanner.scan(context, {first}).scans] == [first], "requested by its name"
        (log,) = (root / str(second)).glob(f"{0:020d}.log")
        times = (root / str(second)).stat()
        copy = log.with_suffix(".swap")
        copy.write_bytes(log.read_bytes())
        copy.rename(log)
        # At the same time as the scan, so the directory's time does not differ.
        os.utime(root / str(second), ns=(times.st_atime_ns, times.st_mtime_ns))
        assert [each.name for each in scanner.scan(noticed, {first, second}).scans] == [second]


@pytest.mark.parametrize("scans", [1, 2])
def test_a_change_in_the_clock_tick_of_the_scan_is_seen(
    root: Path, monkeypatch: pytest.MonkeyPatch, scans: int
) -> None:
    """The directory's time does not change, and no event comes: at the first scan nothing is watched yet."""
    with broker(root, 1):
        scanner, context = LogDirScanner(root), scan_context(root)
        place = root / "orders-0"
        now_ns = place.stat().st_mtime_ns
        with monkeypatch.context() as patched:
            # The scan and the change have to happen in one tick of the kernel's clock.
            patched.setattr(directory_time, "time", SimpleNamespace(time_ns=lambda: now_ns))
            assert [len(scanner.scan(context).scans) for _ in range(scans)] == [1, 0][:scans]
        (place / "more").touch()
        os.utime(place, ns=(now_ns, now_ns))
        assert len(scanner.scan(context).scans) == 1


def test_a_job_does_not_know_where_a_killed_broker_would_start(root: Path) -> None:
    """U-1: records were deleted just now and no checkpoint has it yet; the job's own scan is not a checkpoint."""
    with broker(root, 1) as agent:
        agent.facts["log_start"] = 4
        found = LogDirScanner(root).scan(scan_context(root))
        (scan,) = found.scans
        assert isinstance(scan, PartitionScan)
        assert found.facts is not None
        with LiveBroker(root / ".cleanerd-agent.sock") as requested:
            for log_dir in (read_log_dir(root), scan.log_dir):  # as clean --live does, as the daemon's job does
                log = LivePartitions(log_dir, found.facts, requested).read(scan.name).log
                assert (log.log_start_offset, log.lasting_start_offset) == (4, 0)


def test_a_scan_uses_the_time_of_jobs(root: Path) -> None:
    """The wall clock may be wrong, ahead: then a scan reports nothing to clean that a job would not clean."""
    make_log_dir(root, {"orders-0": two_groups()})
    made = scan_context(root)
    reported = replace(made, now_ms=lambda: 1_700_000_000_000)
    (scan,) = LogDirScanner(root).scan(reported).scans
    assert isinstance(scan, PartitionScan)
    assert scan.scanned_ms == 1_700_000_000_000


def die_at(store: StateStore, root: Path, name: TopicPartition) -> None:
    pid = os.fork()
    if pid == 0:
        with InFlightMarkers(store).working(read_log_dir(root), name):
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)


def test_a_suspect_is_reported_at_every_scan(root: Path) -> None:
    """U-35: a scan of one partition, as after each job, did not report it: the warning came and went all the time."""
    names = [TopicPartition("orders", n) for n in range(2)]
    make_log_dir(root, {str(name): two_groups() for name in names})
    made = scan_context(root)
    die_at(made.store, root, names[0])
    scanner, context = LogDirScanner(root), replace(made, in_flight=InFlightMarkers(made.store))
    reported = [scanner.scan(context, only).warnings for only in (None, {names[1]}, {names[0]}, None)]
    assert ["it is tried last" in " ".join(each) for each in reported] == [True] * 4
    with InFlightMarkers(made.store).working(read_log_dir(root), names[0]):
        pass
    assert "it is tried last" not in " ".join(scanner.scan(context, {names[0]}).warnings)
    scanner.release()


def test_a_death_after_the_job_was_done(root: Path) -> None:
    """U-35: a death in a partition with nothing to clean is not its fault; in a dirty one it is."""
    made = scan_context(root)

    def scan() -> LogDirScan:
        """A scan by a daemon that was started just now."""
        scanner = LogDirScanner(root)
        try:
            return scanner.scan(replace(made, in_flight=InFlightMarkers(made.store)))
        finally:
            scanner.release()

    def killed_at(name: TopicPartition) -> None:
        die_at(made.store, root, name)

    async def until_clean(service: Service) -> None:
        await until("it is clean", lambda: is_clean(service.view(), 8))

    with broker(root, 1):
        (name,) = scan().present or [None]
        assert name is not None
        killed_at(name)
        found = scan()
        assert set(found.suspects) == {name}
        assert "it is tried last" in " ".join(found.warnings)
        serve([*assignments(root), COMPACT], until_clean)
        killed_at(name)
        found = scan()
        assert found.suspects == {}
        assert "it is tried last" not in " ".join(found.warnings)
        assert not [path for path in (root.parent / "state" / PLACE).rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("changed", "waits"),
    [
        ({}, False),
        ({"dirty_bytes": 1}, True),
        ({"removal_known": False}, True),
        ({"removal_known": False, "has_clean_part": False}, False),
        ({"next_purge_ms": 1000}, True),
        ({"next_purge_ms": 1001}, False),
        ({"leftover": True}, True),
        ({"quarantine": "damaged"}, True),
    ],
)
def test_a_suspect_of_any_kind_of_job_stays_a_suspect(root: Path, changed: dict[str, Any], waits: bool) -> None:
    """U-35: a partition whose tombstone removal is killed again and again stays a suspect."""
    make_log_dir(root, {"orders-0": two_groups()})
    (scan,) = LogDirScanner(root).scan(scan_context(root)).scans
    assert isinstance(scan, PartitionScan)
    assert not scan.has_nothing_to_do(1000)
    done = replace(scan, dirty_bytes=0, removal_known=True, has_clean_part=True)
    assert replace(done, **changed).has_nothing_to_do(1000) is not waits


def test_a_bug_that_one_partition_triggers(root: Path) -> None:
    """C-14: only that partition fails; the others of its directory are scanned and cleaned."""

    class Buggy(StateStore):
        def load(self, log_dir: LogDir, log: PartitionLog) -> Any:
            if str(log.name) == "orders-1":
                raise ZeroDivisionError("a bug")
            return super().load(log_dir, log)

    make_log_dir(root, {f"orders-{n}": two_groups() for n in range(3)})
    found = LogDirScanner(root).scan(replace(scan_context(root), store=Buggy(root.parent / "state"))).scans
    assert [isinstance(each, PartitionScan) for each in found] == [True, False, True]
    assert found[1] == FailedScan(found[1].name, "unexpected error: ZeroDivisionError: a bug", Cause.DATA)


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        pytest.param(CorruptionError("damaged"), Cause.DATA, id="damage"),
        pytest.param(UnsupportedLogError("not known"), Cause.DATA, id="a log that cannot be cleaned here"),
        pytest.param(RefusedError("a setting"), Cause.OPERATOR, id="refused"),
        pytest.param(StalePlanError("changed"), Cause.TRANSIENT, id="changed meanwhile"),
        pytest.param(NoSpaceError("full"), Cause.ENVIRONMENT, id="a full disk"),
        pytest.param(OSError(errno.EDQUOT, "quota"), Cause.ENVIRONMENT, id="a quota, as the system says it"),
        pytest.param(OSError(errno.EIO, "disk"), Cause.DATA, id="an input/output error"),
        pytest.param(
            AgentRefusalError("no", operation="log", code="io_error"), Cause.TRANSIENT, id="an agent that fails"
        ),
    ],
)
def test_a_scan_that_fails_has_the_cause_of_its_error(root: Path, error: CleanerdError | OSError, cause: Cause) -> None:
    """The consequences are those of a failed cleaning: one table for both (`cleanerd.errors`)."""

    class Failing(StateStore):
        def load(self, *_: Any) -> Any:
            raise error

    make_log_dir(root, {"orders-0": two_groups()})
    (found,) = LogDirScanner(root).scan(replace(scan_context(root), store=Failing(root.parent / "state"))).scans
    assert isinstance(found, FailedScan)
    assert found.cause is cause
