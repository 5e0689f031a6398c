"""Elapsed time with one thread and with two, on one big partition.

Rounds of both, one after the other, and the best of every. CPU time shows nothing in this case, so the machine must be
idle: a round counts only if two busy loops had two cores before and after it.

Environment: ``BENCH_SIZE`` as in test_speed.py, but 256 MiB at least; ``BENCH_ROUNDS`` (default 6).
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest

from cleanerd_lab.bench.generate import SHAPES, make_log
from cleanerd_lab.bench.whole import TimedClean, flush, timed_clean
from cleanerd_lab.bench.yardstick import idle_share
from tests.bench.sizes import RESULTS, SEGMENTS, SIZE_BYTES

if TYPE_CHECKING:
    from pathlib import Path

LEAST_SIZE_BYTES: Final = 256 * 1024 * 1024
ROUNDS: Final = int(os.environ.get("BENCH_ROUNDS", "6"))
THREADS: Final = 2
IDLE_SHARE: Final = 0.93
IDLE_ROUNDS: Final = 2
LEAST_GAIN: Final = 1.5


@dataclass(frozen=True, slots=True)
class Round:
    """One cleaning with a thread and one with two, and the share of cores that two busy loops had around them."""

    one: TimedClean
    two: TimedClean
    share: float


@pytest.mark.bench
@pytest.mark.timeout(600)
def test_two_threads_in_one_partition(tmp_path: Path) -> None:
    """Index, decide and rewrite (with flush and verification) take at most two thirds of the time with two threads."""
    size = max(SIZE_BYTES, LEAST_SIZE_BYTES)
    log = make_log(tmp_path / "log", SHAPES[0], unpacked_bytes=size, segment_bytes=size // SEGMENTS)
    flush(log.log_dir)
    rounds = []
    before = idle_share(THREADS)
    for _ in range(ROUNDS):
        one, two = (timed_clean(log, tmp_path, threads=threads) for threads in (1, THREADS))
        after = idle_share(THREADS)
        rounds.append(Round(one, two, min(before, after)))
        before = after
    idle = [each for each in rounds if each.share >= IDLE_SHARE]
    held = len(idle) >= IDLE_ROUNDS
    result = _summary(idle if held else rounds)
    _save({**result, "rounds": len(rounds), "idle_rounds": len(idle)})
    lines = [
        f"one thread -> two, {log.log_bytes / 2**20:.0f} MiB, seconds on the wall, best of each:",
        *(f"  {name:8}{best['one']:8.3f} ->{best['two']:7.3f}{best['gain']:7.2f}x" for name, best in result.items()),
        f"  {len(idle)} of {len(rounds)} rounds had two cores to themselves"
        + ("" if held else ": nothing is asserted"),
    ]
    sys.stdout.write("\n\n" + "\n".join(lines) + "\n")
    if held:
        assert result["kernel"]["gain"] >= LEAST_GAIN, result


def _summary(rounds: list[Round]) -> dict[str, dict[str, float]]:
    """Best times of one and two threads: by phase, of the three together, and of the whole process."""
    names = ("index", "decide", "rewrite", "kernel", "whole")
    ones, twos = ([_times(clean) for clean in side] for side in zip(*((e.one, e.two) for e in rounds), strict=True))
    bests = {name: (min(each[name] for each in ones), min(each[name] for each in twos)) for name in names}
    return {
        name: {"one": round(one, 4), "two": round(two, 4), "gain": round(one / two, 2)}
        for name, (one, two) in bests.items()
    }


def _times(clean: TimedClean) -> dict[str, float]:
    return {**clean.seconds, "kernel": clean.kernel_seconds, "whole": clean.wall_seconds}


def _save(result: dict[str, object]) -> None:
    """Beside the results of test_speed.py."""
    path = RESULTS / "speed.json"
    RESULTS.mkdir(parents=True, exist_ok=True)
    known = json.loads(path.read_text()) if path.exists() else None
    known = known if isinstance(known, dict) else {}
    path.write_text(json.dumps(known | {"threads": result}, indent=2) + "\n")
