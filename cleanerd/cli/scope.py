"""Which partitions a command line is about: what ``plan`` and ``clean`` share."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cleanerd.errors import CleanerdError
from cleanerd.format.names import parse_topic_partition_dir
from cleanerd.log.log_dir import partition_names
from cleanerd.log.remote import RemotePath
from cleanerd.log.topic_config import INTERNAL_TOPICS, NEVER_CLEANED
from cleanerd.scope.broker_facts import METADATA_AGE_MS
from cleanerd.scope.broker_start import start_warnings
from cleanerd.scope.partitions import ByDisk
from cleanerd.scope.selection import select
from cleanerd.scope.told_topics import ASK_IT, NEVER_ASKED
from cleanerd.verify.rules import KAFKAS_RULES, KeyRules
from cleanerd.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from cleanerd.cli.output import Output
    from cleanerd.format.names import TopicPartition
    from cleanerd.log.log_dir import LogDir
    from cleanerd.log.topic_config import TopicConfig
    from cleanerd.scope.broker_facts import BrokerFacts
    from cleanerd.scope.partitions import Partitions
    from cleanerd.scope.selection import Selection
    from cleanerd.scope.targets import Target
    from cleanerd.settings import Settings


def tell_what_is_missing(output: Output, facts: BrokerFacts, log_dir: Path) -> None:
    """A note when topic configurations are unknown: nothing found to clean may only mean nothing known."""
    for warning in facts.warnings:
        output.warning(warning)
    if facts.zookeeper:
        if not facts.told and not facts.told_warnings:
            output.note(f"{log_dir}: {NEVER_ASKED} ({ASK_IT})")
    elif facts.metadata is None:
        output.note(
            f"{log_dir}: no KRaft metadata log found, so topics count as compacted only where settings say so "
            "(give the directory that has __cluster_metadata-0: --set cleanerd.metadata.log.dir=DIR)"
        )


def tell_start_obstacles(output: Output, log_dir: LogDir, facts: BrokerFacts) -> None:
    """Warn of what the broker's next start would make of the log directory (U-60)."""
    for warning in start_warnings(log_dir, facts):
        output.warning(warning)


def tell_of_server_properties(output: Output, settings: Settings) -> None:
    """A note when broker-level settings may be others than cleanerd takes them for."""
    if settings.daemon.cleanerd_broker_properties is None:
        output.note(
            "server.properties is not read: broker-level settings that KRaft metadata lacks are Kafka's defaults "
            "(--set cleanerd.broker.properties=FILE)"
        )


def tell_warnings(output: Output, configs: Iterable[TopicConfig | None]) -> None:
    """What the operator should know of the topics' settings, once a topic (R280-7, R280-13, U-25)."""
    known = {config.topic: config for config in configs if config is not None}
    for config in known.values():
        for warning in config.warnings:
            output.warning(warning)


def key_rules(settings: Settings, topic: str, said: tuple[str, str] | None = None) -> KeyRules:
    """What decides between the records of a key of ``topic``, as far as cleanerd's own settings say.

    ``said``: strategy and header of ``--strategy``, in place of those of the settings; Kafka's own topics have none.

    Raises:
        ConfigError: a value that nobody knows.
    """
    if topic in NEVER_CLEANED:
        return KAFKAS_RULES
    rules = KeyRules.of(settings.topic_config(topic))
    if said is None or topic in INTERNAL_TOPICS:
        return rules
    strategy, header = said
    return replace(rules, strategy=strategy, header=header.encode() or None)


def tell_links(output: Output, log_dir: LogDir) -> None:
    """Say which partitions are left out because their directory is a symbolic link."""
    for name in log_dir.linked:
        output.warning(f"{log_dir.path / str(name)}: is a symbolic link and not followed; the broker would follow it")


def tell_young_topics(output: Output, beside: Partitions, targets: Sequence[Target]) -> None:
    """Which topics are missing among ``targets`` because their configuration is too young to be believed (U-23)."""
    log_dir, metadata = beside.log_dir, beside.facts.metadata
    if metadata is None or metadata.younger is None:
        return
    there = {target.name.topic for target in targets}
    known = ByDisk(log_dir, replace(beside.facts, metadata=metadata.younger))
    young = sorted({target.name.topic for target in known.targets()} - there)
    if young:
        names = ", ".join(young[:4]) + (", ..." if len(young) > 4 else "")
        output.note(
            f"{log_dir.path}: a broker runs on it, and the configuration of {counted(len(young), 'compacted topic')} "
            f"({names}) is younger than {METADATA_AGE_MS // 60_000} minutes: it does not count yet. Try again later"
        )


def select_in(
    words: Sequence[str], paths: Iterable[Path], *, also: Iterable[TopicPartition] = (), partial: bool = False
) -> Selection:
    """What the words of ``--partition`` mean among the partitions of these log directories, and those of ``also``.

    Where a directory cannot be listed, which whoever works in it tells, a word that means nothing may be about it.
    ``partial``: so it may be anyway.

    Raises:
        ConfigError, RefusedError: see :func:`cleanerd.scope.selection.select`.
    """
    known = list(also)
    places = []
    links: list[str] = []
    for path in paths if words else ():
        places.append(str(path))
        try:
            known += partition_names(path)
            if not isinstance(path, RemotePath):
                links += [word for word in words if parse_topic_partition_dir(word) and (path / word).is_symlink()]
        except CleanerdError:
            partial = True
    linked = f"; {', '.join(links)} is a symbolic link, and none is followed" if links else ""
    hint = f"in {', '.join(places)}{linked}"
    return select(words, known, what="no such partition or topic", hint=hint, partial=partial)
