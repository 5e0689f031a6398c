"""Whether the broker's cleaner skips a topic that it would clean by other rules (U-8).

Kafka's cleaner retains the highest offset of each key, and treats only null values as deletes. It must never clean a
topic with another strategy or tombstone mode. So cleanerd does not clean such a topic until the delegation is proven
from the *broker's* configuration: that of the topic in the cluster and its own. cleanerd's settings of the same keys
prove nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from cleanerd.config.kafka_values import LONG_MAX, NumberRule, RatioRule, ValueRule, shown

RATIO: Final = "min.cleanable.dirty.ratio"
MAX_LAG: Final = "max.compaction.lag.ms"
BROKER_MAX_LAG: Final = "log.cleaner.max.compaction.lag.ms"
SETTING: Final = "cleanerd.delegation"

DELEGATED_RATIO: Final = "1"
"""A log's dirty ratio is at most this, so the broker's cleaner never finds the log dirty enough (C-09)."""
NO_LAG: Final = str(LONG_MAX)
"""No compaction lag: a finite one makes the broker's cleaner ignore the ratio (C-10)."""
BOTH_VALUES: Final = frozenset({RATIO, MAX_LAG})
"""The settings that show a delegation if the topic itself has both (U-96)."""

HINT: Final = (
    "min.cleanable.dirty.ratio of {topic} is 1 in the cluster, as cleanerd delegate sets it, but the state directory "
    "knows of no delegation: these settings clean it by offset (another cleanerd.state.dir? was --config forgotten? "
    "If not, set topics.{topic}.compaction.strategy=offset)"
)
"""A ratio of 1 alone does not prove a delegation: an operator may have set it. Both values do (U-96)."""

UNKNOWN_HINT: Final = (
    "whether {topic} is delegated is unknown, as is its configuration in the cluster: these settings clean it by "
    "offset (was --config, cleanerd.state.dir or cleanerd.metadata.log.dir forgotten? If not, set "
    "topics.{topic}.compaction.strategy=offset)"
)
"""Without the topic's configuration nothing shows a forgotten delegation, and nothing is refused (U-96)."""

InCluster = Literal["", "set", "reported", "ended"]
"""How the cluster shows that a topic has both values of ``cleanerd delegate`` (U-96); empty: it does not.

``set``: the topic sets them. ``reported``: a broker does, perhaps by its defaults: its agent does not report what the
topic sets. ``ended``: the topic set them until the last minutes, but the newer configuration may be uncommitted.
"""

State = Literal["not needed", "delegated", "assumed", "undelegated", "unknown"]


@dataclass(frozen=True, slots=True)
class Delegation:
    """Whether the broker's cleaner skips one topic. ``reason`` and ``fix`` are empty if all is well.

    ``not needed``: the broker would decide as cleanerd does. ``assumed``: the state is unknown, and the operator
    guarantees it.
    """

    state: State
    reason: str = ""
    fix: str = ""

    @property
    def permits(self) -> bool:
        """Whether cleanerd may clean the topic."""
        return self.state in ("not needed", "delegated", "assumed")


def is_delegated(topic_configs: Mapping[str, str]) -> bool:
    """Whether the topic's ratio in the cluster is the one that ``cleanerd delegate`` sets."""
    return _is(RatioRule(), topic_configs.get(RATIO), 1.0)


def has_both_values(topic_configs: Mapping[str, str]) -> bool:
    """Whether the topic has both values that ``cleanerd delegate`` sets (U-96)."""
    return is_delegated(topic_configs) and _is(_LAG, topic_configs.get(MAX_LAG), LONG_MAX)


def delegation_of(
    topic: str,
    why_needed: str,
    topic_configs: Mapping[str, str] | None,
    *,
    broker_lag: tuple[str, str] | None,
    properties_known: bool,
    assumed: bool,
) -> Delegation:
    """The verdict on ``topic``, which needs delegation because of ``why_needed``.

    Args:
        topic: its name.
        why_needed: the setting that a stock broker does not know, as ``key=value``.
        topic_configs: the topic's configuration in the cluster; None: unknown.
        broker_lag: text and origin of ``log.cleaner.max.compaction.lag.ms`` in the broker's configuration; None: unset.
        properties_known: whether that configuration includes the broker's ``server.properties``.
        assumed: ``cleanerd.delegation=assumed``. It applies only where facts are missing.
    """
    about = f"{why_needed} needs delegation (Kafka's cleaner must skip the topic)"
    if topic_configs is None:
        return _unknown(topic, f"{about}, and the topic's configuration in the cluster is not known", assumed=assumed)
    against = _speaks_against(topic_configs, broker_lag)
    if against:
        return Delegation("undelegated", f"{about}, but {against}", f"run cleanerd delegate {topic}")
    if MAX_LAG not in topic_configs and broker_lag is None and not properties_known:
        reason = f"{about}: the topic does not set {MAX_LAG}, and server.properties is not read"
        return _unknown(topic, reason, assumed=assumed)
    return Delegation("delegated")


def _speaks_against(topic_configs: Mapping[str, str], broker_lag: tuple[str, str] | None) -> str:
    if not is_delegated(topic_configs):
        return f"{_describe_value(RATIO, topic_configs.get(RATIO))} on the topic (it has to be {DELEGATED_RATIO})"
    lag, where = topic_configs.get(MAX_LAG), f"{MAX_LAG} on the topic"
    if lag is None and broker_lag is not None:
        lag, where = broker_lag
    if lag is None or _is(_LAG, lag, LONG_MAX):
        return ""
    return f"{where} is {shown(lag)}, which outweighs {RATIO}"


_LAG: Final = NumberRule(1, LONG_MAX)


def _is(rule: ValueRule, text: str | None, value: object) -> bool:
    """Whether ``text`` means ``value``; False for text that the broker would reject."""
    try:
        return text is not None and rule.read(text) == value
    except ValueError:
        return False


def _describe_value(key: str, text: str | None) -> str:
    return f"{key} is not set" if text is None else f"{key} is {shown(text)}"


def _unknown(topic: str, reason: str, *, assumed: bool) -> Delegation:
    if assumed:
        return Delegation("assumed")
    fix = (
        f"run cleanerd delegate {topic}, and name the broker's metadata directory with cleanerd.metadata.log.dir; or, "
        f"if no broker's cleaner will ever clean these files, set {SETTING}=assumed"
    )
    return Delegation("unknown", reason, fix)
