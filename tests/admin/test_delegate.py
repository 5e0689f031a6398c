"""Delegation as a calculation: values set, saved and restored (U-8), with a dict as the cluster."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.admin.delegate import delegate, same, undelegate
from cleanerd.errors import CleanerdError, ConfigError, RefusedError
from cleanerd.state.delegations import Delegations
from tests.support.dict_cluster import FOREVER, LAG, RATIO, ROLL, DictCluster

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def store(tmp_path: Path) -> Delegations:
    return Delegations(tmp_path / "state")


def do(cluster: DictCluster, store: Delegations, *, dry_run: bool = False) -> Any:
    return delegate(cluster.as_cluster, store, "orders", 1234, dry_run=dry_run)


def undo(cluster: DictCluster, store: Delegations, *, dry_run: bool = False) -> Any:
    return undelegate(cluster.as_cluster, store, "orders", dry_run=dry_run)


BEFORE: list[dict[str, str]] = [
    {},
    {RATIO: "0.1"},
    {LAG: "3600000"},
    {LAG: "3600000", ROLL: "60000"},
    {LAG: FOREVER},
    {RATIO: "0.25", LAG: "3600000", ROLL: "7200000", "retention.bytes": "7"},
]


@pytest.mark.parametrize("before", BEFORE)
def test_delegate_and_undelegate_restores_the_settings(before: dict[str, str], store: Delegations) -> None:
    """U-8: restored exactly, including "was not set"; keys that delegation does not need are never touched."""
    cluster = DictCluster(before)
    was = dict(cluster.own)
    assert do(cluster, store).action == "delegated"
    assert (float(cluster.own[RATIO]), cluster.own[LAG]) == (1.0, FOREVER)
    assert undo(cluster, store).action == "undelegated"
    assert {key: cluster._shown(key) for key in cluster.own} == {
        key: str(float(text)) if key == RATIO else text for key, text in was.items()
    }
    assert store.load() == []


@pytest.mark.parametrize(("policy", "count"), [("compact", 0), ("compact,delete", 1)])
def test_retention_of_a_delegated_topic(policy: str, count: int, store: Delegations) -> None:
    """U-61: reported when the topic is delegated, before cleanerd cleans it for the first time."""
    warnings = do(DictCluster({"cleanup.policy": policy}), store).warnings
    assert len(warnings) == count
    assert all("the broker's retention deletes it" in warning for warning in warnings)


@pytest.mark.parametrize(
    ("own", "inherited", "rolled_by"),
    [
        ({LAG: "3600000"}, {}, "3600000"),
        # the broker's default lag is used like the topic's
        ({}, {"max_compaction_lag_ms": "5000"}, "5000"),
        # it already rolls sooner than by the lag
        ({LAG: "3600000", ROLL: "60000"}, {}, "60000"),
        ({LAG: "3600000"}, {"segment_ms": "60000"}, None),
        # no lag: the segment never rolled because of one
        ({}, {}, None),
        ({ROLL: "1000000"}, {}, "1000000"),
    ],
)
def test_segment_ms_replaces_the_lag(
    own: dict[str, str], inherited: dict[str, str], rolled_by: str | None, store: Delegations
) -> None:
    """U-8: the active segment no longer rolls by the lag, so without it records would become cleanable later."""
    cluster = DictCluster(own, **inherited)
    do(cluster, store)
    assert cluster.own.get(ROLL) == rolled_by


def test_it_shows_the_changes_and_the_former_values(store: Delegations) -> None:
    outcome = do(DictCluster({LAG: "3600000"}), store)
    assert outcome.to_json(dry_run=False) == {
        "topic": "orders",
        "cluster_id": "cluster-1",
        "action": "delegated",
        "dry_run": False,
        "changes": [
            {"key": RATIO, "before": None, "after": "1"},
            {"key": LAG, "before": "3600000", "after": FOREVER},
            {"key": ROLL, "before": None, "after": "3600000"},
        ],
        "warnings": [],
    }
    (saved,) = store.load()
    assert (saved.topic_id, saved.delegated_ms) == ("00000000-0000-0000-0000-000000000001", 1234)
    # U-9: cleanerd uses these to decide when to clean
    assert saved.effective == {RATIO: "0.5", LAG: "3600000", ROLL: "604800000"}


def test_a_second_delegation_keeps_the_first_saved_values(store: Delegations) -> None:
    """Idempotent: the second run must not save the first one's values as those to restore."""
    cluster = DictCluster({RATIO: "0.1", LAG: "3600000"})
    do(cluster, store)
    saved = store.load()
    again = do(cluster, store)
    assert (again.action, again.changes) == ("already delegated", {})
    assert store.load() == saved
    undo(cluster, store)
    last = undo(cluster, store)
    assert (last.action, last.changes) == ("not delegated", {})
    assert cluster.own == {"cleanup.policy": "compact", RATIO: "0.1", LAG: "3600000"}
    assert len(cluster.altered) == 2


def test_a_run_that_died_before_the_change_is_completed(store: Delegations) -> None:
    """Saved, not changed: nothing is restored, and another run does the rest."""
    cluster = DictCluster({RATIO: "0.1"})
    alter, cluster.alter = cluster.alter, _dies  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        do(cluster, store)
    cluster.alter = alter  # type: ignore[method-assign]
    assert len(store.load()) == 1
    assert do(cluster, store).action == "delegated"
    undo(cluster, store)
    assert cluster.own[RATIO] == "0.1"


def _dies(*_arguments: object, **_options: object) -> None:
    raise KeyboardInterrupt


def test_a_refused_change_leaves_nothing_saved(store: Delegations) -> None:
    cluster = DictCluster({})
    cluster.refuses = True
    with pytest.raises(RefusedError, match="refuses"):
        do(cluster, store)
    assert store.load() == []
    cluster.refuses = False
    do(cluster, store)
    cluster.refuses = True
    with pytest.raises(RefusedError):
        undo(cluster, store)
    assert len(store.load()) == 1, "still delegated, so still to be restored"


def test_undelegate_keeps_a_value_that_was_changed_since(store: Delegations) -> None:
    """The operator's later change is not undone; the others are restored."""
    cluster = DictCluster({LAG: "3600000"})
    do(cluster, store)
    cluster.own[ROLL] = "9999"
    del cluster.own[RATIO]
    outcome = undo(cluster, store)
    assert cluster.own == {"cleanup.policy": "compact", LAG: "3600000", ROLL: "9999"}
    assert [warning.split()[0] for warning in outcome.warnings] == [ROLL]
    assert "9999" in outcome.warnings[0]


def test_delegating_again_after_a_change_restores_the_later_value(store: Delegations) -> None:
    cluster = DictCluster({RATIO: "0.1"})
    do(cluster, store)
    cluster.own[RATIO] = "0.3"
    assert do(cluster, store).action == "delegated"
    undo(cluster, store)
    assert cluster.own[RATIO] == "0.3"


def test_delegated_by_hand_before(store: Delegations) -> None:
    """Nothing is to be set; the value to clean by is the broker's default, not 1, which would mean never (U-9)."""
    cluster = DictCluster({RATIO: "1", LAG: FOREVER}, min_cleanable_dirty_ratio="0.2")
    assert do(cluster, store).action == "already delegated"
    assert store.load()[0].effective[RATIO] == "0.2"
    outcome = undo(cluster, store)
    assert (outcome.action, outcome.changes) == ("undelegated", {})
    assert "still skips the topic" in outcome.warnings[0]


def test_undelegate_without_saved_values(store: Delegations) -> None:
    """Delegated by another host, or by hand: guessed values would lose the real ones."""
    with pytest.raises(RefusedError, match="not saved here"):
        undo(DictCluster({RATIO: "1", LAG: FOREVER}), store)
    assert undo(DictCluster({RATIO: "0.9"}), store).action == "not delegated"


def test_dry_runs_change_nothing(store: Delegations) -> None:
    cluster = DictCluster({LAG: "5000"})
    assert do(cluster, store, dry_run=True).changes == {
        RATIO: (None, "1"), LAG: ("5000", FOREVER), ROLL: (None, "5000"),
    }  # fmt: skip
    assert not store.path.parent.exists()
    do(cluster, store)
    saved = store.path.read_bytes()
    assert undo(cluster, store, dry_run=True).changes[LAG] == (FOREVER, "5000")
    assert store.path.read_bytes() == saved
    assert len(cluster.altered) == 1
    cluster.refuses = True
    with pytest.raises(RefusedError):
        undo(cluster, store, dry_run=True)


def test_deleted_and_recreated_topics(store: Delegations) -> None:
    """Saved values of a deleted topic are not set on another one with its name."""
    cluster = DictCluster({LAG: "5000"})
    do(cluster, store)
    cluster.topic_id, cluster.own = uuid.UUID(int=2), {"cleanup.policy": "compact", RATIO: "1", LAG: FOREVER}
    assert undo(cluster, store).action == "forgotten"
    assert cluster.own[LAG] == FOREVER
    do(cluster, store)
    cluster.there = False
    assert undo(cluster, store).action == "forgotten"
    with pytest.raises(ConfigError, match="no such topic"):
        undo(cluster, store)
    with pytest.raises(ConfigError, match="no such topic"):
        do(cluster, store)


def test_nothing_to_delegate(store: Delegations) -> None:
    with pytest.raises(ConfigError, match="not compact"):
        do(DictCluster({"cleanup.policy": "delete"}), store)
    with pytest.raises(RefusedError, match="internal topic"):
        delegate(DictCluster({}).as_cluster, store, "__consumer_offsets", 0, dry_run=False)


def test_topics_and_clusters_are_kept_apart(store: Delegations) -> None:
    one, other = DictCluster({RATIO: "0.1"}), DictCluster({RATIO: "0.2"})
    other.cluster_id = lambda: "cluster-2"  # type: ignore[method-assign]
    do(one, store)
    do(other, store)
    delegate(one.as_cluster, store, "payments", 0, dry_run=False)
    assert len(store.load()) == 3
    assert sorted(store.of_cluster("cluster-1")) == ["orders", "payments"]
    undo(other, store)
    assert other.own[RATIO] == "0.2"
    assert len(store.load()) == 2


def test_nothing_is_changed_when_the_old_values_cannot_be_saved(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    cluster = DictCluster({})
    with pytest.raises(CleanerdError, match="cannot be written"):
        do(cluster, Delegations(tmp_path / "state"))
    assert cluster.altered == []


def test_a_damaged_file_is_set_aside_and_reported(store: Delegations) -> None:
    """It is not used, and the next delegation writes a new one."""
    store.path.parent.mkdir()
    store.path.write_text('{"format": 1, "delegations": [{"topic": "x"}]}')
    assert store.load() == []
    assert "damaged" in store.warnings[0]
    assert do(DictCluster({}), store).action == "delegated"
    assert store.path.with_suffix(".damaged").exists()
    assert len(store.load()) == 1


def test_a_newer_releases_file_is_not_overwritten(store: Delegations) -> None:
    store.path.parent.mkdir()
    store.path.write_text('{"format": 2}')
    cluster = DictCluster({})
    with pytest.raises(RefusedError, match="format 2"):
        do(cluster, store)
    assert json.loads(store.path.read_text()) == {"format": 2}
    assert cluster.altered == []


@pytest.mark.parametrize(
    ("key", "one", "other", "equal"),
    [
        (RATIO, "1", "1.0", True),
        (RATIO, "1", "0.99", False),
        (LAG, FOREVER, FOREVER, True),
        (LAG, None, FOREVER, False),
        (LAG, None, None, True),
    ],
)
def test_values_are_compared_by_their_meaning(key: str, one: str | None, other: str | None, equal: bool) -> None:
    assert same(key, one, other) is equal


@pytest.mark.parametrize("key", [RATIO, LAG, ROLL, "cleanup.policy"])
def test_a_cluster_that_reports_less(store: Delegations, key: str) -> None:
    """Other servers speak Kafka's protocol, too. Missing values could not be restored: nothing is changed or saved."""
    cluster = DictCluster({})
    cluster.inherited.pop(key)
    with pytest.raises(RefusedError, match=f"does not report {key} of the topic"):
        delegate(cluster.as_cluster, store, "orders", 1, dry_run=False)
    assert (cluster.altered, store.load()) == ([], [])
    if key == "cleanup.policy":
        return
    cluster = DictCluster({LAG: "3600000"})
    delegate(cluster.as_cluster, store, "orders", 1, dry_run=False)
    cluster.inherited.pop(key)
    with pytest.raises(RefusedError, match=f"does not report {key} of the topic"):
        undelegate(cluster.as_cluster, store, "orders", dry_run=False)
    assert (len(cluster.altered), len(store.load())) == (1, 1)
