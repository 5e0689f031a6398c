"""Hostile bytes led by coverage, for the readers in Python: what reaches a new line is mutated further.

    python -m tests.torture.led --count 20000                     each reader
    python -m tests.torture.led --reader manifest --input FILE    one input again

Slower than :mod:`tests.torture.hostile`, as every line of cleanerd that is run is noted; it goes deeper instead. What
is wrong, or reaches new lines, lies in ``.cache/fuzz/python/READER``, and the next run begins with it.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

import cleanerd
from tests.torture.hostile import Reader, limits, mutated, play_bytes, readers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import CodeType, FrameType

PLACE: Final = Path(__file__).resolve().parents[2] / ".cache" / "fuzz" / "python"
MOST_SEEDS: Final = 2000
_OURS: Final = str(Path(cleanerd.__file__).parent)


class Lines:
    """Which lines of cleanerd were run so far, in this thread and in those that began under :func:`all_threads`."""

    _noted: ClassVar[set[tuple[CodeType, int]] | None] = None

    def __init__(self) -> None:
        self.seen: set[tuple[CodeType, int]] = set()

    @contextmanager
    def told(self) -> Iterator[None]:
        """In the block they are noted."""
        Lines._noted = self.seen
        sys.settrace(_call)
        try:
            yield
        finally:
            sys.settrace(None)
            Lines._noted = None

    @classmethod
    def note(cls, frame: FrameType) -> None:
        """Another line, if somebody wants to know."""
        if cls._noted is not None:
            cls._noted.add((frame.f_code, frame.f_lineno))


def _line(frame: FrameType, _event: str, _argument: Any) -> Any:
    Lines.note(frame)
    return _line


def _call(frame: FrameType, _event: str, _argument: Any) -> Any:
    return _line if frame.f_code.co_filename.startswith(_OURS) else None


@contextmanager
def all_threads() -> Iterator[None]:
    """Threads that begin in the block are looked at whenever somebody wants to know: a server has begun before that."""
    threading.settrace(_call)
    try:
        yield
    finally:
        threading.settrace(None)  # type: ignore[arg-type]


def lead(reader: Reader, seed: int, count: int, place: Path) -> tuple[int, int, list[str]]:
    """``count`` inputs; lines reached by the seeds, by all inputs, and what was wrong, with the command for it."""
    place.mkdir(parents=True, exist_ok=True)
    seeds = [*reader.seeds, *(path.read_bytes() for path in sorted(place.iterdir()))]
    lines, wrong = Lines(), []
    for data in seeds:
        with lines.told():
            play_bytes(reader, data)
    first = len(lines.seen)
    for number in range(count):
        data = mutated(random.Random(f"{seed} led {reader.name} {number}"), seeds)
        before = len(lines.seen)
        with lines.told():
            told = play_bytes(reader, data)
        if not told and len(lines.seen) == before:
            continue
        kept = place / hashlib.sha256(data).hexdigest()[:16]
        kept.write_bytes(data)
        if told:
            wrong.append(f".venv/bin/python -m tests.torture.led --reader {reader.name!r} --input {kept}\n  {told}")
        elif len(seeds) < MOST_SEEDS:
            seeds.append(data)
    return first, len(lines.seen), wrong


def main(arguments: Sequence[str]) -> int:
    """Play one input, or so many for each reader; the exit code is 1 when something was wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--reader", action="append", default=[])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--input", type=Path)
    parser.add_argument("--place", type=Path, default=PLACE)
    options = parser.parse_args(arguments)
    bad = 0
    with all_threads(), readers() as known, limits():
        for name in options.reader or known:
            if options.input is not None:
                told = play_bytes(known[name], options.input.read_bytes())
                sys.stdout.write(f"{name}: {told or 'well'}\n")
                bad += bool(told)
                continue
            began = time.monotonic()
            place = options.place / name.replace("/", "-").replace(" ", "-")
            first, last, wrong = lead(known[name], options.seed, options.count, place)
            sys.stdout.write("".join(f"{each}\n" for each in wrong[:3]))
            bad += len(wrong)
            seconds = time.monotonic() - began
            sys.stdout.write(
                f"{name}: {options.count} inputs, {len(wrong)} wrong, {first} lines, then {last}, {seconds:.0f} s\n"
            )
            sys.stdout.flush()
    return int(bad > 0)


if __name__ == "__main__":
    np.seterr(all="raise")
    sys.exit(main(sys.argv[1:]))
