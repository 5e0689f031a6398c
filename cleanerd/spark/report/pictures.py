"""The charts of a report, as SVG in the page."""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl
import matplotlib.dates
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MultipleLocator, NullFormatter, PercentFormatter

from cleanerd.humanize import counted, human_bytes, human_ms
from cleanerd.spark.report.topics import TopicProfile, added_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.axes import Axes

    from cleanerd.spark.write_times import WriteTimes

dates: Any = matplotlib.dates  # it has no type hints
MOST_TOPICS: Final = 15
"""Topics with their own bar; the others share one."""

_COLOURED: Final = 6
"""Topics with their own colour in a chart of all topics."""
_BARS: Final = 120
_OUTSIDE: Final = 0.001
"""This share of the records at either end does not widen the chart."""
_WIDTH_INCHES: Final = 7.2
_STAYS, _GOES, _OTHERS = "#3b75af", "#e0882b", "#a9b0b7"
_COLOURS: Final = ("#3b75af", "#e0882b", "#4f9d69", "#b5493f", "#8367a5", "#7a5d4c")
_STYLE: Final[Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "cleanerd",
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#8a929a",
    "axes.axisbelow": True,
    "grid.color": "#e3e7ea",
    "legend.frameon": False,
    "text.parse_math": False,
}


@dataclass(frozen=True, slots=True)
class Picture:
    """A chart; ``text`` describes it, also for readers who cannot see it."""

    title: str
    svg: str
    text: str


def pictures(topics: Sequence[TopicProfile], now_ms: int) -> list[Picture]:
    """All charts that have data."""
    drawn = [_savings(topics), _not_cleaned(topics, now_ms), _records_a_key(topics), _missing(topics), _written(topics)]
    return [each for each in drawn if each is not None]


def _drawn(title: str, text: str, height_inches: float, draw: Callable[[Axes], None]) -> Picture:
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH_INCHES, height_inches), layout="constrained")
        draw(figure.add_subplot())
        out = io.StringIO()
        canvas: Any = FigureCanvasSVG(figure)
        canvas.print_svg(out, metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    svg = out.getvalue()
    return Picture(title, svg[svg.index("<svg") :], text)


def _savings(topics: Sequence[TopicProfile]) -> Picture | None:
    named = [each for each in topics if each.stored_bytes]
    if not named:
        return None
    rows = [(each.topic, each.stored_bytes - each.saved_bytes, each.saved_bytes) for each in named[:MOST_TOPICS]]
    others = named[MOST_TOPICS:]
    if others:
        stored, saved = sum(each.stored_bytes for each in others), sum(each.saved_bytes for each in others)
        rows.append((counted(len(others), "other"), stored - saved, saved))

    def draw(axes: Axes) -> None:
        names = [name for name, *_ in rows]
        stays = [stays for _, stays, _ in rows]
        axes.barh(names, stays, color=_STAYS, label="stays")
        axes.barh(names, [goes for *_, goes in rows], left=stays, color=_GOES, label="cleaning would save")
        axes.invert_yaxis()
        axes.grid(axis="x")
        axes.xaxis.set_major_locator(MultipleLocator(_step(max(each.stored_bytes for each in named))))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: human_bytes(int(value))))
        axes.legend(loc="lower right")

    text = "Bytes of closed segments by topic. Removed records are assumed to be as compressible as retained ones."
    return _drawn("What cleaning would save", text, _height(len(rows)), draw)


def _step(most_bytes: int) -> int:
    """A power of two that divides the axis into four to eight steps, so that KiB and MiB are round."""
    return max(1 << max(most_bytes.bit_length() - 3, 0), 1)


def _not_cleaned(topics: Sequence[TopicProfile], now_ms: int) -> Picture | None:
    known = [(each, each.dirty_share) for each in topics if each.dirty_share is not None]
    rows = sorted(known, key=lambda each: -(each[1] or 0))[:MOST_TOPICS]
    if not rows:
        return None

    def draw(axes: Axes) -> None:
        bars = axes.barh([each.topic for each, _ in rows], [share or 0 for _, share in rows], color=_GOES)
        axes.bar_label(bars, [each.age(now_ms) for each, _ in rows], padding=4)
        axes.invert_yaxis()
        axes.set_xlim(0, 1.25)
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
        axes.xaxis.set_major_formatter(PercentFormatter(1))
        axes.grid(axis="x")

    left = len(topics) - len(known)
    text = "Share of the closed segments that no cleaning has seen yet, and how old the oldest record in it is."
    if left:
        text += f" For {counted(left, 'topic')} it is unknown how far it is clean."
    return _drawn("Not cleaned yet", text, _height(len(rows)), draw)


def _records_a_key(topics: Sequence[TopicProfile]) -> Picture | None:
    rows = added_rows(each.keys_by_records for topic in topics for each in topic.partitions)
    text = (
        "Keys by how many records they have in closed segments; cleaning leaves one. The scale of keys is logarithmic."
    )
    return _powers("Records a key", text, rows, "records")


def _missing(topics: Sequence[TopicProfile]) -> Picture | None:
    headers = [topic for topic in topics if topic.strategy == "header"]
    rows = added_rows(each.keys_by_missing for topic in headers for each in topic.partitions)
    text = (
        "Keys with several versions, by how many numbers between their lowest and their highest version no record has. "
        "Many where versions should count one by one: records were lost, compacted away, or never written."
    )
    return _powers("Missing versions", text, rows, "versions")


def _powers(title: str, text: str, rows: Sequence[tuple[int, int]], unit: str) -> Picture | None:
    if not rows:
        return None
    names = [str(least) if least < 2 else f"{_short(least)}-{_short(2 * least - 1)}" for least, _ in rows]

    def draw(axes: Axes) -> None:
        bars = axes.bar(names, [keys for _, keys in rows], color=_STAYS)
        axes.bar_label(bars, [_short(keys) for _, keys in rows], padding=2, fontsize=8)
        axes.set_yscale("log")
        axes.set_ylim(bottom=0.5)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(int(value))))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.grid(axis="y")
        axes.set_ylabel("keys")
        axes.set_xlabel(unit)
        axes.tick_params(axis="x", rotation=30 if len(names) > 8 else 0)

    return _drawn(title, text, 3.2, draw)


def _short(number: int) -> str:
    for power, unit in ((10**18, "E"), (10**15, "P"), (10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= 10 * power:
            return f"{number // power}{unit}"
    return str(number)


def _written(topics: Sequence[TopicProfile]) -> Picture | None:
    all_times = {each.topic: each.written for each in topics}
    total = Counter({topic: times.counts.total() for topic, times in all_times.items()})
    named = [topic for topic, count in total.most_common(_COLOURED) if count]
    if not named:
        return None
    window = _Window.around(list(all_times.values()))
    series = {topic: window.counts(all_times[topic]) for topic in named}
    rest = [window.counts(times) for topic, times in all_times.items() if topic not in named]
    if rest:
        series["others"] = [sum(each) for each in zip(*rest, strict=True)]

    def draw(axes: Axes) -> None:
        begins: Any = [datetime.fromtimestamp(begin_ms / 1000, UTC) for begin_ms in window.begins_ms]
        width_days: Any = window.span_ms / 86_400_000
        below = [0] * len(begins)
        drawn = []
        for counts, colour in zip(series.values(), (*_COLOURS[: len(named)], _OTHERS), strict=False):
            drawn.append(axes.bar(begins, counts, width=width_days, bottom=below, align="edge", color=colour))
            below = [one + other for one, other in zip(below, counts, strict=True)]
        axes.xaxis.set_major_locator(locator := dates.AutoDateLocator())
        axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(int(value))))
        axes.set_ylabel(f"records in {human_ms(window.span_ms)}")
        axes.grid(axis="y")
        # Explicitly: by default a legend omits names with a leading underscore, such as Kafka's own topics.
        axes.legend(drawn, list(series), loc="upper left", fontsize=8)

    outside = sum(times.counts.total() for times in all_times.values()) - sum(map(sum, series.values()))
    text = "Records that are still there, by their timestamps (UTC), the active segments included."
    if outside:
        text += f" Outside of the picture: {counted(outside, 'record')}."
    return _drawn("When they were written", text, 3.2, draw)


@dataclass(frozen=True, slots=True)
class _Window:
    """Consecutive spans of time, for a chart."""

    span_ms: int
    first: int
    spans: int

    @classmethod
    def around(cls, several: Sequence[WriteTimes]) -> _Window:
        """A window around nearly all records: one strange timestamp must not make it a thousand years wide."""
        span_ms = max(each.span_ms for each in several)
        counts: Counter[int] = Counter()
        for each in several:
            for span, count in each.counts.items():
                counts[span * each.span_ms // span_ms] += count
        spans = sorted(counts)
        reached = list(accumulate(counts[span] for span in spans))
        first = next(span for span, sum_ in zip(spans, reached, strict=True) if sum_ > _OUTSIDE * reached[-1])
        last = next(span for span, sum_ in zip(spans, reached, strict=True) if sum_ >= (1 - _OUTSIDE) * reached[-1])
        last = min(last, _LAST_MS // span_ms)
        first = min(first, last)
        while last - first >= _BARS:
            first, last, span_ms = first // 2, last // 2, 2 * span_ms
        return cls(span_ms, first, last - first + 1)

    @property
    def begins_ms(self) -> list[int]:
        """The beginning of each span."""
        return [(self.first + number) * self.span_ms for number in range(self.spans)]

    def counts(self, times: WriteTimes) -> list[int]:
        """[spans]: how many records were written in each."""
        found = [0] * self.spans
        for span, count in times.counts.items():
            number = span * times.span_ms // self.span_ms - self.first
            if 0 <= number < self.spans:
                found[number] += count
        return found


_LAST_MS: Final = 221_845_392_000_000
"""The year 9000: calendars end with 9999, and a chart extends a little beyond its last date."""


def _height(rows: int) -> float:
    return 0.9 + 0.3 * max(rows, 2)
