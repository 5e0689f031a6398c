"""Runs the cases of :mod:`system_calls`: a fork server, a log in memory, and the checks after each case.

The server has imported cleanerd and has done each job once, so that a case costs a fork and the job itself. The calls
are counted from the fork on. ``whole``: each job in a new process, as operators run it; much slower, and the reference
for the fork server (``test_smoke.py``).
"""

from __future__ import annotations

import gc
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cleanerd.cleaner.manifest import STAGING
from cleanerd.fsio import held_directories
from cleanerd.state import in_progress
from tests.torture.broker_stand_in import beside
from tests.torture.jobs import JOBS, Torment, Workspace, descriptors, impatient, make
from tests.torture.loader_rules import Segments, as_loaded, leftovers, records
from tests.torture.shim import FAULTS, Fault, Shim, preloaded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

TOP: Final = Path(__file__).resolve().parents[2]
LIMIT_SECONDS: Final = 180
"""Each case takes less than a second on an idle machine; a case that reaches this limit hangs."""
COUNTED: Final = Fault("counted", 0, tuple(dict.fromkeys(each for fault in FAULTS.values() for each in fault.classes)))


@dataclass(frozen=True, slots=True)
class Done:
    """Results of a child: exit code (negative: a signal), output, leaked descriptors, the fault."""

    code: int
    output: str
    leaked: list[str]
    seen: int = 0
    hits: int = 0
    call: str = ""
    path: str = ""
    by_class: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Case:
    """One call that fails."""

    job: str
    fault: str
    call: int

    @property
    def again(self) -> str:
        """The command that repeats it."""
        return (
            f".venv/bin/python -m tests.torture.system_calls --job {self.job} --fault {self.fault} --call {self.call}"
        )


class Undisturbed:
    """The log before, and after a cleaning without a fault.

    ``careful``: the same if the producer snapshot is unreadable. Producers are then read from the log, which is
    reported, and some batches are kept unnecessarily.
    """

    def __init__(self, bench: Bench, job: Torment) -> None:
        with bench.workspace() as workspace:
            self.old = as_loaded(workspace.partition)
            self.new = _cleaned(bench, workspace, job)
        with bench.workspace() as workspace:
            for snapshot in workspace.partition.glob("*.snapshot"):
                snapshot.write_bytes(b"damaged")
            self.careful = _cleaned(bench, workspace, job)

    def groups_swapped(self, found: Segments, new: Segments) -> list[bool] | None:
        """For every group whether it equals ``new``; None if one is neither old nor new."""
        answer = []
        bases = sorted(new)
        ends = [*bases[1:], 1 << 62]
        if any(base < bases[0] for base in found):
            return None
        for base, end in zip(bases, ends, strict=True):
            old, clean, here = (
                {each: files for each, files in segments.items() if base <= each < end}
                for segments in (self.old, new, found)
            )
            if old == clean == here:
                continue
            if here not in (old, clean):
                return None
            answer.append(here == clean)
        return answer


def _cleaned(bench: Bench, workspace: Workspace, job: Torment) -> Segments:
    for each in (*map(JOBS.__getitem__, job.before), job):
        bench.in_peace(workspace, each)
    return as_loaded(workspace.partition)


def forked(reported: Path, work: Callable[[], Done]) -> Done:
    """Run ``work`` in a fork, with its output in the file ``reported``."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        gc.freeze()  # a collection would destroy Kafka clients of the parent, whose threads a fork does not have
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(LIMIT_SECONDS)
        output = os.open(reported, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        # a test may have redirected these streams
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
        try:
            done = work()
            sys.stdout.flush()
            sys.stderr.flush()
            os.write(writing, json.dumps(asdict(done)).encode())
        except BaseException:  # noqa: BLE001 - the child ends here whatever happens
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as answer:
        data = answer.read()
    _, status = os.waitpid(child, 0)
    output = reported.read_text(errors="replace")
    if not data:
        code = os.waitstatus_to_exitcode(status)
        return Done(-code if code else 71, f"it ended by itself or hung\n{output}", [])
    return Done(**{**json.loads(data), "output": output})


@contextmanager
def _output_to(reported: Path) -> Iterator[None]:
    """In the block, redirect this process's output to a file."""
    kept = sys.stdout, sys.stderr
    with reported.open("w") as output:
        sys.stdout = sys.stderr = output
        try:
            yield
        finally:
            sys.stdout, sys.stderr = kept


def attempt(shim: Shim, workspace: Workspace, job: Torment, fault: Fault, call: int) -> Done:
    """Run ``job`` in this process with this fault, without collecting its output."""
    with impatient():
        held_directories.close_all()
        before = descriptors()
        shim.arm(workspace.root, fault, call)
        try:
            code = job.work(workspace)
        except BaseException:  # noqa: BLE001 - what gets out is what is looked for
            code = 70
            traceback.print_exc()
        struck = shim.disarm()
        gc.collect()
        held_directories.close_all()
        open_now = descriptors()
        leaked = [where for number, where in open_now.items() if before.get(number) != where]
    return Done(code, "", leaked, struck.seen, struck.hits, struck.call, struck.path, struck.by_class)


def _in_a_new_process(reported: Path, workspace: Workspace, job: Torment, fault: Fault, call: int) -> Done:
    """The same in a new process; it writes its result to a file beside ``reported``."""
    answer = reported.with_name("answer")
    answer.unlink(missing_ok=True)
    command = [sys.executable, "-m", "tests.torture.calls_bench", job.name, fault.name, str(call)]
    with reported.open("w") as output:
        process = subprocess.run(
            [*command, str(workspace.root), str(answer)],
            env=preloaded(),
            cwd=TOP,
            stdout=output,
            stderr=output,
            timeout=LIMIT_SECONDS,
            check=False,
        )
    message = reported.read_text(errors="replace")
    if not answer.exists():
        return Done(-abs(process.returncode or 71), f"it ended by itself\n{message}", [])
    return Done(**{**json.loads(answer.read_text()), "output": message})


class Bench:
    """The place of the cases: a directory in memory, a fork per run. ``whole``: a new process instead.

    ``jobs``: the jobs that it will run.
    """

    def __init__(self, work: Path, jobs: Sequence[str] = tuple(JOBS), *, whole: bool = False) -> None:
        self.root = work / "here"
        self._model = work / "model"
        self._output = work / "output"
        self._whole = whole
        self._shim = Shim()
        self._undisturbed: dict[str, Undisturbed] = {}
        make(Workspace(self._model))
        if not whole:
            self._warm_up(Workspace(work / "warm"), jobs)

    def _warm_up(self, workspace: Workspace, jobs: Sequence[str]) -> None:
        """Run each job once in this process.

        All forks then share objects that Python creates once, such as pydantic's schemas. Existing objects are frozen,
        so that the garbage collection of a fork does not copy their pages.
        """
        for job in (JOBS[each] for each in jobs):
            shutil.copytree(self._model, workspace.root)
            for name in job.before:
                self.in_peace(workspace, JOBS[name])
            with beside(workspace, job), _output_to(self._output), impatient():
                code = job.work(workspace)
            if code != 0:
                raise AssertionError(f"{job.name}: exit code {code}: {self._output.read_text()}")
            shutil.rmtree(workspace.root)
        gc.collect()
        gc.freeze()

    @contextmanager
    def workspace(self) -> Iterator[Workspace]:
        """The log as it was made."""
        shutil.copytree(self._model, self.root)
        try:
            yield Workspace(self.root)
        finally:
            shutil.rmtree(self.root)

    def undisturbed(self, job: Torment) -> Undisturbed:
        """The log before and after ``job``, or after the job that it undoes."""
        cleaning = JOBS[job.before[0]] if job.ends == "old" else job
        if cleaning.name not in self._undisturbed:
            self._undisturbed[cleaning.name] = Undisturbed(self, cleaning)
        return self._undisturbed[cleaning.name]

    def in_peace(self, workspace: Workspace, job: Torment) -> None:
        """Run ``job`` without a fault; it must succeed."""
        done = self.do(workspace, job)
        if done.code != 0:
            raise AssertionError(f"{job.name}: exit code {done.code}: {done.output}")

    def do(self, workspace: Workspace, job: Torment, fault: Fault = COUNTED, call: int = -1) -> Done:
        """Run ``job`` with this fault, in a fork or a process of its own."""
        with beside(workspace, job):
            if self._whole:
                return _in_a_new_process(self._output, workspace, job, fault, call)
            return forked(self._output, lambda: attempt(self._shim, workspace, job, fault, call))

    def play(self, case: Case) -> tuple[Done, list[str]]:
        """Run one case: output and problems."""
        job, fault = JOBS[case.job], FAULTS[case.fault]
        if job.ends != "same":
            self.undisturbed(job)
        with self.workspace() as workspace:
            for name in job.before:
                self.in_peace(workspace, JOBS[name])
            start = as_loaded(workspace.partition)
            done = self.do(workspace, job, fault, case.call)
            wrong = [*self._log(job, workspace, start, done), *wrong_output(fault, done), *left_open(fault, done)]
            wrong += self._again(job, workspace, start)
        return done, wrong

    def _log(self, job: Torment, workspace: Workspace, start: Segments, done: Done) -> list[str]:
        """Old or new, and new if the exit code says so."""
        found = as_loaded(workspace.partition)
        if job.ends == "same":
            return [] if found == start else ["the log changed"]
        known = self.undisturbed(job)
        swapped = known.groups_swapped(found, known.new)
        if swapped is None and "producer snapshot ignored" in done.output:
            swapped = known.groups_swapped(found, known.careful)
        if swapped is None:
            return [f"the log is neither old nor new: {_listing(workspace.partition)}"]
        if job.ends == "new" and swapped != sorted(swapped, reverse=True):
            return [f"a later group is new and an earlier one is not: {swapped}"]
        if done.code == 0 and not all(each == (job.ends == "new") for each in swapped):
            return [f"exit code 0, and the log is not cleaned: {swapped}"]
        return []

    def _again(self, job: Torment, workspace: Workspace, start: Segments) -> list[str]:
        """The next run, without a fault."""
        done = self.do(workspace, job)
        if job.name == "apply" and done.code == 0:
            # A half-finished plan is completed as far as it went and dropped: the next cleaning differs.
            done = self.do(workspace, JOBS["clean"])
        wrong = [] if done.code == 0 else [f"the next run fails with exit code {done.code}: {done.output}"]
        known = None if job.ends == "same" else self.undisturbed(job)
        expected = start if known is None else known.new if job.ends == "new" else known.old
        if records(as_loaded(workspace.partition)) != records(expected):
            wrong.append(f"after the next run the log is wrong: {_listing(workspace.partition)}")
        left = leftovers(workspace.partition)
        if job.name == "undo" and left == [STAGING]:
            self.do(workspace, JOBS["clean"])  # an undo without work reads no partition
            left = leftovers(workspace.partition)
        if job.ends != "same" and left:
            wrong.append(f"files left after the next run: {left}")
        return wrong


def wrong_output(fault: Fault, done: Done, root: str = "/here/") -> list[str]:
    """Problems of the messages. ``root``: the directory whose calls may fail."""
    wrong: list[str] = []
    if not fault.is_error and done.code != 0:
        return [f"no error happened, and the exit code is {done.code}: {done.output}"]
    if done.code < 0 or done.code >= 70 or "Traceback" in done.output or "unexpected error" in done.output:
        return [f"it is reported as a bug of cleanerd, exit code {done.code}: {done.output}"]
    if done.code == 0 or done.hits == 0:
        return wrong
    if done.code not in {1, 4, 6}:
        wrong.append(f"exit code {done.code} for a call that failed")
    message = re.sub(r"\s+", " ", done.output)
    if not fault.is_reported(message):
        wrong.append(f"the cause is not reported: {done.output}")
    path = Path(done.path)
    # A failing disk may be reported with another file than the first: cleanerd skips unimportant files.
    known = (path.name, str(path.parent), path.parent.name, *((root,) if fault.lasting else ()))
    if done.path.startswith("/") and not any(each in message for each in known):
        wrong.append(f"the file {done.path} is not reported: {done.output}")
    return wrong


def left_open(fault: Fault, done: Done) -> list[str]:
    """Descriptors that the command left open.

    While a fault lasts, an in-progress marker file cannot be removed. It stays open and locked until the process ends
    (U-35): an unlocked marker would mean that the process was killed.
    """
    leaked = [where for where in done.leaked if not (fault.lasting and f"/{in_progress.PLACE}/" in where)]
    return [f"left open, and not an in-progress marker during a lasting fault: {leaked}"] if leaked else []


def _listing(directory: Path) -> list[str]:
    return sorted(f"{path.relative_to(directory)} ({path.stat().st_size})" for path in directory.rglob("*"))


@contextmanager
def bench(jobs: Sequence[str] = tuple(JOBS), *, whole: bool = False) -> Iterator[Bench]:
    """In memory if possible: thousands of directories are created and flushed. Parameters as for :class:`Bench`."""
    memory = Path("/dev/shm")  # noqa: S108
    work = Path(tempfile.mkdtemp(prefix="cleanerd-calls-", dir=memory if memory.is_dir() else None))
    try:
        yield Bench(work, jobs, whole=whole)
    finally:
        gc.unfreeze()
        shutil.rmtree(work, ignore_errors=True)


def main(arguments: Sequence[str]) -> int:
    """Run one job in this process, for :func:`_in_a_new_process`."""
    name, fault, call, root, answer = arguments
    done = attempt(Shim(), Workspace(Path(root)), JOBS[name], {**FAULTS, COUNTED.name: COUNTED}[fault], int(call))
    Path(answer).write_text(json.dumps(asdict(done)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
