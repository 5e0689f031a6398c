"""The time that deletes go by (U-42)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from cleanerd.host.clock import STEP_MS, TRUSTED_AFTER_MS, Clock, LastTime

DAY_MS = 86_400_000


@dataclass
class Machine:
    """Two clocks that a test moves."""

    wall: int = 1_000_000_000
    steady: int = 5_000

    def clock(self, last: LastTime | None = None, boot: str = "this one") -> Clock:
        return Clock(lambda: self.wall, lambda: self.steady, last=last, boot=boot)

    def continues_for(self, milliseconds: int) -> None:
        self.wall += milliseconds
        self.steady += milliseconds


def test_it_is_the_wall_clock() -> None:
    machine = Machine()
    clock = machine.clock()
    for _ in range(3):
        machine.continues_for(10 * DAY_MS)
        assert clock.now_ms() == machine.wall
        assert clock.observe() == ""


@pytest.mark.parametrize("step_ms", [STEP_MS, 1, -1, -STEP_MS])
def test_small_steps_are_trusted_at_once(step_ms: int) -> None:
    machine = Machine()
    clock = machine.clock()
    for _ in range(3):  # each on its own: corrections of a time server do not add up to a jump
        machine.wall += step_ms
        assert clock.now_ms() == machine.wall
        assert clock.observe() == ""
    assert clock.jumps == 0


def test_a_step_back_is_used_at_once_and_doubted_for_an_hour() -> None:
    """U-42: a horizon set by a clock that is behind would have passed too early once the clock is right again."""
    machine = Machine()
    clock = machine.clock()
    machine.wall -= DAY_MS
    assert clock.read_ms() == (machine.wall, DAY_MS)
    assert "behind the last known time by 1 day, 0:00:00" in clock.observe()
    machine.continues_for(TRUSTED_AFTER_MS - 1)
    assert clock.observe()
    assert clock.read_ms() == (machine.wall, DAY_MS)
    machine.continues_for(1)
    assert clock.observe() == ""
    assert clock.read_ms() == (machine.wall, 0)
    assert clock.jumps == 0


def test_a_jump_ahead_is_trusted_after_it_has_lasted() -> None:
    machine = Machine()
    clock = machine.clock()
    before = machine.wall
    machine.wall += DAY_MS
    assert clock.now_ms() == before
    assert clock.read_ms() == (before, DAY_MS)
    assert "jumped ahead by 1 day, 0:00:00" in clock.observe()
    machine.continues_for(TRUSTED_AFTER_MS - 1)
    assert clock.observe()
    assert clock.now_ms() == before + TRUSTED_AFTER_MS - 1
    machine.continues_for(1)
    assert clock.observe() == ""
    assert clock.read_ms() == (machine.wall, 0)
    assert machine.wall == before + DAY_MS + TRUSTED_AFTER_MS
    assert clock.jumps == 1


def test_a_clock_that_jumps_and_comes_back() -> None:
    """And a second jump has its own hour."""
    machine = Machine()
    clock = machine.clock()
    for number in (1, 2):
        machine.wall += DAY_MS
        assert clock.observe()
        assert clock.jumps == number
        machine.continues_for(TRUSTED_AFTER_MS // 2 + 1)
        machine.wall -= DAY_MS
        assert clock.observe() == ""
        assert clock.now_ms() == machine.wall


def test_a_jump_further_ahead_has_its_own_hour() -> None:
    """Two minutes ahead for almost an hour do not make a month ahead trusted a minute later; nor does a way back."""
    machine = Machine()
    clock = machine.clock()
    for number, jump_ms in enumerate((2 * STEP_MS, 30 * DAY_MS, -DAY_MS)):
        machine.wall += jump_ms
        expected = machine.wall - sum((2 * STEP_MS, 30 * DAY_MS, -DAY_MS)[: number + 1])
        assert clock.observe()
        machine.continues_for(TRUSTED_AFTER_MS - 1)
        assert clock.observe()
        assert clock.now_ms() == expected + TRUSTED_AFTER_MS - 1
    assert clock.jumps == 2, "ahead"
    machine.continues_for(1)
    assert clock.observe() == ""
    assert clock.now_ms() == machine.wall


@pytest.mark.parametrize("off_ms", [DAY_MS, 365 * DAY_MS, -DAY_MS])
def test_a_restart_does_not_shorten_the_wait(off_ms: int) -> None:
    """U-42: a clock that is set wrong while no process watches, or during a restart, has the whole hour too."""
    machine = Machine()
    last = machine.clock().last()
    machine.continues_for(7 * DAY_MS)
    right = machine.wall
    machine.wall += off_ms
    clock = machine.clock(last)
    assert clock.read_ms() == (min(right, machine.wall), abs(off_ms))
    assert clock.observe()
    assert clock.jumps == (off_ms > 0)
    machine.continues_for(TRUSTED_AFTER_MS // 2)
    clock = machine.clock(clock.last())
    assert clock.read_ms() == (min(right, right + off_ms) + TRUSTED_AFTER_MS // 2, abs(off_ms))
    assert clock.observe()
    assert clock.jumps == 0, "the one before reported it"
    machine.continues_for(TRUSTED_AFTER_MS // 2)
    assert machine.clock(clock.last()).read_ms() == (machine.wall, 0)


def test_a_restart_with_a_right_clock() -> None:
    """Nothing is reported, and nothing waits, however long cleanerd was stopped."""
    machine = Machine()
    last = machine.clock().last()
    machine.continues_for(300 * DAY_MS)
    clock = machine.clock(last)
    assert clock.read_ms() == (machine.wall, 0)
    assert (clock.observe(), clock.jumps) == ("", 0)


@pytest.mark.parametrize("boot", ["another", ""])
@pytest.mark.parametrize(("off_ms", "reported"), [(DAY_MS // 2, ""), (DAY_MS, ""), (DAY_MS + 1, "reported")])
def test_a_machine_that_was_off(boot: str, off_ms: int, reported: str) -> None:
    """U-42: the time off is unknown, so the last known time is used for an hour; a short time is not reported."""
    machine = Machine()
    last = machine.clock(boot=boot and "this one").last()
    known = machine.wall
    machine.wall += off_ms
    machine.steady = 1000
    clock = machine.clock(last, boot)
    assert clock.read_ms() == (known, off_ms)
    assert bool(clock.observe()) == bool(reported)
    assert ("the machine was started" in clock.observe()) == bool(reported)
    assert clock.jumps == bool(reported)
    machine.continues_for(TRUSTED_AFTER_MS - 1)
    assert clock.read_ms() == (known + TRUSTED_AFTER_MS - 1, off_ms)
    machine.continues_for(1)
    assert clock.observe() == ""
    assert clock.read_ms() == (machine.wall, 0)
    assert clock.last().counted


def test_a_machine_whose_battery_is_empty() -> None:
    """U-42: its clock starts at zero. Horizons set by it count from the last known time, and it is reported."""
    machine = Machine()
    last = machine.clock().last()
    known = machine.wall
    machine.wall, machine.steady = 86_400, 2_000
    clock = machine.clock(last, "another")
    assert clock.read_ms() == (machine.wall, known - machine.wall)
    assert "behind the last known time" in clock.observe()
    machine.wall = known + 1000  # the time server answers
    assert clock.observe() == ""
    assert clock.read_ms() == (machine.wall, 0)


def test_each_time_on_another_machine() -> None:
    """A command that runs only for a moment, after each start, reports it once and trusts the clock an hour later."""
    machine = Machine()
    last = machine.clock().last()
    machine.continues_for(2 * DAY_MS)
    first = machine.clock(last, "another")
    assert first.observe()
    machine.continues_for(TRUSTED_AFTER_MS - 1)
    assert machine.clock(first.last(), "a third").observe()
    machine.continues_for(1)
    assert machine.clock(first.last(), "a third").read_ms() == (machine.wall, 0)


def test_another_machine_that_has_run_for_longer() -> None:
    """Its steady clock does not show the time since: a state directory that moved delays no horizon."""
    machine = Machine()
    last = machine.clock().last()
    machine.continues_for(1000)
    machine.steady += 200 * DAY_MS
    clock = machine.clock(last, "another")
    assert clock.read_ms() == (machine.wall, 0)
    assert clock.observe() == ""


def test_a_steady_clock_that_went_back_shows_another_start() -> None:
    machine = Machine()
    last = replace(machine.clock().last(), steady_ms=machine.steady + 1)
    machine.wall += DAY_MS // 2
    assert machine.clock(last).read_ms() == (machine.wall - DAY_MS // 2, DAY_MS // 2)
