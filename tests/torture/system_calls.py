"""Every i-th system call fails: each job of :mod:`jobs`, each fault of :mod:`shim`, every i until the job passes.

    python -m tests.torture.system_calls --all .cache/system-calls.jsonl    all cases; a later run continues
    python -m tests.torture.system_calls --sample 1000 --seed 1             a random sample
    python -m tests.torture.system_calls --job clean --fault EIO --call 17  repeat one case, with its output
    python -m tests.torture.system_calls --against-processes 100            compare forks with new processes

After each: the log is old or new by a plain reading of Kafka's rules; the message names file and cause; the exit code
is right; no descriptor is left open; and the next run, without a fault, succeeds.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import sys
import time
from dataclasses import astuple, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.torture.calls_bench import Bench, Case, Done, bench
from tests.torture.jobs import JOBS, Torment
from tests.torture.record import Record
from tests.torture.shim import FAULTS, Shim, preloaded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_OF_A_RUN: Final = re.compile(
    r" *\d+(\.\d)? m?s\b|cleanerd-calls-\w+|\b\d{8}t\d{6}-[0-9a-f]+\b|(?<=no key) +time|[\w-]{22}(?=-0\.)"
    r"|(?<=-)[0-9a-f]{16}\b|(?<=socket:\[)\d+"
)
"""Parts that differ between runs: duration, directory, ids of plans, topics and log directories, socket numbers."""
TRIES: Final = 6


def in_its_own_process(arguments: Sequence[str]) -> None:
    """Restart this process with the library, if it is missing."""
    if not Shim.is_there():
        command = [sys.executable, "-m", "tests.torture.system_calls", *arguments]
        os.execve(sys.executable, command, preloaded())  # noqa: S606


def count(bench: Bench, job: Torment) -> dict[str, int]:
    """Number of calls per class in the job without a fault."""
    with bench.workspace() as workspace:
        for name in job.before:
            bench.in_peace(workspace, JOBS[name])
        return bench.do(workspace, job).by_class


def cases_of(calls: dict[str, dict[str, int]], faults: Sequence[str]) -> list[Case]:
    """Every call of every job that can fail in this way, once; ``calls``: by job, from :func:`count`."""
    return [
        Case(job, name, call)
        for job, by_class in calls.items()
        for name in faults
        for call in range(sum(by_class.get(each, 0) for each in FAULTS[name].classes))
    ]


def all_cases(bench: Bench, jobs: Sequence[str], faults: Sequence[str]) -> list[Case]:
    """Every call of every job that can fail in this way, once."""
    return cases_of({name: count(bench, JOBS[name]) for name in jobs}, faults)


def play_all(path: Path, jobs: Sequence[str], faults: Sequence[str], workers: int) -> int:
    """Run all cases that are not in the record yet, with several forks at once; returns the exit code."""
    record = Record(path)
    if not record.calls:
        with bench(jobs) as workbench:
            record.begin({name: count(workbench, JOBS[name]) for name in jobs})
    cases = [case for case in cases_of(record.calls, faults) if astuple(case) not in record.played]
    random.Random(0).shuffle(cases)  # early cases come from everywhere, so that problems anywhere are found early
    sys.stdout.write(f"{len(record.played)} cases were played before, {len(cases)} are left\n")
    sys.stdout.flush()
    children = {_worker(record, jobs, cases[number::workers]) for number in range(workers)}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    failed = False
    try:
        while children:
            child, status = os.wait()
            children.discard(child)
            failed |= status != 0
    finally:
        for child in children:
            os.kill(child, signal.SIGTERM)
    record = Record(path)
    wrong = record.wrong(lambda key: Case(*key).again)
    sys.stdout.write("".join(f"{each}\n" for each in wrong) + record.table() + "\n")
    return int(failed or bool(wrong))


def _worker(record: Record, jobs: Sequence[str], cases: Sequence[Case]) -> int:
    """A fork that runs cases."""
    child = os.fork()
    if child:
        return child
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    code = 1
    try:
        with bench(jobs) as workbench:
            for case in cases:
                began = time.monotonic()
                done, wrong = workbench.play(case)
                record.note(astuple(case), done, wrong, time.monotonic() - began)
        code = 0
    finally:
        os._exit(code)


def play_some(cases: Sequence[Case], workbench: Bench, *, aloud: bool) -> int:
    """Run these cases; the exit code is 1 after a problem. ``aloud``: print their output."""
    wrong_cases = 0
    for case in cases:
        done, wrong = workbench.play(case)
        if aloud:
            sys.stdout.write(f"{done.call} of {done.path}: exit code {done.code}\n{done.output}\n")
        if wrong:
            wrong_cases += 1
            sys.stdout.write("\n  ".join([case.again, f"{done.call} of {done.path}", *wrong]) + "\n")
            sys.stdout.flush()
    sys.stdout.write(f"{len(cases)} played, {wrong_cases} wrong\n")
    return int(wrong_cases > 0)


def differences(jobs: Sequence[str], faults: Sequence[str], sample: int, seed: int) -> list[str]:
    """Differences between forks and new processes: the calls of ``jobs``, and the results of cases.

    A directory that changed within a clock tick is listed again, so calls vary; a difference counts if :data:`TRIES`
    tries never agree.
    """
    with bench(jobs) as forks, bench(whole=True) as started:
        calls = {name: count(forks, JOBS[name]) for name in jobs}
        found = []
        for name in jobs:
            found += _differing(name, partial(count, job=JOBS[name]), forks, started)
        cases = cases_of(calls, faults)
        for case in random.Random(seed).sample(cases, min(sample, len(cases))):
            found += _differing(case.again, partial(_comparable, case=case), forks, started)
    return found


def _differing(what: str, come_to: Callable[[Bench], object], forks: Bench, started: Bench) -> list[str]:
    """Both results, if they never agreed."""
    in_forks, in_processes = [], []
    for _ in range(TRIES):
        in_forks.append(come_to(forks))
        in_processes.append(come_to(started))
        if any(each in in_processes for each in in_forks):
            return []
    return ["\n  ".join([what, *map(str, in_forks), "started:", *map(str, in_processes)])]


def _comparable(bench: Bench, case: Case) -> tuple[Done, list[str]]:
    """Its result. The output's lines are sorted, because stdout is buffered and stderr is not."""
    done, wrong = bench.play(case)
    output, path = "\n".join(sorted(_same_in_runs(done.output).splitlines())), _same_in_runs(done.path)
    leaked = [_same_in_runs(each) for each in done.leaked]
    return replace(done, output=output, leaked=leaked, path=path, seen=0, by_class={}), [*map(_same_in_runs, wrong)]


def _same_in_runs(text: str) -> str:
    return _OF_A_RUN.sub("", text)


def main(arguments: Sequence[str]) -> int:
    """Run one case, all, or a random sample; the exit code is 1 after a problem."""
    in_its_own_process(arguments)
    parser = argparse.ArgumentParser()
    parser.add_argument("--job", choices=JOBS, action="append", default=[])
    parser.add_argument("--fault", choices=FAULTS, action="append", default=[])
    parser.add_argument("--call", type=int, default=-1, help="only this one, with its output")
    parser.add_argument("--sample", type=int, default=0, help="this number, at random")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--all", type=Path, metavar="FILE", help="all; finished cases are recorded there")
    parser.add_argument("--workers", type=int, default=2, help="forks that play all")
    parser.add_argument("--whole", action="store_true", help="a new process for each job, not a fork")
    parser.add_argument("--against-processes", type=int, metavar="N", help="this number of random cases, in both ways")
    options = parser.parse_args(arguments)
    jobs, faults = options.job or list(JOBS), options.fault or list(FAULTS)
    if options.all:
        return play_all(options.all, jobs, faults, options.workers)
    if options.against_processes is not None:
        found = differences(jobs, faults, options.against_processes, options.seed)
        sys.stdout.write("\n".join([*found, f"{options.against_processes} cases, {len(found)} differ\n"]))
        return int(bool(found))
    with bench(jobs, whole=options.whole) as workbench:
        if options.call >= 0:
            cases = [Case(job, fault, options.call) for job in jobs for fault in faults]
        else:
            cases = all_cases(workbench, jobs, faults)
            sys.stdout.write(f"{len(cases)} cases\n")
        if options.sample:
            cases = random.Random(options.seed).sample(cases, min(options.sample, len(cases)))
        return play_some(cases, workbench, aloud=options.call >= 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
