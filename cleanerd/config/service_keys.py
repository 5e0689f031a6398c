"""The daemon's keys: which log directories, when, how fast, and its addresses."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from cleanerd.config.kafka_values import INT_MAX, LONG_MAX
from cleanerd.config.kinds import (
    Canary,
    Count,
    Flag,
    Hosts,
    KeyThreshold,
    Listen,
    Master,
    Milliseconds,
    Paths,
    PathValue,
    Peers,
    Rate,
    Size,
    Topics,
    ValueKind,
    WindowsValue,
)
from cleanerd.config.model import SettingsModel
from cleanerd.policy.windows import Windows

Mode = Annotated[Literal["auto", "live", "on-start", "observe"], ValueKind("one of: auto, live, on-start, observe")]


class ServiceSettings(SettingsModel):
    """Settings that only ``cleanerd run`` and its clients use."""

    cleanerd_mode: Mode = Field(
        "observe",
        description="What the daemon does. observe: works out exactly what a cleaning would save and writes nothing "
        "to a log directory. live: cleans beside the running broker, whose agent swaps the segments. on-start: "
        "stages, and cleanerd apply swaps before the next start of the broker. auto: live where the broker has the "
        "agent, else on-start.",
    )
    cleanerd_log_dirs: Paths = Field(
        (),
        description="The log directories that the daemon looks after. Default: log.dirs (or log.dir) of "
        "cleanerd.broker.properties.",
        examples=["/var/lib/kafka/data"],
    )
    cleanerd_topics_include: Topics = Field(
        ("*",),
        description="Topics that the daemon cleans, if they are compacted. Internal ones (__consumer_offsets, "
        "__transaction_state, __share_group_state, __remote_log_metadata) only when their own names are in the list.",
    )
    cleanerd_topics_exclude: Topics = Field(
        (),
        description="Topics that the daemon leaves alone. Stronger than the list above. Default: none.",
        examples=["tmp-*"],
    )
    cleanerd_windows: WindowsValue = Field(
        Windows(),
        description="When the daemon may begin a cleaning, in local time: days, hours, or both; several with "
        "semicolons. A partition that max.compaction.lag.ms makes overdue does not wait, nor one that an operator "
        "asked for. Default: always.",
        examples=["Mon-Fri 22:00-06:00; Sat,Sun"],
    )
    cleanerd_canary: Canary = Field(
        None,
        description="How much the daemon cleans before it verifies what it cleaned: a number of partitions, or a size "
        "of logs per day. It goes on when nothing is wrong, else it cleans nothing more until an operator decides. "
        "off: it cleans without a stop.",
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
        description="How often the daemon scans every partition. Where the file system reports a change it looks "
        "at once.",
    )
    log_cleaner_io_max_bytes_per_second: Rate = Field(
        None, description="The most that the daemon's cleanings read and write, added up."
    )
    cleanerd_io_read_max_bytes_per_second: Rate = Field(
        None, description="The most that the daemon's cleanings read. This includes reads from the page cache."
    )
    cleanerd_io_write_max_bytes_per_second: Rate = Field(
        None, description="The most that the daemon's cleanings write."
    )
    cleanerd_estimate_bytes: Size = Field(
        256 << 20,
        ge=0,
        le=LONG_MAX,
        description="How much of a partition is read to estimate what a cleaning would save; one that is smaller is "
        "worked out exactly. The more of a large one is read, the smaller is the error. For the daemon, which does it "
        "while it has nothing to clean, and at most for cleanerd plan. 0: nothing is estimated.",
    )
    cleanerd_digest_percent: Count = Field(
        5,
        ge=0,
        le=50,
        description="How much of one worker's time the daemon may use, while it has nothing to clean, to compute "
        "digests of the partitions' latest states. cleanerd cluster status compares those of all replicas, and so does "
        "the daemon where cleanerd.cluster.peers is set. Each digest reads the whole partition. 0: none.",
    )
    cleanerd_passes_bytes: Size = Field(
        16 << 30,
        ge=0,
        le=LONG_MAX,
        description="How much one cleaning of the daemon may read in several passes, which it needs where the keys fit "
        "neither log.cleaner.dedupe.buffer.size nor cleanerd.map.max.bytes. One pass is always allowed. Then the "
        "cleaning ends early, other partitions get a turn, and a later cleaning continues where it ended. Not for "
        "cleanings that are staged.",
    )
    cleanerd_retry_backoff_ms: Milliseconds = Field(
        60_000,
        ge=1,
        le=LONG_MAX,
        description="How long a partition is left alone after a failure. Each further failure doubles it.",
    )
    cleanerd_retry_backoff_max_ms: Milliseconds = Field(
        21_600_000, ge=1, le=LONG_MAX, description="The longest time that a partition is left alone after failures."
    )
    cleanerd_http_listen: Listen = Field(
        ("127.0.0.1", 10280),
        description="Where metrics, status and the status page are served, read only and without a password. off: "
        "nowhere.",
    )
    cleanerd_http_hosts: Hosts = Field(
        (),
        description="Host names under which clients reach that address (the Host header). IP addresses and localhost "
        "always work where they lead here. Any other name must be in the list, so that no web page reaches the server "
        "through a browser. Default: none for a loopback address, else the names of this host.",
        examples=["kafka-1.example"],
    )
    cleanerd_cluster_peers: Peers = Field(
        (),
        description="The daemons of all brokers of the cluster, by broker id: where their cleanerd.http.listen serves "
        "their status. A port alone: there on the host of each broker that bootstrap.servers name. The page /cluster "
        "shows them side by side. Tombstones and transaction markers then wait until every replica is as clean as this "
        "one, for a day at most where a daemon does not answer. This protects replicas that are added. Default: none.",
        examples=["10280", "1=kafka-1.example:10280,2=kafka-2.example:10280"],
    )
    cleanerd_metrics_kafka_names: Flag = Field(
        True,
        description="Whether the metrics include those of Kafka's own cleaner under the names that alerts know.",
    )
    cleanerd_metrics_partitions_max: Count = Field(
        1000,
        ge=0,
        le=INT_MAX,
        description="How many partitions have time series of their own in /metrics. Those beyond are in the sums only.",
    )
    cleanerd_control_socket: PathValue | None = Field(
        None,
        description="The socket of cleanerd status, top, trigger, pause, resume, retry and reload. Default: "
        "control.sock in $RUNTIME_DIRECTORY (systemd), else in the state directory.",
        examples=["/run/cleanerd/control.sock"],
    )
    cleanerd_keep_replaced_dir: Paths = Field(
        (),
        description="Where the daemon keeps the segments that its cleanings replace, for cleanerd undo: a directory "
        "outside of every log directory, on the same file system; with log directories on several, one on each. While "
        "it cannot be used nothing is cleaned. What is kept takes its space until the two limits below remove it. "
        "Default: nothing is kept.",
        examples=["/var/lib/kafka/kept"],
    )
    cleanerd_keep_replaced_retention_ms: Milliseconds = Field(
        86_400_000,
        ge=0,
        le=LONG_MAX,
        description="How long replaced segments are kept. Records that were deleted on purpose stay readable as long.",
    )
    cleanerd_keep_replaced_retention_bytes: Size = Field(
        10 << 30,
        ge=0,
        le=LONG_MAX,
        description="How much is kept for each log directory. The oldest is deleted first. When one cleaning replaces "
        "more than that, nothing of it is kept, and its result says so.",
    )
    cleanerd_spark_threshold_keys: KeyThreshold = Field(
        None,
        description="A partition with at least this many keys (estimated) is cleaned by Spark (cleanerd spark clean) "
        "instead of by the daemon itself. This applies only where the daemon stages: never where it cleans live or "
        "observes. See docs/spark.md.",
    )
    cleanerd_spark_master: Master = Field(
        "local[*]", description="The Spark master that runs what the daemon hands over to Spark."
    )
