"""Coverage-guided attack by Jazzer on the agent's readers: lines of its protocol, and staged files.

    python -m tests.agent.fuzz --seconds 60

Jazzer comes from Maven on demand. Its corpus is in ``.cache/fuzz/agent``, where the next run begins, beside the seeds
made by this module. The exit code is 1 after a finding, whose bytes are kept there.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.agent.live import JAR
from tests.support.logs import BASE_TIMESTAMP_MS, encode_marker, keyed_batch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HERE: Final = Path(__file__).parent / "fuzzing"
TOP: Final = Path(__file__).resolve().parents[2]
MOST_BYTES: Final = 4096


def seeds() -> Iterator[bytes]:
    """Valid requests, and groups with valid staged files."""
    segment = {"base": 0, "size": 100, "ino": 7, "mtime_ms": 9}
    kinds = ("log", "index", "timeindex", "txnindex")
    swap = {
        "plan": "20261121t001400-0123abcd", "topic": "orders", "partition": 0, "topic_id": None, "dir": "/d/orders-0",
        "log_start": None, "witnesses": [segment, {**segment, "base": 50}],
        "aborted": {"below": 50, "sha256": "0" * 64},
        "groups": [{
            "base": 0, "end": 50, "sources": [segment], "files": {kind: f"0.{kind}" for kind in kinds},
            "sizes": dict.fromkeys(kinds, 12), "crc32c": dict.fromkeys(kinds, 1),
        }],
        "checkpoint": 50,
    }  # fmt: skip
    clean = {"base": 0, "size": 12, "ino": 1, "mtime_ms": 1}
    reported = {"op": "checkpoint", "topic": "orders", "partition": 0, "topic_id": None, "dir": "/d", "offset": 5}
    requests = (
        {"op": "swap", **swap},
        {"op": "info"},
        {"op": "log", "topic": "orders", "partition": 0},
        reported,
        {**reported, "clean": clean},
    )
    for request in requests:
        yield b"\0" + json.dumps({"v": 1, "id": "a", **request}).encode()
    old = keyed_batch(0, [("a", "1"), ("b", "1")], timestamp=BASE_TIMESTAMP_MS)
    aborted = encode_marker(2, commit=False, producer_id=7, timestamp=BASE_TIMESTAMP_MS)
    new = keyed_batch(0, [("a", "1"), ("b", "1")], timestamp=BASE_TIMESTAMP_MS)
    times = struct.pack(">qi", BASE_TIMESTAMP_MS, 1)
    entry = struct.pack(">hqqqq", 0, 7, 1, 2, 3)
    for log, txn, source in ((new, b"", old), (new + aborted, entry, old + aborted), (b"", b"", old)):
        parts = (log, struct.pack(">ii", 1, 0) if log else b"", times if log else b"", txn, source, txn)
        yield bytes([3 if txn else 1]) + b"".join(struct.pack(">H", len(part)) + part for part in parts)


def jazzer() -> Path:
    """The directory of its jars."""
    place = TOP / ".cache" / "jazzer"
    if not list(place.glob("jazzer-[0-9]*.jar")):
        command = ("mvn", "-q", "-B", "-C", "-Dstyle.color=never", "-f", str(HERE / "pom.xml"))
        subprocess.run([*command, "dependency:copy-dependencies", f"-DoutputDirectory={place}"], check=True)
    return place


def classes_in(work: Path) -> Path:
    """The agent's classes, and the fuzz target beside them."""
    with zipfile.ZipFile(JAR) as jar:
        jar.extractall(work, [name for name in jar.namelist() if name.startswith("implementation/")])
    classes = work / "implementation"
    subprocess.run(["javac", "-proc:none", "-d", classes, "-cp", classes, str(HERE / "ReaderFuzzer.java")], check=True)
    return classes


def outcomes(work: Path, inputs: Sequence[bytes]) -> list[str]:
    """The agent's outcome for each input, without Jazzer."""
    classes = classes_in(work)
    files = [work / f"input-{number}" for number in range(len(inputs))]
    for file, data in zip(files, inputs, strict=True):
        file.write_bytes(data)
    command = ["java", "-Xshare:auto", f"-Dfuzz.place={work}", "-cp", classes, "cleanerd.agent.ReaderFuzzer", *files]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def main(arguments: Sequence[str]) -> int:
    """Attack for ``seconds``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=60)
    options = parser.parse_args(arguments)
    corpus = TOP / ".cache" / "fuzz" / "agent"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds()):
        (corpus / f"seed-{number}").write_bytes(seed)
    memory = Path("/dev/shm")  # noqa: S108
    work = Path(tempfile.mkdtemp(prefix="cleanerd-fuzz-", dir=memory if memory.is_dir() else None))
    try:
        classes = classes_in(work)
        done = subprocess.run(
            [
                "java", "-XX:-OmitStackTraceInFastThrow", "-Xmx512m", f"-Dfuzz.place={work}",
                "-cp", f"{jazzer()}/*:{classes}", "com.code_intelligence.jazzer.Jazzer",
                "--target_class=cleanerd.agent.ReaderFuzzer", "--instrumentation_includes=cleanerd.agent.**",
                "--disabled_hooks=*", f"-artifact_prefix={corpus.parent}/agent-",
                f"-max_total_time={options.seconds}", f"-max_len={MOST_BYTES}", "-timeout=20", "-rss_limit_mb=2048",
                "-print_final_stats=1", str(corpus),
            ],
            stderr=subprocess.PIPE, text=True, check=False, cwd=work, env=os.environ,
        )  # fmt: skip
    finally:
        shutil.rmtree(work, ignore_errors=True)
    executions = re.search(r"stat::number_of_executed_units: (\d+)", done.stderr)
    if done.returncode != 0 or executions is None:
        sys.stderr.write(done.stderr[-6000:])
        return 1
    sys.stdout.write(f"agent: {executions[1]} inputs, 0 wrong\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
