"""A profile as a page: it loads nothing from elsewhere, and its figures exist as JSON and Parquet."""

from __future__ import annotations

import json
import os
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from cleanerd.errors import ConfigError, MachineError
from cleanerd.spark.logs import find_logs
from cleanerd.spark.profile import profile_logs
from cleanerd.spark.report import files
from cleanerd.spark.report.files import write_report
from cleanerd.spark.report.page import MOST_PARTITIONS, key_at, shown
from cleanerd.spark.report.pictures import MOST_TOPICS
from cleanerd.verify.rules import KAFKAS_RULES, KeyRules
from tests.spark.reading import read_rows
from tests.spark.rich_log import NOW_MS, RichLog
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import Record, encode_batch

if TYPE_CHECKING:
    from pathlib import Path

VERSIONS = KeyRules(strategy="header", header=b"version")
VOID = {"meta", "br"}


class Page(HTMLParser):
    """The contents of a page: that its tags are closed, its words, its tables, what it would load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.rows: list[list[str]] = []
        self.loaded: list[str] = []
        self.pictures = 0
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loaded += [value or "" for name, value in attrs if name in {"src", "href", "xlink:href"}]
        self.pictures += tag == "figure"
        if tag == "tr":
            self.rows.append([])
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, _tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loaded += [value or "" for name, value in attrs if name in {"src", "href", "xlink:href"}]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)
        if {"td", "th"} & set(self.open):
            self.rows[-1].append(data)

    @property
    def text(self) -> str:
        return " ".join(self.words)


def reported(path: Path, target: Path, rules: KeyRules = KAFKAS_RULES) -> tuple[Page, list[dict[str, Any]]]:
    """The page, and the partitions of JSON."""
    logs = find_logs([path], (), lambda _topic: rules)
    write_report(profile_logs(None, logs), logs, target, log_dirs=[str(path)], now_ms=NOW_MS)
    page = Page((target / "profile.html").read_text(encoding="utf-8"))
    assert all(each.startswith("#") for each in page.loaded), "nothing from elsewhere"
    return page, json.loads((target / "profile.json").read_text(encoding="utf-8"))["partitions"]


def versioned(number: int, key: bytes = b"k", value: bytes | None = b"v", timestamp: int = NOW_MS) -> Record:
    stamp = (b"version", number.to_bytes(8, "big", signed=True))
    return Record(key, value, timestamp=timestamp, headers=(stamp,))


def sealed(*records: Record) -> Partition:
    """A log with these records in its closed segment."""
    return Partition({0: encode_batch(list(records)), len(records): b""})


def test_all_of_it(tmp_path: Path) -> None:
    """Page, JSON and Parquet have the same figures, of a log with everything in it."""
    path = RichLog(5, transactions=True).write(tmp_path / "logs", 4, 20)
    page, (partition,) = reported(path, tmp_path / "report", VERSIONS)
    assert {each.name for each in (tmp_path / "report").iterdir()} == {
        "profile.html",
        "profile.json",
        "profile.parquet",
    }
    (row,) = pq.read_table(tmp_path / "report" / "profile.parquet").to_pylist()
    assert row.keys() == partition.keys()
    for name in (
        "topic",
        "partition",
        "keys",
        "superseded",
        "overtaken",
        "saved_bytes",
        "dirty_share",
        "records_a_key",
    ):
        assert row[name] == partition[name], name
    assert [list(each.values()) for each in row["written"]] == partition["written"]
    assert page.pictures == 4  # the first dirty offset of a log with versions is unknown
    assert f"{partition['keys']:,}" in page.text
    assert "another record wins than the last one" in page.text


def test_the_figures_about_versions(tmp_path: Path) -> None:
    """R280-4, R280-6, R280-7: retained records that Kafka would remove, records with no or a malformed version."""
    records = [
        versioned(9, b"a"), versioned(3, b"a"), versioned(1, b"b"), versioned(2, b"b"),
        Record(b"b", b"v", timestamp=NOW_MS), Record(b"c", b"v", timestamp=NOW_MS, headers=((b"version", b"12"),)),
    ]  # fmt: skip
    page, (found,) = reported(make_log_dir(tmp_path / "logs", {"t-0": sealed(*records)}), tmp_path / "report", VERSIONS)
    assert (found["overtaken"], found["unversioned"], found["misversioned"]) == (2, 2, 1)
    assert found["keys_by_missing"] == [[0, 1], [4, 1]]  # 1 and 2 of b; of a 4 to 8, five numbers: 4 to 7
    for warned in (
        "by header another record wins than the last one, which Kafka keeps, for 2 of 3 keys (66.7%)",
        "2 records without a version: they lose",
        "1 record with an invalid version, which counts as no version",
    ):
        assert warned in page.text


def test_the_age_of_the_dirty_section(tmp_path: Path) -> None:
    """From a week on it comes first, and it is always in the chart."""
    records = [Record(b"k", b"%d" % at, timestamp=NOW_MS - (20 - at) * 86_400_000) for at in range(10)]
    log = Partition({0: encode_batch(records), 10: b""}, cleaner_offset=4)
    batches = [encode_batch([record], base_offset=at) for at, record in enumerate(records)]
    log = Partition({0: b"".join(batches), 10: b""}, cleaner_offset=4)
    page, (found,) = reported(make_log_dir(tmp_path / "logs", {"t-0": log}), tmp_path / "report")
    assert found["dirty_share"] == 0.6
    assert "the oldest record that is not cleaned yet is 16 d old" in page.text
    assert "Not cleaned yet" in page.text


@pytest.mark.long
@pytest.mark.parametrize(
    "timestamps",
    [
        [-1],
        [0, 1],
        [2**63 - 1],
        [0, NOW_MS, 2**63 - 1, -(2**63)],
        [253_402_300_800_000] * 3,
        [221_845_392_000_000, 0],
        [2**47, 2**48, 2**49],
        [NOW_MS] * 1000 + [2**62],
    ],
)
def test_any_timestamp(tmp_path: Path, timestamps: list[int]) -> None:
    """Producers write any value: none, the beginning and the end of time, beyond the last date."""
    batches = [encode_batch([Record(b"k", b"v", timestamp=t)], base_offset=at) for at, t in enumerate(timestamps)]
    log = Partition({0: b"".join(batches), len(batches): b""}, indexes=False)
    page, (found,) = reported(make_log_dir(tmp_path / "logs", {"t-0": log}), tmp_path / "report")
    assert sum(count for _, count in found["written"]) == sum(each >= 0 for each in timestamps)
    assert ("When they were written" in page.text) == any(each >= 0 for each in timestamps)


def test_one_strange_timestamp_does_not_stretch_the_chart(tmp_path: Path) -> None:
    """A thousand records of a day and one of the year 148,000: the chart is of that day, and says so."""
    times = [NOW_MS + at * 60_000 for at in range(2000)] + [2**62]
    batches = [encode_batch([Record(b"k", b"v", timestamp=t)], base_offset=at) for at, t in enumerate(times)]
    log = Partition({0: b"".join(batches), len(batches): b""}, indexes=False)
    page, _ = reported(make_log_dir(tmp_path / "logs", {"t-0": log}), tmp_path / "report")
    (outside,) = re.findall(r"Outside of the picture: (\d+) record", page.text)
    assert 1 <= int(outside) <= 5


def test_logs_without_figures(tmp_path: Path) -> None:
    """Logs without closed segments, without keys, and an empty one."""
    partitions = {
        "active-0": Partition({0: encode_batch([Record(b"k", b"v")])}),
        "empty-0": Partition({0: b""}),
        "keyless-0": sealed(Record(None, b"v", timestamp=NOW_MS)),
    }
    page, found = reported(make_log_dir(tmp_path / "logs", partitions), tmp_path / "report")
    assert [each["keys"] for each in found] == [0, 0, 0]
    assert "1 record without a key: cleaning removes them" in page.text


@pytest.mark.long
def test_many_topics_and_partitions(tmp_path: Path) -> None:
    """The page stays readable: the largest have a bar and a row, the others are counted."""
    partitions = {f"__t{at}-{at % 3}": sealed(*[Record(b"k", b"v" * at)] * 2) for at in range(MOST_PARTITIONS + 30)}
    page, found = reported(make_log_dir(tmp_path / "logs", partitions), tmp_path / "report")
    assert len(found) == MOST_PARTITIONS + 30
    assert "30 partitions with less to save: profile.json and profile.parquet." in page.text
    assert f"{MOST_PARTITIONS + 30 - MOST_TOPICS} others" in page.text
    assert "__t229" in page.text


HOSTILE = [
    b"<script>alert(1)</script>",
    b"$\\frac{1}{0}$",
    b"\xff\xfe",
    b"",
    "ключ".encode(),
    b"x" * 500,
    b"a\nb",
    b"&amp;",
]


def test_hostile_keys(tmp_path: Path) -> None:
    """Any client may write any key: on the page it is text."""
    records = [Record(key, b"v", timestamp=NOW_MS) for key in HOSTILE for _ in range(3)]
    page, _ = reported(make_log_dir(tmp_path / "logs", {"t-0": sealed(*records)}), tmp_path / "report")
    named = {row[1] for row in page.rows if len(row) == 5 and row[0] == "t-0"}
    assert named == set(map(shown, HOSTILE))
    assert "script" not in {each for row in page.rows for each in row}


def test_a_path_that_is_not_text(tmp_path: Path) -> None:
    """The disk allows any bytes: page and table show a placeholder for them, and are written."""
    log = sealed(*[Record(b"k", b"v", timestamp=NOW_MS)] * 2)
    path = make_log_dir(tmp_path / os.fsdecode(b"logs\xff"), {"t-0": log})
    file = path / "t-0" / f"{0:020d}.log"
    file.write_bytes(file.read_bytes()[:-1] + b"\1")
    page, (found,) = reported(path, tmp_path / "report")
    assert f"{tmp_path}/logs?" in page.text
    assert found["damaged"] != []
    (row, *_) = read_rows(path, view="raw", onCorruption="skip", columns="segment,damaged")
    assert row["segment"] == f"{tmp_path}/logs?/t-0/{0:020d}.log"


def test_shown() -> None:
    """A key in readable form."""
    assert shown(b"customer-4711") == "customer-4711"
    assert shown(b"\x00\x01") == "0x0001"
    assert shown(b"") == "(empty)"
    assert shown(b"x" * 500) == "x" * 60 + "... (500 bytes)"


def test_a_key_is_read_at_its_position(tmp_path: Path) -> None:
    """In a later segment, inside a batch; nothing at an offset that does not exist any more."""
    data = {
        0: encode_batch([Record(b"a", b"v")]),
        1: encode_batch([Record(b"b", b"v"), Record(None, b"v")], base_offset=1, codec=2),
        9: b"",
    }
    (log,) = find_logs([make_log_dir(tmp_path / "logs", {"t-0": Partition(data)})], (), lambda _topic: KAFKAS_RULES)
    assert [key_at(log, offset) for offset in (0, 1, 2, 3)] == [b"a", b"b", None, None]


def test_a_key_that_was_removed_meanwhile(tmp_path: Path) -> None:
    """The broker cleans while the report is made."""
    records = [Record(b"k", b"v")] * 2
    path = make_log_dir(tmp_path / "logs", {"t-0": sealed(*records)})
    logs = find_logs([path], (), lambda _topic: KAFKAS_RULES)
    profiles = profile_logs(None, logs)
    (path / "t-0" / f"{0:020}.log").unlink()
    write_report(profiles, logs, tmp_path / "report", log_dirs=["logs"], now_ms=NOW_MS)
    assert "(deleted since)" in Page((tmp_path / "report" / "profile.html").read_text()).text


def test_nothing_is_replaced_and_nothing_incomplete_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An existing directory is not changed, a full disk leaves none."""
    path = make_log_dir(tmp_path / "logs", {"t-0": sealed(Record(b"k", b"v"))})
    there = tmp_path / "there"
    there.symlink_to(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="exists already"):
        reported(path, there)

    def full(*_args: object, **_named: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.pq, "write_table", full)  # no test fills a disk
    with pytest.raises(MachineError, match="No space left on device"):
        reported(path, tmp_path / "report")
    assert not (tmp_path / "report").exists()


def test_without_the_drawing_library(tmp_path: Path) -> None:
    """It is reported before anything is read."""
    with pytest.raises(ConfigError, match="not installed: no_such_package"):
        files.require_new(tmp_path / "report", draws="no_such_package")
