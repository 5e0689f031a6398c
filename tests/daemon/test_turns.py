"""cleanerd.daemon.looking.turns: threads that look take turns, and a disk that keeps one waiting holds up no other."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from cleanerd.daemon.looking import turns
from cleanerd.daemon.looking.turns import Turn, Turns
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    import pytest


def has(turn: Turn) -> bool:
    """Whether it is its turn now."""
    return turn.is_held


def spun(turn: Turn, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """A turn that took so long, and all of it CPU time."""
    monkeypatch.setattr(turn, "_until", 0.0)
    monkeypatch.setattr(turn, "_cpu", turn._cpu - seconds)
    monkeypatch.setattr(turn, "_began", turn._began - seconds)
    turn.pass_on()


def test_one_looks_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one waits until the first passes its turn on, and then the first waits for it."""
    monkeypatch.setattr(turns, "PATIENCE_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr(turns, "TURN_SECONDS", PATIENCE_SECONDS)
    every = Turns()
    order: list[str] = []

    def other() -> None:
        with every.of_a_thread() as turn:
            assert has(turn)
            order.append("other")

    with every.of_a_thread() as mine:
        spun(mine, monkeypatch, 1000.0)
        assert has(mine), "nobody waits"
        thread = threading.Thread(target=other)
        thread.start()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not every.waiting:
            assert time.monotonic() < deadline
        mine.pass_on()
        order.append("mine")
        spun(mine, monkeypatch, 1000.0)
        order.append("mine again")
        thread.join(PATIENCE_SECONDS)
    assert sorted(order) == ["mine", "mine again", "other"]
    assert order[0] == "mine", "its time was not up"
    assert not every.waiting


def test_who_is_kept_waiting_keeps_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that hangs: the other one looks all the same, and does not ask again at each partition."""
    monkeypatch.setattr(turns, "PATIENCE_SECONDS", 0.01)
    monkeypatch.setattr(turns, "FREE_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr(turns, "TURN_SECONDS", 0.0)
    asked: list[Turn] = []
    begin = Turn.begin

    def noted(turn: Turn) -> None:
        asked.append(turn)
        begin(turn)

    monkeypatch.setattr(Turn, "begin", noted)
    every = Turns()
    with every.of_a_thread() as hangs, every.of_a_thread() as other:
        assert has(hangs)
        assert not has(other)
        for _ in range(20):
            other.pass_on()
        assert not has(other)
        assert asked == [hangs, other]


def test_a_turn_that_was_spent_waiting_is_the_last_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cold disk: the thread gives its turn up, and looks whenever it can, for a second."""
    every = Turns()
    with every.of_a_thread() as mine:
        every.waiting += 1
        monkeypatch.setattr(mine, "_until", 0.0)
        monkeypatch.setattr(mine, "_began", mine._began - 1000.0)
        mine.pass_on()
        assert not has(mine)
        assert not every.lock.locked()
        mine.pass_on()
        assert not has(mine)
        monkeypatch.setattr(mine, "_until", 0.0)
        mine.pass_on()
        assert has(mine), "the second is over"
        every.waiting -= 1
    assert not every.lock.locked()
