"""Open erasure requests in the daemon: it cleans the partitions that they wait for, and shows their stage (U-88)."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.broker.agent_pool import AgentPool
from cleanerd.broker.mode import ModeChoice
from cleanerd.cli.main import run
from cleanerd.cli.output import Output
from cleanerd.cli.status import attention, print_erasures
from cleanerd.config.load import load_settings
from cleanerd.daemon.erasures import Erasures, Found
from cleanerd.daemon.view import ErasureView
from cleanerd.errors import ConfigError, RetryLaterError
from cleanerd.format.names import uuid_to_base64
from cleanerd.inspection.report import time_of
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.state.erasure_requests import ErasureRequest, ErasureRequests, KeyHash
from cleanerd.swap.kept_segments import KeptSegments
from tests.cleaner.driver import config
from tests.cli.erasing import ABSENT, KEY, PRESENT, SALT, TOPIC_ID
from tests.daemon.registries import (
    CLEAN,
    DAY_MS,
    NOW,
    PATH,
    done,
    entry_of,
    partition_scan,
    registry_with,
    result,
    triggers,
)
from tests.daemon.views import NOW_MS, view
from tests.support.fake_agent import FakeAgent, Refusal
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import keyed_batch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from cleanerd.daemon.registry.partition_registry import PartitionRegistry

QUIET = {"eligible": False, "reason": "ratio", "topic_id": TOPIC_ID}


def requested(offset: int = 15, **facts: Any) -> ErasureRequest:
    usual = {"topic": "orders", "tombstones": {0: offset}, "topic_id": uuid_to_base64(TOPIC_ID)}
    return ErasureRequest(
        id="0123456789abcdef",
        cluster_id="c",
        key=KeyHash.of(KEY.encode(), SALT),
        requested_ms=NOW,
        deadline_ms=NOW + 1,
        **{**usual, **facts},
    )


def erasures_of(state_dir: Path, registry: PartitionRegistry, now_ms: int = NOW, *settings: str) -> Erasures:
    return Erasures(state_dir, registry, AgentPool(), lambda: now_ms, lambda: load_settings([], settings, {}))


def following(tmp_path: Path, registry: PartitionRegistry, *requests: ErasureRequest) -> Erasures:
    erasures = erasures_of(tmp_path, registry)
    erasures.apply(Found(requests, frozenset()))
    return erasures


def stage(erasures: Erasures) -> str:
    ((found, _),) = erasures.views()[0].stages.values()
    return found


def test_the_tombstone_is_cleaned_next(tmp_path: Path) -> None:
    """Whatever the dirty ratio is, and no sooner than a cleaning covers it."""
    registry = registry_with(partition_scan(**QUIET))
    assert triggers(registry) == []
    erasures = following(tmp_path, registry, requested(15))
    assert (triggers(registry), stage(erasures)) == (["erasure"], "dirty")
    erasures.apply(Found((requested(20),), frozenset()))
    assert (triggers(registry), stage(erasures)) == ([], "blocked")
    erasures.apply(Found((requested(9),), frozenset()))
    assert (triggers(registry), stage(erasures)) == ([], "tombstone")
    erasures.apply(Found((), frozenset()))
    assert (triggers(registry), erasures.views()) == ([], ())


def test_it_is_not_cleaned_repeatedly_without_effect(tmp_path: Path) -> None:
    """A failed cleaning waits as usual; one that covers the tombstone ends the request."""
    registry = registry_with(partition_scan(**QUIET))
    following(tmp_path, registry, requested(15))
    done(registry, failed="broken", result=result("quarantined"))
    assert triggers(registry) == []
    cleaned = registry_with(partition_scan(**{**QUIET, **CLEAN}, first_dirty_offset=20))
    following(tmp_path, cleaned, requested(15))
    assert triggers(cleaned) == []


def test_the_wait_for_deletions_is_shown(tmp_path: Path) -> None:
    """U-88: "cleaned next" for half a minute, while a swap just before holds the next one back."""
    registry = registry_with(partition_scan(**QUIET))
    erasures = following(tmp_path, registry, requested(15))
    wait = RetryLaterError("segment 0 was replaced less than file.delete.delay.ms=60000 ago", where="x", seconds=30)
    done(registry, result=result("skipped", reason=str(wait), error=wait))
    ((found, reason),) = erasures.views()[0].stages.values()
    assert (found, reason) == (
        "dirty",
        "x: segment 0 was replaced less than file.delete.delay.ms=60000 ago (try again in 30 s)",
    )


@pytest.mark.parametrize(
    "other", [{"topic": "others"}, {"tombstones": {1: 15}}, {"topic_id": "A" * 22}], ids=["topic", "partition", "id"]
)
def test_unrelated_partitions(tmp_path: Path, other: dict[str, Any]) -> None:
    """A topic that was created again under the same name is another topic."""
    registry = registry_with(partition_scan(**QUIET))
    erasures = following(tmp_path, registry, requested(**other))
    assert triggers(registry) == []
    assert erasures.views()[0].stages == {}


def test_a_refused_partition_is_not_forced(tmp_path: Path) -> None:
    registry = registry_with(partition_scan(**QUIET, forceable=False, refused=True))
    following(tmp_path, registry, requested(15))
    assert triggers(registry) == []


def test_the_log_shows_when_the_tombstone_is_gone(tmp_path: Path) -> None:
    """Another thread reads the log.

    A record of another key at that offset does not count, and damage proves nothing.
    """
    ErasureRequests(tmp_path / "state").save(requested(2))
    for segments, expected in ((PRESENT, "tombstone"), (ABSENT, "certify"), ({3: b""}, "certify")):
        logs = make_log_dir(tmp_path / str(len(list(tmp_path.iterdir()))), {"orders-0": Partition(segments)})
        registry = registry_with(partition_scan(**{**QUIET, **CLEAN}, log_dir=read_log_dir(logs), first_dirty_offset=3))
        erasures = erasures_of(tmp_path / "state", registry)
        for _ in range(2):  # the first reading finds the requests, the second one reads their logs
            erasures.apply(erasures.reading()())
        assert stage(erasures) == expected
        file = logs / "orders-0" / f"{2:020d}.log"
        if file.exists():
            file.write_bytes(b"\x00" * 70)
            erasures.apply(erasures.reading()())
            assert stage(erasures) == "tombstone"


@pytest.mark.slow
def test_kept_segments_still_have_the_key(tmp_path: Path) -> None:
    """U-88: `erase certify` finds the key there, so it is not the next step. Later cleanings do not matter."""
    logs = make_log_dir(tmp_path / "logs", {"orders-0": Partition(PRESENT, topic_id=TOPIC_ID)})
    kept, state = tmp_path / "kept", tmp_path / "state"
    kept.mkdir()
    named = [f"cleanerd.state.dir={state}", "cleanerd.disk.reserve=0", "topics.orders.cleanup.policy=compact"]
    options = ["--yes", "--force", "--quiet", *(word for each in named for word in ("--set", each))]
    for after_ms in (0, 2 * DAY_MS, 4 * DAY_MS):
        now = ["--now-ms", str(NOW + after_ms), "--from-start", "--keep-replaced", str(kept)]
        assert run(["clean", str(logs), *options, *now]) == 0
    entries = KeptSegments(state).entries()
    removed_by = entries[1]
    ErasureRequests(state).save(requested(2))
    log_dir = read_log_dir(logs)
    registry = registry_with(partition_scan(**{**QUIET, **CLEAN}, log_dir=log_dir, first_dirty_offset=3))
    managed = [f"cleanerd.keep.replaced.dir={kept}", "cleanerd.keep.replaced.retention.ms=1d"]
    until = time_of(removed_by.cleaned_ms + DAY_MS)
    for settings, ends in ((managed, f"until {until} (cleanerd.keep.replaced.retention.ms)"), ([], ": delete them")):
        erasures = erasures_of(state, registry, NOW, *settings)
        for _ in range(2):  # the first reading finds the requests, the second one reads their logs
            erasures.apply(erasures.reading()())
        ((found, reason),) = erasures.views()[0].stages.values()
        assert found == "kept"
        assert reason.startswith(f"the segments in {removed_by.kept} still have the key")
        assert reason.endswith(ends)
    shutil.rmtree(removed_by.kept)
    erasures.apply(erasures.reading()())
    assert stage(erasures) == "kept", "the first cleaning's have it as well"
    shutil.rmtree(entries[0].kept)
    erasures.apply(erasures.reading()())
    assert stage(erasures) == "certify"


def test_certified_requests_and_damaged_files(tmp_path: Path) -> None:
    requests = ErasureRequests(tmp_path)
    requests.save(requested())
    requests.certified("0123456789abcdef", NOW)
    registry = registry_with(partition_scan(**QUIET))
    erasures = erasures_of(tmp_path, registry)
    erasures.apply(erasures.reading()())
    assert erasures.views() == ()
    assert not entry_of(registry).requested
    requests.path.write_text("{")
    (warning,) = erasures.reading()().warnings
    assert "ignored" in warning
    requests.save(requested())
    assert [each.id for each in requests.load()] == ["0123456789abcdef"]
    assert requests.path.with_suffix(".damaged").exists()
    assert requests.forget("0123456789abcdef")
    assert not requests.forget("0123456789abcdef")


def test_requests_of_a_newer_release(tmp_path: Path) -> None:
    """U-88: after a downgrade they are reported, and never replaced."""
    requests = ErasureRequests(tmp_path)
    requests.path.write_text('{"format": 2, "requests": []}')
    (warning,) = erasures_of(tmp_path, registry_with(partition_scan(**QUIET))).reading()().warnings
    assert "written by a newer cleanerd (format 2, this one knows 1)" in warning
    for change in (lambda: requests.save(requested()), lambda: requests.certified("0123456789abcdef", NOW)):
        with pytest.raises(ConfigError, match=r"newer cleanerd .*\(use the newer release\)"):
            change()
    assert not requests.forget("0123456789abcdef")
    assert requests.path.read_text() == '{"format": 2, "requests": []}'


OPEN = ErasureView("aa", "orders", NOW_MS - 9, NOW_MS + 600_000, {"orders-0": ("certify", "run it")})
LATE = replace(OPEN, id="bb", deadline_ms=NOW_MS - 1, stages={})


def test_status(capsys: pytest.CaptureFixture[str]) -> None:
    document = view(erasures=(OPEN, LATE)).to_json()
    (line,) = (each for each in attention(document, NOW_MS) if "deadline" in each)
    assert "1 erasure requests past their deadline: orders (bb)" in line
    (line,) = (each for each in attention(document, NOW_MS) if "certificate" in each)
    assert line.endswith("1 erasure requests that wait for a certificate: orders (aa) (cleanerd erase certify TOPIC)")
    dirty = replace(OPEN, stages={**OPEN.stages, "orders-1": ("dirty", "cleaned next")})
    assert attention(view(erasures=(dirty,)).to_json(), NOW_MS) == []
    print_erasures(Output(), document["erasures"])
    printed = capsys.readouterr().out
    assert "orders-0" in printed
    assert "no partition of this host has its tombstone" in printed


# -- the active segment ------------------------------------------------------------------------------------------------

SEGMENT_MS = 1000
ACTIVE = {0: keyed_batch(0, [("a", "1"), (KEY, "1")]), 2: keyed_batch(2, [(KEY, None)], timestamp=NOW)}
"""The tombstone is in the active segment, whose first batch was written now."""


class Rolling:
    """A partition with an agent, and a daemon that tracks a request whose tombstone has offset 2."""

    def __init__(self, path: Path, agent: FakeAgent, segments: Mapping[int, bytes]) -> None:
        self.logs = make_log_dir(agent.log_dir, {"orders-0": Partition(segments, topic_id=TOPIC_ID)})
        self.agent, self._state = agent, path / "state"
        ErasureRequests(self._state).save(requested(2))
        rules = config(segment_ms=SEGMENT_MS)
        scan = partition_scan(
            **QUIET, log_dir=read_log_dir(self.logs), first_dirty_offset=0, first_uncleanable_offset=2, config=rules
        )
        self.registry = registry_with(scan)
        choice = ModeChoice("live", "an agent answers", agent.socket_path)
        self.registry.dirs[str(PATH)] = replace(self.registry.dirs[str(PATH)], choice=choice)

    def read(self, now_ms: int) -> Found:
        """Read twice, because the first reading only finds the request; returns the second result."""
        erasures = erasures_of(self._state, self.registry, now_ms)
        for _ in range(2):
            found = erasures.reading()()
            erasures.apply(found)
        return found


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[FakeAgent]:
    with FakeAgent(tmp_path / "logs", tmp_path / "agent.sock") as agent:
        yield agent


def test_the_active_segment_is_rolled_when_it_is_due(tmp_path: Path, agent: FakeAgent) -> None:
    """U-91: no sooner than a write would roll it, and once: then the tombstone is below the active segment."""
    rolling = Rolling(tmp_path, agent, ACTIVE)
    assert rolling.read(NOW + SEGMENT_MS - 1).rolled == ()
    found = rolling.read(NOW + SEGMENT_MS)
    assert [base for _, base in found.rolled] == [3]
    active = rolling.logs / "orders-0" / f"{3:020d}.log"
    active.write_bytes(keyed_batch(3, [("c", "1")], timestamp=NOW))
    assert rolling.read(NOW + SEGMENT_MS).rolled == ()
    (request,) = agent.requested("roll")
    assert (request["base"], request["dir"]) == (2, str(rolling.logs / "orders-0"))
    assert request["topic_id"] == uuid_to_base64(TOPIC_ID)


def test_a_segment_without_a_time_is_not_rolled(tmp_path: Path, agent: FakeAgent) -> None:
    """Its age is unknown. A segment whose first batch is damaged is not rolled either."""
    timeless = Rolling(tmp_path, agent, {**ACTIVE, 2: keyed_batch(2, [(KEY, None)], timestamp=-1)})
    assert timeless.read(NOW + SEGMENT_MS).rolled == ()
    (timeless.logs / "orders-0" / f"{2:020d}.log").write_bytes(b"\x00" * 70)
    found = timeless.read(NOW + SEGMENT_MS)
    assert (found.rolled, agent.requested("roll")) == ((), [])


def test_a_partition_that_an_operator_paused_is_not_rolled(tmp_path: Path, agent: FakeAgent) -> None:
    rolling = Rolling(tmp_path, agent, ACTIVE)
    rolling.registry.pause(None, paused=True)
    assert rolling.read(NOW + SEGMENT_MS).rolled == ()
    rolling.registry.pause(None, paused=False)
    assert len(rolling.read(NOW + SEGMENT_MS).rolled) == 1


def test_a_refused_roll_is_a_warning(tmp_path: Path, agent: FakeAgent) -> None:
    def refuse(_agent: FakeAgent, _request: dict[str, Any]) -> None:
        raise Refusal("busy")

    rolling = Rolling(tmp_path, agent, ACTIVE)
    agent.fail("roll", refuse)
    found = rolling.read(NOW + SEGMENT_MS)
    assert found.rolled == ()
    (warning,) = found.warnings
    assert warning.startswith("orders-0: the active segment was not rolled for an erasure request: ")
    assert len(rolling.read(NOW + SEGMENT_MS).rolled) == 1
