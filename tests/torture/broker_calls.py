"""Every i-th call of a broker's JVM below a partition's directory fails while it executes cleanerd's swap.

    python -m tests.torture.broker_calls --all .cache/broker-calls.jsonl        all cases; a later run continues
    python -m tests.torture.broker_calls --sample 60 --seed 1                   a random sample
    python -m tests.torture.broker_calls --release 4.3 --fault EIO --call 17    repeat one case, with its output
    python -m tests.torture.broker_calls --count                                count the calls of a swap

The calls are those of the agent and of the broker's code in its service: reading, verifying, renaming, opening,
flushing, replacing, and the final removal. After each: the log is old or new for Kafka's loader; cleanerd names the
failed call; no descriptor stays open. A read_committed consumer misses no record, after a restart if the broker took
the log directory offline. The next cleaning succeeds and leaves no files.
"""

from __future__ import annotations

import argparse
import errno
import random
import signal
import sys
import time
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.kafka.judge import Judge
from tests.torture.broker_bench import BrokerBench, broker_bench
from tests.torture.record import Record
from tests.torture.shim import FAULTS, Fault

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.torture.calls_bench import Done

RELEASES: Final = ("4.3", "3.9")
AT_ONCE: Final = 12
_NAMED: Final = ("open", "create", "rename", "unlink", "link", "mkdir", "list", "stat", "access", "change")
BROKER_FAULTS: Final = {
    **{name: FAULTS[name] for name in ("EIO", "EIO-lasting", "ENOSPC", "ENOSPC-lasting", "EMFILE", "EMFILE-lasting")},
    "EACCES": Fault("EACCES", errno.EACCES, _NAMED),
    "close": FAULTS["close"],
}


@dataclass(frozen=True, slots=True)
class Case:
    """One call that fails."""

    release: str
    fault: str
    call: int

    @property
    def again(self) -> str:
        """The command that repeats it; the call's number depends in part on the log."""
        reported = f"--release {self.release} --fault {self.fault} --call {self.call}"
        return f".venv/bin/python -m tests.torture.broker_calls {reported}"


def all_cases(release: str, by_class: dict[str, int], faults: Sequence[str] = tuple(BROKER_FAULTS)) -> list[Case]:
    """Every call that can fail in this way, once."""
    found = []
    for fault in (BROKER_FAULTS[each] for each in faults):
        total = sum(by_class.get(each, 0) for each in fault.classes)
        found += [Case(release, fault.name, call) for call in range(total)]
    return found


def play(bench: BrokerBench, cases: Sequence[Case]) -> Iterator[tuple[Case, Done, list[str], float]]:
    """Run each case, as many at once as ``bench`` has partitions: output, problems, seconds."""
    for first in range(0, len(cases), bench.size):
        batch, began = cases[first : first + bench.size], time.monotonic()
        found = bench.fail_each([(BROKER_FAULTS[case.fault], case.call) for case in batch])
        seconds = (time.monotonic() - began) / len(batch)
        for case, (done, wrong) in zip(batch, found, strict=True):
            yield case, done, wrong, seconds


def play_all(path: Path, releases: Sequence[str], faults: Sequence[str], judge: Judge) -> int:
    """Run all cases that are not in the record yet; returns the exit code."""
    record = Record(path)
    if not record.calls:
        calls = {}
        for release in releases:
            with broker_bench(release, judge) as running:
                calls[release] = running.count()
        record.begin(calls)
    for release in releases:
        cases = [
            each for each in all_cases(release, record.calls[release], faults) if astuple(each) not in record.played
        ]
        random.Random(0).shuffle(cases)  # early cases come from everywhere, so that problems anywhere are found early
        sys.stdout.write(f"{release}: {len(cases)} cases are left\n")
        sys.stdout.flush()
        with broker_bench(release, judge, AT_ONCE) as running:
            for case, done, wrong, seconds in play(running, cases):
                record.note(astuple(case), done, wrong, seconds)
            sys.stdout.write(f"{release}: {running.restarts} restarts\n")
    wrong = record.wrong(lambda key: Case(*key).again)
    sys.stdout.write("".join(f"{each}\n" for each in wrong) + record.table() + "\n")
    return int(bool(wrong))


def main(arguments: Sequence[str]) -> int:
    """Run one case, all, or a random sample; the exit code is 1 if one has a problem."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--release", choices=RELEASES, action="append", default=[])
    parser.add_argument("--fault", choices=BROKER_FAULTS, action="append", default=[])
    parser.add_argument("--call", type=int, default=-1, help="only this one, with its output")
    parser.add_argument("--count", action="store_true", help="only count the calls")
    parser.add_argument("--sample", type=int, default=0, help="this number per release, at random")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--all", type=Path, metavar="FILE", help="all; finished cases are recorded there")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no broker outlives it
    faults, wrong_cases, played = options.fault or list(BROKER_FAULTS), 0, 0
    with Judge("4.3") as judge:
        if options.all:
            return play_all(options.all, options.release or RELEASES, faults, judge)
        for release in options.release or RELEASES:
            with broker_bench(release, judge, AT_ONCE if options.sample else 1) as running:
                by_class = running.count()
                cases = all_cases(release, by_class, faults)
                sys.stdout.write(f"{release}: {len(cases)} cases, {sum(by_class.values())} calls: {by_class}\n")
                sys.stdout.flush()
                if options.call >= 0:
                    cases = [Case(release, fault, options.call) for fault in faults]
                elif options.count:
                    continue
                elif options.sample:
                    cases = random.Random(options.seed).sample(cases, min(options.sample, len(cases)))
                for case, done, wrong, _ in play(running, cases):
                    played += 1
                    if options.call >= 0:
                        sys.stdout.write(f"{done.call} of {done.path}: exit code {done.code}\n{done.output}\n")
                    if wrong:
                        wrong_cases += 1
                        reported = [case.again, f"{done.call} of {done.path}: exit code {done.code}", *wrong]
                        sys.stdout.write("\n  ".join(reported) + "\n")
                        sys.stdout.flush()
                sys.stdout.write(f"{release}: {running.restarts} restarts\n")
    sys.stdout.write(f"{played} played, {wrong_cases} wrong\n")
    return int(wrong_cases > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
