"""The time that deletes go by."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from cleanerd.daemon.clock import BELIEVED_AFTER_MS, STEP_MS, Clock

DAY_MS = 86_400_000


@dataclass
class Machine:
    """Two clocks that a test moves."""

    wall: int = 1_000_000_000
    steady: int = 5_000

    def clock(self) -> Clock:
        return Clock(lambda: self.wall, lambda: self.steady)

    def goes_on(self, milliseconds: int) -> None:
        self.wall += milliseconds
        self.steady += milliseconds


def test_it_is_the_wall_clock() -> None:
    machine = Machine()
    clock = machine.clock()
    for _ in range(3):
        machine.goes_on(10 * DAY_MS)
        assert clock.now_ms() == machine.wall
        assert clock.observe() == ""


@pytest.mark.parametrize("step_ms", [STEP_MS, 1, -1, -STEP_MS, -DAY_MS])
def test_small_steps_and_steps_back_are_believed_at_once(step_ms: int) -> None:
    machine = Machine()
    clock = machine.clock()
    for _ in range(3):  # each for itself: what a time server corrects does not add up to a jump
        machine.wall += step_ms
        assert clock.now_ms() == machine.wall
        assert clock.observe() == ""
    assert clock.jumps == 0


def test_a_jump_ahead_is_believed_after_it_has_lasted() -> None:
    machine = Machine()
    clock = machine.clock()
    before = machine.wall
    machine.wall += DAY_MS
    assert clock.now_ms() == before
    assert clock.read_ms() == (before, DAY_MS)
    assert "jumped ahead by 1 day, 0:00:00" in clock.observe()
    machine.goes_on(BELIEVED_AFTER_MS - 1)
    assert clock.observe()
    assert clock.now_ms() == before + BELIEVED_AFTER_MS - 1
    machine.goes_on(1)
    assert clock.observe() == ""
    assert clock.read_ms() == (machine.wall, 0)
    assert machine.wall == before + DAY_MS + BELIEVED_AFTER_MS
    assert clock.jumps == 1


def test_it_comes_back() -> None:
    """And a second jump has its own hour."""
    machine = Machine()
    clock = machine.clock()
    for number in (1, 2):
        machine.wall += DAY_MS
        assert clock.observe()
        assert clock.jumps == number
        machine.goes_on(BELIEVED_AFTER_MS // 2 + 1)
        machine.wall -= DAY_MS
        assert clock.observe() == ""
        assert clock.now_ms() == machine.wall


def test_a_jump_further_ahead_has_its_own_hour() -> None:
    """Two minutes ahead for almost an hour do not make a month ahead believed a minute later; nor does a way back."""
    machine = Machine()
    clock = machine.clock()
    for number, jump_ms in enumerate((2 * STEP_MS, 30 * DAY_MS, -DAY_MS)):
        machine.wall += jump_ms
        expected = machine.wall - sum((2 * STEP_MS, 30 * DAY_MS, -DAY_MS)[: number + 1])
        assert clock.observe()
        machine.goes_on(BELIEVED_AFTER_MS - 1)
        assert clock.observe()
        assert clock.now_ms() == expected + BELIEVED_AFTER_MS - 1
    assert clock.jumps == 2, "ahead"
    machine.goes_on(1)
    assert clock.observe() == ""
    assert clock.now_ms() == machine.wall
