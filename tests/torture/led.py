"""Coverage-guided hostile bytes for the readers in Python: an input that reaches a new place is mutated further.

    make torture-readers                                           a million inputs each, or the remaining ones
    python -m tests.torture.led --count 20000 --reader manifest    up to this total for one reader
    python -m tests.torture.led --reader manifest --input FILE     repeat one input

Each reader runs in its own process, ``--processes`` at once, with a Python that records places cheaply (3.12 or newer)
if available. Inputs with problems or new places are in ``.cache/fuzz/python/READER``, the totals in ``READER.json``
beside it. The totals are valid while the seed and the code that the reader reached are unchanged; a later run
continues.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import mmap
import os
import random
import resource
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from tests.compatibility.spark import environment_of, interpreter
from tests.torture.hostile import Reader, TooSlowError, limits, outcome, play_bytes, readers
from tests.torture.line_coverage import FAST, OURS, Lines
from tests.torture.mutate import MOST_BYTES, Mutator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType

TOP: Final = Path(__file__).resolve().parents[2]
PLACE: Final = TOP / ".cache" / "fuzz" / "python"
MOST_SEEDS: Final = 2000
PYTHONS: Final = ("3.13", "3.12")
"""Releases with ``sys.monitoring``; the first installed one is used."""

MOST_GROWN_BYTES: Final = 256 << 20
"""Allowed growth of a process between the first group of inputs and the last."""

_GROUP: Final = 1000
"""Number of inputs that share one seed and one count."""

_MANY: Final = 2000
"""For fewer inputs, installing cleanerd's libraries for another Python costs more than it saves."""

_MOST_WRONG: Final = 100
"""Number of problems that one run keeps and reports; further ones are counted."""

_TICK_SECONDS: Final = 0.25
_MOST_TICKS: Final = 5
_STUCK_SECONDS: Final = 60.0
_SAVE_SECONDS: Final = 5.0
_ANSWER_SECONDS: Final = 60.0


@dataclass(slots=True)
class Count:
    """Totals of a reader. ``files``: the digests of cleanerd's files that it reached."""

    seed: int
    inputs: int = 0
    wrong: int = 0
    lines_first: int = 0
    lines_last: int = 0
    cpu_seconds: float = 0.0
    grown_bytes: int = 0
    files: dict[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path, seed: int, top: str = OURS) -> Count:
        """The contents of ``path``, if still valid; it names files below ``top``."""
        try:
            found = cls(**json.loads(path.read_bytes()))
        except (OSError, ValueError, TypeError):
            return cls(seed)
        return (
            found
            if found.seed == seed and all(_digest(top, each) == was for each, was in found.files.items())
            else cls(seed)
        )

    def save(self, path: Path) -> None:
        new = path.with_suffix(".new")
        new.write_text(json.dumps(asdict(self)))
        new.replace(path)

    def message(self, name: str) -> str:
        """As a message."""
        return (
            f"{name}: {self.inputs:,} inputs, {self.wrong} wrong, {self.lines_first} places, then {self.lines_last}, "
            f"{self.cpu_seconds:.0f} CPU s, {self.inputs / max(self.cpu_seconds, 0.001):,.0f} a second of it, "
            f"{self.grown_bytes / 2**20:.0f} MiB more"
        )


def _files_below(top: str) -> list[str]:
    return [os.path.relpath(path, top) for path in Path(top).rglob("*.py")]


def _digest(top: str, relative: str) -> str:
    try:
        return hashlib.sha256((Path(top) / relative).read_bytes()).hexdigest()[:16]
    except OSError:
        return ""


class Watch:
    """Whether an input takes too long, by periodic timers, so that quick inputs cost nothing."""

    def __init__(self, tick_seconds: float = _TICK_SECONDS) -> None:
        self._tick_seconds = tick_seconds
        self.number = 0
        """For the present input."""
        self._seen: dict[int, tuple[int, int]] = {}

    @contextmanager
    def on(self) -> Iterator[None]:
        """In the block, more than a second of CPU time or a minute of real time raises :class:`TooSlowError`."""
        before = [(each, signal.signal(each, self._tick)) for each in (signal.SIGPROF, signal.SIGALRM)]
        signal.setitimer(signal.ITIMER_PROF, self._tick_seconds, self._tick_seconds)
        signal.setitimer(signal.ITIMER_REAL, _STUCK_SECONDS / _MOST_TICKS, _STUCK_SECONDS / _MOST_TICKS)
        try:
            yield
        finally:
            for clock in (signal.ITIMER_PROF, signal.ITIMER_REAL):
                signal.setitimer(clock, 0)
            for each, handler in before:
                signal.signal(each, handler)

    def _tick(self, number: int, _frame: FrameType | None) -> None:
        at, ticks = self._seen.get(number, (-1, 0))
        ticks = ticks + 1 if at == self.number else 0
        self._seen[number] = self.number, ticks
        if ticks >= _MOST_TICKS:
            self._seen[number] = -1, 0
            raise TooSlowError


class Run:
    """The inputs of one reader in this process, guided by lines of the files whose paths begin with ``ours``.

    ``top``: the directory of these files.
    """

    def __init__(
        self,
        reader: Reader,
        seed: int,
        place: Path,
        *,
        ours: str = OURS,
        top: str = OURS,
        tick_seconds: float = _TICK_SECONDS,
    ) -> None:
        self._ours, self._top = ours, top
        self._reader = reader
        self._place = place / _file_name(reader.name)
        self._place.mkdir(parents=True, exist_ok=True)
        self._kept = self._place.with_name(self._place.name + ".json")
        self.count = Count.load(self._kept, seed, top)
        # the loaded version: the file may be edited meanwhile
        self._code = {each: _digest(top, each) for each in _files_below(top)}
        self._saved = time.monotonic()
        self._watch = Watch(tick_seconds)
        with open(running(self._place), "w+b") as file:
            os.truncate(file.fileno(), 8 + 8 * MOST_BYTES)
            self._running = mmap.mmap(file.fileno(), 0)

    def play(self, count: int) -> list[str]:
        """Run up to ``count`` inputs in total; returns the problems with their commands."""
        wrong: list[str] = []
        seeds = dict.fromkeys([*self._reader.seeds, *(path.read_bytes() for path in sorted(self._place.iterdir()))])
        with Lines(self._ours) as lines, self._watch.on():
            for data in seeds:
                self._one(data, wrong)  # problems among them were counted when they were found
            mutator = Mutator([*seeds])
            if not self.count.lines_first:
                self.count.lines_first = lines.reached
            small = _resident_bytes()
            while self.count.inputs < count:
                self._group(mutator, lines, wrong, min(_GROUP, count - self.count.inputs))
                if not small or self.count.inputs == _GROUP:
                    small = _resident_bytes()
                self.count.grown_bytes = max(self.count.grown_bytes, _resident_bytes() - small)
                self.count.lines_last = lines.reached
                if time.monotonic() > self._saved + _SAVE_SECONDS:
                    self._save(lines)
        if self.count.grown_bytes > MOST_GROWN_BYTES:
            wrong.append(f"the process grew by {self.count.grown_bytes} bytes")
            self.count.wrong += 1
        self._save(lines)
        os.unlink(running(self._place))
        return wrong

    def _group(self, mutator: Mutator, lines: Lines, wrong: list[str], inputs: int) -> None:
        rng = random.Random(f"{self.count.seed} led {self._reader.name} {self.count.inputs}")
        began = time.process_time()
        for _ in range(inputs):
            data = mutator.next(rng)
            before = lines.reached
            self.count.wrong += self._one(data, wrong)
            if lines.reached != before:
                self._keep(data)
                if len(mutator.seeds) < MOST_SEEDS:
                    mutator.add(data)
        self.count.inputs += inputs
        self.count.cpu_seconds += time.process_time() - began

    def _one(self, data: bytes, wrong: list[str]) -> bool:
        self._running[: 8 + len(data)] = len(data).to_bytes(8, "big") + data
        self._watch.number += 1
        reported = outcome(self._reader, data)
        if reported and len(wrong) < _MOST_WRONG:
            wrong.append(f"{command(self._reader.name, self._keep(data))}\n  {reported}")
        return bool(reported)

    def _keep(self, data: bytes) -> Path:
        return keep(self._place, data)

    def _save(self, lines: Lines) -> None:
        self._saved = time.monotonic()
        relative = sorted(os.path.relpath(each, self._top) for each in lines.files)
        self.count.files = {each: self._code[each] for each in relative}
        self.count.save(self._kept)


def running(place: Path) -> Path:
    """File of the present input, which survives the end of the process."""
    return place.with_name(place.name + ".running")


def last_input(place: Path) -> bytes:
    """Its content."""
    data = running(place).read_bytes()
    return data[8 : 8 + int.from_bytes(data[:8], "big")]


def keep(place: Path, data: bytes) -> Path:
    """Keep the input as a file of the corpus."""
    kept = place / hashlib.sha256(data).hexdigest()[:16]
    kept.write_bytes(data)
    return kept


def command(reader: str, kept: Path) -> str:
    """The command that repeats it with the same Python."""
    python = os.path.relpath(sys.executable, TOP) if Path(sys.executable).is_relative_to(TOP) else sys.executable
    return f"{python} -m tests.torture.led --reader {reader!r} --input {kept}"


def _file_name(reader: str) -> str:
    return reader.replace("/", "-").replace(" ", "-")


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@dataclass(slots=True)
class _Child:
    reader: str
    process: subprocess.Popen[str]


class Readers:
    """All readers, each in a process of its own."""

    def __init__(self, options: argparse.Namespace, names: Sequence[str]) -> None:
        self._options = options
        self._names = names
        self._counts = {name: self._count(name) for name in names}
        self._waiting = [name for name in names if self._counts[name].inputs < options.count]
        self._waiting.sort(key=lambda name: self._counts[name].cpu_seconds / max(self._counts[name].inputs, 1))
        self._children: list[_Child] = []
        self._python = quickest_python() if options.count >= _MANY else sys.executable
        self.bad = 0

    def run(self) -> None:
        """Run until every reader has had its inputs."""
        reported = time.monotonic()
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the children must not outlive it
        try:
            while self._waiting or self._children:
                while self._waiting and len(self._children) < self._options.processes:
                    self._begin(self._waiting.pop(0))
                time.sleep(0.2)
                for child in [each for each in self._children if each.process.poll() is not None]:
                    self._end(child)
                if time.monotonic() > reported + _ANSWER_SECONDS:
                    reported = time.monotonic()
                    self._notify()
        finally:
            for child in self._children:
                child.process.terminate()
                child.process.wait()
        for name in self._names:
            sys.stdout.write(f"{self._count(name).message(name)}\n")
        counts = [self._count(name) for name in self._names]
        sys.stdout.write(
            f"{len(counts)} readers, {sum(each.inputs for each in counts):,} inputs, "
            f"{sum(each.wrong for each in counts)} wrong, {sum(each.cpu_seconds for each in counts):.0f} CPU s\n"
        )

    def _count(self, name: str) -> Count:
        return Count.load(self._options.place / f"{_file_name(name)}.json", self._options.seed)

    def _begin(self, name: str) -> None:
        options = self._options
        words = ["--reader", name, "--seed", options.seed, "--count", options.count, "--place", options.place]
        call = [self._python, "-m", "tests.torture.led", "--here", *map(str, words)]
        self._children.append(
            _Child(name, subprocess.Popen(call, cwd=TOP, stdout=subprocess.PIPE, text=True, env=os.environ))
        )

    def _end(self, child: _Child) -> None:
        self._children.remove(child)
        message, _ = child.process.communicate()
        sys.stdout.write(message)
        code = child.process.returncode
        if code not in (0, 1):
            place = self._options.place / _file_name(child.reader)
            kept = keep(place, last_input(place))
            sys.stdout.write(f"{command(child.reader, kept)}\n  the process ended with {code}\n")
        self.bad += code != 0
        sys.stdout.flush()

    def _notify(self) -> None:
        counts = {name: self._count(name) for name in self._names}
        done = sum(each.inputs >= self._options.count for each in counts.values())
        now = ", ".join(f"{each.reader} {counts[each.reader].inputs:,}" for each in self._children)
        sys.stderr.write(f"{done} of {len(counts)} readers are done; {now}\n")


def quickest_python(*, fast: bool = FAST, interpreter: Callable[[str], Path | None] = interpreter) -> str:
    """The fastest interpreter of this host; ``fast``: this one records places cheaply."""
    if fast:
        return sys.executable
    for minor in PYTHONS:
        base = interpreter(minor)
        if base is not None:
            (TOP / ".cache" / "spark").mkdir(parents=True, exist_ok=True)
            return str(environment_of(minor, base))
    sys.stderr.write(f"no Python {' or '.join(PYTHONS)} on this machine: this one notes lines some ten times slower\n")
    return sys.executable


def _here(options: argparse.Namespace) -> int:
    bad = 0
    with readers() as known, limits():
        for name in options.reader:
            if options.input is not None:
                reported = play_bytes(known[name], options.input.read_bytes())
                sys.stdout.write(f"{name}: {reported or 'well'}\n")
                bad += bool(reported)
                continue
            run = Run(known[name], options.seed, options.place)
            wrong = run.play(options.count)
            sys.stdout.write("".join(f"{each}\n" for each in wrong[:3]) + f"{run.count.message(name)}\n")
            bad += len(wrong)
    return int(bad > 0)


def main(arguments: Sequence[str]) -> int:
    """Run one input, or the requested number for each reader; the exit code is 1 after a problem."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--reader", action="append", default=[])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--input", type=Path)
    parser.add_argument("--place", type=Path, default=PLACE)
    parser.add_argument("--here", action="store_true", help="in this process")
    options = parser.parse_args(arguments)
    if options.input is not None or options.here:
        return _here(options)
    names = options.reader
    if not names:
        with readers() as known:
            names = list(known)
    every = Readers(options, names)
    every.run()
    return int(every.bad > 0)


if __name__ == "__main__":
    np.seterr(all="raise")
    sys.exit(main(sys.argv[1:]))
