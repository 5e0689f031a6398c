"""Cost for the broker: how long a swap blocks appends, and the CPU of a log query.

The JVM has the options of Kafka's own start script. A garbage collection that stops all threads while a swap has the
lock is counted separately: it stops appends with and without a swap.

Environment: ``BENCH_SEGMENTS`` (default 13000), ``BENCH_CHECKPOINTS`` (default 10000); ``TMPDIR`` chooses the disk.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from cleanerd.broker.agent_transport import SOCKET
from cleanerd.format.names import TopicPartition
from cleanerd.swap.swapping_broker import SwappingBroker
from tests.agent.building import build
from tests.bench.many_segments import RECORDS, TOPIC, put_checkpoints, put_segments
from tests.kafka.judge import BROKERS_OWN
from tests.live.load import create_topics
from tests.live.rounds import Rounds, with_agent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cleanerd.broker.agent_facts import SwapDone
    from cleanerd_lab.demo.broker import Broker
    from tests.kafka.fixtures import StartBroker

SEGMENTS: Final = int(os.environ.get("BENCH_SEGMENTS", "13000"))
CLEANER_CHECKPOINTS: Final = int(os.environ.get("BENCH_CHECKPOINTS", "10000"))
MOST_HELD_MS: Final = 10.0
MOST_QUERY_MS: Final = 3.0
SCANS: Final = 300
QUIET_SECONDS: Final = 10

pytestmark = [pytest.mark.bench, pytest.mark.kafka, pytest.mark.broker, pytest.mark.timeout(900)]


@dataclass
class Appends:
    """A producer's latencies meanwhile."""

    reported: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        largest = ", ".join(f"{ms:.1f}" for ms in self.reported["largest_ms"])
        return f"{self.reported['count']} appends, p99 {self.reported['p99_ms']:.1f} ms, the longest {largest} ms"


@contextlib.contextmanager
def appending(broker: Broker) -> Iterator[Appends]:
    """A producer that writes to the partition until the block ends."""
    command = [sys.executable, "-m", "tests.bench.appending", broker.bootstrap, TOPIC]
    seen = Appends()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        time.sleep(3)  # its start is not measured
        yield seen
        seen.reported = json.loads(process.communicate(timeout=90)[0])


@contextlib.contextmanager
def standing_still() -> Iterator[list[tuple[int, int]]]:
    """The spans in which a core of the machine did not run, known after the block."""
    found: list[tuple[int, int]] = []
    with contextlib.ExitStack() as meters:
        command = [sys.executable, "-m", "tests.bench.stalls"]
        started = [
            meters.enter_context(
                subprocess.Popen([*command, str(core)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            for core in sorted(os.sched_getaffinity(0))
        ]
        yield found
        for meter in started:
            found += [(since, to) for since, to in json.loads(meter.communicate(timeout=90)[0])]


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Held:
    """One swap: how long it had the lock, the parts of that time, and when."""

    us: int
    sources: int
    from_us: int

    def without(self, pauses: list[tuple[int, int]]) -> int:
        """Microseconds of it outside of all ``pauses``, which may overlap."""
        end_us, left, at = self.from_us + self.us, 0, self.from_us
        for since, to in sorted(pauses):
            if to > at and since < end_us:
                left += max(0, since - at)
                at = to
        return left + max(0, end_us - at)


def pauses_of(log: Path) -> list[tuple[int, int]]:
    """The times at which the JVM had stopped all its threads, in microseconds of its clock."""
    found = re.findall(r"^\[(\d+)ns\] Safepoint .*Total: +(\d+) ns", log.read_text(), re.MULTILINE)
    return [((int(end) - int(total)) // 1000, int(end) // 1000) for end, total in found]


def test_swap_lock(broker_43: StartBroker, tmp_path: Path) -> None:
    """U-36: 13,000 small segments; the longest time that the partition's lock is held, and a producer's latencies."""
    times, safepoints = tmp_path / "times", tmp_path / "safepoints"
    watched = (f"-Dcleanerd.test.times={times}", f"-Xlog:safepoint:file={safepoints}:timenanos:filecount=0")
    own = ("-XX:-UseSerialGC", "-XX:TieredStopAtLevel=4", *BROKERS_OWN)
    broker = broker_43(jvm_args=(f"-javaagent:{build(tmp_path, 'timing')}", *own, *watched))
    put_segments(broker, SEGMENTS)
    swaps: list[tuple[int, int]] = []

    class Noting(SwappingBroker):
        def swap(self, request: dict[str, Any], staged_bytes: int) -> SwapDone:
            done = super().swap(request, staged_bytes)
            swaps.append((done.held_us[0], len(request["groups"][0]["sources"])))
            return done

    with appending(broker) as without:
        time.sleep(QUIET_SECONDS)
    used = cpu_seconds(broker.pid)
    started = time.monotonic()
    with standing_still() as stalls, appending(broker) as beside:
        (result,) = Rounds(broker, tmp_path / "state", connect=Noting).clean(TopicPartition(TOPIC, 0))
    seconds = time.monotonic() - started
    assert result.outcome == "cleaned", result
    used = cpu_seconds(broker.pid) - used
    began = [int(line) // 1000 for line in times.read_text().split()]
    assert len(began) == len(swaps)
    held = [Held(us, count, at) for (us, count), at in zip(swaps, began, strict=True)]
    held.sort(key=lambda each: each.us, reverse=True)
    sources = sum(each.sources for each in held)
    print(f"\n{SEGMENTS} segments of {RECORDS} records; {len(held)} swaps of {sources} sources in {seconds:.1f} s")  # noqa: T201
    per_source = sum(each.us for each in held) / sources
    pauses = pauses_of(safepoints)
    longest = ", ".join(f"{each.us / 1000:.2f} ({each.sources})" for each in held[:5])
    print(f"longest held (ms, sources): {longest}")  # noqa: T201
    for what, spans in (("the JVM's pauses", pauses), ("the machine's either", [*pauses, *stalls])):
        running = sorted((each.without(spans) / 1000 for each in held), reverse=True)
        print(f"the same without {what}: {', '.join(f'{ms:.2f}' for ms in running[:5])}")  # noqa: T201
    stalled = sorted((to - since for since, to in stalls), reverse=True)
    print(f"a core stood still {len(stalled)} times, {sum(stalled) / 1e6:.2f} s in all; longest {stalled[:5]} us")  # noqa: T201
    middle, most = (held[int(len(held) * part)].us / 1000 for part in (0.5, 0.05))
    print(f"held in the middle {middle:.2f} ms, by 95 of 100 at most {most:.2f} ms")  # noqa: T201
    print(f"held per source {per_source:.0f} us; in all {sum(each.us for each in held) / 1e6:.2f} s")  # noqa: T201
    print(f"without: {without}\nbeside:  {beside}\nCPU of the broker: {used:.1f} s")  # noqa: T201
    assert running[0] <= MOST_HELD_MS


def test_the_cost_of_a_log_request(broker_43: StartBroker) -> None:
    """Ten thousand checkpoints of the cleaner: the broker's cost of a ``log`` request."""
    broker = broker_43(jvm_args=with_agent())
    create_topics(broker, [TOPIC])
    put_checkpoints(broker, CLEANER_CHECKPOINTS)
    name = TopicPartition(TOPIC, 0)
    with SwappingBroker(broker.log_dirs[0] / SOCKET) as agent:
        for _ in range(SCANS):  # the JIT's share
            agent.log(name)
        started, used = time.monotonic(), cpu_seconds(broker.pid)
        for _ in range(SCANS):
            agent.log(name)
        seconds, used = time.monotonic() - started, cpu_seconds(broker.pid) - used
        idle = cpu_seconds(broker.pid)
        time.sleep(seconds)
        idle = cpu_seconds(broker.pid) - idle
    each_ms = 1000 * (used - idle) / SCANS
    print(f"\n{CLEANER_CHECKPOINTS} checkpoints: {each_ms:.2f} ms of the broker's CPU per log request")  # noqa: T201
    assert each_ms <= MOST_QUERY_MS
