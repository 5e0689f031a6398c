"""The live part of the demonstration: a broker with the agent, continuous load, and ``cleanerd run`` beside it.

::

    start     broker, two topics, delegation; writers, a reader, the daemon
    watch     a sample every few seconds: bytes written, on the disk, and swapped
    finish    the load ends, the daemon cleans what is left; consumers read everything, compared with the model
    stop      daemon, broker; ``cleanerd verify`` has the last word
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from cleanerd.broker.agent_jar import jar_path
from cleanerd.client.rules import TopicRules
from cleanerd.errors import ConfigError
from cleanerd.format.names import SEGMENT_SUFFIX
from cleanerd_lab.demo.broker import Broker
from cleanerd_lab.demo.command import Command
from cleanerd_lab.demo.compare import WrongKeys, wrong_keys
from cleanerd_lab.demo.daemon import Daemon, DaemonError
from cleanerd_lab.demo.load import PARTITIONS, SEGMENT_MS, LoadReader, Writer
from cleanerd_lab.demo.patience import PATIENCE_SECONDS
from cleanerd_lab.demo.reading import read_with_confluent
from cleanerd_lab.demo.strategies import STRATEGY
from cleanerd_lab.demo.traffic import create_topics

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from types import TracebackType

    from cleanerd_lab.demo.jars import KafkaRelease

BY_OFFSET: Final = "clicks"
BY_VERSION: Final = "balances"
RULES: Final[Mapping[str, Mapping[str, str]]] = {BY_OFFSET: {}, BY_VERSION: STRATEGY}
TOPIC_CONFIG: Final = {
    "cleanup.policy": "compact",
    "segment.ms": str(SEGMENT_MS),
    # A segment that was just swapped is not swapped again while the broker still has the old one's files.
    "file.delete.delay.ms": "1000",
}
RECORDS_PER_SECOND: Final = 2_000
"""The rate of each topic."""

_CONTROL: Final = "control.sock"
_MAX_PATH_BYTES: Final = 107 - len(_CONTROL) - 1
"""Limit of a socket's path; the agent's own has a way around it."""
_SAMPLE_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 0.3


@dataclass(frozen=True, slots=True)
class LiveSample:
    """One sample. ``waiting_bytes``: dirty and cleanable; the last three are the daemon's counters."""

    seconds: float
    records: int
    written_bytes: int
    log_bytes: int
    waiting_bytes: int
    cleanings: int
    swaps: int
    removed: int


@dataclass(frozen=True, slots=True)
class LiveTopic:
    """The result of one topic. ``uncleaned``, ``wrong``: wrong keys of a plain consumer without and with cleanerd."""

    topic: str
    strategy: str
    acknowledged: int
    keys: int
    out_of_order: int
    left: int
    written_bytes: int
    log_bytes: int
    uncleaned: WrongKeys
    wrong: WrongKeys


@dataclass(frozen=True, slots=True)
class LiveResult:
    """The results. ``findings``: errors that ``cleanerd verify`` found; ``slowest_ms``: a producer's longest wait."""

    topics: tuple[LiveTopic, ...]
    cleanings: int
    failed_cleanings: int
    swaps: int
    refused_swaps: int
    readings: int
    read_records: int
    client_errors: tuple[str, ...]
    slowest_ms: float
    stop_seconds: float
    findings: int

    @property
    def good(self) -> bool:
        """Whether clients saw no errors, every key is right, the log is consistent, and something was cleaned."""
        right = not any(topic.wrong.keys for topic in self.topics)
        return right and not self.client_errors and not self.findings and not self.failed_cleanings and self.swaps > 0


class LiveDemo:
    """One run in ``work_dir``. As a context manager it ends everything that it started."""

    def __init__(self, release: KafkaRelease, work_dir: Path, *, seed: int) -> None:
        _require_short(work_dir)
        agent = f"-javaagent:{jar_path()}"
        self._broker = Broker(release.libs_dir, work_dir / "broker", version=release.version, jvm_args=[agent])
        self._work_dir = work_dir
        self._seed = seed
        self._daemon = Daemon(work_dir, self._config())
        self._command = Command(self._broker, work_dir, self._daemon.config)
        self._writers: dict[str, Writer] = {}
        self._reader = LoadReader(self._broker.bootstrap, tuple(RULES))
        self._started = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for writer in self._writers.values():
            writer.abandon()
        self._reader.abandon()
        self._daemon.kill()
        self._broker.kill()

    @property
    def url(self) -> str:
        """Address of the daemon's status page."""
        return self._daemon.url

    @property
    def bootstrap(self) -> str:
        """The address for clients."""
        return self._broker.bootstrap

    def start(self) -> None:
        """Start everything; returns when the daemon is ready and the load runs.

        Raises:
            BrokerError: the broker did not start or refused a topic.
            CleanerdError: ``cleanerd delegate`` failed, or the daemon did not get ready.
        """
        self._broker.start()
        create_topics(self._broker.bootstrap, list(RULES), TOPIC_CONFIG, partitions=PARTITIONS)
        for topic in RULES:
            self._command.run("delegate", "--yes", topic)
        for number, (topic, rules) in enumerate(RULES.items()):
            rate, seed = RECORDS_PER_SECOND, self._seed + number
            writer = Writer(self._broker.bootstrap, topic, TopicRules.of_config(rules), rate=rate, seed=seed)
            self._writers[topic] = writer
            writer.start()
        self._started = time.monotonic()
        self._reader.start()
        self._daemon.start()

    def watch(self, seconds: float | None) -> Iterator[LiveSample]:
        """A sample every few seconds, for ``seconds``, or until the caller stops.

        Raises:
            OSError: the daemon does not answer.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        while deadline is None or time.monotonic() < deadline - _SAMPLE_SECONDS / 2:
            time.sleep(_SAMPLE_SECONDS if deadline is None else min(_SAMPLE_SECONDS, deadline - time.monotonic()))
            yield self._sample()

    def finish(self) -> LiveResult:
        """End the load, wait until all is cleaned, read and compare, stop everything, verify.

        Raises:
            BrokerError: something was not acknowledged or could not be read, or the broker did not stop. DaemonError:
                the daemon did not complete its work, or did not stop.
        """
        for writer in self._writers.values():
            writer.stop()
        self._wait_until_clean()
        self._reader.stop()
        topics = tuple(self._judged(writer) for writer in self._writers.values())
        totals = self._daemon.status()["totals"]
        stop_seconds = self._daemon.stop()
        self._broker.stop()
        found = json.loads(self._command.run("verify", str(self._broker.log_dirs[0])).stdout)
        outcomes = totals["cleanings"]
        return LiveResult(
            topics=topics,
            cleanings=outcomes.get("cleaned", 0),
            failed_cleanings=outcomes.get("quarantined", 0),
            swaps=totals["swaps"],
            refused_swaps=totals["refused_swaps"],
            readings=self._reader.readings,
            read_records=self._reader.records,
            client_errors=tuple(self._reader.errors),
            slowest_ms=max(writer.model.slowest_ms for writer in self._writers.values()),
            stop_seconds=stop_seconds,
            findings=found["errors"],
        )

    def log_bytes(self, topic: str) -> int:
        """Bytes of the segments of all partitions of a topic."""
        found = 0
        for number in range(PARTITIONS):
            for path in (self._broker.log_dirs[0] / f"{topic}-{number}").glob(f"*{SEGMENT_SUFFIX}"):
                try:
                    found += path.stat().st_size
                except FileNotFoundError:  # swapped meanwhile
                    continue
        return found

    def _sample(self) -> LiveSample:
        status = self._daemon.status()
        totals = status["totals"]
        models = [writer.model for writer in self._writers.values()]
        return LiveSample(
            seconds=time.monotonic() - self._started,
            records=sum(model.records for model in models),
            written_bytes=sum(model.bytes_written for model in models),
            log_bytes=sum(self.log_bytes(topic) for topic in self._writers),
            waiting_bytes=sum(each["dirty_bytes"] or 0 for each in self._partitions(status)),
            cleanings=totals["cleanings"].get("cleaned", 0),
            swaps=totals["swaps"],
            removed=sum(totals["removed_records"].values()),
        )

    def _partitions(self, status: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [each for each in status["partitions"] if each["topic"] in self._writers]

    def _wait_until_clean(self) -> None:
        """Wait until every partition is clean up to its last record, which begins a segment and stays alone in it."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        ends = {
            (topic, number): offset
            for topic, writer in self._writers.items()
            for number, offset in writer.model.last_offsets.items()
        }
        while True:
            known = {(each["topic"], each["partition"]): each for each in self._partitions(self._daemon.status())}
            behind = [
                name
                for name, end in ends.items()
                if name not in known
                or known[name]["first_dirty_offset"] is None
                or known[name]["first_dirty_offset"] < end
            ]
            if not behind:
                return
            if time.monotonic() > deadline:
                break
            time.sleep(_PAUSE_SECONDS)
        partitions = [f"{topic}-{number} ({known.get((topic, number), {}).get('reason')})" for topic, number in behind]
        raise DaemonError(f"not cleaned within {PATIENCE_SECONDS:.0f} s: {', '.join(partitions)}", where=self.url)

    def _judged(self, writer: Writer) -> LiveTopic:
        found: dict[bytes, bytes | None] = {}
        left = 0
        for number in range(PARTITIONS):
            read = read_with_confluent(self._broker.bootstrap, writer.topic, number)
            left += len(read.records)
            found |= {key: value for _, (key, value) in sorted(read.records.items()) if key is not None}
        model = writer.model
        return LiveTopic(
            topic=writer.topic,
            strategy=RULES[writer.topic].get("compaction.strategy", "offset"),
            acknowledged=model.records,
            keys=len(model.keys),
            out_of_order=model.out_of_order,
            left=left,
            written_bytes=model.bytes_written,
            log_bytes=self.log_bytes(writer.topic),
            uncleaned=wrong_keys(model.expected(), model.last_values()),
            wrong=wrong_keys(model.expected(), found),
        )

    def _config(self) -> str:
        return (
            f'"cleanerd.mode" = "live"\n'
            f'"cleanerd.log.dirs" = "{self._broker.log_dirs[0]}"\n'
            f'"cleanerd.broker.properties" = "{self._broker.properties_file}"\n'
            f'"cleanerd.state.dir" = "{self._work_dir / "state"}"\n'
            f'"cleanerd.control.socket" = "{self._work_dir / _CONTROL}"\n'
            f'"cleanerd.disk.reserve" = "64MiB"\n'
            f'"log.cleaner.backoff.ms" = "1s"\n'
            # The ratio that delegate saved is Kafka's 0.5; a demonstration should clean sooner.
            f'[topics."*"]\n"min.cleanable.dirty.ratio" = 0.2\n{_strategies()}'
        )


def _require_short(work_dir: Path) -> None:
    """The daemon listens on a socket in ``work_dir``, and a socket's path is short.

    Raises:
        ConfigError: it is too long.
    """
    if len(os.fsencode(work_dir.resolve())) > _MAX_PATH_BYTES:
        raise ConfigError(
            "this path is too long for a socket in it",
            where=str(work_dir),
            hint="give a shorter directory with --keep, or a shorter TMPDIR",
        )


def _strategies() -> str:
    return "".join(
        f'[topics."{topic}"]\n'
        # A delegated topic is cleaned by Kafka's rules only if its settings say so explicitly.
        + "".join(f'"{key}" = "{value}"\n' for key, value in (rules or {"compaction.strategy": "offset"}).items())
        for topic, rules in RULES.items()
    )
