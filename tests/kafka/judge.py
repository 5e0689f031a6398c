"""Real Kafka as a judge: one JVM per release that makes, cleans, reads, compares and loads partition directories.

    with Judge("4.3") as judge:
        judge.make(path, [Segment(0, (Batch((Record(0, 1000, b"k", b"v"),)),)), Segment(1)], now_ms=2000)
        judge.clean(path, [Round(now_ms=3000)], source=None)
        judge.dump(path).records

A partition directory must be named like one (``topic-0``): Kafka takes the topic from the name.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

from tests.kafka.answers import (
    Cleaned,
    Comparison,
    Dump,
    Json,
    Loaded,
    LookupCheck,
    Producer,
    ReadBatch,
    ReadRecord,
    ReadSegment,
    Retained,
)
from tests.kafka.behaviour import Behaviours
from tests.kafka.log_spec import Batch, Marker, Record, Round, Segment, ToLoad
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "Batch",
    "Behaviours",
    "Cleaned",
    "Comparison",
    "Dump",
    "Judge",
    "JudgeError",
    "KafkaJars",
    "Loaded",
    "LookupCheck",
    "Marker",
    "Producer",
    "ReadBatch",
    "ReadRecord",
    "ReadSegment",
    "Record",
    "Retained",
    "Round",
    "Segment",
    "ToLoad",
    "fetch",
    "fetch_jars",
]

HERE = Path(__file__).resolve().parent

Place: TypeAlias = "str | os.PathLike[str]"


class JudgeError(Exception):
    """Kafka raised an exception. ``kind`` is the full name of its class, ``trace`` the stack trace."""

    def __init__(self, kind: str, message: str, trace: str) -> None:
        super().__init__(f"{kind}: {message}\n{trace}")
        self.kind = kind
        self.trace = trace


@dataclass(frozen=True, slots=True)
class KafkaJars:
    """The files of a release: ``profile`` 4.3, ``version`` 4.3.1, its jars and the judges compiled against them."""

    profile: str
    version: str
    libs: Path
    judges: Path | None


def fetch(profile: str) -> KafkaJars:
    """Fetch the jars of a release and compile the judges if that is not done yet (tests/kafka/fetch.sh)."""
    return _fetch(profile)


def fetch_jars(profile: str) -> KafkaJars:
    """Fetch the jars of a release for brokers only, without judges."""
    return _fetch("--jars", profile)


def _fetch(*arguments: str) -> KafkaJars:
    done = subprocess.run([str(HERE / "fetch.sh"), *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"fetch.sh {' '.join(arguments)} failed:\n{done.stderr}")
    name, version, libs, judges = done.stdout.splitlines()[-1].split(maxsplit=3)
    return KafkaJars(name, version, Path(libs), None if judges == "-" else Path(judges))


BROKERS_OWN: Final = (
    "-Xms1g",
    "-Xmx1g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)


class Judge:
    """A JVM with the Kafka release ``profile`` (``3.6``, ``3.9``, ``4.3``, ``4.4``). Not thread-safe.

    ``benchmark``: with the options that Kafka's scripts give a broker, for measuring; otherwise quick to start.
    """

    def __init__(self, profile: str, *, benchmark: bool = False) -> None:
        self.jars = fetch(profile)
        self._log = tempfile.NamedTemporaryFile(prefix=f"judge-{profile}-", suffix=".log")  # noqa: SIM115 closed by close()
        options = BROKERS_OWN if benchmark else ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
        self._java = subprocess.Popen(
            [
                "java",
                *options,
                "-Xshare:auto",
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
                f"-Dlog4j.configuration=file:{HERE / 'log4j.properties'}",
                "-cp",
                f"{self.jars.judges}:{self.jars.libs}/*",
                "cleanerd.judge.Judge",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the JVM. May be called twice."""
        if self._java.stdin is not None and not self._java.stdin.closed:
            self._java.stdin.close()
        try:
            self._java.wait(timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self._java.kill()
            self._java.wait()
        if self._java.stdout is not None:
            self._java.stdout.close()
        self._log.close()

    @property
    def pid(self) -> int:
        return self._java.pid

    def version(self) -> str:
        """Return the version of the running classes."""
        answer: str = self._ask({"op": "version"})["version"]
        return answer

    def make(
        self,
        directory: Place,
        segments: Sequence[Segment],
        *,
        now_ms: int,
        config: Mapping[str, str] | None = None,
        topic_id: str | None = None,
        producer_expiration_ms: int = 86_400_000,
    ) -> int:
        """Write a partition directory as a clean shutdown leaves it, snapshots included; return the log end offset.

        Batches go through ``UnifiedLog.appendAsFollower``, so offsets are as given; the last segment is the active one.
        Topic ``config`` matters for ``index.interval.bytes`` and similar settings. ``topic_id`` (22 characters) writes
        partition.metadata. For an existing directory it appends: batches for the base of the active segment go there.
        That is how to make a log too large for one call.
        """
        command: Json = {
            "op": "make",
            "dir": os.fspath(directory),
            "segments": [segment.to_json() for segment in segments],
            "now_ms": now_ms,
            "config": dict(config or {}),
            "topic_id": topic_id,
            "producer_expiration_ms": producer_expiration_ms,
        }
        end: int = self._ask(command)["log_end_offset"]
        return end

    def clean(
        self,
        directory: Place,
        rounds: Sequence[Round],
        *,
        source: Place | None = None,
        config: Mapping[str, str] | None = None,
        map_bytes: int = 4 << 20,
        load_factor: float = 0.9,
        io_buffer_bytes: int = 256 << 10,
        max_io_buffer_bytes: int = 1_048_588,
        log_start_offset: int = 0,
        producer_expiration_ms: int = 86_400_000,
        clean_shutdown: bool = True,
        repeat: int = 1,
    ) -> list[Cleaned]:
        """Run Kafka's own cleaner on ``directory``, first copied from ``source`` (again for each ``repeat``) if given.

        Each pass loads the log with its clock, cleans, and shuts it down cleanly. ``config`` are topic settings
        (``segment.bytes`` may be arbitrarily small). A key takes 24 bytes of ``map_bytes``, of which ``load_factor``
        are used: a small map forces partial passes.
        """
        command: Json = {
            "op": "clean",
            "dir": os.fspath(directory),
            "rounds": [each.to_json() for each in rounds],
            "config": dict(config or {}),
            "map_bytes": map_bytes,
            "load_factor": load_factor,
            "io_buffer_bytes": io_buffer_bytes,
            "max_io_buffer_bytes": max_io_buffer_bytes,
            "log_start_offset": log_start_offset,
            "producer_expiration_ms": producer_expiration_ms,
            "clean_shutdown": clean_shutdown,
            "repeat": repeat,
        }
        if source is not None:
            command["source"] = os.fspath(source)
        return [Cleaned(**answer) for answer in self._ask(command)["rounds"]]

    def dump(self, directory: Place, *, records: bool = True, out: Place | None = None) -> Dump:
        """Read all with Kafka's decoders. ``out``: write batches to that file as JSON lines instead (large logs)."""
        command: Json = {"op": "dump", "dir": os.fspath(directory), "records": records}
        if out is not None:
            command["out"] = os.fspath(out)
        return Dump.from_json(self._ask(command))

    def compare(self, theirs: Place, ours: Place, *, source: Place | None = None, limit: int = 20) -> Comparison:
        """Compare Kafka's result with cleanerd's by batch and record; return the first ``limit`` differences.

        Not compared: segment borders, sizes, checksums, compressed bytes, record attributes (U-14). cleanerd's result
        may have further empty batches, each the last of one of its segments (U-13) and, if ``source`` is given, with
        the last offset of a segment of the source.
        """
        command: Json = {"op": "compare", "theirs": os.fspath(theirs), "ours": os.fspath(ours), "limit": limit}
        if source is not None:
            command["source"] = os.fspath(source)
        answer = self._ask(command)
        return Comparison(
            differences=tuple(answer["differences"]),
            additions=tuple((base, last) for base, last in answer["additions"]),
            batches=answer["batches"],
            records=answer["records"],
        )

    def lookups(self, directory: Place, *, limit: int = 20) -> LookupCheck:
        """Query Kafka's index classes for every relevant offset and time, and compare with a full scan."""
        answer = self._ask({"op": "lookups", "dir": os.fspath(directory), "limit": limit})
        return LookupCheck(tuple(answer["problems"]), answer["asked"], answer["entries"])

    def retain(
        self,
        directory: Place,
        *,
        now_ms: int,
        config: Mapping[str, str],
        times_ms: Sequence[int] = (),
        clean_shutdown: bool = True,
    ) -> Retained:
        """Load the directory, look up ``times_ms``, and let Kafka's retention delete segments in place."""
        command: Json = {
            "op": "retain",
            "dir": os.fspath(directory),
            "now_ms": now_ms,
            "config": dict(config),
            "times": list(times_ms),
            "clean_shutdown": clean_shutdown,
        }
        answer = self._ask(command)
        return Retained(
            deleted=answer["deleted"],
            log_start_offset=answer["log_start_offset"],
            largest_ms=tuple(answer["largest_ms"]),
            found=tuple(answer["found"]),
        )

    def behave(
        self,
        ours: Place,
        *,
        theirs: Place | None = None,
        before: Place,
        scratch: Place,
        now_ms: int,
        log_start_offset: int = 0,
        config: Mapping[str, str] | None = None,
        producer_expiration_ms: int = 86_400_000,
    ) -> Behaviours:
        """Start a broker on copies of these logs, with the same queries for each: its findings and actions (U-37).

        For ``before``, the original log, only facts by its bytes are returned. Copies are made in ``scratch``, and
        removed. The policy is always ``compact,delete``, whatever ``config`` says.
        """
        logs: list[Json] = [{"dir": os.fspath(ours), "judged": True}, {"dir": os.fspath(before), "facts_only": True}]
        if theirs is not None:
            logs.append({"dir": os.fspath(theirs)})
        command: Json = {
            "op": "behave",
            "logs": [{**log, "log_start_offset": log_start_offset} for log in logs],
            "scratch": os.fspath(scratch),
            "now_ms": now_ms,
            "config": {"segment.index.bytes": "65536", **(config or {})},
            "producer_expiration_ms": producer_expiration_ms,
        }
        return Behaviours.from_json(self._ask(command))

    def load(
        self,
        logs: Sequence[ToLoad],
        *,
        now_ms: int,
        config: Mapping[str, str] | None = None,
        producer_expiration_ms: int = 86_400_000,
        batches: bool = False,
        shut_down: bool = False,
    ) -> list[Loaded]:
        """Start Kafka's loader on each directory, in place; then abandon the files as they are, or ``shut_down``."""
        command: Json = {
            "op": "load",
            "logs": [log.to_json() for log in logs],
            "now_ms": now_ms,
            # small: the loader preallocates the indexes of the active segment, and a crash test loads thousands
            "config": {"segment.index.bytes": "65536", **(config or {})},
            "producer_expiration_ms": producer_expiration_ms,
            "batches": batches,
            "shut_down": shut_down,
        }
        return [Loaded.from_json(answer) for answer in self._ask(command)["logs"]]

    def crash(self, logs: Sequence[tuple[Place, Sequence[Segment]]], *, now_ms: int) -> None:
        """Write partition directories and abandon them, as while a broker writes."""
        command: Json = {
            "op": "crash",
            "logs": [
                {"dir": os.fspath(path), "segments": [segment.to_json() for segment in segments]}
                for path, segments in logs
            ],
            "now_ms": now_ms,
            "config": {"segment.index.bytes": "4096", "index.interval.bytes": "100"},
        }
        self._ask(command)

    def recover(
        self, logs: Sequence[Mapping[str, object]], *, now_ms: int, producer_expiration_ms: int
    ) -> list[dict[str, Any]]:
        """Start a broker's loader on each of the directories, in place, and read committed records (README.md)."""
        command: Json = {
            "op": "recover",
            "logs": list(logs),
            "now_ms": now_ms,
            "config": {"segment.index.bytes": "4096", "index.interval.bytes": "100"},
            "producer_expiration_ms": producer_expiration_ms,
        }
        return list(self._ask(command)["logs"])

    def _ask(self, command: Json) -> Json:
        stdin, stdout = self._java.stdin, self._java.stdout
        if stdin is None or stdout is None:
            raise RuntimeError("the judge was started without pipes")
        watchdog = threading.Timer(PATIENCE_SECONDS, self._java.kill)
        watchdog.start()
        try:
            stdin.write(json.dumps(command, separators=(",", ":")).encode() + b"\n")
            stdin.flush()
            line = stdout.readline()
        except BrokenPipeError:
            line = b""
        finally:
            watchdog.cancel()
        if not line:
            raise RuntimeError(f"the judge ended while at {command['op']!r}:\n{self.log_text()[-4000:]}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise JudgeError(answer["error"], answer["message"], answer["trace"])
        return answer

    def log_text(self) -> str:
        """Kafka's log lines (warnings and errors) so far."""
        return Path(self._log.name).read_text(errors="replace")
