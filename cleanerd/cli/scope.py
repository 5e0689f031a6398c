"""The partitions that a command line selects, with notes; shared by ``plan`` and ``clean``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cleanerd.cli.output import NONE_COMPACTED
from cleanerd.config.topic_config import INTERNAL_TOPICS, NEVER_CLEANED, TopicConfig
from cleanerd.errors import CleanerdError
from cleanerd.format.names import TopicPartition, parse_topic_partition_dir
from cleanerd.humanize import counted
from cleanerd.resolution.broker_facts import METADATA_AGE_MS, BrokerFacts
from cleanerd.resolution.broker_start import start_warnings
from cleanerd.resolution.partitions import OfflinePartitions, Partitions
from cleanerd.resolution.selection import PartitionSelection, select
from cleanerd.resolution.zk_config_cache import NEVER_QUERIED, QUERY_HINT
from cleanerd.segments.log_dir import LogDir, partition_names
from cleanerd.segments.remote import RemotePath
from cleanerd.verify.rules import KAFKAS_RULES, KeyRules

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from cleanerd.cli.output import Output
    from cleanerd.config.load import Settings
    from cleanerd.resolution.targets import TargetPartition


def note_missing_configs(output: Output, facts: BrokerFacts, log_dir: Path) -> None:
    """A note if topic configurations are unknown: then an empty result may be wrong."""
    for warning in facts.warnings:
        output.warning(warning)
    if facts.zookeeper:
        if not facts.zk_topics and not facts.zk_warnings:
            output.note(f"{log_dir}: {NEVER_QUERIED} ({QUERY_HINT})")
    elif facts.metadata is None:
        output.note(
            f"{log_dir}: no KRaft metadata log found, so topics are treated as compacted only where settings say so "
            "(give the directory that has __cluster_metadata-0: --set cleanerd.metadata.log.dir=DIR)"
        )


def warn_start_obstacles(output: Output, log_dir: LogDir, facts: BrokerFacts) -> None:
    """Warn of files that stop the broker's next start in the log directory (U-60)."""
    for warning in start_warnings(log_dir, facts):
        output.warning(warning)


def note_server_properties(output: Output, settings: Settings) -> None:
    """A note if broker-level settings may differ from those that cleanerd uses."""
    if settings.daemon.cleanerd_broker_properties is None:
        output.note(
            "server.properties is not read: broker-level settings that KRaft metadata lacks are Kafka's defaults "
            "(--set cleanerd.broker.properties=FILE)"
        )


def print_config_warnings(output: Output, configs: Iterable[TopicConfig | None]) -> None:
    """Notes for the operator about the topics' settings, once per topic (R280-7, R280-13, U-25)."""
    known = {config.topic: config for config in configs if config is not None}
    for config in known.values():
        for warning in config.warnings:
            output.warning(warning)


def key_rules(settings: Settings, topic: str, override: tuple[str, str] | None = None) -> KeyRules:
    """The rules that decide between the records of a key of ``topic``, from cleanerd's settings.

    ``override``: strategy and header of ``--strategy``, which replace the settings. Kafka's internal topics ignore
    both.

    Raises:
        ConfigError: an unknown value.
    """
    if topic in NEVER_CLEANED:
        return KAFKAS_RULES
    rules = KeyRules.of(settings.topic_config(topic))
    if override is None or topic in INTERNAL_TOPICS:
        return rules
    strategy, header = override
    return replace(rules, strategy=strategy, header=header.encode() or None)


def note_skipped_links(output: Output, log_dir: LogDir) -> None:
    """Report partitions that are skipped because their directory is a symbolic link."""
    for name in log_dir.linked:
        output.warning(f"{log_dir.path / str(name)}: is a symbolic link and not followed; the broker would follow it")


def note_young_topics(output: Output, beside: Partitions, targets: Sequence[TargetPartition]) -> int:
    """Report topics missing among ``targets`` because their configuration is too new to be trusted (U-23).

    Returns how many there are.
    """
    log_dir, metadata = beside.log_dir, beside.facts.metadata
    if metadata is None or metadata.younger is None:
        return 0
    there = {target.name.topic for target in targets}
    known = OfflinePartitions(log_dir, replace(beside.facts, metadata=metadata.younger))
    young = sorted({target.name.topic for target in known.targets()} - there)
    if young:
        names = ", ".join(young[:4]) + (", ..." if len(young) > 4 else "")
        output.note(
            f"{log_dir.path}: a broker runs on it, and the configuration of {counted(len(young), 'compacted topic')} "
            f"({names}) is younger than {METADATA_AGE_MS // 60_000} minutes: it does not count yet. Try again later"
        )
    return len(young)


def none_compacted(young_topics: int) -> str:
    """Why a table of compacted partitions is empty."""
    if not young_topics:
        return NONE_COMPACTED
    topics = counted(young_topics, "compacted topic", "is")
    return f"No partition counts yet: {topics} younger than {METADATA_AGE_MS // 60_000} minutes."


def select_in(
    words: Sequence[str], paths: Iterable[Path], *, also: Iterable[TopicPartition] = ()
) -> PartitionSelection:
    """The partitions of these log directories, and of ``also``, that the words of ``--partition`` select.

    If a directory cannot be listed, which the command reports, an unknown word may refer to it.

    Raises:
        ConfigError, RefusedError: see :func:`cleanerd.resolution.selection.select`.
    """
    known = list(also)
    places = []
    links: list[str] = []
    partial = False
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
