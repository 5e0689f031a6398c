"""The results of a soak's samples: which figures grew or exceeded their limit. Pure functions.

A figure may rise and fall: a sawtooth is not a leak. Growth is decided by thirds. The first one is left out, as a
daemon fills its caches and its history then. From the second to the last one both the median and the lowest tenth of
the values have to rise.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, pairwise
from statistics import median, quantiles
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

HOUR_SECONDS: Final = 3600.0

Series = list[tuple[float, float]]
"""(seconds since the beginning, value), ascending."""


@dataclass(frozen=True, slots=True)
class Row:
    """Medians of the thirds, the largest value, the slope. ``wanted`` is empty for a row that is only shown."""

    name: str
    start: float
    middle: float
    end: float
    largest: float
    slope_an_hour: float
    wanted: str
    ok: bool


@dataclass(frozen=True, slots=True)
class Check:
    """A condition, checked once."""

    name: str
    reported: str
    ok: bool


def thirds(series: Series) -> tuple[list[float], list[float], list[float]]:
    """The values by time. Raises ValueError if one of the thirds is empty."""
    if not series:
        raise ValueError("no samples")
    begin, end = series[0][0], series[-1][0]
    cuts = (begin + (end - begin) / 3, begin + (end - begin) * 2 / 3)
    found = (
        [value for at, value in series if at < cuts[0]],
        [value for at, value in series if cuts[0] <= at < cuts[1]],
        [value for at, value in series if at >= cuts[1]],
    )
    if not all(found):
        raise ValueError(f"{len(series)} samples are too few")
    return found


def slope_an_hour(series: Series) -> float:
    """Theil-Sen: the median of the slopes between any two samples. Outliers do not affect it."""
    slopes = [(b - a) / (at_b - at_a) for (at_a, a), (at_b, b) in combinations(series, 2) if at_b > at_a]
    return median(slopes) * HOUR_SECONDS if slopes else 0.0


def rise(series: Series) -> float:
    """How far the last third is above the second one, in its median and its low values."""
    _, middle, last = thirds(series)
    return min(median(last) - median(middle), _low(last) - _low(middle))


def flat(name: str, series: Series, allowance: float) -> Row:
    """It must not grow by more than ``allowance``."""
    return _row(name, series, f"rises by {allowance:g} at most", ok=rise(series) <= allowance)


def below(name: str, series: Series, bound: float) -> Row:
    """It must never exceed ``bound``."""
    return _row(name, series, f"never above {bound:g}", ok=max(value for _, value in series) <= bound)


def reported(name: str, series: Series) -> Row:
    """It is shown without a condition."""
    return _row(name, series, "", ok=True)


def _low(values: Sequence[float]) -> float:
    return quantiles(values, n=10, method="inclusive")[0] if len(values) > 1 else values[0]


def _row(name: str, series: Series, wanted: str, *, ok: bool) -> Row:
    start, middle, last = map(median, thirds(series))
    return Row(name, start, middle, last, max(v for _, v in series), slope_an_hour(series), wanted, ok)


def after(series: Series, seconds: float) -> Series:
    """Only the samples after that time."""
    return [(at, value) for at, value in series if at >= seconds]


def per_second(series: Series) -> Series:
    """A counter as a rate between one sample and the next."""
    return [(at_b, (b - a) / (at_b - at_a)) for (at_a, a), (at_b, b) in pairwise(series) if at_b > at_a]


def failing(rows: Iterable[Row | Check]) -> list[str]:
    """Names of those that are not as wanted."""
    return [each.name for each in rows if not each.ok]


def table(rows: Sequence[Row], checks: Sequence[Check], write: Callable[[str], object]) -> None:
    """A table of both, with failing ones marked."""
    width = max([len(row.name) for row in rows] + [len(check.name) for check in checks])
    heads = ("start", "middle", "end", "largest", "an hour")
    write(f"   {'':{width}}" + "".join(f"{head:>12}" for head in heads) + "  wanted")
    for row in rows:
        values = (row.start, row.middle, row.end, row.largest)
        figures = "".join(f"{_figure(value):>12}" for value in values) + f"{_figure(row.slope_an_hour, '+'):>12}"
        write(f"{_marker(row.ok)} {row.name:{width}}{figures}  {row.wanted}")
    for check in checks:
        write(f"{_marker(check.ok)} {check.name:{width}}  {check.reported}")


def _figure(value: float, sign: str = "") -> str:
    return f"{value:{sign},.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:{sign},.2f}"


def _marker(ok: bool) -> str:
    return "  " if ok else "NO"
