"""Digests of the latest states in the daemon: when they are computed, remembered and compared."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from cleanerd.daemon.http.metrics import Exposition
from cleanerd.daemon.registry.due import DIGEST_AGAIN_MS, DIGEST_INTERVAL_MS
from cleanerd.daemon.registry.partition_entry import Quarantine, digests_of
from cleanerd.daemon.status.replica_differences import SHOWN, ReplicaDifferences
from cleanerd.daemon.status.view_parts import partition_view
from cleanerd.daemon.work.run_job import run
from cleanerd.format.names import TopicPartition
from cleanerd.policy.replicas import ReplicaFacts, Replicas, TopicReplicas
from cleanerd.policy.state_digest import MOST_OFFSETS, ReplicaDigests, StateDigest
from tests.cleaner.driver import config
from tests.daemon.registries import KEY, NOW, dir_scan, entry_of, partition_scan, registry_with
from tests.daemon.service import COMPACT, assignments, partition, serve, until
from tests.daemon.views import view
from tests.support.log_dirs import make_log_dir
from tests.swap.offline_round import two_groups

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.daemon.registry.partition_registry import PartitionRegistry
    from cleanerd.daemon.service import Service
    from cleanerd.daemon.work.job import CleaningJob, JobDone


def registry_of(**values: Any) -> PartitionRegistry:
    """One partition, whose active segment begins at 900 and whose high watermark is 1100: the grid begins at 1024."""
    registry = registry_with(partition_scan(eligible=False, dirty_bytes=0, **{"digest_range": (900, 1100), **values}))
    registry.settings = replace(registry.settings, digest_percent=5)
    return registry


def is_due(registry: PartitionRegistry, now_ms: int = NOW) -> bool:
    return bool(registry.due_digests(now_ms))


def digest(registry: PartitionRegistry, *ends: int, now_ms: int = NOW, text: str = "00") -> None:
    """Apply the result of a job that started with the last scan and computed these digests."""
    found = entry_of(registry).scan
    assert found is not None
    registry.digested(KEY, found, tuple(StateDigest(0, end, text * 16, 3) for end in ends), now_ms)


def scan(registry: PartitionRegistry, **values: Any) -> None:
    """Another scan finds this."""
    registry.merge(dir_scan(partition_scan(eligible=False, dirty_bytes=0, **values)), NOW)


def test_a_partition_is_digested_when_it_has_a_new_grid_offset() -> None:
    """U-90: the coarsest one soon, the others hours later; never of the same log twice."""
    registry = registry_of()
    assert is_due(registry)
    digest(registry, 1024, 1100)
    assert not is_due(registry, NOW + 10 * DIGEST_AGAIN_MS)
    scan(registry, digest_range=(900, 1200))
    assert not is_due(registry, NOW + DIGEST_AGAIN_MS - 1)
    assert is_due(registry, NOW + DIGEST_AGAIN_MS)
    scan(registry, digest_range=(900, 2100))
    assert not is_due(registry, NOW + DIGEST_INTERVAL_MS - 1)
    assert is_due(registry, NOW + DIGEST_INTERVAL_MS)
    assert is_due(registry, NOW - 1), "a clock that jumped back"


def test_partitions_that_are_not_digested() -> None:
    """U-90: no grid offset, one replica, not cleaned, or turned off."""
    assert not is_due(registry_of(digest_range=(0, 0)))
    assert not is_due(registry_of(digest_range=(5, 4)))
    for brokers, due in (({1}, False), ({1, 2}, True)):
        facts = TopicReplicas(ReplicaFacts({}), {0: Replicas(frozenset(brokers), frozenset(brokers))})
        assert is_due(registry_of(config=replace(config(), replicas=facts))) == due
    for name, value in (
        ("quarantine", Quarantine("broken", NOW, 1, NOW + 1000)),
        ("paused", True),
        ("trigger", "ratio"),
    ):
        registry = registry_of()
        setattr(entry_of(registry), name, value)
        assert not is_due(registry), name
    registry = registry_of()
    registry.settings = replace(registry.settings, digest_percent=0)
    assert not is_due(registry)


def test_the_newest_digests_are_remembered() -> None:
    """U-90: a few, by today's settings, of the current log."""
    registry = registry_of()
    digest(registry, *range(1000, 1006))
    digest(registry, *range(1004, 1012), text="11")
    ends = [each.end_offset for each in digests_of(entry_of(registry))]
    assert ends == list(range(1004, 1012))
    assert len(ends) == MOST_OFFSETS
    assert {each.digest for each in digests_of(entry_of(registry))} == {"11" * 16}
    assert partition_view(registry, entry_of(registry)).to_json()["digests"][0]["end_offset"] == 1004
    scan(registry, digest_range=(900, 1006))
    digest(registry, 1002)
    assert [each.end_offset for each in digests_of(entry_of(registry))] == [1004, 1005, 1006, 1002], "the log was cut"
    scan(registry, digest_range=(900, 1006), fingerprint="other")
    assert digests_of(entry_of(registry)) == ()
    assert is_due(registry)
    digest(registry, 1002)
    assert [each.end_offset for each in digests_of(entry_of(registry))] == [1002]


def test_digests_of_an_earlier_topic_of_that_name_do_not_count() -> None:
    """U-90: the job started before the topic was created again."""
    registry = registry_of()
    before = entry_of(registry).scan
    assert before is not None
    scan(registry, digest_range=(900, 1100), topic_id=UUID(int=5))
    registry.digested(KEY, before, (StateDigest(0, 1024, "00" * 16, 1),), NOW)
    assert digests_of(entry_of(registry)) == ()


def peers(**texts: str) -> dict[int, dict[str, ReplicaDigests]]:
    """The reports of brokers 2 and up about the partition at offset 1024."""
    answers = [ReplicaDigests(10, "f", [StateDigest(0, 1024, text * 16, 4)]) for text in texts.values()]
    return {2 + number: {"orders-0": answer} for number, answer in enumerate(answers)}


def test_a_difference_is_a_warning_and_a_metric() -> None:
    """U-90: until the replicas agree again."""
    registry, answers = registry_of(), peers(two="00", three="11")
    differences = ReplicaDifferences(registry, lambda: answers)
    assert differences.current().count == 0, "brokers 2 and 3 report it"
    digest(registry, 1024)
    found = differences.current()
    assert found.count == 1
    assert "orders-0: the latest state below offset 1024 differs" in found.texts[0]
    assert "broker 3 has 4 keys" in found.texts[0]
    body, _ = Exposition(lambda: view(differing_partitions=found.count)).render()
    assert b"cleanerd_differing_partitions 1.0" in body
    answers = peers(two="00", three="00")
    assert differences.current().count == 0
    answers = {}
    assert differences.current().texts == ()


def test_many_differences_are_counted() -> None:
    """U-90: and the first ones listed."""
    registry, text = registry_of(), "22" * 16
    names = [TopicPartition("orders", number) for number in range(SHOWN + 5)]
    scans = [partition_scan(name=name, digest_range=(900, 1100)) for name in names]
    registry.merge(replace(dir_scan(*scans), present=frozenset(names)), NOW)
    for each in scans:
        registry.digested((KEY[0], each.name), each, (StateDigest(0, 1024, text, 3),), NOW)
    answers = {2: {str(name): peers(two="00")[2]["orders-0"] for name in names}}
    found = ReplicaDifferences(registry, lambda: answers).current()
    assert found.count == SHOWN + 5
    assert len(found.texts) == SHOWN + 1
    assert found.texts[-1].startswith("5 more partitions")


@pytest.mark.slow
@pytest.mark.parametrize("percent", [5, 0])
def test_in_a_daemon(root: Path, percent: int) -> None:
    """U-90: while nothing is dirty; both partitions have the same records and different ids."""
    same = replace(two_groups(), topic_id=UUID(int=1))
    make_log_dir(root, {"orders-0": same, "orders-1": same})
    settings = [*assignments(root, cleanerd_digest_percent=str(percent)), COMPACT]
    kinds: list[str] = []

    def noted(job: CleaningJob, *more: Any) -> JobDone:
        kinds.append(job.kind)
        return run(job, *more)

    async def story(service: Service) -> None:
        await until("ready", lambda: service.view().ready)
        rounds = service.view().last_scan_ms
        await until("scanned again", lambda: service.view().last_scan_ms != rounds)
        if percent:
            names = ("orders-0", "orders-1")
            await until("digested", lambda: all(partition(service.view(), name).digests for name in names))
            one, other = (partition(service.view(), f"orders-{number}").digests for number in (0, 1))
            assert one == other
            assert one[-1].keys > 0
        assert ("digest" in kinds) == bool(percent)

    serve(settings, story, run_job=noted)
