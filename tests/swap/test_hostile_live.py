"""U-33 beside a running broker: cleanerd writes only below ``.kstage`` and into the state directory."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from cleanerd.cleaner import planning
from tests.cleaner.driver import NAME, scratch
from tests.support.hostile import PLANTS, SECRET, Recorder, Victim, give_all, plant
from tests.support.log_dirs import read_segments
from tests.support.root import needs_root
from tests.swap.live_round import clean_beside, running

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [needs_root, pytest.mark.long]


def round_beside(root: Path, monkeypatch: pytest.MonkeyPatch, begin: Callable[[], None]) -> str:
    """Clean once; returns the outcome and the output. ``begin`` is called once uid 1000 owns all files."""
    numbers = itertools.count()
    # names of a later cleaning are planted before it, so they have to be known
    monkeypatch.setattr(planning, "new_plan_id", lambda: f"20260101t000000-{next(numbers):08x}")
    with running(root / "logs") as agent:
        (root / "state").mkdir()
        for name in ("logs", "state"):
            give_all(root / name)
        begin()
        result = clean_beside(agent)
    return f"{result.outcome} {result.reason} {' '.join(result.notes)}"


def names_of_a_round(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    with scratch() as root:
        recorder = Recorder(root)
        with recorder.listening(monkeypatch):
            assert round_beside(root, monkeypatch, lambda: None).startswith("cleaned")
        # the stand-in's own changes to the log are the broker's
        return sorted(
            name for name in recorder.written if name.startswith((f"logs/{NAME}/.kstage", "state/partitions"))
        )


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.long)])
def test_planted_names(monkeypatch: pytest.MonkeyPatch, every: bool) -> None:
    """The targets are unchanged; the partition is cleaned or skipped with a clear message."""
    names = names_of_a_round(monkeypatch)
    assert len(names) > 8, names
    for number, name in enumerate(names):
        for what in PLANTS if every else ("link", PLANTS[1 + number % (len(PLANTS) - 1)]):
            with scratch() as root:
                victim = Victim.under(root)
                before = victim.state()
                differs: list[bool] = []

                def begin(name: str = name, what: str = what, root: Path = root, victim: Victim = victim) -> None:
                    differs.append(plant(root / name, what, victim))  # noqa: B023 - called in this turn

                message = round_beside(root, monkeypatch, begin)
                reported = f"{what} at {name}: {message}"
                assert victim.state() == before, reported
                assert not victim.file.with_name("made-by-a-link").exists(), reported
                assert SECRET not in message, reported
                bases = sorted(read_segments(root / "logs" / NAME))
                assert len(bases) > 1, reported
                assert message.startswith("cleaned") or "cannot" in message, reported
