"""The attacks of `make torture`, each a generator that another module defines; a step takes a few seconds.

Number and seed define a step completely, so it can be repeated.
"""

from __future__ import annotations

import random
import shutil
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from tests.cleaner.strategy_script import Shape
from tests.cleaner.strategy_world import run_history
from tests.crash.classify import STARTS, Classifier, swapped_groups
from tests.crash.live_swap import LiveSwap, record_live_swap, recovered_live
from tests.crash.scenario import TOPIC_DIR, build, record, recovered
from tests.crash.states import (
    crash_states,
    crashes_while_recovering,
    crashes_while_recovering_from,
    killed,
    ordered_cuts,
)
from tests.crash.undoing import staged_for_undo, undo_all
from tests.crash.volume import RecordingFiles
from tests.differential.random_history import random_history
from tests.differential.random_oddities import random_oddities
from tests.differential.random_transactions import random_transactions
from tests.differential.seeds import kafkas_checkpoint_counts, play_seed
from tests.live.killing import ON_DISK, Killing, kill_all, killing_field
from tests.torn import play as torn
from tests.torture import broker_calls, calls_bench, hostile, system_calls
from tests.torture.broker_bench import broker_bench
from tests.torture.jobs import JOBS
from tests.torture.shim import FAULTS
from tests.torture.shrink import smallest
from tests.torture.spark_kills import VICTIMS, WHILE_STAGED, SparkField, spark_field

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.crash.volume import State
    from tests.differential.history import History
    from tests.kafka.judge import Judge
    from tests.torture.broker_bench import BrokerBench

CALLS: Final = 20
BROKER_CALLS: Final = 4
IMAGES: Final = 120
CUTS: Final = 25
KILLED: Final = (("3.3", "4.4"), ("3.9", "4.3"))
"""The oldest release, the newest, and two between."""
FINISHED_EVERY: Final = 5
RELEASES: Final = ("4.3", "3.9")
HISTORIES: Final = 20
DUELS: Final = 1
INPUTS: Final = 300
RANKINGS: Final = (("header", "long"), ("header", "varlong"), ("timestamp", "long"), ("offset", "long"))


@dataclass(slots=True)
class Step:
    """The result of a step. ``wrong``: counterexamples, each beginning with the command that repeats it."""

    cases: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


class Attack(Protocol):
    """One kind of attack."""

    def step(self, number: int) -> Step:
        """Run step ``number``; a counterexample raises AssertionError or an unexpected exception."""


@dataclass
class Place:
    """Shared by attacks: a private directory, and Kafka's classes, started on first use."""

    work: Path
    seed: int
    open_judge: Callable[[], Judge]
    stack: ExitStack = field(default_factory=ExitStack)
    _judge: list[Judge] = field(default_factory=list)

    @property
    def judge(self) -> Judge:
        """One JVM for all."""
        if not self._judge:
            self._judge.append(self.stack.enter_context(self.open_judge()))
        return self._judge[0]

    def rng(self, *what: object) -> random.Random:
        """The random generator of one step."""
        return random.Random(" ".join(map(str, (self.seed, *what))))


def _again(attack: str, seed: int, step: int) -> str:
    """The command that repeats a step."""
    return f".venv/bin/python -m tests.torture.run --attack {attack!r} --seed {seed} --step {step}"


class SystemCalls:
    """Every i-th system call of every job fails in every way, each once, in an order that the seed fixes."""

    def __init__(self, place: Place, jobs: Sequence[str] = tuple(JOBS), faults: Sequence[str] = tuple(FAULTS)) -> None:
        self._bench = place.stack.enter_context(calls_bench.bench())
        self.cases = system_calls.all_cases(self._bench, jobs, faults)
        place.rng("system calls").shuffle(self.cases)

    def step(self, number: int) -> Step:
        done = Step()
        for case in (self.cases[at % len(self.cases)] for at in range(number * CALLS, (number + 1) * CALLS)):
            struck, wrong = self._bench.play(case)
            done.cases += 1
            done.counts["calls that failed"] += struck.hits > 0
            done.counts["reported"] += struck.code != 0
            if wrong:
                done.wrong.append("\n  ".join([case.again, f"{struck.call} of {struck.path}", *wrong]))
        return done


class CrashImages:
    """Crash states during a swap, an undo or the recovery of a swap, loaded by Kafka's loader and by cleanerd."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._work = place.work / "crash"
        self._scenario = build(place.judge, self._work / "scenario")
        self._swap = record(self._scenario, self._work / "recorded" / TOPIC_DIR)
        undone = self._work / "undone" / TOPIC_DIR
        staged_for_undo(self._scenario).write(undone)
        with RecordingFiles(undone) as files:
            undo_all(files, self._scenario)
            self._undo = files.operations
        self._classifier = Classifier(self._scenario, place.judge, self._work / "loaded")
        self._seen: set[int] = set()

    def step(self, number: int) -> Step:
        rng, place = self._place.rng("crash", number), self._work / "recovering" / TOPIC_DIR
        kind = ("swap", "undo", "recovery of a swap")[number % 3]
        seed = rng.randrange(1 << 32)
        if kind == "swap":
            states = crash_states(self._scenario.old, self._swap, 60, seed)
        elif kind == "undo":
            states = crash_states(staged_for_undo(self._scenario), self._undo, 60, seed)
        else:
            states = crashes_while_recovering(self._scenario.old, self._swap, place, 2, seed)
        fresh = [state for state in states if hash(state.key()) not in self._seen]
        states = rng.sample(fresh, min(IMAGES, len(fresh)))
        self._seen.update(hash(state.key()) for state in states)
        start = rng.choice(list(STARTS))
        swapped_groups(states, self._classifier.judged(states, start, twice=rng.random() < 0.3))
        if kind != "undo":
            recovered(states, self._scenario, self._work)
        return Step(len(states), Counter({f"of {kind}": len(states)}))


class LiveImages:
    """States of a live swap after a kill or power cut of the broker, from its own operations.

    Also cleanerd's recovery.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._work = place.work / "live"
        self._work.mkdir()
        self._releases: dict[str, tuple[LiveSwap, Classifier, list[State]]] = {}

    def step(self, number: int) -> Step:
        release = RELEASES[number % len(RELEASES)]
        if release not in self._releases:
            live = record_live_swap(release)
            classifier = Classifier(live, self._place.judge, self._work / release)
            self._releases[release] = (live, classifier, killed(live.old, live.operations))
        live, classifier, states = self._releases[release]
        rng = self._place.rng("live", number)
        swapped_groups(states, classifier.judged(states, rng.choice(list(STARTS[1:])), twice=rng.random() < 0.3))
        chosen = rng.sample(states, 12)
        cut = crashes_while_recovering_from(chosen, self._work / TOPIC_DIR, 6, rng.randrange(1 << 32))
        swapped_groups(cut, classifier.judged(cut, STARTS[1]))
        ordered = ordered_cuts(live.before, [*live.staging, *live.operations], 2, rng.randrange(1 << 32))
        ordered = rng.sample(ordered, min(IMAGES, len(ordered)))
        swapped_groups(ordered, classifier.judged(ordered, STARTS[1]))
        recovered_live([*chosen, *cut, *ordered], live, self._work)
        counts = Counter({f"of a swap by {release}": len(states), "of the recovery": len(cut)})
        counts["of a power cut that keeps the order of names"] = len(ordered)
        return Step(counts.total(), counts)


class BrokerCalls:
    """Every i-th call of a broker's JVM below a partition's directory fails during a swap, each in its turn."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._started: dict[str, tuple[BrokerBench, list[broker_calls.Case]]] = {}

    def step(self, number: int) -> Step:
        release = RELEASES[number % len(RELEASES)]
        if release not in self._started:
            bench = self._place.stack.enter_context(broker_bench(release, self._place.judge, BROKER_CALLS))
            cases = broker_calls.all_cases(release, bench.count())
            self._place.rng("broker calls", release).shuffle(cases)
            self._started[release] = (bench, cases)
        bench, cases = self._started[release]
        first, before, done = number // len(RELEASES) * BROKER_CALLS, bench.restarts, Step()
        batch = [cases[at % len(cases)] for at in range(first, first + BROKER_CALLS)]
        try:
            played = list(broker_calls.play(bench, batch))
        except BaseException:
            del self._started[release]  # its state is unknown
            raise
        for case, struck, wrong, _ in played:
            done.cases += 1
            done.counts["calls that failed"] += struck.hits > 0
            done.counts["reported"] += struck.code != 0
            if wrong:
                done.wrong.append("\n  ".join([case.again, f"{struck.call} of {struck.path}", *wrong]))
        done.counts["restarts"] += bench.restarts - before
        return done


class SparkKills:
    """SIGKILL of Spark's driver, executors and Python workers, mostly while staging files are written."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._field: SparkField | None = None

    def step(self, number: int) -> Step:
        if self._field is None:
            self._field = self._place.stack.enter_context(spark_field())
        field, done = self._field, Step(cases=1)
        field.dice = self._place.rng("spark kills", number)
        before = field.moments + field.outcomes
        victims = VICTIMS[number % len(VICTIMS)]
        wrong = field.kill_once(victims, while_staged=number % 4 != 3)
        done.counts = field.moments + field.outcomes - before
        again = _again("spark kills", self._place.seed, number)
        done.wrong = [f"{again}\n  {each}" for each in wrong]
        return done


class Kills:
    """SIGKILL of the broker, of cleanerd, or both, mostly during a swap; each step runs two brokers for a while.

    Two, because a killed broker waits for its controller, and the other one has work meanwhile.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._started: dict[str, tuple[Killing, ExitStack]] = {}

    def step(self, number: int) -> Step:
        pair = KILLED[number % len(KILLED)]
        done = Step()
        with ThreadPoolExecutor(len(pair)) as pool:
            played = {release: pool.submit(self._play, release, number) for release in pair}
        for release, each in played.items():
            try:
                fresh, wrong = each.result()
            except Exception as error:  # noqa: BLE001 - it is reported, and the next attack goes on
                wrong = ["".join(traceback.format_exception(error))]
                fresh = Counter()
                self._give_up(release)
            done.cases += fresh.pop("kills", 0)
            done.counts += fresh
            done.wrong += [
                f"{_again('kills', self._place.seed, number)}\n  {release}: {reported}" for reported in wrong
            ]
        return done

    def _play(self, release: str, number: int) -> tuple[Counter[str], list[str]]:
        """Run each kind of kill and collect the problems; every tenth time a field ends with a full check."""
        if release not in self._started:
            stack = self._place.stack.enter_context(ExitStack())
            field = killing_field(release, self._place.rng("kills", release, number))
            self._started[release] = (stack.enter_context(field), stack)
        killing, stack = self._started[release]
        before = killing.reported
        killing.with_dice(self._place.rng("kills", release, number))
        kill_all(killing)
        fresh, wrong = killing.reported - before, [*killing.wrong]
        killing.wrong.clear()
        fresh[f"on {release}"] = fresh["kills"]
        if number // len(KILLED) % FINISHED_EVERY == FINISHED_EVERY - 1:
            del self._started[release]
            stack.close()
            fresh["fields without leftovers"] += 1
        return fresh, wrong

    def _give_up(self, release: str) -> None:
        """Discard a field in an unknown state; its final check would show nothing new."""
        if release in self._started:
            killing, stack = self._started.pop(release)
            killing.finishes = False
            with suppress(Exception):
                stack.close()


class PowerCuts:
    """Torn logs in all modes: Kafka's recovery with and without cleanerd."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def step(self, number: int) -> Step:
        rng = self._place.rng("torn", number)
        work = self._place.work / "torn"
        seen = torn.play(self._place.judge, work, [rng.randrange(1 << 32) for _ in range(CUTS)])
        return Step(CUTS, Counter({"Kafka cannot load either": seen["refused by Kafka"]}))


class Histories:
    """Random histories: under strategies against a dictionary, by offset against Kafka's own cleaner."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def step(self, number: int) -> Step:
        rng, done = self._place.rng("histories", number), Step()
        for _ in range(HISTORIES):
            ranking, kind = rng.choice(RANKINGS)
            guard = "forever" if rng.random() < 0.25 else "horizon"
            shape = Shape(ranking, kind, rng.choice(("null", "flag", "header")), guard, rng.random() < 0.5)
            kinds = {"stops": rng.random() < 0.5, "moves": rng.random() < 0.5, "changes": rng.random() < 0.33}
            kinds["upsets"] = rng.random() < 0.5
            run_history(Counter(), shape, rng.randrange(1 << 32), rng.randint(2, 4), **kinds)
        for _ in range(DUELS):
            make = rng.choice((random_history, random_transactions, random_oddities))
            seed = rng.randrange(1 << 32)
            self._duel(make, seed)
        shutil.rmtree(self._place.work / "duels", ignore_errors=True)
        done.cases = HISTORIES + DUELS
        done.counts["against Kafka's cleaner"] = DUELS
        return done

    def _duel(self, make: Callable[[int], History], seed: int) -> None:
        judge, work = self._place.judge, self._place.work / "duels"
        try:
            with kafkas_checkpoint_counts():
                play_seed(judge, work, seed, make(seed), make.__name__)
        except AssertionError as error:
            error.add_note(f"smaller: {smallest(judge, work, make.__name__, seed)}")
            raise


class HostileBytes:
    """Every reader that is written in Python."""

    def __init__(self, place: Place) -> None:
        self._seed = place.seed
        self._readers = place.stack.enter_context(hostile.readers())

    def step(self, number: int) -> Step:
        done = Step()
        with hostile.limits():
            for name, reader in self._readers.items():
                for each in range(number * INPUTS, (number + 1) * INPUTS):
                    reported = hostile.play(reader, self._seed, each)
                    if reported:
                        done.wrong.append(f"{hostile.again(name, self._seed, each)}\n  {reported}")
                done.cases += INPUTS
        return done


AT_LEAST_HALF: Final = {"kills": ON_DISK, "spark kills": WHILE_STAGED}
"""The share of an attack's cases that must have a property, so that the attack is meaningful."""

ATTACKS: Final[dict[str, Callable[[Place], Attack]]] = {
    "system calls": SystemCalls,
    "crash images": CrashImages,
    "live swap images": LiveImages,
    "power cuts": PowerCuts,
    "histories": Histories,
    "hostile bytes": HostileBytes,
    "kills": Kills,
    "broker calls": BrokerCalls,
    "spark kills": SparkKills,
}
