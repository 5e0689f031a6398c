"""Plant each mistake in a private copy and check that the named tests fail: ``python -m tests.mutants.run [NAME...]``.

The working tree is never changed. First the named tests run without any mistake, because a test that always fails shows
nothing.
"""

from __future__ import annotations

import argparse
import compileall
import os
import py_compile
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.mutants.mutant import ROOT, Mutant
from tests.mutants.table import MUTANTS

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMEOUT_SECONDS: Final = 900
TEST_TIMEOUT_SECONDS: Final = 90
PATIENCE_SECONDS: Final = 30
"""A test that waits for an event that its mutant prevents fails at this limit."""
PYTEST: Final = ("-m", "pytest", "-q", "--tb=no", "--hypothesis-profile", "unshrunk")
PYTEST_FAILED = 1
PYTEST_NONE = 5
CARGO_CACHE = ROOT / ".cache" / "mutants"
PYTEST_RED = re.compile(r"^(?:FAILED|ERROR) (\S+?::\w+)", re.MULTILINE)
CARGO_RED = re.compile(r"^test (\S+) \.\.\. FAILED", re.MULTILINE)

Judge = Callable[[Path, Sequence[str]], tuple[set[str], str]]
"""Runs tests in a copy: the failed ones, and the output. Raises JudgeError when they could not run."""


class JudgeError(Exception):
    """The tests did not run to their end: no result."""


def main(arguments: Sequence[str]) -> int:
    """Judge the named mutants, or all; 1 when one survives."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.run", description="Planted wrong rules.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these; all of them by default")
    parser.add_argument("--kernel", action="store_true", help="those in Rust too (named ones always)")
    parser.add_argument("--agent", action="store_true", help="those in Java too, some minutes (named ones always)")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="mutants at a time; as many as cores by default"
    )
    options = parser.parse_args(arguments)
    unknown = set(options.names) - {mutant.name for mutant in MUTANTS}
    if unknown:
        parser.error(f"no such mutant: {', '.join(sorted(unknown))}")
    if options.names:
        chosen = [mutant for mutant in MUTANTS if mutant.name in options.names]
    else:
        left_out = [m for m in MUTANTS if (m.is_kernel and not options.kernel) or (m.is_agent and not options.agent)]
        chosen = [mutant for mutant in MUTANTS if mutant not in left_out]
    kernel = [mutant for mutant in chosen if mutant.is_kernel]
    agent = [mutant for mutant in chosen if mutant.is_agent]
    python = [mutant for mutant in chosen if mutant not in kernel and mutant not in agent]
    verdicts: list[bool] = []
    for mutants, judge, copied in ((python, pytest_run, ()), (agent, agent_run, ("agent",))):
        if mutants:
            with ExitStack() as stack:
                copies = [stack.enter_context(python_copy(*copied)) for _ in range(options.jobs)]
                verdicts += judged(mutants, copies, judge)
    if kernel:
        with kernel_copy() as copy:
            verdicts += judged(kernel, [copy], cargo_run)
    say(f"{sum(verdicts)} passed, {len(verdicts) - sum(verdicts)} failed")
    return 0 if all(verdicts) else 1


def say(text: str) -> None:
    """Print a line at once: a run takes a minute."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def judged(mutants: Sequence[Mutant], copies: Sequence[Path], judge: Judge) -> Iterator[bool]:
    """Whether each was killed; one line each. As many at a time as there are copies."""
    reject_red_tests(mutants, copies, judge)
    free: queue.SimpleQueue[Path] = queue.SimpleQueue()
    for copy in copies:
        free.put(copy)

    def killed(mutant: Mutant) -> bool:
        copy = free.get()
        started = time.monotonic()
        try:
            verdict = verdict_on(mutant, copy, judge)
        finally:
            free.put(copy)
        say(f"{verdict:<9} {mutant.name:<44} {mutant.rule:<7} {time.monotonic() - started:5.1f} s")
        return verdict == "killed"

    with ThreadPoolExecutor(len(copies)) as pool:
        yield from pool.map(killed, mutants)


def reject_red_tests(mutants: Sequence[Mutant], copies: Sequence[Path], judge: Judge) -> None:
    """Run all tests without any mistake, a part in each copy; end the process if one fails."""
    tests = {test for mutant in mutants for test in mutant.tests}
    files = sorted({test.partition("::")[0] for test in tests})
    parts = [
        sorted(test for test in tests if test.partition("::")[0] in files[first :: len(copies)])
        for first in range(len(copies))
    ]
    with ThreadPoolExecutor(len(copies)) as pool:
        runs = [pool.submit(judge, copy, part) for copy, part in zip(copies, parts, strict=True) if part]
        try:
            outcomes = [run.result() for run in runs]
        except JudgeError as error:
            sys.exit(f"{error}\nthe tests do not run without any mistake")
    for red, output in outcomes:
        if red:
            sys.exit(f"{output}\nred without any mistake: {', '.join(sorted(red))}")


def verdict_on(mutant: Mutant, copy: Path, judge: Judge) -> str:
    """``killed`` when every named test fails, ``SURVIVED`` when one passes, ``BROKEN`` without a result."""
    file = copy / mutant.file
    right = file.read_text()
    file.write_text(mutant.applied(right))
    try:
        red, _ = judge(copy, mutant.tests)
    except JudgeError as error:
        say(f"no verdict on {mutant.name}:\n{error}")
        return "BROKEN"
    finally:
        file.write_text(right)
    green = sorted(set(mutant.tests) - red)
    if green:
        say(f"still green with {mutant.name}: {', '.join(green)}")
    return "SURVIVED" if green else "killed"


def pytest_run(copy: Path, tests: Sequence[str]) -> tuple[set[str], str]:
    """Raises JudgeError for anything but passed and failed tests."""
    found = run_pytest(copy, ["--timeout", str(TEST_TIMEOUT_SECONDS), *tests])
    if found is None:
        raise JudgeError(f"no such test: {', '.join(tests)}")
    return found


def agent_run(copy: Path, tests: Sequence[str]) -> tuple[set[str], str]:
    """Raises JudgeError if the agent does not compile, and like pytest_run.

    The short cases of a test judge; if it has none, all of its cases.
    """
    code, output = run(["bash", "agent/build.sh"], copy, dict(os.environ))
    if code != 0:
        raise JudgeError(output)
    red: set[str] = set()
    output = ""
    for test in tests:
        failed, text = run_pytest(copy, ["-m", "not long", test]) or run_pytest(copy, [test]) or (set(), "")
        red |= failed
        output += text
    return red, output


def run_pytest(copy: Path, arguments: Sequence[str]) -> tuple[set[str], str] | None:
    """The failed tests and the output of one pytest process in a copy; None: no test was selected.

    Raises:
        JudgeError: anything else happened.
    """
    # The copy's bytecode names the hash of its source. Python would trust the time of a file that it compiles now.
    environment = os.environ | {
        "PYTHONPATH": str(copy),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PATIENCE_SECONDS": str(PATIENCE_SECONDS),
    }
    code, output = run([sys.executable, *PYTEST, *arguments], copy, environment)
    if code == PYTEST_NONE:
        return None
    if code not in {0, PYTEST_FAILED}:
        raise JudgeError(output)
    return set(PYTEST_RED.findall(output)), output


def cargo_run(copy: Path, tests: Sequence[str]) -> tuple[set[str], str]:
    """Raises JudgeError if the kernel does not compile."""
    names = {test.rpartition("::")[2]: test for test in tests}
    targets = sorted({Path(test.partition("::")[0]).stem for test in tests})
    selected = [part for target in targets for part in ("--test", target)]
    command = ["cargo", "test", "--locked", "--no-fail-fast", "-p", "cleanerd-kernel", *selected]
    environment = os.environ | {"CARGO_TARGET_DIR": str(CARGO_CACHE / "target"), "PROPTEST_FAILURE_PERSISTENCE": "off"}
    code, output = run([*command, "--", "--exact", *names], copy, environment)
    red = {names[name] for name in CARGO_RED.findall(output)}
    if code != 0 and not red:
        raise JudgeError(output)
    return red, output


def run(command: Sequence[str], directory: Path, environment: dict[str, str]) -> tuple[int, str]:
    """Exit code and all output.

    Raises:
        JudgeError: it takes too long.
    """
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise JudgeError(f"no end after {TIMEOUT_SECONDS} s: {' '.join(command)}") from error
    return done.returncode, done.stdout


@contextmanager
def python_copy(*more: str) -> Iterator[Path]:
    """The package with its kernel, and the tests; ``more``: further files to change."""
    with tempfile.TemporaryDirectory(prefix="cleanerd-mutants-") as name:
        copy = Path(name)
        copy_of(("cleanerd", "cleanerd_lab", "tests", "pyproject.toml", *more), copy)
        for other in ROOT.iterdir():  # documents, configuration and jars, for tests that read them
            if not (copy / other.name).exists() and other.name not in {".git", ".hypothesis"}:
                (copy / other.name).symlink_to(other)
        for package in ("cleanerd", "cleanerd_lab"):
            compileall.compile_dir(
                copy / package, quiet=1, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH
            )
        yield copy


@contextmanager
def kernel_copy() -> Iterator[Path]:
    """The workspace of cargo, always in one place, so that compiled files are used again."""
    copy = CARGO_CACHE / "tree"
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir(parents=True)
    try:
        copy_of(("Cargo.toml", "Cargo.lock", "kernel"), copy)
        yield copy
    finally:
        shutil.rmtree(copy)


def copy_of(names: Iterable[str], copy: Path) -> None:
    """New files, with new times (not modes): cargo must not treat those of the last run as compiled."""
    for name in names:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "target", "fuzz")
            shutil.copytree(ROOT / name, copy / name, ignore=ignored, copy_function=shutil.copy)
        else:
            shutil.copy(ROOT / name, copy / name)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
