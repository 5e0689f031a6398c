"""Brokers that never return: ``cleanerd ignore-replica``, kept over restarts, listed and revoked (U-78)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cleanerd.daemon.discovery.facts_cache import FactsCache
from cleanerd.errors import CleanerdError
from cleanerd.policy.replicas import MARGIN_MS, ReplicaFacts, Replicas, TopicReplicas
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.state.ignored_replicas import FILE_NAME, change_ignored_replicas, ignored_replicas
from tests.daemon.service import assignments, broker, control_requests, scan_context, serve, until
from tests.support.log_dirs import CLUSTER_ID, make_log_dir
from tests.swap.offline_round import two_groups

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.daemon.service import Service

T0 = 1_700_000_000_000
THREE = frozenset({1, 2, 3})


def test_it_lasts_until_it_is_revoked(root: Path) -> None:
    """U-78: it survives a restart of the daemon; status shows it as a warning."""
    with broker(root):
        control = control_requests(root)

        def warned(service: Service) -> bool:
            return any("no tombstone waits for broker 2" in each for each in service.view().warnings)

        async def ignores(service: Service) -> None:
            await until("ready", lambda: service.view().ready)
            assert (await control("ignored-replicas"))["ignored"] == []
            assert (await control("ignore-replica", partitions=["2", "3"]))["ignored"] == [2, 3]
            await until("it is shown", lambda: warned(service))
            for words in ([], ["orders"], ["-1"], ["9" * 5000]):
                with pytest.raises(CleanerdError, match="no broker id"):
                    await control("ignore-replica", partitions=words)

        async def revokes(service: Service) -> None:
            await until("it is shown", lambda: warned(service))
            assert (await control("wait-for-replica", partitions=["2"]))["ignored"] == [3]
            await until("it is over", lambda: not warned(service))
            (first, *_) = (await control("operations"))["operations"]
            assert (first["operation"], first["partitions"]) == ("ignore-replica", ["2", "3"])

        serve(assignments(root), ignores)
        serve(assignments(root), revokes)


def test_ignoring_a_replica_fails_if_its_file_is_unusable(root: Path) -> None:
    """U-78: the request fails with the reason."""
    with broker(root):
        control = control_requests(root)

        async def story(service: Service) -> None:
            await until("ready", lambda: service.view().ready)
            (root.parent / "state" / FILE_NAME).mkdir()
            with pytest.raises(CleanerdError, match=f"{FILE_NAME} cannot be read"):
                await control("ignore-replica", partitions=["2"])

        serve(assignments(root), story)


@pytest.mark.parametrize(
    ("isr", "ignored", "missing", "full"),
    [({1, 3}, {2}, (), True), ({1, 3}, {4}, (2,), False), ({1}, {2}, (3,), False), ({1}, {2, 3}, (), True),
     (set(), {1, 2, 3}, (), False)],
)  # fmt: skip
def test_no_tombstone_waits_for_it(isr: set[int], ignored: set[int], missing: tuple[int, ...], full: bool) -> None:
    """U-78: only for these brokers, as with --ignore-replica."""
    now_ms = T0 + 100 * MARGIN_MS
    facts, replicas = ReplicaFacts({}, now_ms, now_ms), Replicas(THREE, frozenset(isr), T0, T0)
    reported = TopicReplicas(facts, {0: replicas}, ignored=frozenset(ignored)).bound(0, now_ms)
    assert reported == TopicReplicas(facts, {0: replicas}).bound(0, now_ms, frozenset(ignored))
    assert (reported.missing, reported.at_ms) == (missing, (now_ms if full else T0) - MARGIN_MS)


def test_another_cluster_with_the_same_node_ids(tmp_path: Path) -> None:
    """U-78: tombstones wait for its broker 2; a damaged file ignores no broker."""
    warnings: list[str] = []
    assert change_ignored_replicas(tmp_path, ["one"], [2], ignored=True) == ""
    assert ignored_replicas(tmp_path, "one", warnings) == {2}
    assert ignored_replicas(tmp_path, "other", warnings) == ignored_replicas(tmp_path, None, warnings) == frozenset()
    assert not warnings
    (tmp_path / FILE_NAME).write_text('{"format": 1, "ignored": [{"broker": 2}]}')
    assert ignored_replicas(tmp_path, "one", warnings) == frozenset()
    assert "damaged" in warnings[0]


@pytest.mark.parametrize("text", ['{"format": 2, "ignored": []}', '{"format": 1, "ignored": [{"broker": 2}]}', "{"])
def test_a_file_that_cannot_be_used_is_not_replaced(tmp_path: Path, text: str) -> None:
    """U-78: of a newer release, or damaged: the brokers that it names would be dropped."""
    (tmp_path / FILE_NAME).write_text(text)
    problem = change_ignored_replicas(tmp_path, ["one"], [2], ignored=True)
    assert str(tmp_path / FILE_NAME) in problem
    assert "remove the file" in problem
    assert (tmp_path / FILE_NAME).read_text() == text


def test_the_next_scan_uses_it(root: Path) -> None:
    """U-78: although no file of the broker has changed."""
    make_log_dir(root, {"orders-0": two_groups()})
    context, log_dir, cache = scan_context(root), read_log_dir(root), FactsCache()
    assert cache.get(context, log_dir, running=False).ignored_replicas == frozenset()
    change_ignored_replicas(root.parent / "state", [CLUSTER_ID], [2], ignored=True)
    assert cache.get(context, log_dir, running=False).ignored_replicas == {2}
