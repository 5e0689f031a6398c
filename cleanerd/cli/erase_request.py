"""``cleanerd erase request`` and ``requests``: write the tombstone, and store the request (U-88)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import click

from cleanerd.admin.client_config import read_client_config
from cleanerd.admin.cluster import Cluster, TopicFacts, require_bootstrap
from cleanerd.cli.audit import show_key
from cleanerd.cli.key_options import find_terms
from cleanerd.cli.output import Column
from cleanerd.client.erasure import KeyEraser
from cleanerd.client.rules import TopicRules
from cleanerd.config.topic_config import INTERNAL_TOPICS
from cleanerd.errors import ConfigError, RefusedError, system_error
from cleanerd.format.names import uuid_to_base64
from cleanerd.humanize import counted
from cleanerd.inspection.report import time_of
from cleanerd.state.erasure_requests import (
    ErasureRequest,
    ErasureRequests,
    KeyHash,
    new_id,
    new_salt,
    read_request,
    request_bytes,
)

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.cli.options import Common
    from cleanerd.config.load import Settings

_DAY_MS: Final = 86_400_000


def request(
    common: Common,
    topic: str,
    *,
    key: str,
    as_hex: bool,
    as_base64: bool,
    bootstrap: str | None,
    command_config: Path | None,
    deadline_days: int,
    output_file: Path | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Run ``cleanerd erase request``; its options are in ``erase_commands.py``."""
    (term,) = find_terms(keys=(key,), as_hex=as_hex, as_base64=as_base64)
    settings = common.load_settings()
    client = read_client_config(command_config or settings.daemon.cleanerd_command_config)
    servers = require_bootstrap(bootstrap or settings.daemon.bootstrap_servers, client)
    with Cluster(servers, client) as cluster:
        cluster_id, facts = cluster.cluster_id(), cluster.topic(topic)
    rules = _rules(settings, topic, facts)
    eraser = KeyEraser(
        topic,
        term.data,
        rules,
        confluent={**client.confluent(), "bootstrap.servers": servers},
        kafka_python={**client.kafka_python(), "bootstrap_servers": servers.split(",")},
    )
    requests = ErasureRequests(settings.daemon.cleanerd_state_dir)
    with eraser:
        eraser.read()
        if eraser.to_write and not dry_run:
            places = ", ".join(f"{topic}-{number}" for number in eraser.to_write)
            question = f"Write a tombstone for {show_key(term.data)} to {places}? Its value is lost."
            if not common.output.confirm(question, yes=yes):
                raise click.Abort
        now_ms = time.time_ns() // 1_000_000
        known = next((each for each in requests.load() if each.is_open and each.is_about(topic, term.data)), None)
        made = ErasureRequest(
            id=new_id() if known is None else known.id,
            cluster_id=cluster_id,
            topic=topic,
            topic_id=None if facts is None or facts.topic_id is None else uuid_to_base64(facts.topic_id),
            key=KeyHash.of(term.data, new_salt()) if known is None else known.key,
            requested_ms=now_ms,
            deadline_ms=now_ms + deadline_days * _DAY_MS if known is None else known.deadline_ms,
        )
        wrote = eraser.to_write
        if not dry_run:
            requests.save(made)  # first: no daemon would track a tombstone without a request
            if wrote:
                eraser.write(now_ms)
            made = made.with_tombstones({number: record.offset for number, record in eraser.winners.items()})
            requests.save(made)
            _write(output_file, request_bytes(made))
    _report(common, made, rules, wrote, eraser, dry_run=dry_run)
    for warning in requests.warnings:
        common.output.warning(warning)


def _rules(settings: Settings, topic: str, facts: TopicFacts | None) -> TopicRules:
    """The topic's strategy and tombstones, by cleanerd's settings and the cluster.

    Raises:
        ConfigError: there is no such topic.
        RefusedError: it is not compacted, so a tombstone deletes nothing.
    """
    if topic in INTERNAL_TOPICS:
        raise RefusedError("is a topic of Kafka's own, whose keys only Kafka writes", where=topic)
    if facts is None:
        raise ConfigError("the cluster has no such topic", where=topic)
    policy = facts.values["cleanup.policy"].effective
    if "compact" not in policy:
        raise RefusedError(
            f"cleanup.policy is {policy}: a tombstone deletes nothing in this topic",
            where=topic,
            hint="set cleanup.policy=compact, or wait for retention.ms",
        )
    config = settings.topic_config(topic, facts.topic_level_configs)
    return TopicRules.of_config(
        {
            "compaction.strategy": config.compaction_strategy,
            "compaction.strategy.header": config.compaction_strategy_header,
            "compaction.strategy.header.encoding": config.compaction_strategy_header_encoding,
            "tombstone.mode": config.tombstone_mode,
            "tombstone.header": config.tombstone_header,
        }
    )


def _write(path: Path | None, data: bytes) -> None:
    if path is None:
        return
    try:
        path.write_bytes(data)
    except OSError as error:
        raise system_error("cannot be written", str(path), error) from error


def _report(
    common: Common, made: ErasureRequest, rules: TopicRules, wrote: list[int], eraser: KeyEraser, *, dry_run: bool
) -> None:
    places = [f"{made.topic}-{number}" for number in wrote]
    if common.output.as_json:
        document = {
            "request": None if dry_run else made.id,
            "topic": made.topic,
            "strategy": rules.strategy,
            "tombstone_mode": rules.tombstone_mode,
            "records": eraser.records,
            "written_to": [] if dry_run else wrote,
            "would_write_to": wrote if dry_run else [],
            "tombstones": dict(made.tombstones),
            "deadline_ms": made.deadline_ms,
        }
        common.output.json(document)
        return
    if not eraser.winners:
        common.output.line(f"{made.topic}: no committed record has the key, so no tombstone is needed")
    elif not wrote:
        common.output.line(f"{made.topic}: a tombstone of the key is there already")
    else:
        done = "would be written" if dry_run else "written"
        common.output.line(f"{made.topic}: tombstone {done} to {', '.join(places)}")
    if not dry_run:
        common.output.line(f"request {made.id}, to be done by {time_of(made.deadline_ms)}")


def requests(common: Common, *, add: Path | None, forget: str | None) -> None:
    """Run ``cleanerd erase requests``; its options are in ``erase_commands.py``."""
    known = ErasureRequests(common.load_settings().daemon.cleanerd_state_dir)
    if add is not None:
        known.save(read_request(add))
    if forget is not None and not known.forget(forget):
        raise ConfigError("no such erasure request", where=forget, hint="see cleanerd erase requests")
    found, now_ms = known.load(), time.time_ns() // 1_000_000
    for warning in known.warnings:
        common.output.warning(warning)
    if common.output.as_json:
        documents = [
            {
                "id": each.id,
                "topic": each.topic,
                "requested_ms": each.requested_ms,
                "deadline_ms": each.deadline_ms,
                "tombstones": dict(each.tombstones),
                "certified_ms": each.certified_ms,
                "overdue": each.is_overdue(now_ms),
            }
            for each in found
        ]
        common.output.json({"requests": documents})
        return
    columns = [Column("request"), Column("topic"), Column("requested", spare=1), Column("deadline"), Column("here")]
    rows = [
        [each.id, each.topic, time_of(each.requested_ms), time_of(each.deadline_ms), _state(each, now_ms)]
        for each in found
    ]
    if rows:
        common.output.table(columns, rows)
    common.output.line(f"{counted(sum(each.is_open for each in found), 'open request')}")


def _state(each: ErasureRequest, now_ms: int) -> str:
    if each.certified_ms is not None:
        return f"certified {time_of(each.certified_ms)}"
    return "OVERDUE" if each.is_overdue(now_ms) else "open"
