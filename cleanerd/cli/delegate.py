"""``cleanerd delegate`` and ``cleanerd undelegate``: choose the cleaner of a topic (U-8)."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import click

from cleanerd.admin.client_config import ClientConfig, read_client_config
from cleanerd.admin.cluster import AccessDeniedError, Cluster, TopicFacts, require_bootstrap
from cleanerd.admin.delegate import UNSEEN, DelegateResult, kafka_configs_command
from cleanerd.admin.delegate import delegate as delegate_topic
from cleanerd.admin.delegate import undelegate as undelegate_topic
from cleanerd.cleaner.rules_change import RULES_NAMED
from cleanerd.cli.output import Column
from cleanerd.config.delegation import is_delegated
from cleanerd.config.fingerprint import KAFKAS_FINGERPRINT, describe_fingerprint, describe_settings
from cleanerd.config.strategy_keys import STRATEGY
from cleanerd.fsio.state_files import UnreadableState
from cleanerd.state.delegations import Delegations
from cleanerd.state.last_settings import LastSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from cleanerd.cli.options import Common
    from cleanerd.config.load import Settings
    from cleanerd.config.topic_config import TopicConfig


def delegate(common: Common, topic: str, *, command_config: Path | None, dry_run: bool, yes: bool) -> None:
    """Run ``cleanerd delegate``; its options are in ``setup_commands.py``."""
    settings = common.load_settings()
    client = _client(common, settings, command_config)
    with _by_hand(settings, client, topic, UNSEEN), _cluster(settings, client) as cluster:
        facts = cluster.topic(topic)
        if (
            facts is not None
            and not dry_run
            and not is_delegated(facts.topic_level_configs)
            and settings.topic_config(facts.topic, facts.topic_level_configs).is_kafkas
        ):
            question = (
                f"{topic} is cleaned by offset with null tombstones. It needs delegation only if tombstones must "
                "wait for replicas that are away, which Kafka's cleaner does not do. From now on, only "
                f"cleanerd would clean it, and only if its settings name topics.{topic}.{STRATEGY}. Continue?"
            )
            if not common.output.confirm(question, yes=yes):
                raise click.Abort
        delegations = Delegations(settings.daemon.cleanerd_state_dir)
        outcome = delegate_topic(cluster, delegations, topic, time.time_ns() // 1_000_000, dry_run=dry_run)
    _print_outcome(common, outcome, delegations, dry_run=dry_run)
    if outcome.action == "delegated" and not dry_run:
        common.output.note(
            f"From now on, only cleanerd cleans {topic}. Its settings decide when, otherwise the values saved in "
            f"{delegations.path}. cleanerd on other hosts does not have that file: add the values to its settings "
            "there."
        )


def undelegate(common: Common, topic: str, *, command_config: Path | None, dry_run: bool, yes: bool) -> None:
    """Run ``cleanerd undelegate``; its options are in ``setup_commands.py``."""
    settings = common.load_settings()
    client = _client(common, settings, command_config)
    delegations = Delegations(settings.daemon.cleanerd_state_dir)
    saved = delegations.of_cluster(None).get(topic)
    unseen = {} if saved is None else {key: change.before for key, change in saved.changes.items()}
    with _by_hand(settings, client, topic, unseen), _cluster(settings, client) as cluster:
        facts = cluster.topic(topic)
        config = None if facts is None else settings.topic_config(facts.topic, facts.topic_level_configs)
        loss = "" if facts is None or config is None else _describe_loss(delegations, cluster, facts, config)
        if loss:
            common.output.warning(loss)
            if not dry_run and not common.output.confirm(f"Undelegate {topic} nevertheless?", yes=yes):
                raise click.Abort
        outcome = undelegate_topic(cluster, delegations, topic, dry_run=dry_run)
    _print_outcome(common, outcome, delegations, dry_run=dry_run)


def _client(common: Common, settings: Settings, command_config: Path | None) -> ClientConfig:
    """The connection settings.

    Raises:
        ConfigError: the client properties cannot be used.
    """
    client = read_client_config(command_config or settings.daemon.cleanerd_command_config)
    for warning in client.warnings:
        common.output.warning(warning)
    return client


def _cluster(settings: Settings, client: ClientConfig) -> Cluster:
    return Cluster(require_bootstrap(settings.daemon.bootstrap_servers, client), client)


@contextlib.contextmanager
def _by_hand(settings: Settings, client: ClientConfig, topic: str, unseen: Mapping[str, str | None]) -> Iterator[None]:
    """If the cluster refuses the login, print the equivalent command of Kafka's tools.

    ``unseen``: what it sets at least.
    """
    try:
        yield
    except AccessDeniedError as error:
        changes = unseen if error.changes is None else error.changes
        servers = require_bootstrap(settings.daemon.bootstrap_servers, client)
        if changes:
            command = kafka_configs_command(servers, client.path, topic, changes)
            hint = f"or, as a user who may: {command}"
            error.hint = hint if error.hint is None else f"{error.hint}; {hint}"
        raise


def _describe_loss(delegations: Delegations, cluster: Cluster, facts: TopicFacts, config: TopicConfig) -> str:
    """The records that the broker's cleaner would remove; empty if it would decide as cleanerd does.

    Forgotten settings look like Kafka's rules. So the state directory is checked too, and without an explicit setting a
    delegated topic is not treated as one with Kafka's rules (U-6, U-8).
    """
    topic = facts.topic
    end = "the broker's cleaner does not know these rules and will keep the highest offset of every key"
    if not config.is_kafkas:
        return f"these settings clean {topic} by {describe_settings(config)}: {end}"
    fingerprints = LastSettings(delegations.path.parent).of_name(topic, facts.topic_id)
    other = [
        fingerprint
        for fingerprint in fingerprints
        if isinstance(fingerprint, str) and fingerprint != KAFKAS_FINGERPRINT
    ]
    unread = [fingerprint for fingerprint in fingerprints if isinstance(fingerprint, UnreadableState)]
    if other:
        known = " and by ".join(describe_fingerprint(fingerprint) for fingerprint in other)
        return f"{topic} was last cleaned by {known}; these settings say offset (was --config forgotten?): {end}"
    if unread and config.may_be_kept_away and not config.named.issuperset(RULES_NAMED):
        return f"the strategy of the last cleaning of {topic} is unknown, because {unread[0]}: {end}"
    if topic in delegations.of_cluster(cluster.cluster_id()) and STRATEGY not in config.named:
        return (
            f"{topic} is delegated, and these settings do not say by which strategy it is cleaned (was --config "
            "forgotten?): the broker's cleaner will keep the highest offset of every key"
        )
    return ""


def _print_outcome(common: Common, outcome: DelegateResult, delegations: Delegations, *, dry_run: bool) -> None:
    output = common.output
    if output.as_json:
        output.json(outcome.to_json(dry_run=dry_run))
    else:
        would = " (dry run: nothing was changed)" if dry_run else ""
        output.line(f"{outcome.topic}: {outcome.action}{would}")
        if outcome.changes:
            columns = [Column("key"), Column("before", right=True), Column("after", right=True)]
            rows = [[key, *("not set" if v is None else v for v in pair)] for key, pair in outcome.changes.items()]
            output.table(columns, rows)
    for warning in (*delegations.warnings, *outcome.warnings):
        output.warning(warning)
