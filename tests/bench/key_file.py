"""More keys than memory: keys on disk compared with passes (U-43), and Kafka's own cleaner with the same buffer.

Whole cleanings of logs of unique keys, one after the other in one run: CPU seconds, median of ``BENCH_REPEAT``, and
bytes written.

Usage: ``python -m tests.bench.key_file [DIRECTORY]``, a directory on the disk to measure. Environment: ``BENCH_KEYS``
(millions, default "2 4 8 16"), ``BENCH_MAP`` (default 4MiB), ``BENCH_REPEAT`` (default 3), ``BENCH_PASSES`` (millions
up to which passes are measured, default 8), ``BENCH_KAFKA`` (millions that Kafka cleans, default 0: none).
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from cleanerd.config.units import parse_size
from cleanerd.humanize import human_bytes
from cleanerd_lab.bench.generate import BASE_TIMESTAMP_MS, PARTITION, LogShape, MadeLog, make_log
from cleanerd_lab.bench.whole import clean_arguments, flush
from tests.kafka.judge import Cleaned, Judge, Round

MILLIONS: Final = [int(word) for word in os.environ.get("BENCH_KEYS", "2 4 8 16").split()]
REPEAT: Final = int(os.environ.get("BENCH_REPEAT", "3"))
PASSES: Final = int(os.environ.get("BENCH_PASSES", "8"))
KAFKA: Final = int(os.environ.get("BENCH_KAFKA", "0"))
MAP_BYTES: Final = parse_size(os.environ.get("BENCH_MAP", "4MiB"))
RECORD_BYTES: Final = 128

_CHILD: Final = """
import json, resource, sys
from cleanerd.cli.main import run
code = run(sys.argv[2:])
used = resource.getrusage(resource.RUSAGE_SELF)
written = int(open("/proc/self/io").read().split("wchar:")[1].split()[0])
json.dump([used.ru_utime + used.ru_stime, written], open(sys.argv[1], "w"))
sys.exit(code)
"""


def main(directory: Path) -> None:
    """Measure, and print a table."""
    sys.stdout.write(f"map {human_bytes(MAP_BYTES)}; load {os.getloadavg()[0]:.1f}\n")
    sys.stdout.write(f"{'million keys':>12} {'way':12} {'passes':>6} {'CPU s':>8} {'spread':>8} {'written':>10}\n")
    for millions in MILLIONS:
        with tempfile.TemporaryDirectory(prefix="cleanerd-keys-", dir=directory) as work:
            log = _unique_keys(Path(work), millions)
            _print(millions, "keys on disk", [_clean(log, Path(work), on_disk=True) for _ in range(REPEAT)])
            if millions <= PASSES:
                _print(millions, "passes", [_clean(log, Path(work), on_disk=False) for _ in range(REPEAT)])
            if millions == KAFKA:
                _print(millions, "Kafka", [_kafka(log, Path(work))])


def _unique_keys(work: Path, millions: int) -> MadeLog:
    shape = LogShape("keys", "unique keys", RECORD_BYTES, 64, 0.0)
    size = millions * 1_000_000 * RECORD_BYTES
    log = make_log(work / "log", shape, unpacked_bytes=size, segment_bytes=64 << 20)
    flush(log.log_dir)
    return log


def _print(millions: int, way: str, runs: list[tuple[int, float, int]]) -> None:
    seconds = [run[1] for run in runs]
    sys.stdout.write(
        f"{millions:12} {way:12} {runs[0][0]:6} {statistics.median(seconds):8.2f} "
        f"{max(seconds) - min(seconds):8.2f} {human_bytes(runs[0][2]):>10}\n"
    )
    sys.stdout.flush()


def _clean(log: MadeLog, work: Path, *, on_disk: bool) -> tuple[int, float, int]:
    """Passes, CPU seconds of the process, and bytes written for one cleaning of a copy."""
    copy, report = work / "copy", work / "report.json"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(log.log_dir, copy, copy_function=os.link)  # segments are only replaced
    given = [
        f"topics.{PARTITION.topic}.segment.bytes={log.segment_bytes}",
        f"log.cleaner.dedupe.buffer.size={MAP_BYTES}",
        "cleanerd.disk.reserve=0",
        f"cleanerd.map.dir={work}",
        f"cleanerd.map.max.bytes={1 << 40 if on_disk else 0}",
    ]
    command = [sys.executable, "-c", _CHILD, str(report), *clean_arguments(copy, str(work / "state"), given)]
    done = subprocess.run(command, capture_output=True, check=False, timeout=3600)
    if done.returncode:
        raise SystemExit(done.stderr.decode())
    shutil.rmtree(work / "state", ignore_errors=True)
    cpu, written = json.loads(report.read_text())
    (partition,) = json.loads(done.stdout)["partitions"]
    return partition["passes"], cpu, written


def _kafka(log: MadeLog, work: Path) -> tuple[int, float, int]:
    """The same for Kafka's cleaner, round after round until no key is left: CPU seconds of its thread."""
    rounds: list[Cleaned] = []
    with Judge("4.3", benchmark=True) as judge:
        while not rounds or rounds[-1].map_messages_read:
            (cleaned,) = judge.clean(
                work / "kafka" / log.partition_dir.name,
                [Round(BASE_TIMESTAMP_MS + log.records, rounds[-1].end_offset if rounds else 0)],
                source=None if rounds else log.partition_dir,
                config={"segment.bytes": str(log.segment_bytes)},
                map_bytes=MAP_BYTES,
            )
            rounds.append(cleaned)
    seconds = sum(cleaned.cpu_ns for cleaned in rounds) / 1e9
    return len(rounds) - 1, seconds, sum(cleaned.bytes_written for cleaned in rounds)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("/var/tmp"))  # noqa: S108
