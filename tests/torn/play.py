"""Power cuts by seed: Kafka's recovery of the torn log, and of the same log after cleanerd, compared.

    python -m tests.torn.play SEED      repeat one, with the differences

``Judge`` reads like a read_committed consumer, so the values of a key, the log end, the open transactions and the
producers are Kafka's own answers.
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.differential.duel import NEVER_MS
from tests.kafka.judge import Judge
from tests.torn import ways
from tests.torn.power_cut import Cut, cut_power, tear_alike
from tests.torn.random_log import NOW_MS, RandomLog, random_log

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cleanerd.cleaner.result import CleaningResult
    from cleanerd.config.topic_config import TopicConfig

BATCH: Final = 50
"""Number of logs per request to the JVM."""

SECTIONS: Final = ("cleaned", "staged")
_IDENTITY: Final = ("producer_id", "epoch", "last_sequence", "last_offset", "offset_delta", "txn_first_offset")
"""Fields of a producer without its time, which an emptied batch lacks, and the coordinator's epoch of a marker."""


@dataclass(slots=True)
class Case:
    """One seed. ``root`` has its log directories: Kafka's, the torn one, and those of every way.

    ``daemon``: the daemon stages. ``early``: cleanerd ran before the power cut, and saw unflushed data of the broker.
    ``reset``: it staged while the broker recovered.
    """

    seed: int
    rng: random.Random
    log: RandomLog
    root: Path
    strategy: str
    cut: Cut
    daemon: bool = False
    early: bool = False
    reset: bool = False

    @property
    def config(self) -> TopicConfig:
        """The topic's settings."""
        return ways.config_of(self.strategy)


def play(judge: Judge, work: Path, seeds: Sequence[int]) -> Counter[str]:
    """Run all seeds; returns the counts of events.

    Raises AssertionError with the seed and the command that repeats it.
    """
    seen: Counter[str] = Counter()
    for first in range(0, len(seeds), BATCH):
        cases = [_case(seed, work / str(seed)) for seed in seeds[first : first + BATCH]]
        for case, reported in zip(cases, _differences(judge, cases, seen), strict=True):
            again = f"again with: .venv/bin/python -m tests.torn.play {case.seed}"
            assert not reported, f"power cut {case.seed} ({case.strategy}, {case.cut}):\n" + "\n".join(
                [*reported, again]
            )
            shutil.rmtree(case.root)
    return seen


def _case(seed: int, root: Path) -> Case:
    rng = random.Random(seed)
    log = random_log(rng)
    strategy = rng.choice(("offset", "offset", "header"))
    return Case(seed, rng, log, root, strategy, Cut(0, 0, 0, recovering=False))


def _differences(judge: Judge, cases: list[Case], seen: Counter[str]) -> Iterator[list[str]]:
    written = [(case.root / "full" / str(ways.NAME), case.log.segments) for case in cases]
    judge.crash(written, now_ms=NOW_MS)
    reported = [_work(case, seen) for case in cases]
    for case, problems, stopped in zip(cases, reported, _recover(judge, cases, "staged", stop=True), strict=True):
        problems.extend(_apply(case, stopped, seen))
    kafka = _recover(judge, cases, "kafka")
    cleaned = _recover(judge, cases, "cleaned")
    staged = _recover(judge, cases, "staged", again=True)
    for case, problems, *answers in zip(cases, reported, kafka, cleaned, staged, strict=True):
        for name, answer in zip(SECTIONS, answers[1:], strict=True):
            problems.extend(f"{name}: {each}" for each in _compare(case, answers[0], answer))
        seen["refused by Kafka"] += "error" in answers[0]
        seen["open transactions"] += any(each["txn_first_offset"] >= 0 for each in answers[0].get("producers", ()))
        seen["shorter than it was"] += answers[0].get("log_end_offset", -1) < case.log.end_offset
        yield problems


def play_lost(judge: Judge, work: Path, seeds: Sequence[int]) -> Counter[str]:
    """Logs stopped cleanly, with deleted indexes: the loader rebuilds them, and so does cleanerd.

    Returns the counts of events. Raises AssertionError with the seed.
    """
    seen: Counter[str] = Counter()
    cases = [_case(seed, work / str(seed)) for seed in seeds]
    judge.crash([(case.root / "full" / str(ways.NAME), case.log.segments) for case in cases], now_ms=NOW_MS)
    for case in cases:
        full = case.root / "full"
        case.cut = Cut(case.log.end_offset, case.log.end_offset, 0, recovering=False)
        ways.write_log_dir(full, case.cut)
        ways.was_stopped(full, case.log.end_offset)
        seen["lost entries"] += _lose_indexes(case.rng, full / str(ways.NAME))
        ways.copy_log_dir(full, case.root / "kafka")
        ways.copy_log_dir(full, case.root / "cleaned")
    problems = [_clean(case, seen) for case in cases]
    kafka, ours = (_recover(judge, cases, name, again=True) for name in ("kafka", "cleaned"))
    for case, unexpected, *answers in zip(cases, problems, kafka, ours, strict=True):
        reported = [*unexpected, *_compare(case, *answers)]
        assert not reported, f"lost indexes {case.seed} ({case.strategy}):\n" + "\n".join(reported)
        shutil.rmtree(case.root)
    return seen


def _lose_indexes(rng: random.Random, path: Path) -> bool:
    """Delete offset indexes, of all segments or of some, and most of their other indexes.

    Returns whether entries are lost.
    """
    share = rng.choice((1.0, 0.5, 0.2))
    lost = False
    for index in sorted(path.glob("*.index")):
        if rng.random() >= share:
            continue
        index.unlink()
        for other in (index.with_suffix(".timeindex"), index.with_suffix(".txnindex")):
            if other.exists() and rng.random() < 0.7:
                lost |= other.suffix == ".txnindex" and other.stat().st_size > 0
                other.unlink()
    return lost


def _work(case: Case, seen: Counter[str]) -> list[str]:
    """The power cut, and cleanerd's work before or after it."""
    full, rng = case.root / "full", case.rng
    torn = ways.copy_log_dir(full, case.root / "torn")
    case.cut = cut_power(rng, case.log, torn)
    case.daemon, case.early, case.reset = (rng.random() < 0.3 for _ in range(3))
    for path in (full, torn.parent):
        ways.write_log_dir(path, case.cut)
    for name in ("kafka", *SECTIONS):
        ways.copy_log_dir(full if case.early and name != "kafka" else torn.parent, case.root / name)
    reported = [*_clean(case, seen), *_stage(case, seen)]
    seen["early"] += case.early
    if case.early:
        for name in SECTIONS:
            tear_alike(full / str(ways.NAME), torn, case.root / name / str(ways.NAME))
    return reported


def _clean(case: Case, seen: Counter[str]) -> list[str]:
    """Clean twice: entries that expire in the second cleaning are younger than the first one."""
    problems = []
    for now_ms in (case.log.end_ms, case.log.end_ms + 2 * ways.DELETE_RETENTION_MS):
        result = ways.clean(case.root / "cleaned", case.config, now_ms)
        seen[f"clean: {result.outcome}"] += 1
        problems += _unexpected("clean", result)
    return problems


def _stage(case: Case, seen: Counter[str]) -> list[str]:
    root = case.root / "staged"
    emptied = {}
    if case.reset:
        # Staged while the broker recovers: it has just emptied a transaction index to rebuild it.
        path = root / str(ways.NAME)
        first = max(base for log in path.glob("*.log") if (base := int(log.stem)) <= case.cut.recovery_point)
        emptied = {index: index.read_bytes() for index in path.glob("*.txnindex") if int(index.stem) >= first}
    for index in emptied:
        index.write_bytes(b"")
    result = ways.stage(root, case.config, case.log.end_ms, daemon=case.daemon)
    for index, data in emptied.items():
        index.write_bytes(data)
    seen["stage: nothing" if result is None else f"stage: {result.outcome}"] += 1
    return [] if result is None else _unexpected("stage", result)


def _apply(case: Case, recovered: dict[str, Any], seen: Counter[str]) -> list[str]:
    if "error" in recovered:
        return []
    root = case.root / "staged"
    ways.was_stopped(root, recovered["log_end_offset"])
    result = ways.apply(root, case.config, case.log.end_ms)
    seen["apply: stale" if ways.is_stale(result) else f"apply: {result.outcome}"] += 1
    return [] if ways.is_stale(result) else _unexpected("apply", result)


def _unexpected(what: str, result: CleaningResult) -> list[str]:
    fine = result.outcome in {"cleaned", "unchanged", "staged", "skipped"} and result.error is None
    return [] if fine else [f"{what}: {result.outcome}: {result.reason}"]


def _recover(
    judge: Judge, cases: list[Case], name: str, *, stop: bool = False, again: bool = False
) -> list[dict[str, Any]]:
    """``again``: it was recovered and stopped before."""
    logs = [
        {
            "dir": str(case.root / name / str(ways.NAME)),
            "clean_shutdown": again,
            "recovery_point": case.cut.recovery_point,
            "log_start_offset": case.cut.log_start_offset,
            "shut_down": stop,
        }
        for case in cases
    ]
    return judge.recover(logs, now_ms=NOW_MS, producer_expiration_ms=NEVER_MS)


def _compare(case: Case, kafka: dict[str, Any], ours: dict[str, Any]) -> list[str]:
    """Differences that a broker or its readers would notice."""
    if "error" in kafka or "error" in ours:
        same = "error" in kafka and "error" in ours
        return [] if same else [f"Kafka says {kafka.get('error')}, of ours {ours.get('error')}"]
    reported = [
        f"{name}: Kafka has {kafka[name]}, of ours {ours[name]}"
        for name in ("log_start_offset", "log_end_offset", "last_stable_offset")
        if kafka[name] != ours[name]
    ]
    theirs_known, ours_known = ([_identity(each) for each in answer["producers"]] for answer in (kafka, ours))
    if theirs_known != ours_known:
        reported.append(f"producers: Kafka has {theirs_known}, of ours {ours_known}")
    for view in ("committed", "ended"):
        theirs, found = (_values(answer[view], case.strategy) for answer in (kafka, ours))
        reported += [
            f"{view}: {bytes.fromhex(key)!r}: Kafka has {theirs.get(key)}, of ours {found.get(key)}"
            for key in sorted({*theirs, *found})
            if theirs.get(key) != found.get(key)
        ]
    return reported


def _identity(producer: dict[str, Any]) -> tuple[int, ...]:
    return tuple(producer[name] for name in _IDENTITY)


def _values(records: list[list[Any]], strategy: str) -> dict[str, tuple[int, str]]:
    """Offset and value of every key's retained record; a deleted key counts as missing."""
    best: dict[str, tuple[tuple[str, int], str | None]] = {}
    for offset, key, value, version in records:
        rank = (version if strategy == "header" else "", offset)
        if key is not None and (key not in best or rank > best[key][0]):
            best[key] = rank, value
    return {key: (rank[1], value) for key, (rank, value) in best.items() if value is not None}


def main(arguments: Sequence[str]) -> int:
    """Run the named seeds one by one."""
    work = Path(tempfile.mkdtemp(prefix="power-cut-"))
    failed = 0
    with Judge("4.3") as judge:
        for seed in map(int, arguments):
            try:
                sys.stdout.write(f"{seed}: {dict(play(judge, work, [seed]))}\n")
                shutil.rmtree(work / str(seed), ignore_errors=True)
            except AssertionError as error:
                failed = 1
                sys.stdout.write(f"{error}\nits files: {work / str(seed)}\n")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
