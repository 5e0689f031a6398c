"""Every key that this release honours, with its default, its range and what it does.

Two models: :class:`DaemonSettings` for broker-level keys (Kafka's names) and cleanerd's own (``cleanerd.``),
``TopicSettings`` for the keys of one topic, from the table in ``topic_keys``. A field's key is its name with dots. The
models convert text (see ``sources``) to typed values and check Kafka's ranges.

A key of a later release is unknown, so setting it is an error.

The daemon's keys: which log directories, when, how fast, and its addresses.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, get_args

from annotated_types import Ge, Le
from pydantic import BaseModel, ConfigDict, Field, create_model

from cleanerd.config import strategy_keys
from cleanerd.config.kafka_values import INT_MAX, LONG_MAX, NumberRule, ValueRule
from cleanerd.config.kinds import (
    Canary,
    CleanupPolicy,
    Count,
    Flag,
    Fraction,
    Header,
    Hosts,
    KeyThreshold,
    Listen,
    Master,
    Milliseconds,
    Paths,
    PathValue,
    Peers,
    Rate,
    Reserve,
    Retention,
    RetentionHours,
    RetentionMinutes,
    Servers,
    Size,
    Strategy,
    Topics,
    ValueKind,
    Version,
    WindowsValue,
    as_kind,
    write_policy,
    write_topics,
)
from cleanerd.config.topic_keys import TOPIC_RULES, rule_of_broker_key
from cleanerd.policy.windows import Windows

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo


def key_of(field_name: str) -> str:
    """The key of a model's field: the field's name with dots."""
    return field_name.replace("_", ".")


class SettingsModel(BaseModel):
    """A model whose fields are keys; unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=key_of)


Mode = Annotated[Literal["auto", "live", "on-start", "observe"], ValueKind("one of: auto, live, on-start, observe")]


class ServiceSettings(SettingsModel):
    """Settings that only ``cleanerd run`` and its clients use."""

    cleanerd_mode: Mode = Field(
        "observe",
        description="What the daemon does. observe: computes what a cleaning would save and writes nothing to a log "
        "directory. live: cleans beside the running broker, whose agent swaps the segments. on-start: "
        "stages, and cleanerd apply swaps before the next start of the broker. auto: live if the broker has "
        "the agent, otherwise on-start.",
    )
    cleanerd_log_dirs: Paths = Field(
        (),
        description="The log directories that the daemon cleans. Commands use them too if you name none. Default: "
        "log.dirs (or log.dir) of cleanerd.broker.properties.",
        examples=["/var/lib/kafka/data"],
    )
    cleanerd_topics_include: Topics = Field(
        ("*",),
        description="Topics that the daemon cleans, if they are compacted. Internal topics (__consumer_offsets, "
        "__transaction_state, __share_group_state, __remote_log_metadata) only if the list has their exact "
        "names.",
    )
    cleanerd_topics_exclude: Topics = Field(
        (),
        description="Topics that the daemon does not clean, even if they are in the list above. Default: none.",
        examples=["tmp-*"],
    )
    cleanerd_windows: WindowsValue = Field(
        Windows(),
        description="When the daemon may begin a cleaning, in local time: days, hours, or both; several with "
        "semicolons. Partitions that are overdue by max.compaction.lag.ms, and manual cleanings, do not "
        "wait. Default: always.",
        examples=["Mon-Fri 22:00-06:00; Sat,Sun"],
    )
    cleanerd_canary: Canary = Field(
        None,
        description="How much the daemon cleans before it verifies the result: a number of partitions, or a size of "
        "logs per day. If nothing is wrong, it continues. Otherwise it cleans nothing until an operator "
        "decides. off: no verification.",
        examples=["5 partitions", "200 MiB per day"],
    )
    cleanerd_threads_per_log_dir: Count = Field(
        1024,
        ge=1,
        le=1024,
        description="How many partitions of one log directory the daemon cleans at once; log.cleaner.threads limits "
        "all directories together.",
    )
    log_cleaner_backoff_ms: Milliseconds = Field(
        15_000,
        ge=0,
        le=LONG_MAX,
        description="How often the daemon scans all partitions. If the file system reports a change, it scans at once.",
    )
    log_cleaner_io_max_bytes_per_second: Rate = Field(
        None, description="Limit of what the daemon's cleanings read and write together."
    )
    cleanerd_io_read_max_bytes_per_second: Rate = Field(
        None, description="Limit of what the daemon's cleanings read, page cache included."
    )
    cleanerd_io_write_max_bytes_per_second: Rate = Field(
        None, description="Limit of what the daemon's cleanings write."
    )
    cleanerd_estimate_bytes: Size = Field(
        256 << 20,
        ge=0,
        le=LONG_MAX,
        description="How much of a partition is read to estimate what a cleaning would save. A smaller partition is "
        "read completely, so its figure is exact. A larger sample has a smaller error. The daemon estimates "
        "while it has nothing to clean. 0: no estimates.",
    )
    cleanerd_digest_percent: Count = Field(
        5,
        ge=0,
        le=50,
        description="Largest part of one worker's time for digests of the partitions' latest states, while there is "
        "nothing to clean. cleanerd cluster status compares the digests of all replicas; with "
        "cleanerd.cluster.peers the daemon does so too. Each digest reads the whole partition. 0: no "
        "digests.",
    )
    cleanerd_passes_bytes: Size = Field(
        16 << 30,
        ge=0,
        le=LONG_MAX,
        description="How much one cleaning of the daemon may read in several passes. It needs them if the keys fit "
        "neither log.cleaner.dedupe.buffer.size nor cleanerd.map.max.bytes. At the limit, the cleaning ends "
        "early and a later one continues there. One pass is always allowed. Does not apply to staged "
        "cleanings.",
    )
    cleanerd_retry_backoff_ms: Milliseconds = Field(
        60_000,
        ge=1,
        le=LONG_MAX,
        description="How long a partition is not cleaned after a failure. Each further failure doubles the time.",
    )
    cleanerd_retry_backoff_max_ms: Milliseconds = Field(
        21_600_000, ge=1, le=LONG_MAX, description="The longest wait after failures."
    )
    cleanerd_http_listen: Listen = Field(
        ("127.0.0.1", 10280),
        description="Address of metrics, status and the status page. They are read-only and have no password. off: no "
        "HTTP server.",
    )
    cleanerd_http_hosts: Hosts = Field(
        (),
        description="Host names by which clients may reach that address (the Host header). IP addresses of this host "
        "and localhost are always allowed. Other names are refused, so that no web page can reach the "
        "server through a browser. Default: none for a loopback address, otherwise the names of this host.",
        examples=["kafka-1.example"],
    )
    cleanerd_cluster_peers: Peers = Field(
        (),
        description="The status addresses of all daemons of the cluster (cleanerd.http.listen), by broker id. A port "
        "alone means that port on the brokers of bootstrap.servers. The page /cluster shows all daemons. "
        "Tombstones and transaction markers then wait until every replica is as clean as this one, at most "
        "a day if a daemon does not answer. This protects new replicas. Default: none.",
        examples=["10280", "1=kafka-1.example:10280,2=kafka-2.example:10280"],
    )
    cleanerd_metrics_kafka_names: Flag = Field(
        True,
        description="Whether /metrics also has the metrics of Kafka's own cleaner, under Kafka's names.",
    )
    cleanerd_metrics_partitions_max: Count = Field(
        1000,
        ge=0,
        le=INT_MAX,
        description="How many partitions have their own time series in /metrics. The others are only in the sums.",
    )
    cleanerd_control_socket: PathValue | None = Field(
        None,
        description="The socket of cleanerd status, top, trigger, pause, resume, retry and reload. Default: "
        "control.sock in $RUNTIME_DIRECTORY (systemd), otherwise in the state directory.",
        examples=["/run/cleanerd/control.sock"],
    )
    cleanerd_keep_replaced_dir: Paths = Field(
        (),
        description="Where the daemon keeps replaced segments for cleanerd undo: a directory outside every log "
        "directory, on the same file system. For log directories on several file systems, name one on each. "
        "If it cannot be used, nothing is cleaned. The two limits below remove kept segments. Default: no "
        "segments are kept.",
        examples=["/var/lib/kafka/kept"],
    )
    cleanerd_keep_replaced_retention_ms: Milliseconds = Field(
        86_400_000,
        ge=0,
        le=LONG_MAX,
        description="How long replaced segments are kept. Records that were deleted on purpose stay readable for this "
        "time.",
    )
    cleanerd_keep_replaced_retention_bytes: Size = Field(
        10 << 30,
        ge=0,
        le=LONG_MAX,
        description="How much is kept for each log directory. The oldest segments are deleted first. If one cleaning "
        "replaces more than this, none of its segments are kept, and its result says so.",
    )
    cleanerd_spark_threshold_keys: KeyThreshold = Field(
        None,
        description="A partition with at least this many keys (estimated) is cleaned by Spark (cleanerd spark clean). "
        "This applies only where the daemon stages, not where it cleans live or observes. See "
        "docs/spark.md.",
    )
    cleanerd_spark_master: Master = Field("local[*]", description="The Spark master for these partitions.")


def _range_of(rule: ValueRule) -> dict[str, Any]:
    """The limits of a number, for pydantic."""
    return {"ge": rule.least, "le": rule.most} if isinstance(rule, NumberRule) else {}


def _of_broker(key: str, description: str, examples: list[Any] | None = None) -> Any:
    """The field of one of Kafka's broker keys, with default and range from ``topic_keys``."""
    rule, default = rule_of_broker_key(key)
    return Field(default, description=description, examples=examples, **_range_of(rule))


class DaemonSettings(ServiceSettings):
    """Broker-level keys. Kafka's keys apply where neither the topic nor the broker sets them (U-24)."""

    log_cleaner_dedupe_buffer_size: Size = Field(
        134_217_728,
        ge=1_048_577,
        le=LONG_MAX,
        description="Memory for the offset maps of all threads together. If the keys do not fit, they are written to "
        "disk (cleanerd.map.dir), or the log is read in several passes. The result is the same.",
    )
    log_cleaner_threads: Count = Field(
        1,
        ge=1,
        le=1024,
        description="How many partitions are cleaned at once. If there are fewer partitions, several threads work on "
        "one. The partitions share the memory of the offset maps.",
    )
    log_cleaner_io_buffer_load_factor: Fraction = Field(
        0.85,
        ge=0.1,
        le=0.95,
        description="How full the offset map may become. Kafka has the same setting for its own map, with the default "
        "0.9.",
    )
    cleanerd_map_dir: PathValue | None = Field(
        None,
        description="A directory on a fast local disk that the broker does not use. If the keys do not fit in memory, "
        "a cleaning writes them to a file there: 24 bytes per record, 32 with a version. It then reads the "
        "log once instead of in several passes. The file has no name, and its space is free again when the "
        "cleaning ends or is killed (docs/performance.md). Default: the state directory.",
        examples=["/mnt/nvme/cleanerd"],
    )
    cleanerd_map_max_bytes: Size = Field(
        8 << 30,
        ge=0,
        le=LONG_MAX,
        description="Largest size of that file per cleaning. If the keys need more, the log is read in several passes. "
        "0: no file.",
    )
    log_cleaner_compaction_strategy: Strategy = _of_broker(
        "log.cleaner.compaction.strategy",
        "Which record of a key is retained, for topics that do not set it. offset: the highest offset. "
        "timestamp: the highest timestamp. header: the highest version in a header. Internal topics always "
        "use offset.",
    )
    log_cleaner_compaction_strategy_header: Header = _of_broker(
        "log.cleaner.compaction.strategy.header",
        "The header with a record's version, for topics of the header strategy that do not name one. If it "
        "is blank, such a topic is cleaned by offset. Not set by default.",
        examples=["version"],
    )
    cleanerd_strategy_exclude: Topics = Field(
        strategy_keys.DEFAULT_EXCLUDE,
        description="Topics to which log.cleaner.compaction.strategy does not apply, because other programs rely on "
        "Kafka's compaction. A strategy that is set for the topic itself still applies.",
    )
    log_cleaner_min_cleanable_ratio: Fraction = _of_broker(
        "log.cleaner.min.cleanable.ratio",
        "A log is cleaned if its dirty ratio is above this: the bytes of the dirty section, divided by "
        "those of the clean and the dirty section.",
    )
    log_cleaner_min_compaction_lag_ms: Milliseconds = _of_broker(
        "log.cleaner.min.compaction.lag.ms",
        "Records younger than this are not cleaned.",
    )
    log_cleaner_max_compaction_lag_ms: Milliseconds = _of_broker(
        "log.cleaner.max.compaction.lag.ms",
        "A log with a dirty record older than this is cleaned at any dirty ratio. The default, "
        "9223372036854775807, means no limit.",
    )
    log_cleaner_delete_retention_ms: Milliseconds = _of_broker(
        "log.cleaner.delete.retention.ms",
        "How long a tombstone stays after the first cleaning that found it.",
    )
    log_cleanup_policy: CleanupPolicy = _of_broker(
        "log.cleanup.policy",
        "cleanup.policy of topics that set none. A topic without metadata needs its own cleanup.policy to be cleaned.",
    )
    log_segment_bytes: Size = _of_broker(
        "log.segment.bytes",
        "Neighbouring segments are merged up to this size.",
    )
    log_index_size_max_bytes: Size = _of_broker(
        "log.index.size.max.bytes",
        "Largest offset and time index of a segment; also limits merging.",
    )
    log_index_interval_bytes: Size = _of_broker(
        "log.index.interval.bytes",
        "Bytes of log between two entries of the indexes that are written.",
    )
    message_max_bytes: Size = _of_broker(
        "message.max.bytes",
        "A rewritten batch that is larger is written anyway, counted and logged.",
    )
    producer_id_expiration_ms: Milliseconds = _of_broker(
        "producer.id.expiration.ms",
        "If a producer has not written for this time, its last batch can be removed. Until then it is kept.",
    )
    log_retention_ms: Retention | None = Field(
        None,
        le=LONG_MAX,
        description="Retention of topics with cleanup.policy compact,delete. The broker deletes by age, not cleanerd. "
        "cleanerd merges only segments that together span at most a tenth of this time, so that the broker "
        "can. Overrides minutes and hours. Not set by default.",
        examples=["7d"],
    )
    log_retention_minutes: RetentionMinutes | None = Field(
        None,
        le=INT_MAX,
        description="The same in minutes; overrides hours. Not set by default.",
        examples=["7d"],
    )
    log_retention_hours: RetentionHours = Field(168, le=INT_MAX, description="The same in hours.")
    cleanerd_state_dir: PathValue = Field(
        Path("/var/lib/cleanerd"),
        description="Where cleanerd stores how far each partition is clean, by which settings, the quarantine, and the "
        "data for undo. All commands on a host need the same directory. Default: $STATE_DIRECTORY "
        "(systemd), otherwise /var/lib/cleanerd if it exists, otherwise $XDG_STATE_HOME/cleanerd or "
        "~/.local/state/cleanerd.",
    )
    cleanerd_broker_properties: PathValue | None = Field(
        None,
        description="The broker's server.properties, read for log and cleaner keys only. Default: not read.",
        examples=["/etc/kafka/server.properties"],
    )
    cleanerd_metadata_log_dir: PathValue | None = Field(
        None,
        description="The directory with __cluster_metadata-0, which has the topic configurations. Default: "
        "metadata.log.dir of cleanerd.broker.properties, otherwise the log directories.",
        examples=["/var/lib/kafka/metadata"],
    )
    bootstrap_servers: Servers | None = Field(
        None,
        description="Brokers to which cleanerd delegate and undelegate connect. In ZooKeeper mode, the daemon and all "
        "commands read the topics' configuration from them. Default: those of cleanerd.command.config, if "
        "it names any.",
        examples=["127.0.0.1:9092"],
    )
    cleanerd_command_config: PathValue | None = Field(
        None,
        description="A client properties file, as for --command-config of Kafka's tools: TLS, user and password. "
        "cleanerd uses it for every connection to a broker. Default: no TLS, no login.",
        examples=["/etc/cleanerd/client.properties"],
    )
    cleanerd_delegation: Annotated[Literal["check", "assumed"], ValueKind("one of: check, assumed")] = Field(
        "check",
        description="A topic with a non-default strategy is cleaned only if the broker's own cleaner skips it "
        "(cleanerd delegate). check: the cluster's metadata and server.properties must show that. assumed: you "
        "guarantee it if they are not available; otherwise they decide.",
    )
    cleanerd_disk_reserve: Reserve = Field(
        None,
        ge=0,
        le=LONG_MAX,
        description="Free space that cleaning leaves on the log directory's disk. auto: the larger of 10 % of the "
        "disk and two segments.",
    )
    cleanerd_plan_max_age_ms: Milliseconds = Field(
        604_800_000,
        ge=1,
        le=LONG_MAX,
        description="How old a staged cleaning may be when cleanerd apply swaps it in. A tombstone that it finds for "
        "the first time stays this much longer, because the old values are readable until the swap.",
    )
    cleanerd_max_unpacked_bytes: Size = Field(
        1_073_741_824,
        ge=1_048_576,
        le=LONG_MAX,
        description="Largest decompressed size of one batch; less if cleanerd's memory limit, threads and offset maps "
        "leave less (docs/install.md, Memory). A partition with a larger batch is quarantined, because any "
        "producer can make a small batch that decompresses to gigabytes.",
    )
    cleanerd_read_buffer_bytes: Size = Field(
        4_194_304,
        ge=65_536,
        le=INT_MAX,
        description="How much of a segment is read and decoded at once. A larger batch is still read whole.",
    )
    cleanerd_broker_version: Version = Field(
        None,
        description="Kafka release that will run on the log directories. From 4.0 on, cleaning rewrites messages of "
        "format v0 and v1 as v2, like that broker's own cleaner. For older releases they keep their format. "
        "auto: the release in the cluster metadata; without it, 4.0 or later.",
    )
    cleanerd_agent_socket: PathValue | None = Field(
        None,
        description="The socket of cleanerd's agent in the running broker. Default: .cleanerd-agent.sock in one of the "
        "log directories.",
        examples=["/run/kafka/cleanerd-agent.sock"],
    )
    cleanerd_lease_probe: Annotated[Literal["auto", "required"], ValueKind("one of: auto, required")] = Field(
        "auto",
        description="Before an offline swap, cleanerd checks with the kernel that no process has a segment open. Some "
        "file systems cannot report it. Then required refuses the swap, and auto relies on the log "
        "directory's lock.",
    )

    @property
    def contradiction(self) -> str:
        """Which keys contradict each other, although each value is valid; empty for none."""
        if self.log_cleaner_min_compaction_lag_ms > self.log_cleaner_max_compaction_lag_ms:
            return "log.cleaner.min.compaction.lag.ms is above log.cleaner.max.compaction.lag.ms"
        return ""


def _topic_kind(key: str, rule: ValueRule) -> Any:
    """The kind of a topic key in cleanerd's settings, which accept units; None: it is not set."""
    if isinstance(rule, NumberRule):
        return (Milliseconds if key.endswith(".ms") else Size) | None
    return as_kind(rule) | None


_TOPIC_FIELDS: Final[dict[str, Any]] = {
    key.replace(".", "_"): (
        _topic_kind(key, rule.value),
        Field(None, description=rule.about, examples=[rule.example], **_range_of(rule.value)),
    )
    for key, rule in TOPIC_RULES.items()
    if rule.about
}
TopicSettings: Final = create_model("TopicSettings", __base__=SettingsModel, **_TOPIC_FIELDS)
"""Keys of ``[topics."name"]``, which override the topic's configuration in the cluster (U-24)."""

DAEMON_FIELDS: Final = {key_of(name): field for name, field in DaemonSettings.model_fields.items()}
TOPIC_FIELDS: Final = {key_of(name): field for name, field in TopicSettings.model_fields.items()}


def kind_of(field: FieldInfo) -> ValueKind:
    """The kind of a key's value; for an optional key, of the value if it is set."""
    inner = (annotation for option in get_args(field.annotation) for annotation in getattr(option, "__metadata__", ()))
    return next(annotation for annotation in (*field.metadata, *inner) if isinstance(annotation, ValueKind))


def valid_values(field: FieldInfo, allowed: str | None = None) -> str:
    """A key's allowed values, for messages, without the limits of Java's types.

    ``allowed``: replaces the text of the key's kind.
    """
    least = [annotation.ge for annotation in field.metadata if isinstance(annotation, Ge)]
    most = [annotation.le for annotation in field.metadata if isinstance(annotation, Le)]
    text = allowed or kind_of(field).valid
    if least:
        text += f"; at least {least[0]}"
    if most and most[0] != LONG_MAX:
        text += f"; at most {'2^31-1' if most[0] == INT_MAX else most[0]}"
    return text


def kafka_text(value: object) -> str:
    """A value as Kafka's parser reads it: plain numbers in the key's unit."""
    if isinstance(value, tuple):
        return write_topics(value)
    return write_policy(value) if isinstance(value, frozenset) else str(value)
