"""The page of a report, with the keys that have the most records: one file without external resources."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from cleanerd.errors import CleanerdError
from cleanerd.humanize import counted, human_bytes, human_change, human_count, human_ms
from cleanerd.spark.source.options import RAW
from cleanerd.spark.source.plan import split_of
from cleanerd.spark.source.reading import ReadOptions, SourceReading
from cleanerd.spark.source.rows import SourceRows, to_arrow

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cleanerd.format.names import TopicPartition
    from cleanerd.spark.logs import Log
    from cleanerd.spark.profile import HotKey, Profile
    from cleanerd.spark.report.pictures import Picture
    from cleanerd.spark.report.topics import TopicProfile


MOST: Final = 20

_KEY: Final = pa.schema([("key", pa.binary())])
_SHOWN_CHARACTERS: Final = 60


@dataclass(frozen=True, slots=True)
class NamedKey:
    """A key with many records. ``text``: its readable form, or why it is unknown."""

    name: TopicPartition
    text: str
    hot: HotKey


def hottest(profiles: Sequence[Profile], logs: Mapping[TopicPartition, Log]) -> list[NamedKey]:
    """The MOST keys with the most records, if they have more than one."""
    found = [(each.name, hot) for each in profiles for hot in each.hot_keys if hot.records > 1]
    found.sort(key=lambda each: (-each[1].records, each[0]))
    return [NamedKey(name, _text_at(logs[name], hot.offset), hot) for name, hot in found[:MOST]]


def _text_at(log: Log, offset: int) -> str:
    try:
        key = key_at(log, offset)
    except CleanerdError:
        key = None
    return "(deleted since)" if key is None else shown(key)


def key_at(log: Log, offset: int) -> bytes | None:
    """The key of the record at ``offset``; None if the record does not exist, or has no key."""
    split = split_of(log, offset, offset + 1)
    for rows in SourceReading(split, ReadOptions(RAW, skip_damage=False, tombstones=True, map_bytes=0), _KEY).rows():
        keep = rows.keep & (rows.decoded.chunk.records.offset == offset)
        if keep.any():
            batch = to_arrow(SourceRows(rows.decoded, keep, rows.hidden, rows.reach, rows.segment), _KEY)
            key: bytes | None = batch.column(0)[0].as_py()
            return key
    return None


def shown(key: bytes) -> str:
    """``key`` to show: its text, or hexadecimal; a long one is cut."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        text = ""
    if not text.isprintable() or not text:
        text = f"0x{key.hex()}" if key else "(empty)"
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}... ({len(key):,} bytes)"


MOST_PARTITIONS: Final = 200
"""Limit of rows on the page; JSON and Parquet have all."""

_STYLE: Final = """
:root { color-scheme: light; }
body { margin: 0 auto; max-width: 1320px; padding: 24px; background: #f6f7f8; color: #1d2329;
       font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 24px; margin: 0 0 4px; }
h2 { font-size: 18px; margin: 36px 0 8px; }
.about, figcaption { color: #59636d; }
.about { overflow-wrap: anywhere; }
dl { display: flex; flex-wrap: wrap; gap: 12px; margin: 20px 0; }
dl div { flex: 1 1 150px; background: #fff; border: 1px solid #dfe3e6; border-radius: 6px; padding: 10px 14px; }
dt { color: #59636d; font-size: 13px; }
dd { margin: 0; font-size: 20px; font-variant-numeric: tabular-nums; }
ul { padding-left: 20px; }
.pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 540px), 1fr)); gap: 16px; }
figure { margin: 0; background: #fff; border: 1px solid #dfe3e6; border-radius: 6px; padding: 12px 14px; }
figure h3 { font-size: 15px; margin: 0 0 6px; }
figure svg { display: block; width: 100%; height: auto; }
figcaption { font-size: 13px; }
.wide { overflow-x: auto; background: #fff; border: 1px solid #dfe3e6; border-radius: 6px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: 5px 12px; text-align: right; white-space: nowrap; border-top: 1px solid #eceff1; }
th { border-top: 0; color: #59636d; font-weight: 600; font-size: 13px; }
.left { text-align: left; }
code { font: 13px ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere; }
@media print { body { background: #fff; } figure, .wide { break-inside: avoid; } }
"""


def page(
    topics: Sequence[TopicProfile],
    pictures: Sequence[Picture],
    keys: Sequence[NamedKey],
    *,
    log_dirs: Sequence[str],
    now_ms: int,
) -> str:
    """The HTML of the page."""
    profiles = [each for topic in topics for each in topic.partitions]
    most = sorted(profiles, key=lambda each: (-each.saved_bytes, each.name))[:MOST_PARTITIONS]
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">',
        f"<title>cleanerd profile</title><style>{_STYLE}</style></head><body>",
        "<h1>Contents of the logs, and the effect of a cleaning</h1>",
        f'<p class="about">{_format_time(now_ms)} &middot; {escape(", ".join(log_dirs))}</p>',
        _sums(topics),
        _findings(topics, now_ms),
        '<div class="pictures">',
        *map(_figure, pictures),
        "</div>",
        "<h2>Topics</h2>",
        _table(_TOPIC_TITLES, [_topic_row(each, now_ms) for each in topics], 1),
        "<h2>Partitions</h2>",
        _table(_PARTITION_TITLES, [_partition_row(each) for each in most], 1),
    ]
    if len(most) < len(profiles):
        left = counted(len(profiles) - len(most), "partition")
        parts.append(f'<p class="about">{left} with less to save: profile.json and profile.parquet.</p>')
    if keys:
        parts += ["<h2>Keys with the most records</h2>", _keys(keys)]
    return "\n".join([*parts, "</body></html>", ""])


def _format_time(now_ms: int) -> str:
    return f"{datetime.fromtimestamp(now_ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"


def _sums(topics: Sequence[TopicProfile]) -> str:
    stored, saved = (sum(each) for each in zip(*((t.stored_bytes, t.saved_bytes) for t in topics), strict=True))
    keys, superseded = (_all(topics, name) for name in ("keys", "superseded"))
    share = superseded / (keys + superseded) if keys else 0.0
    figures = {
        "Topics": human_count(len(topics)),
        "Partitions": human_count(sum(len(each.partitions) for each in topics)),
        "Closed segments, cleaned": human_change(stored, stored - saved),
        "Keys": human_count(keys),
        "Records superseded": f"{share:.1%}",
    }
    return "<dl>" + "".join(f"<div><dt>{name}</dt><dd>{text}</dd></div>" for name, text in figures.items()) + "</dl>"


def _all(topics: Iterable[TopicProfile], name: str) -> int:
    return sum(topic.total(lambda each: int(getattr(each, name))) for topic in topics)


def _findings(topics: Sequence[TopicProfile], now_ms: int) -> str:
    """Important findings, before the charts."""
    rows = []
    for topic in topics:
        name = f"<b>{escape(topic.topic)}</b>"
        keys, other = _all([topic], "keys"), topic.overtaken
        if other:
            rows.append(
                f"{name}: by {topic.strategy} another record wins than the last one, which Kafka keeps, for "
                f"{human_count(other)} of {counted(keys, 'key')} ({other / keys:.1%})."
            )
        for count, what in (
            (_all([topic], "unversioned") if topic.strategy == "header" else 0, "without a version: they lose"),
            (_all([topic], "misversioned"), "with an invalid version, which counts as no version"),
            (_all([topic], "no_key"), "without a key: cleaning removes them"),
        ):
            if count:
                rows.append(f"{name}: {counted(count, 'record')} {what}.")
        since = topic.dirty_since_ms
        if since is not None and now_ms - since >= _LONG_MS:
            rows.append(f"{name}: the oldest record that is not cleaned yet is {human_ms(now_ms - since)} old.")
        damaged = topic.total(lambda each: len(each.damaged))
        if damaged:
            places = "places cannot" if damaged > 1 else "place cannot"
            rows.append(f"{name}: {damaged:,} {places} be read, see profile.json.")
    return "<ul>" + "".join(f"<li>{each}</li>" for each in rows) + "</ul>" if rows else ""


_LONG_MS: Final = 7 * 86_400_000


def _figure(picture: Picture) -> str:
    return (
        f'<figure role="img" aria-label="{escape(picture.title)}"><h3>{escape(picture.title)}</h3>{picture.svg}'
        f"<figcaption>{escape(picture.text)}</figcaption></figure>"
    )


_TOPIC_TITLES: Final = (
    "topic", "partitions", "on disk", "would save", "share", "other winner", "not cleaned", "for",
    "strategy", "keys", "superseded", "deleted keys", "no version", "malformed",
)  # fmt: skip


def _topic_row(topic: TopicProfile, now_ms: int) -> list[str]:
    keys, superseded = _all([topic], "keys"), _all([topic], "superseded")
    return [
        *topic.cells(now_ms),
        topic.strategy,
        human_count(keys),
        f"{superseded / (keys + superseded):.1%}" if keys else "-",
        human_count(_all([topic], "deleted_keys")),
        human_count(_all([topic], "unversioned")) if topic.strategy == "header" else "-",
        human_count(_all([topic], "misversioned")),
    ]


_PARTITION_TITLES: Final = (
    "partition", "on disk", "would save", "segments", "records", "keys", "superseded", "tombstones",
    "records per key: 50 %", "90 %", "99 %", "most",
)  # fmt: skip


def _partition_row(each: Profile) -> list[str]:
    return [
        str(each.name),
        human_bytes(each.stored_bytes),
        human_bytes(each.saved_bytes),
        human_count(each.segments),
        human_count(each.records),
        human_count(each.keys),
        f"{each.superseded_share:.1%}",
        human_count(each.tombstones),
        *map(human_count, each.records_a_key),
    ]


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]], left: int) -> str:
    """``left``: number of left-aligned columns."""

    def row(cells: Sequence[str], tag: str) -> str:
        return "".join(
            f"<{tag}{' class=left' if number < left else ''}>{escape(cell)}</{tag}>"
            for number, cell in enumerate(cells)
        )

    body = "".join(f"<tr>{row(cells, 'td')}</tr>" for cells in rows)
    return f'<div class="wide"><table><thead><tr>{row(titles, "th")}</tr></thead><tbody>{body}</tbody></table></div>'


def _keys(keys: Sequence[NamedKey]) -> str:
    rows = "".join(
        f"<tr><td class=left>{escape(str(each.name))}</td><td class=left><code>{escape(each.text)}</code></td>"
        f"<td>{human_count(each.hot.records)}</td><td>{human_bytes(each.hot.bytes)}</td>"
        f"<td>{each.hot.offset}</td></tr>"
        for each in keys
    )
    titles = "<th class=left>partition</th><th class=left>key</th><th>records</th><th>bytes</th><th>wins at offset</th>"
    return f'<div class="wide"><table><thead><tr>{titles}</tr></thead><tbody>{rows}</tbody></table></div>'
