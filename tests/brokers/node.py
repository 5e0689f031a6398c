"""The files on a broker's disks, its log, and cleanerd run on it like a user."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cleanerd.format.checkpoint import read_offset_checkpoint
from cleanerd.format.names import SEGMENT_SUFFIX, file_name
from tests.brokers.ledger import Partition
from tests.support.log_dirs import read_segments
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from cleanerd.format.names import TopicPartition


# slf4j-simple: [time] [thread] LEVEL logger - message; reload4j, by the pattern of demo/broker.py: [time] LEVEL message
# (logger).
_LINES: Final = (
    re.compile(r"^\[[^\]]+\] \[[^\]]*\] (?P<level>WARN|ERROR) (?P<logger>\S+) - (?P<message>.*)$", re.MULTILINE),
    re.compile(r"^\[[^\]]+\] (?P<level>WARN|ERROR|FATAL) (?P<message>.*) \((?P<logger>\S+)\)$", re.MULTILINE),
)
# A client or the broker's own channels lost or seek a connection: not caused by a log directory.
_NETWORK: Final = ("clients.NetworkClient", "NodeToControllerRequestThread", "kafka.raft.", "org.apache.kafka.raft.")
_ELSEWHERE: Final = (
    *_NETWORK,
    "org.apache.kafka.controller.EventPerformanceMonitor",  # the machine was slow
    "controller event queue overloaded",  # likewise
    "processBrokerHeartbeat: unable to start processing because of TimeoutException",  # likewise
    "apiKey=CONTROLLER_REGISTRATION",  # the controller's own, at a start: a request before it leads, which is repeated
    "a heartbeat request but received error REQUEST_TIMED_OUT",  # likewise; it is repeated
    "RegistrationResponseHandler: channel manager timed out",  # the same on the requesting side: the machine was slow
)


@dataclass(frozen=True, slots=True)
class Run:
    """One command. ``document`` is its JSON output (None: it printed nothing)."""

    exit_code: int
    document: dict[str, Any] | None
    stderr: str

    @property
    def partitions(self) -> dict[Partition, dict[str, Any]]:
        """The entries of the document by partition."""
        assert self.document is not None, self.stderr
        return {Partition(entry["topic"], entry["partition"]): entry for entry in self.document["partitions"]}


def aged(age_ms: int) -> tuple[str, str]:
    """A cleanerd for which metadata of age ``age_ms`` are old enough, and which assumes smaller clock differences."""
    lines = (
        "import sys",
        "from cleanerd.cli.main import run",
        "from cleanerd.resolution import broker_facts",
        f"broker_facts.METADATA_AGE_MS = {age_ms}",
        "sys.exit(run(sys.argv[1:]))",
    )
    return "-c", "\n".join(lines)


AGED: Final = aged(0)
"""cleanerd once the metadata of a running broker are old enough."""


def cleanerd(
    subcommand: str,
    log_dirs: Iterable[Path],
    state_dir: Path,
    *options: str,
    program: Sequence[str] = ("-m", "cleanerd"),
) -> Run:
    """Run ``cleanerd VERB LOG_DIR... --json`` without topic settings: it reads those from the disk."""
    command = [sys.executable, *program, subcommand, *map(str, log_dirs), "--json"]
    settings = {"cleanerd.state.dir": str(state_dir), "cleanerd.disk.reserve": "16MiB"}
    done = subprocess.run(
        [*command, *options, *(word for key, value in settings.items() for word in ("--set", f"{key}={value}"))],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    return Run(done.returncode, json.loads(done.stdout) if done.stdout.strip() else None, done.stderr)


def directory_of(log_dirs: Iterable[Path], partition: Partition) -> Path:
    """The partition's directory."""
    found = [log_dir / str(partition) for log_dir in log_dirs if (log_dir / str(partition)).is_dir()]
    assert len(found) == 1, (partition, found)
    return found[0]


def segment_bases(directory: Path) -> list[int]:
    """Base offsets of the segments, ascending; the last is the active one."""
    return sorted(int(path.stem) for path in directory.glob("*.log"))


def names_ending(directories: Iterable[Path], *endings: str) -> list[str]:
    """Paths of files and directories below ``directories`` whose names end so.

    The broker renames and deletes meanwhile: a directory that has disappeared counts as empty.
    """
    return [
        os.path.join(parent, name)
        for directory in directories
        for parent, subdirectories, files in os.walk(directory)
        for name in (*subdirectories, *files)
        if name.endswith(endings)
    ]


def checkpoint(log_dirs: Iterable[Path], name: str) -> dict[Partition, int]:
    """A checkpoint file of all log directories together; the broker replaces it atomically, so it is read at once."""
    entries: dict[TopicPartition, int] = {}
    for log_dir in log_dirs:
        path = log_dir / name
        if path.exists():
            entries |= read_offset_checkpoint(path.read_bytes(), str(path))
    return {Partition(entry.topic, entry.partition): offset for entry, offset in entries.items()}


def complaints(log_text: str) -> frozenset[str]:
    """The kinds of warnings and errors in a broker's log, without numbers, paths and ids.

    Messages about the network or a slow machine are left out as well.
    """
    kinds = set()
    for pattern in _LINES:
        for match in pattern.finditer(log_text):
            if any(name in match[0] for name in _ELSEWHERE):
                continue
            message = re.sub(r"/\S+", "PATH", match["message"])
            message = re.sub(r"\d+", "N", message)
            kinds.add(f"{match['level']} {match['logger']}: {message}")
    return frozenset(kinds)


def errors(log_text: str) -> list[str]:
    """The complaints that are errors."""
    return sorted(kind for kind in complaints(log_text) if kind.startswith(("ERROR", "FATAL")))


def error_lines(log_text: str) -> list[str]:
    """Every line with ERROR, in any format, and its next one, which has the exception.

    Those of log4j's start and of a slow machine are left out.
    """
    lines = log_text.splitlines()
    return [
        f"{line}: {cause}".removesuffix(": ")
        for line, cause in zip(lines, (*lines[1:], ""), strict=True)
        if " ERROR " in line and "Reconfiguration failed" not in line and not any(name in line for name in _ELSEWHERE)
    ]


def open_files(process: int) -> list[str]:
    """Open files of a process; it closes some meanwhile."""
    found = []
    for descriptor in Path(f"/proc/{process}/fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(os.readlink(descriptor))
    return found


def wait_until(what: str, condition: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    """Poll until ``condition`` holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.1)


def kafka_searches(directory: Path, time_ms: int) -> int | None:
    """The broker's answer for ``time_ms``, computed from the batches on its disk.

    It searches only the first segment whose largest batch timestamp is not below ``time_ms``. A batch without records
    still counts there, and for a file of 0 bytes its modification time does; so the answer may be none.
    """
    for base, batches in read_segments(directory).items():
        if not batches and (directory / file_name(base, SEGMENT_SUFFIX)).stat().st_mtime_ns // 1_000_000 >= time_ms:
            return None
        if any(batch.header.max_timestamp >= time_ms for batch in batches):
            return next((r.offset for b in batches for r in b.records if r.timestamp >= time_ms), None)
    return None


def sequences(directory: Path, writer: str) -> list[tuple[int, int, int, int]]:
    """Producer id, epoch, base sequence and number of records of every batch of ``writer`` in a partition, ascending.

    Values begin with their writer's name; emptied batches are found by the producer id of the others.
    """
    batches = [batch for found in read_segments(directory).values() for batch in found]
    ids = {
        batch.header.producer_id
        for batch in batches
        if any(record.value is not None and record.value.startswith(f"{writer}:".encode()) for record in batch.records)
    }
    return [
        (b.header.producer_id, b.header.producer_epoch, b.header.base_sequence, b.header.record_count)
        for b in batches
        if b.header.producer_id in ids
    ]
