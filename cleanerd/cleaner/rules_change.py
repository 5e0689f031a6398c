"""Whether today's settings change the rules of a topic's last cleaning, and whether the operator confirmed that.

A command without its settings file uses Kafka's rules: it retains the highest offset of each key. For a versioned topic
that loses the retained records, permanently. So a change of rules (U-6) needs a confirmation: the topic's settings name
the changed keys, or ``--change-strategy`` is given.

Unreadable state may contain any rules. Only if the broker's own cleaner cleans the topic, the rules are certainly
Kafka's: cleanerd refuses such a topic with other rules (U-8).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cleanerd.config.delegation import DELEGATED_RATIO, MAX_LAG, NO_LAG, RATIO
from cleanerd.config.fingerprint import (
    KAFKAS_FINGERPRINT,
    describe_fingerprint,
    fingerprint,
    fingerprint_differences,
)
from cleanerd.config.strategy_keys import (
    HEADER_ENCODING,
    STRATEGY,
    STRATEGY_HEADER,
    TOMBSTONE_HEADER,
    TOMBSTONE_MODE,
)
from cleanerd.fsio.state_files import UnreadableState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cleanerd.config.delegation import InCluster
    from cleanerd.config.topic_config import TopicConfig

_KEYS: Final = {
    "strategy": STRATEGY,
    "header": STRATEGY_HEADER,
    "encoding": HEADER_ENCODING,
    "tombstone.mode": TOMBSTONE_MODE,
    "tombstone.header": TOMBSTONE_HEADER,
}
"""The setting of each part of a fingerprint."""

_ALWAYS: Final = frozenset({"strategy", "tombstone.mode"})
"""Parts of every fingerprint; the others depend on them."""

RULES_NAMED: Final = frozenset(_KEYS[name] for name in _ALWAYS)
"""The settings that define a topic's rules, whatever they were before."""


_BOTH_VALUES: Final = f"{RATIO}={DELEGATED_RATIO} and {MAX_LAG}={NO_LAG}"
_FORGOTTEN: Final = (
    f"was --config or cleanerd.state.dir forgotten? If not, set topics.{{topic}}.{STRATEGY}=offset, or use "
    "--change-strategy each time"
)
_OR_DEFAULTS: Final = "or the broker's defaults set them"
_NOT_KNOWN: Final = "but the state directory knows of no delegation"
_IN_CLUSTER: Final[Mapping[InCluster, tuple[str, str]]] = {
    "set": (
        f"{{topic}} has {_BOTH_VALUES} in the cluster, as cleanerd delegate sets them, {_NOT_KNOWN}",
        _FORGOTTEN,
    ),
    "reported": (
        f"the running broker reports {_BOTH_VALUES} for {{topic}}, as cleanerd delegate {_OR_DEFAULTS}, {_NOT_KNOWN}",
        _FORGOTTEN,
    ),
    "ended": (
        "{topic} was undelegated in the last minutes, and the metadata log may not have committed that yet",
        "try again later",
    ),
}
"""What is known of a topic that only the cluster shows as delegated (U-96), and what to do."""


@dataclass(frozen=True, slots=True)
class RulesChange:
    """The stored rules of a topic and its current ones, as fingerprints.

    ``before`` is None if the topic is delegated and was never cleaned, or if its stored state cannot be read: then
    ``unread`` is the reason, and ``is_of_delegation`` whether that state is its delegation. ``is_stated``: the settings
    name the change. ``delegated``: by the state directory; ``delegated_in_cluster``: only by its settings in the
    cluster, and how those show it.
    """

    topic: str
    before: str | None
    now: str
    delegated: bool
    is_stated: bool
    delegated_in_cluster: InCluster = ""
    unread: UnreadableState | None = None
    is_of_delegation: bool = False

    @property
    def differs(self) -> bool:
        """Whether the rules of the last cleaning are known, so the effect of the change can be counted."""
        return self.before is not None and self.before != self.now

    @property
    def reason(self) -> str:
        """Why the cleaning is refused, for the operator."""
        if self.unread is not None:
            question = "whether {} is delegated" if self.is_of_delegation else "the strategy of the last cleaning of {}"
            return (
                f"refused: {question.format(self.topic)} is unknown, because {self.unread}; "
                f"these settings say {describe_fingerprint(self.now)} "
                "(restore it, or remove it if these settings are right; or use --change-strategy)"
            )
        if self.delegated_in_cluster:
            what, advice = (each.format(topic=self.topic) for each in _IN_CLUSTER[self.delegated_in_cluster])
            return f"refused: {what}; these settings say {describe_fingerprint(self.now)} ({advice})"
        known = ["is delegated"] if self.delegated else []
        if self.before is not None and self.before != self.now:
            known.append(f"was last cleaned by {describe_fingerprint(self.before)}")
        return (
            f"refused: {self.topic} {' and '.join(known)}; these settings say {describe_fingerprint(self.now)} "
            "(was --config forgotten? If not, use --change-strategy)"
        )

    @property
    def remedy(self) -> str:
        """What the operator can do."""
        keys = [STRATEGY] if self.unread is None else [STRATEGY, TOMBSTONE_MODE]
        named = " and ".join(f"topics.{self.topic}.{key}" for key in keys)
        read = "a few minutes later, " if self.delegated_in_cluster == "ended" else ""
        if self.unread is not None:
            read = f"when {self.unread.where} can be read, "
        return (
            f"{read}when the settings name the topic's strategy ({named}), or when clean or stage is run with "
            "--change-strategy"
        )


def rules_change(config: TopicConfig, before: str | UnreadableState | None) -> RulesChange | None:
    """How today's rules differ from ``before``, the fingerprint of the last cleaning; None if they do not.

    Forgotten settings end in Kafka's rules. So Kafka's rules for a delegated topic are a change, whatever cleaned it
    last, also if only its settings in the cluster show that it is delegated (U-96). Leaving Kafka's rules needs no
    confirmation of its own: the settings are explicit.
    """
    now = fingerprint(config)
    unread = _unread(config, before, now)
    if unread is not None:
        is_of_delegation = not isinstance(before, UnreadableState)
        is_stated = config.named >= RULES_NAMED
        return RulesChange(
            config.topic, None, now, config.delegated_here, is_stated, unread=unread, is_of_delegation=is_of_delegation
        )
    if isinstance(before, UnreadableState):
        before = None
    forgotten = (config.delegated_here or config.delegated_in_cluster != "") and config.is_kafkas
    if before in (None, now) and not forgotten:
        return None
    is_stated = _is_reported(config, before, now, forgotten=forgotten)
    only_in_cluster = forgotten and not config.delegated_here and before in (None, now)
    in_cluster = config.delegated_in_cluster if only_in_cluster else ""
    return RulesChange(config.topic, before, now, config.delegated_here, is_stated, in_cluster)


def _unread(config: TopicConfig, before: str | UnreadableState | None, now: str) -> UnreadableState | None:
    """The unreadable state that could contain other rules than today's."""
    if not config.may_be_kept_away:
        return None
    if isinstance(before, UnreadableState):
        return before
    may_be_forgotten = config.is_kafkas and not config.delegated_here and before in (None, now)
    return config.delegations_unread if may_be_forgotten else None


def _is_reported(config: TopicConfig, before: str | None, now: str, *, forgotten: bool) -> bool:
    if forgotten and STRATEGY not in config.named:
        return False
    if before is None or before == KAFKAS_FINGERPRINT:
        return True
    changed = fingerprint_differences(before, now).items()
    return all(
        _KEYS[name] in config.named
        for name, (old, new) in changed
        if name in _ALWAYS or (name in _KEYS and old and new)
    )
