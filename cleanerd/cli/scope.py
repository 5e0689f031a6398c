"""Which partitions a command line is about, with the configuration of each: what ``plan`` and ``clean`` share."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from cleanerd.apply.offline import Means
from cleanerd.cleaner.survey import Wishes
from cleanerd.errors import CleanerdError, ConfigError, RefusedError
from cleanerd.format.names import TopicPartition, parse_topic_partition_dir
from cleanerd.format.properties import read_properties
from cleanerd.log.cluster_metadata import ClusterMetadata, read_cluster_metadata
from cleanerd.log.topic_config import (
    NEVER_CLEANED,
    TopicConfig,
    require_known_policy,
    resolve_producer_id_expiration_ms,
    resolve_topic_config,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from cleanerd.cli.output import Output
    from cleanerd.log.log_dir import LogDir
    from cleanerd.settings import Settings


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """What is known of the broker that a log directory belongs to. ``metadata`` is None when no KRaft log was found."""

    metadata: ClusterMetadata | None
    node_id: int | None
    server_properties: Mapping[str, str] | None
    settings: Settings

    def topic_config(self, topic: str) -> TopicConfig:
        """The effective configuration of ``topic`` (U-24).

        Raises:
            ConfigError: a value that Kafka would not take.
        """
        return resolve_topic_config(
            topic,
            overrides=self.settings.topic_overrides(topic),
            topic_configs=self._of_topic(topic),
            settings_defaults=self.settings.broker_defaults(),
            **self._broker_layers(),
        )

    def means(self) -> Means:
        """What a cleaning may use.

        Raises:
            ConfigError: ``producer.id.expiration.ms`` has a value that Kafka would not take.
        """
        daemon = self.settings.daemon
        expiration_ms, _ = resolve_producer_id_expiration_ms(
            settings_defaults=self.settings.broker_defaults(), **self._broker_layers()
        )
        return Means(
            map_bytes=daemon.log_cleaner_dedupe_buffer_size,
            map_load=daemon.log_cleaner_io_buffer_load_factor,
            chunk_bytes=daemon.cleanerd_read_buffer_bytes,
            max_unpacked_bytes=daemon.cleanerd_max_unpacked_bytes,
            disk_reserve_bytes=daemon.cleanerd_disk_reserve,
            producer_id_expiration_ms=expiration_ms,
            lease_required=daemon.cleanerd_lease_probe == "required",
        )

    def tell_what_is_missing(self, output: Output, log_dir: Path) -> None:
        """A note when topic configurations are unknown: nothing found to clean may only mean nothing known."""
        if self.metadata is None:
            output.note(
                f"{log_dir}: no KRaft metadata log found, so topics count as compacted only where settings say so "
                "(give the directory that has __cluster_metadata-0: --set cleanerd.metadata.log.dir=DIR)"
            )

    def _of_topic(self, topic: str) -> Mapping[str, str] | None:
        if self.metadata is None or topic not in self.metadata.topics:
            return None
        return self.metadata.topic_configs.get(topic, {})

    def _broker_layers(self) -> dict[str, Any]:
        metadata = self.metadata
        own = metadata.broker_configs.get(self.node_id, {}) if metadata is not None and self.node_id is not None else {}
        return {
            "broker_configs": own,
            "broker_defaults": metadata.broker_default_configs if metadata is not None else {},
            "server_properties": self.server_properties,
        }


def broker_facts(settings: Settings, log_dir: LogDir, others: Sequence[Path]) -> BrokerFacts:
    """Find what is known of ``log_dir``'s broker; the metadata log may lie in any of its log directories (``others``).

    Raises:
        CorruptionError, CleanerdError: the metadata log or server.properties is there and cannot be read.
    """
    configured = settings.daemon.cleanerd_metadata_log_dir
    candidates = [configured] if configured is not None else [log_dir.path, *others]
    found = [path / "__cluster_metadata-0" for path in candidates if (path / "__cluster_metadata-0").is_dir()]
    if configured is not None and not found:
        raise ConfigError(
            "holds no __cluster_metadata-0",
            where=f"cleanerd.metadata.log.dir={configured}",
            hint="give the broker's metadata.log.dir or, when it has none, the first of its log.dirs",
        )
    properties_path = settings.daemon.cleanerd_broker_properties
    return BrokerFacts(
        metadata=read_cluster_metadata(found[0], only_before_ms=None) if found else None,
        node_id=log_dir.meta.node_id,
        server_properties=None if properties_path is None else _server_properties(properties_path),
        settings=settings,
    )


def tell_of_server_properties(output: Output, settings: Settings) -> None:
    """A note when broker-level settings may be others than cleanerd takes them for."""
    if settings.daemon.cleanerd_broker_properties is None:
        output.note(
            "server.properties is not read: broker-level settings that KRaft metadata lacks are Kafka's defaults "
            "(--set cleanerd.broker.properties=FILE)"
        )


def _server_properties(path: Path) -> Mapping[str, str]:
    try:
        return read_properties(path.read_bytes(), str(path))
    except OSError as error:
        raise ConfigError(
            f"cannot be read: {error.strerror}", where=str(path), hint="see cleanerd.broker.properties"
        ) from error


@dataclass(frozen=True, slots=True)
class Target:
    """A partition to look at; ``error`` instead of its configuration when that is wrong or unknown."""

    name: TopicPartition
    config: TopicConfig | None
    error: CleanerdError | None

    def require_config(self) -> TopicConfig:
        """The configuration.

        Raises:
            CleanerdError: there is none; says why.
        """
        if self.config is None:
            raise self.error or CleanerdError("has no configuration", where=str(self.name))
        return self.config


def compacted_partitions(facts: BrokerFacts, log_dir: LogDir, wanted: Sequence[TopicPartition]) -> list[Target]:
    """The partitions of ``log_dir`` to look at: those in ``wanted``, or all that are known to be compacted.

    A wanted partition that is not compacted, or whose policy nobody stated, is a target with that error.
    """
    targets = []
    for name in log_dir.partitions:
        if (wanted and name not in wanted) or name.topic in NEVER_CLEANED:
            continue
        try:
            config = facts.topic_config(name.topic)
            if wanted:
                _require_compacted(config)
        except CleanerdError as error:
            targets.append(Target(name, None, error))
            continue
        if config.is_compacted:
            targets.append(Target(name, config, None))
    return targets


def _require_compacted(config: TopicConfig) -> None:
    require_known_policy(config)
    if not config.is_compacted:
        raise ConfigError(
            f"cleanup.policy is {','.join(sorted(config.cleanup_policy))}, not compact",
            where=config.topic,
            hint=f"it comes from: {config.origins['cleanup.policy']}",
        )


def parse_partitions(values: Sequence[str]) -> tuple[TopicPartition, ...]:
    """The values of ``--partition``.

    Raises:
        click.BadParameter: one is no partition's name.
    """
    names = []
    for value in values:
        name = parse_topic_partition_dir(value)
        if name is None:
            raise click.BadParameter(f"{value!r} is not of the form TOPIC-N", param_hint="--partition")
        if name.topic in NEVER_CLEANED:
            raise RefusedError("is never cleaned by anybody but its own raft layer", where=value)
        names.append(name)
    return tuple(names)


def require_found(wanted: Sequence[TopicPartition], log_dirs: Sequence[LogDir]) -> None:
    """Every ``--partition`` is in one of the directories.

    Raises:
        ConfigError: one is not.
    """
    present = {name for log_dir in log_dirs for name in log_dir.partitions}
    for name in wanted:
        if name not in present:
            raise ConfigError(
                "no such partition", where=str(name), hint="in " + ", ".join(str(log_dir.path) for log_dir in log_dirs)
            )


def wishes_from(options: Mapping[str, Any]) -> Wishes:
    """The cleaning options of a command line.

    Raises:
        click.UsageError: two of them contradict.
    """
    if options["from_start"] and options["first_dirty"] is not None:
        raise click.UsageError("--first-dirty and --from-start exclude each other")
    now_ms = options["now_ms"]
    return Wishes(
        now_ms=time.time_ns() // 1_000_000 if now_ms is None else now_ms,
        force=options["force"],
        first_dirty_offset=options["first_dirty"],
        from_start=options["from_start"],
        up_to_offset=options["up_to"],
        unclean=options["unclean"],
    )


def cleaning_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--partition --force --first-dirty --from-start --now-ms --up-to --unclean`` (cli.md)."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


_OPTIONS = (
    click.option(
        "--partition", "partitions", multiple=True, metavar="TOPIC-N", help="Only this partition. Repeatable."
    ),
    click.option("--force", is_flag=True, help="Whatever min.cleanable.dirty.ratio says."),
    click.option("--first-dirty", type=click.IntRange(min=0), metavar="OFFSET", help="Instead of the checkpoint's."),
    click.option("--from-start", is_flag=True, help="The whole log counts as dirty."),
    click.option(
        "--now-ms", type=click.IntRange(min=0), metavar="MS", help="The time for every horizon. Default: the clock."
    ),
    click.option(
        "--up-to", type=click.IntRange(min=0), metavar="OFFSET", help="Clean less far; never above the bound."
    ),
    click.option(
        "--unclean", is_flag=True, help="The broker was not stopped cleanly: clean what lies below the recovery point."
    ),
)
