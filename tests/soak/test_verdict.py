"""tests.soak.verdict: even a slow leak is found, and a sawtooth is not a leak."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.soak import verdict
from tests.soak.verdict import (
    Check,
    after,
    below,
    failing,
    flat,
    per_second,
    reported,
    rise,
    slope_an_hour,
    table,
    thirds,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.soak.verdict import Series

SAMPLES = 180
"""A quarter of an hour, a sample every five seconds."""


def series(value: Callable[[float], float]) -> Series:
    return [(5.0 * n, value(5.0 * n)) for n in range(SAMPLES)]


def noise(width: float) -> Callable[[], float]:
    dice = random.Random("soak")
    return lambda: dice.uniform(-width, width)


def test_a_descriptor_a_minute_is_found() -> None:
    found = flat("descriptors", series(lambda at: 20 + at // 60), 2)
    assert not found.ok
    assert found.slope_an_hour == pytest.approx(60, rel=0.05)
    assert (found.start, found.middle, found.end, found.largest) == (22, 27, 32, 34)


def test_a_descriptor_a_minute_is_found_among_clients_that_come_and_go() -> None:
    """Sixteen connections for half a minute in each minute hide the single steps, but not the trend."""
    assert not flat("descriptors", series(lambda at: 20 + at // 60 + 16 * (at % 60 < 30)), 2).ok


@pytest.mark.parametrize("period_seconds", [20, 60, 150, 290])
def test_a_sawtooth_is_not_a_leak(period_seconds: int) -> None:
    """It rises by 30 and falls again: descriptors of hanging clients, files until a sweep, a heap."""
    found = flat("descriptors", series(lambda at: 20 + 30 * (at % period_seconds) / period_seconds), 2)
    assert found.ok, found


def test_noise_and_a_single_peak_are_not_a_leak() -> None:
    some = noise(10)
    assert flat("memory", series(lambda at: 80 + some() + 500 * (at == 850)), 4).ok


def test_a_leak_below_noise_is_found() -> None:
    """1 MiB per minute, with an error of up to 3 MiB in every sample."""
    some = noise(3)
    assert not flat("memory", series(lambda at: 80 + at / 60 + some()), 4).ok


def test_growth_at_the_beginning_is_not_a_leak() -> None:
    """Caches and the history: the first third does not count."""
    assert flat("memory", series(lambda at: 50 + 30 * min(at, 280) / 280), 4).ok
    assert not flat("memory", series(lambda at: 50 + 30 * min(at, 800) / 800), 4).ok


def test_a_falling_series_is_not_a_leak() -> None:
    found = flat("memory", series(lambda at: 100 - at / 60), 0)
    assert found.ok
    assert rise(series(lambda at: 100 - at / 60)) == pytest.approx(-5, abs=0.2)


def test_once_beyond_the_bound_is_too_often() -> None:
    assert below("overdue", series(lambda _: 0), 0).ok
    assert not below("overdue", series(lambda at: at == 400), 0).ok


def test_slope_and_rate() -> None:
    assert slope_an_hour(series(lambda at: 5 * at + 3)) == pytest.approx(5 * 3600)
    assert slope_an_hour([(0.0, 7.0)]) == 0
    assert after([(0.0, 1.0), (5.0, 2.0), (10.0, 3.0)], 5) == [(5.0, 2.0), (10.0, 3.0)]
    assert set(per_second(series(lambda at: 5 * at))) == {(5.0 * n, 5.0) for n in range(1, SAMPLES)}


@pytest.mark.parametrize("some", [[], [(0.0, 1.0)], [(0.0, 1.0), (900.0, 1.0)]])
def test_too_few_samples_raise(some: Series) -> None:
    """A soak without measurements must not pass."""
    with pytest.raises(ValueError, match="samples"):
        thirds(some)


def test_the_table_names_failed_rows() -> None:
    rows = [flat("descriptors", series(lambda at: at), 2), reported("CPU", series(lambda at: 12345 + at))]
    checks = [Check("SIGTERM", "exit code 143", ok=True), Check("verify", "exit code 5", ok=False)]
    assert failing([*rows, *checks]) == ["descriptors", "verify"]
    lines: list[str] = []
    table(rows, checks, lines.append)
    assert [line[:2] for line in lines[1:]] == ["NO", "  ", "  ", "NO"]
    assert "rises by 2 at most" in lines[1]
    assert "+3,600" in lines[2]
    assert "12,492" in lines[2]
    assert verdict.HOUR_SECONDS == 3600
