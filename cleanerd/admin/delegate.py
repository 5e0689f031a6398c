"""Delegates a topic: the broker's cleaner skips it; and returns it to the broker (U-8).

Delegated: ``min.cleanable.dirty.ratio=1`` and no compaction lag on the topic, so that the broker's cleaner never finds
it dirty enough. A topic with a lag also rolled its active segment by it. So ``segment.ms`` replaces the lag, and
records become cleanable as soon as before. The old values are saved before the change, so that a crash does not lose
them. Both directions may be repeated.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from cleanerd.config.delegation import DELEGATED_RATIO, MAX_LAG, NO_LAG, RATIO, is_delegated
from cleanerd.config.kafka_values import LONG_MAX
from cleanerd.config.strategy_keys import RETENTION_CAUTION
from cleanerd.config.topic_config import INTERNAL_TOPICS, NEVER_CLEANED
from cleanerd.config.topic_keys import TOPIC_RULES
from cleanerd.errors import ConfigError, RefusedError
from cleanerd.state.delegations import Delegations, KeyChange, SavedDelegation

if TYPE_CHECKING:
    from cleanerd.admin.cluster import Cluster, KeyValue, TopicFacts


def kafka_configs_command(
    servers: str, command_config: Path | None, topic: str, changes: Mapping[str, str | None]
) -> str:
    """A shell command that sets ``changes`` on the topic; None unsets a key. It contains no password."""
    to_set = ",".join(f"{key}={text}" for key, text in changes.items() if text is not None)
    to_unset = ",".join(key for key, text in changes.items() if text is None)
    words = ["kafka-configs.sh", "--bootstrap-server", servers]
    words += [] if command_config is None else ["--command-config", str(command_config)]
    words += ["--alter", "--entity-type", "topics", "--entity-name", topic]
    words += ["--add-config", to_set] if to_set else []
    words += ["--delete-config", to_unset] if to_unset else []
    return shlex.join(words)


SEGMENT_MS: Final = "segment.ms"

UNSEEN: Final = {RATIO: DELEGATED_RATIO, MAX_LAG: NO_LAG}
"""The values that ``delegate`` sets on a topic whose configuration cannot be read."""

Action = Literal["delegated", "already delegated", "undelegated", "not delegated", "forgotten"]


@dataclass(frozen=True, slots=True)
class DelegateResult:
    """The changes, made or planned: for each key its value on the topic before and after (None: not set there)."""

    topic: str
    cluster_id: str
    action: Action
    changes: Mapping[str, tuple[str | None, str | None]]
    warnings: tuple[str, ...]

    def to_json(self, *, dry_run: bool) -> dict[str, Any]:
        """The result of ``--json``."""
        return {
            "topic": self.topic,
            "cluster_id": self.cluster_id,
            "action": self.action,
            "dry_run": dry_run,
            "changes": [{"key": key, "before": old, "after": new} for key, (old, new) in self.changes.items()],
            "warnings": list(self.warnings),
        }


def delegate(cluster: Cluster, delegations: Delegations, topic: str, now_ms: int, *, dry_run: bool) -> DelegateResult:
    """Make the broker's cleaner skip ``topic``.

    Raises:
        ConfigError: the topic does not exist, or is not compacted.
        RefusedError: an internal topic, or the cluster refuses the change, or does not report the values to save.
        CleanerdError: the cluster does not answer, or the current values cannot be saved.
    """
    facts = _require_compacted(cluster.topic(topic), topic)
    cluster_id = cluster.cluster_id()
    if dry_run:
        saved = _same_topic(delegations.of_cluster(cluster_id).get(topic), facts)
        wanted = changes_to_delegate(facts.values, saved)
        return _delegate(cluster, facts, cluster_id, wanted, dry_run=True)
    with delegations.changing() as file:
        saved = _same_topic(file.find(cluster_id, topic), facts)
        wanted = changes_to_delegate(facts.values, saved)
        if saved is None or saved.changes != wanted:
            file.save(SavedDelegation(cluster_id, topic, str(facts.topic_id or ""), now_ms, wanted))
        try:
            return _delegate(cluster, facts, cluster_id, wanted, dry_run=False)
        except RefusedError:
            # Nothing was changed, so nothing has to be restored.
            if saved is None:
                file.remove(cluster_id, topic)
            else:
                file.save(saved)
            raise


def _delegate(
    cluster: Cluster, facts: TopicFacts, cluster_id: str, wanted: Mapping[str, KeyChange], *, dry_run: bool
) -> DelegateResult:
    to_set = {
        key: (facts.values[key].own, change.after)
        for key, change in wanted.items()
        if not same(key, facts.values[key].own, change.after)
    }
    if not to_set:
        return DelegateResult(facts.topic, cluster_id, "already delegated", {}, ())
    cluster.alter(facts.topic, {key: after for key, (_, after) in to_set.items()}, dry_run=dry_run)
    is_deleted = "delete" in facts.values["cleanup.policy"].effective
    return DelegateResult(facts.topic, cluster_id, "delegated", to_set, (RETENTION_CAUTION,) if is_deleted else ())


def undelegate(cluster: Cluster, delegations: Delegations, topic: str, *, dry_run: bool) -> DelegateResult:
    """Restore the values on ``topic`` from before ``delegate``.

    Raises:
        ConfigError: the topic does not exist, and none of its values are saved.
        RefusedError: it is delegated, but no values are saved here; or the cluster refuses the change, or reports too
        little.
        CleanerdError: the cluster does not answer, or the state directory cannot be written.
    """
    facts = cluster.topic(topic)
    cluster_id = cluster.cluster_id()
    found = delegations.of_cluster(cluster_id).get(topic)
    if found is None:
        return _nothing_saved(facts, topic, cluster_id, delegations)
    with delegations.changing() as file:
        saved = file.find(cluster_id, topic)
        if saved is None:
            return DelegateResult(topic, cluster_id, "not delegated", {}, ())
        if facts is None or _same_topic(saved, facts) is None:
            if not dry_run:
                file.remove(cluster_id, topic)
            gone = "the topic was deleted" if facts is None else "the topic was created again since"
            return DelegateResult(topic, cluster_id, "forgotten", {}, (f"{gone}: its saved settings were deleted",))
        _require_reported(facts, saved.changes)
        restored, warnings = changes_to_undelegate(facts.values, saved.changes)
        if restored:
            cluster.alter(topic, {key: after for key, (_, after) in restored.items()}, dry_run=dry_run)
        if not dry_run:
            file.remove(cluster_id, topic)
    return DelegateResult(topic, cluster_id, "undelegated", restored, warnings)


def _nothing_saved(facts: TopicFacts | None, topic: str, cluster_id: str, delegations: Delegations) -> DelegateResult:
    if facts is None:
        raise ConfigError("no such topic", where=topic)
    if is_delegated(facts.topic_level_configs):
        raise RefusedError(
            f"{RATIO} is 1 on the topic, but the values before that are not saved here",
            where=topic,
            hint=f"run it where cleanerd delegate ran (not in {delegations.path}), or set the key with Kafka's tools",
        )
    return DelegateResult(topic, cluster_id, "not delegated", {}, ())


def changes_to_delegate(values: Mapping[str, KeyValue], saved: SavedDelegation | None) -> dict[str, KeyChange]:
    """The keys to set, with their values before: before the first ``delegate`` if ``saved`` has one.

    ``saved`` is used for a key while the topic has the value that was set. If an operator changed the key since, the
    new value is to be restored.
    """
    before = {key: _before(key, values[key], saved) for key in (RATIO, MAX_LAG, SEGMENT_MS)}
    changes = {
        RATIO: KeyChange(*before[RATIO], DELEGATED_RATIO),
        MAX_LAG: KeyChange(*before[MAX_LAG], NO_LAG),
    }
    lag_ms, roll_ms = int(before[MAX_LAG][1]), int(before[SEGMENT_MS][1])
    if lag_ms < LONG_MAX and roll_ms > lag_ms:
        changes[SEGMENT_MS] = KeyChange(*before[SEGMENT_MS], str(lag_ms))
    return changes


def _before(key: str, value: KeyValue, saved: SavedDelegation | None) -> tuple[str | None, str]:
    """The topic's own value, and the effective one."""
    change = None if saved is None else saved.changes.get(key)
    if change is not None and same(key, value.own, change.after):
        return change.before, change.effective
    if key == RATIO and same(key, value.own, DELEGATED_RATIO):
        # An operator delegated it manually. For cleanerd's own cleaning 1 would mean never (U-9).
        return value.own, value.inherited or str(TOPIC_RULES[RATIO].default)
    return value.own, value.effective


def changes_to_undelegate(
    values: Mapping[str, KeyValue], saved: Mapping[str, KeyChange]
) -> tuple[dict[str, tuple[str | None, str | None]], tuple[str, ...]]:
    """The keys to restore (current and saved value), and the unchanged ones with the reason."""
    restored: dict[str, tuple[str | None, str | None]] = {}
    warnings = []
    for key, change in saved.items():
        own = values[key].own
        if same(key, own, change.before):
            if key == RATIO and same(key, own, DELEGATED_RATIO):
                warnings.append(f"{key} was 1 before cleanerd delegate too: Kafka's cleaner still skips the topic")
        elif same(key, own, change.after):
            restored[key] = (own, change.before)
        else:
            now = "not set" if own is None else own
            warnings.append(f"{key} is now {now}, which is not what cleanerd delegate set: it was not changed")
    return restored, tuple(warnings)


def same(key: str, one: str | None, other: str | None) -> bool:
    """Whether two texts are the same value of ``key``: a broker reports ``1.0`` for ``1``."""
    if one is None or other is None:
        return one is other
    rule = TOPIC_RULES[key].value
    return rule.read(one) == rule.read(other)


def _same_topic(saved: SavedDelegation | None, facts: TopicFacts) -> SavedDelegation | None:
    """Saved values of a topic that was deleted and created again belong to the old topic."""
    if saved is None or (saved.topic_id and facts.topic_id and saved.topic_id != str(facts.topic_id)):
        return None
    return saved


def _require_reported(facts: TopicFacts, keys: Iterable[str]) -> None:
    """Refuse if keys are not reported: some brokers with Kafka's protocol do not know them and cannot restore them."""
    missing = [key for key in keys if key not in facts.values]
    if missing:
        raise RefusedError(f"the cluster does not report {', '.join(missing)} of the topic", where=facts.topic)


def _require_compacted(facts: TopicFacts | None, topic: str) -> TopicFacts:
    if topic in INTERNAL_TOPICS | NEVER_CLEANED:
        raise RefusedError("is an internal topic: its strategy is always offset, and the broker cleans it", where=topic)
    if facts is None:
        raise ConfigError("no such topic", where=topic)
    _require_reported(facts, ("cleanup.policy", RATIO, MAX_LAG, SEGMENT_MS))
    policy = facts.values["cleanup.policy"].effective
    if "compact" not in policy:
        raise ConfigError(
            f"cleanup.policy is {policy}, not compact: the broker's cleaner does not touch it", where=topic
        )
    return facts
