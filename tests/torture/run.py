"""``make torture``: all attacks in turn, for the requested time.

``TORTURE_MINUTES`` (10), ``TORTURE_SEED`` (1), ``TORTURE_STATE`` (``.cache/torture-SEED.json``): the totals, and where
to continue. A later run with the same seed continues; remove the file to start over. The exit code is 1 after a
counterexample; each is printed with the command that repeats it.

    python -m tests.torture.run --attack 'crash images' --seed 1 --step 17      repeat one step
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.torture.shim import Shim, preloaded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.torture.attacks import Attack, Place, Step

MOST_KEPT: Final = 50
"""Counterexamples per attack; the attack stops at this number."""


@dataclass
class Figures:
    """Totals of one attack."""

    steps: int = 0
    cases: int = 0
    seconds: float = 0.0
    wrong: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    counterexamples: list[str] = field(default_factory=list)

    def add(self, done: Step, seconds: float) -> None:
        """Add a step."""
        self.steps += 1
        self.cases += done.cases
        self.seconds += seconds
        self.wrong += len(done.wrong)
        self.counts = dict(Counter(self.counts) + done.counts)
        self.counterexamples = [*self.counterexamples, *done.wrong][:MOST_KEPT]


@dataclass
class Torture:
    """One run. ``write`` gets progress messages; ``state`` is the file with the totals."""

    seed: int
    minutes: float
    state: Path
    write: Callable[[str], object]
    names: Sequence[str]
    figures: dict[str, Figures] = field(default_factory=dict)

    def run(self, place: Place) -> bool:
        """Run until the time is over; returns whether all is well. The attack with the least time so far is next."""
        from tests.torture.attacks import AT_LEAST_HALF, ATTACKS  # noqa: PLC0415

        self._load()
        attacks: dict[str, Attack] = {}
        spent, deadline = Counter[str](), time.monotonic() + self.minutes * 60
        while not all(name in attacks for name in self.names) or time.monotonic() < deadline:
            name = min(self.names, key=lambda each: spent[each])
            began = time.monotonic()
            if name not in attacks:
                attacks[name] = ATTACKS[name](place)
            figures = self.figures.setdefault(name, Figures())
            done = played(attacks[name], name, self.seed, figures.steps)
            seconds = time.monotonic() - began
            spent[name] += seconds
            figures.add(done, seconds)
            self._save()
            for each in done.wrong:
                self.write(f"{name}: {each}\n")
            left = max(0.0, deadline - time.monotonic()) / 60
            self.write(f"{name}: {figures.cases} cases, {figures.wrong} wrong; {left:.1f} minutes left\n")
        self.write(self.table())
        short = [
            f"{name}: too few of its cases happened {what}"
            for name, what in AT_LEAST_HALF.items()
            if name in self.figures and 2 * self.figures[name].counts.get(what, 0) < self.figures[name].cases
        ]
        self.write("".join(f"{each}\n" for each in short))
        return not short and not any(figures.wrong for figures in self.figures.values())

    def table(self) -> str:
        """A line for each attack."""
        head = f"{'attack':16} {'cases':>9} {'wrong':>6} {'minutes':>8}  of them\n"
        lines = [
            f"{name:16} {found.cases:9} {found.wrong:6} {found.seconds / 60:8.1f}  "
            + ", ".join(f"{count} {what}" for what, count in sorted(found.counts.items()))
            for name, found in self.figures.items()
        ]
        return head + "\n".join(lines) + f"\nseed {self.seed}; figures: {self.state}\n"

    def _load(self) -> None:
        if self.state.exists():
            known: dict[str, Any] = json.loads(self.state.read_text())
            if known["seed"] != self.seed:
                raise SystemExit(f"{self.state} belongs to seed {known['seed']}")
            self.figures = {name: Figures(**figures) for name, figures in known["attacks"].items()}

    def _save(self) -> None:
        self.state.parent.mkdir(parents=True, exist_ok=True)
        written = self.state.with_suffix(".tmp")
        attacks = {name: asdict(figures) for name, figures in self.figures.items()}
        written.write_text(json.dumps({"seed": self.seed, "attacks": attacks}, indent=1) + "\n")
        written.replace(self.state)


def played(attack: Attack, name: str, seed: int, step: int) -> Step:
    """Run a step; any exception is a counterexample."""
    from tests.torture.attacks import Step  # noqa: PLC0415

    try:
        return attack.step(step)
    except Exception as error:  # noqa: BLE001 - it is reported, and the next attack goes on
        again = f".venv/bin/python -m tests.torture.run --attack {name!r} --seed {seed} --step {step}"
        notes = "\n  ".join(getattr(error, "__notes__", ()))
        return Step(wrong=[f"{again}\n  {type(error).__name__}: {str(error)[:4000]}\n  {notes}"])


@contextmanager
def place(seed: int) -> Iterator[Place]:
    """The directory of the attacks."""
    from tests.kafka.judge import Judge  # noqa: PLC0415 - after the environment is what children may see
    from tests.torture.attacks import Place  # noqa: PLC0415

    memory = Path("/dev/shm")  # noqa: S108 - thousands of tiny directories; a disk would only slow them down
    work = Path(tempfile.mkdtemp(prefix="cleanerd-torture-", dir=memory if memory.is_dir() else None))
    shared = Place(work, seed, lambda: Judge("4.3"))
    try:
        with shared.stack:
            yield shared
    finally:
        shutil.rmtree(work, ignore_errors=True)


def main(arguments: Sequence[str]) -> int:
    """Run the torture; returns the exit code."""
    if not Shim.is_there():
        os.execve(sys.executable, [sys.executable, "-m", "tests.torture.run", *arguments], preloaded())  # noqa: S606
    os.environ.pop("LD_PRELOAD", None)  # the JVM needs none of it
    from tests.torture.attacks import ATTACKS  # noqa: PLC0415

    parser = argparse.ArgumentParser()
    parser.add_argument("--attack", choices=ATTACKS, action="append", default=[])
    parser.add_argument("--seed", type=int, default=int(os.environ.get("TORTURE_SEED", "1")))
    parser.add_argument("--minutes", type=float, default=float(os.environ.get("TORTURE_MINUTES", "10")))
    parser.add_argument("--step", type=int, default=-1, help="repeat only this step")
    options = parser.parse_args(arguments)
    names = options.attack or list(ATTACKS)
    with place(options.seed) as shared:
        if options.step >= 0:
            done = [played(ATTACKS[name](shared), name, options.seed, options.step) for name in names]
            sys.stdout.write("".join(f"{step.cases} cases\n" + "\n".join(step.wrong) + "\n" for step in done))
            return int(any(step.wrong for step in done))
        state = Path(os.environ.get("TORTURE_STATE", f".cache/torture-{options.seed}.json"))
        torture = Torture(options.seed, options.minutes, state, _write, names)
        return 0 if torture.run(shared) else 1


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
