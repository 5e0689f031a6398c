"""Mistakes in the choice of the clock that the daemon trusts."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

DAEMONS_CLOCK = (
    Mutant(
        "a-start-trusts-the-clock",
        "U-42",
        "cleanerd/state/last_time.py",
        "last=_DOCUMENT.load(state_dir, warnings)",
        "last=None",
        ("tests/cli/test_clock.py::test_a_clock_that_is_ahead_removes_nothing",),
    ),
    Mutant(
        "a-clock-that-is-behind-sets-horizons",
        "U-42",
        "cleanerd/host/clock.py",
        "if abs(wall - expected) > STEP_MS else (wall, 0)",
        "if wall - expected > STEP_MS else (wall, 0)",
        ("tests/host/test_clock.py::test_a_step_back_is_used_at_once_and_doubted_for_an_hour",),
    ),
    Mutant(
        "another-machine-counted-the-time",
        "U-42",
        "cleanerd/host/clock.py",
        "if last.boot and last.boot == self._boot and last.steady_ms <= steady:",
        "if last.steady_ms <= steady:",
        ("tests/host/test_clock.py::test_another_machine_that_has_run_for_longer",),
    ),
    Mutant(
        "each-restart-begins-the-hour-again",
        "U-42",
        "cleanerd/host/clock.py",
        "(last.wall_ms, last.steady_ms), last.since, last.counted",
        "(last.wall_ms, last.steady_ms), None, last.counted",
        ("tests/host/test_clock.py::test_a_restart_does_not_shorten_the_wait",),
    ),
    Mutant(
        "a-partition-that-waits-for-a-window-ages",
        "C-11",
        "cleanerd/daemon/registry/schedule.py",
        "        if before is None:",
        "        if before is None or True:",
        (
            "tests/daemon/test_closed_windows.py::test_overdue_partitions_come_before_those_that_waited_for_the_window",
            "tests/daemon/test_closed_windows.py::test_the_daemon_counts_open_hours_only",
        ),
    ),
    Mutant(
        "an-operator-waits-as-if-for-a-window",
        "C-11",
        "cleanerd/daemon/registry/schedule.py",
        "if not is_urgent(candidate) and",
        "if",
        ("tests/daemon/test_closed_windows.py::test_overdue_partitions_do_not_count_as_waiting_for_the_window",),
    ),
)
