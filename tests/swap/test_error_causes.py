"""An error's cause alone decides what happens to its partition; command and swap method do not matter (U-38)."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from cleanerd import errors
from cleanerd.broker import partition_snapshot
from cleanerd.broker.agent_pool import AgentPool
from cleanerd.cleaner.result import CleaningResult, exit_code
from cleanerd.config.load import load_settings
from cleanerd.daemon.work import run_job
from cleanerd.daemon.work.job import Backoff, CleaningJob
from cleanerd.daemon.work.spark_offload import SparkOffload
from cleanerd.errors import CONSEQUENCES, AgentRefusalError, Cause, CleanerdError, ReportedError
from cleanerd.format.names import TopicPartition
from cleanerd.host.clock import Clock
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.state.cleaner_checkpoint import StateStore
from cleanerd.swap import apply_staged as ready
from cleanerd.swap.apply_staged import apply_partition
from cleanerd.swap.lock import LogDirLock
from cleanerd.swap.round import stage_partition
from cleanerd.swap.session import LockedDir
from tests.cleaner.driver import NAME, Silent, clean, resources, scratch
from tests.support.log_dirs import make_log_dir, tree
from tests.swap.live_round import clean_beside, held, running
from tests.swap.offline_round import NOW, TOPIC, force, two_groups

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cleanerd.daemon.partition_scan import PartitionScan
    from cleanerd.daemon.work.job import JobDone, Kind
    from cleanerd.daemon.work.progress import JobProgress
    from cleanerd.resolution.broker_facts import BrokerFacts

FAILURES = Path(__file__).resolve().parents[2] / "docs" / "failures.md"
PARTITION = TopicPartition("orders", 0)

# class (and the agent's code): cause, outcome, whether the reason is remembered, exit code without other work
TABLE: dict[str, tuple[str, str, bool, int]] = {
    "CleanerdError": ("data", "quarantined", True, 1),
    "KernelError": ("data", "quarantined", True, 1),
    "CorruptionError": ("data", "quarantined", True, 5),
    "UnsupportedLogError": ("data", "quarantined", True, 4),
    "BatchTooLargeError": ("data", "quarantined", True, 4),
    "TooManyPassesError": ("data", "quarantined", True, 1),
    "LogTooLargeError": ("data", "quarantined", True, 4),
    "DisorderedLogError": ("data", "quarantined", True, 4),
    "SegmentGrowsError": ("data", "quarantined", True, 4),
    "AgentRefusalError bad_log": ("data", "quarantined", True, 4),
    "MachineError": ("environment", "failed", False, 1),
    "NoSpaceError": ("environment", "failed", False, 1),
    "ConfigError": ("operator", "refused", False, 3),
    "NotCompactedError": ("operator", "refused", False, 3),
    "RefusedError": ("operator", "refused", False, 4),
    "OutOfRangeError": ("operator", "refused", False, 4),
    "LogGrowsError": ("operator", "refused", False, 4),
    "LogDirBusyError": ("busy", "busy", False, 4),
    "StalePlanError": ("transient", "skipped", False, 0),
    "RetryLaterError": ("transient", "skipped", False, 4),
    "SegmentChangedError": ("transient", "skipped", False, 0),
    "AgentUnavailableError": ("transient", "skipped", False, 4),
    "AgentRefusalError io_error": ("environment", "failed", False, 4),
    "AgentRefusalError busy": ("transient", "skipped", False, 4),
    "AgentRefusalError stopped": ("transient", "skipped", False, 4),
    "AgentRefusalError log_changed": ("transient", "skipped", False, 0),
    "AgentRefusalError io_error at log": ("transient", "skipped", False, 4),
}


def made(named: str) -> CleanerdError:
    """An error of that class, as any module may raise it."""
    name, _, code = named.partition(" ")
    if code:
        code, _, operation = code.partition(" at ")
        return AgentRefusalError("no", operation=operation or "swap", code=code)
    if name == "SegmentGrowsError":
        return errors.SegmentGrowsError(0, 100, where="as it is")
    if name == "DisorderedLogError":
        return errors.DisorderedLogError("as it is", 100, where="somewhere")
    if name == "TooManyPassesError":
        return errors.TooManyPassesError("as it is", 1, where="somewhere", hint="a larger map")
    if name == "RetryLaterError":
        return errors.RetryLaterError("as it is", where="somewhere", seconds=1)
    error: CleanerdError = getattr(errors, name)("as it is")
    return error


@contextmanager
def raised(named: str, module: Any, name: str) -> Iterator[None]:
    """Make ``module.name`` raise it, every time."""

    def raises(*_: object, **_more: object) -> None:
        raise made(named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, name, raises)  # a table of errors that no log can trigger all of
        yield


def offline(root: Path, named: str) -> CleaningResult:
    make_log_dir(root, {NAME: two_groups()})
    with raised(named, partition_snapshot, "survey_log"):
        return clean(root, force(), TOPIC)


def stage(root: Path, named: str) -> CleaningResult:
    make_log_dir(root, {NAME: two_groups()})
    with raised(named, partition_snapshot, "survey_log"):
        return staged(root)


def staged(root: Path) -> CleaningResult:
    store = StateStore(root.parent / "state")
    return stage_partition(read_log_dir(root), store, resources(), PARTITION, TOPIC, force(), Silent())


def apply(root: Path, named: str) -> CleaningResult:
    make_log_dir(root, {NAME: two_groups()})
    assert staged(root).outcome == "staged"
    with LogDirLock.acquire(root, settle_seconds=0) as lock, raised(named, ready, "validate_plan"):
        locked = LockedDir(read_log_dir(root), lock, StateStore(root.parent / "state"), resources())
        return apply_partition(locked, PARTITION, TOPIC, force())


def live(root: Path, named: str) -> CleaningResult:
    with running(root) as agent, raised(named, partition_snapshot, "survey_log"):
        return clean_beside(agent)


def job_of(root: Path, kind: Kind, socket: Path | None = None) -> CleaningJob:
    log_dir = read_log_dir(root)
    facts = {
        "resources": lambda **_inside: resources(),
        "settings": load_settings([], [], {}),
        "metadata_dir": None,
        "topic_config": lambda *_, **_more: TOPIC,
    }
    return CleaningJob(
        name=PARTITION,
        path=root,
        kind=kind,
        trigger="manual",
        scan=cast(
            "PartitionScan",
            SimpleNamespace(log_dir=log_dir, config=TOPIC, fingerprint_changed=False, dirty_bytes=1, size_bytes=1),
        ),
        facts=cast("BrokerFacts", SimpleNamespace(**facts)),
        socket=socket,
        store=StateStore(root.parent / "state"),
        progress=cast("JobProgress", SimpleNamespace(check=lambda: None, phase=lambda *_: None)),
        started_ms=NOW,
        threads=1,
        before=None,
        backoff=Backoff(1000, 8000),
        clock=Clock(wall=lambda: NOW, steady=lambda: 0),
    )


def of_job(done: JobDone, named: str) -> CleaningResult:
    """Its result; the daemon uses the same: a remembered reason is a failed job with a retry time."""
    assert done.result is not None
    assert bool(done.failed) == TABLE[named][2]
    assert (done.retry is not None) == TABLE[named][2]
    return done.result


def daemon_stages(root: Path, named: str) -> CleaningResult:
    make_log_dir(root, {NAME: two_groups()})
    with held(root), raised(named, partition_snapshot, "survey_log"):
        return of_job(run_job.run(job_of(root, "stage")), named)


def daemon_cleans_live(root: Path, named: str) -> CleaningResult:
    with running(root) as agent, raised(named, partition_snapshot, "survey_log"), AgentPool() as agents:
        return of_job(run_job.run(job_of(root, "live", agent.socket_path), agents=agents), named)


def daemon_hands_over(root: Path, named: str) -> CleaningResult:
    """The outcome that ``spark clean --json`` reports, in a process of its own, maps to the same result."""
    make_log_dir(root, {NAME: two_groups()})

    def command(_job: CleaningJob, settings: Path) -> list[str]:
        with raised(named, partition_snapshot, "survey_log"):
            reported = staged(root)
        answer = settings.with_name("answer")
        answer.write_text(json.dumps({"schema": 1, "partitions": [reported.to_json()]}))
        return ["sh", "-c", f"cat {answer}; exit {exit_code([reported])}"]

    settings = load_settings([], ["cleanerd.spark.threshold.keys=1"], {})
    job = job_of(root, "stage")
    facts = SimpleNamespace(resources=lambda **_: resources(), settings=settings, metadata_dir=None)
    job = replace(job, facts=cast("BrokerFacts", facts), spark_offload=SparkOffload(command=command))
    result = of_job(run_job.run(job), named)
    assert result.reason.startswith("by Spark: ")
    assert isinstance(result.error, ReportedError)
    return result


MODES: list[Callable[[Path, str], CleaningResult]] = [
    offline, stage, apply, live, daemon_stages, daemon_cleans_live, daemon_hands_over,
]  # fmt: skip


@pytest.fixture
def root() -> Iterator[Path]:
    with scratch() as path:
        yield path / "logs"


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.__name__)
@pytest.mark.parametrize("named", TABLE)
def test_every_error_in_every_mode(mode: Callable[[Path, str], CleaningResult], named: str) -> None:
    """OP-10: cause, outcome, memory and exit code are the same wherever it is raised; the log does not change."""
    cause, outcome, remembered, code = TABLE[named]
    with scratch() as path:
        root = path / "logs"
        result = mode(root, named)
        quarantines = [
            json.loads(each.read_text())["quarantine"] for each in (path / "state" / "partitions").rglob("*.json")
        ]
        assert [name for name in tree(root / NAME) if name.endswith((".swap", ".cleaned"))] == []
    assert result.error is not None
    assert (result.outcome, str(result.error.cause)) == (outcome, cause)
    assert bool(quarantines) == remembered
    assert all("as it is" in message or "no" in message for message in quarantines)
    if mode is not daemon_hands_over:  # only the message and the cause of that process arrive
        assert exit_code([result]) == code
    assert result.to_json()["cause"] == cause


@pytest.mark.parametrize("kind", ["observe", "horizons", "drop"])
@pytest.mark.parametrize("named", TABLE)
def test_jobs_that_clean_nothing(root: Path, kind: Kind, named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that a cleaning remembers also fails a check of the daemon; any other is transient."""
    make_log_dir(root, {NAME: two_groups()})
    name = "refuse_unfinished" if kind == "drop" else "survey_log"
    with raised(named, run_job, name):
        done = run_job.run(job_of(root, kind))
    assert bool(done.failed) == TABLE[named][2]
    assert bool(done.passing) != bool(done.failed)


def test_every_class_is_in_the_table() -> None:
    """A new class must have a row."""

    def below(kind: type[CleanerdError]) -> set[type[CleanerdError]]:
        return {kind}.union(*(below(each) for each in kind.__subclasses__()))

    classes = {kind.__name__ for kind in below(CleanerdError) if kind.__module__ == errors.__name__}
    assert {named.partition(" ")[0] for named in TABLE} == classes - {"ReportedError"}  # this one may have any cause


@pytest.mark.parametrize("cause", Cause)
def test_the_docs_agree(cause: Cause) -> None:
    """docs/failures.md has a row per cause: outcome, whether it is remembered, how soon cleanerd retries."""
    rows = [re.split(r"\s*\|\s*", line.strip("| \n")) for line in FAILURES.read_text().splitlines()]
    (row,) = [row for row in rows if row[0] == f"`{cause}`"]
    expected = CONSEQUENCES[cause]
    assert row[1] == f"`{expected.outcome}`"
    assert row[2] == ("yes" if expected.remembered else "no")
    assert row[3].startswith("soon" if expected.passes else "later each time")
    assert {named: row[:2] for named, row in TABLE.items()} == {
        named: (str(made(named).cause), made(named).consequence.outcome) for named in TABLE
    }


def test_a_held_claim_is_busy(root: Path) -> None:
    """Another cleanerd has the partition: not an error, and no reason is remembered."""
    from cleanerd.swap.files import PartitionFiles  # noqa: PLC0415 - here only

    make_log_dir(root, {NAME: two_groups()})
    with PartitionFiles(root / NAME) as files:
        files.claim()
        for result in (clean(root, force(), TOPIC), staged(root)):
            assert result.outcome == "busy"
            assert "another cleanerd works on this partition" in result.reason
            assert exit_code([result]) == 4
    assert not (root.parent / "state").exists()
    assert clean(root, force(), TOPIC).outcome == "cleaned"
