"""Shrinks a failing history while it still fails, by removing unneeded cleanings, batches and records.

    python -m tests.torture.shrink random_history 17 --without 1-40,52      repeat the remaining history

The parts of a history are numbered: its cleanings but the first, its batches, its records. The command names the
removed parts by these numbers, so that they and the seed define the history.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import traceback
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.differential import duel
from tests.differential.history import last_offset
from tests.differential.random_history import random_history
from tests.differential.random_oddities import random_oddities
from tests.differential.random_transactions import random_transactions
from tests.differential.seeds import kafkas_checkpoint_counts
from tests.kafka.judge import Judge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tests.differential.history import History
    from tests.kafka.log_spec import Batch

MAKERS: Final[dict[str, Callable[[int], History]]] = {
    make.__name__: make for make in (random_history, random_transactions, random_oddities)
}
MOST_TRIES: Final = 120
"""A try is a comparison with Kafka: a third of a second."""


def parts(history: History) -> int:
    """Its number of parts."""
    batches = [batch for segment in history.segments for batch in segment.batches]
    return len(history.turns) - 1 + len(batches) + sum(len(batch.records) for batch in batches)


def without(history: History, dropped: Iterable[int]) -> History:
    """The rest without these parts.

    A batch keeps its offsets when its records are removed, and goes with its last record.
    """
    removed = set(dropped)
    turns = tuple(turn for number, turn in enumerate(history.turns) if number == 0 or number - 1 not in removed)
    batch_number = len(history.turns) - 1
    record_number = batch_number + sum(len(segment.batches) for segment in history.segments)
    segments = []
    for segment in history.segments:
        batches: list[Batch] = []
        for batch in segment.batches:
            count = len(batch.records)
            kept = tuple(r for at, r in enumerate(batch.records, record_number) if at not in removed)
            if batch_number not in removed and (kept or not count):
                first = batch.base if batch.base is not None or not count else batch.records[0].offset
                same = len(kept) == count
                batches.append(batch if same else replace(batch, records=kept, base=first, last=last_offset(batch)))
            batch_number += 1
            record_number += count
        segments.append(replace(segment, batches=tuple(batches)))
    return replace(history, turns=turns, segments=tuple(segments))


def shrunk(count: int, fails: Callable[[set[int]], bool], tries: int = MOST_TRIES) -> set[int]:
    """The parts, of ``count``, that can be removed while it still fails.

    It tries large pieces first, then smaller ones, then single parts.
    """
    dropped: set[int] = set()
    size = max(1, count // 2)
    while tries > 0:
        before = len(dropped)
        left = [part for part in range(count) if part not in dropped]
        for start in range(0, len(left), size):
            piece = set(left[start : start + size])
            if tries <= 0:
                break
            tries -= 1
            if fails(dropped | piece):
                dropped |= piece
        if size == 1 and len(dropped) == before:
            break
        size = max(1, size // 2)
    return dropped


def numbers(dropped: Iterable[int]) -> str:
    """``1-3,7``."""
    reported: list[list[int]] = []
    for each in sorted(dropped):
        if reported and each == reported[-1][1] + 1:
            reported[-1][1] = each
        else:
            reported.append([each, each])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in reported)


def parsed(text: str) -> set[int]:
    """The reverse."""
    bounds = [word.partition("-") for word in text.split(",") if word]
    return {each for low, _, high in bounds for each in range(int(low), int(high or low) + 1)}


def play(judge: Judge, work: Path, history: History) -> AssertionError | None:
    """Its problem; an invalid history is not the same failure."""
    place = Path(tempfile.mkdtemp(dir=work))
    try:
        duel.play(judge, place, history)
    except AssertionError as error:
        return error
    except Exception:  # noqa: BLE001 - made smaller it may be none that makes sense
        return None
    finally:
        shutil.rmtree(place)
    return None


def asserted_at(error: AssertionError | None) -> str:
    """The place of the failed assertion; empty if none. Another assertion is another failure."""
    if error is None:
        return ""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(frame.filename).name}:{frame.lineno}: {frame.line}"


def smallest(judge: Judge, work: Path, maker: str, seed: int) -> str:
    """The command that repeats the smallest history that fails at the same assertion."""
    history = MAKERS[maker](seed)
    wrong = asserted_at(play(judge, work, history))
    if not wrong:
        return "it does not fail again"
    dropped = shrunk(parts(history), lambda removed: asserted_at(play(judge, work, without(history, removed))) == wrong)
    return f".venv/bin/python -m tests.torture.shrink {maker} {seed} --without {numbers(dropped) or '-'}"


def main(arguments: Sequence[str]) -> int:
    """Run a history again; exit code 1 if it fails."""
    parser = argparse.ArgumentParser()
    parser.add_argument("maker", choices=MAKERS)
    parser.add_argument("seed", type=int)
    parser.add_argument("--without", default="")
    parser.add_argument("--release", default="4.3")
    options = parser.parse_args(arguments)
    history = without(MAKERS[options.maker](options.seed), parsed(options.without.strip("-")))
    with (
        tempfile.TemporaryDirectory(prefix="cleanerd-shrink-") as work,
        Judge(options.release) as judge,
        kafkas_checkpoint_counts(),
    ):
        error = play(judge, Path(work), history)
    reported = "all is well" if error is None else f"{asserted_at(error)}\n{error}"
    sys.stdout.write(f"{history}\n{reported}\n")
    return int(error is not None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
