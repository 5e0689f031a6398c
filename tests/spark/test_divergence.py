"""Compared replicas: differences that cleanings at other moments explain, and those that nothing explains."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from cleanerd.cli.main import run
from cleanerd.errors import ConfigError
from cleanerd.spark import Logs
from cleanerd.spark.divergence import Divergence, compare_logs, pairs_of
from cleanerd.spark.launch import DRIVER_VARIABLE
from cleanerd.spark.logs import find_logs
from cleanerd.verify.rules import KAFKAS_RULES, KeyRules
from tests.cleaner.driver import scratch
from tests.spark.audit_model import Pair
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import BASE_TIMESTAMP_MS, Record, encode_batch, encode_legacy, encode_marker

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

END = 20
VERSIONED = KeyRules("header", b"version")


def log(records: Mapping[int, Record], *, until: int = END, epoch: int = 0) -> dict[int, bytes]:
    """A closed segment with these records by offset, one batch per record, and an active one from ``until`` on."""
    batches = [encode_batch([each], base_offset=at, leader_epoch=epoch) for at, each in records.items()]
    return {0: b"".join(batches), until: b""}


def committed(*, commit: bool) -> dict[int, bytes]:
    data = encode_batch(
        [Record(b"t", b"x")], base_offset=0, transactional=True, producer_id=5, producer_epoch=0, base_sequence=0
    )
    return {0: data + encode_marker(1, commit=commit, producer_id=5), END: b""}


def versioned(key: bytes, version: int, value: bytes | None) -> Record:
    return Record(key, value, headers=((b"version", version.to_bytes(8, "big", signed=True)),))


K1, K2, L1 = Record(b"k", b"1"), Record(b"k", b"2"), Record(b"l", b"1")
GONE = Record(b"k", None)


@dataclass(frozen=True)
class Two:
    """Both replicas, their first dirty offsets, and the expected findings and explained differences."""

    one: Mapping[int, bytes]
    other: Mapping[int, bytes]
    findings: Mapping[str, int] = field(default_factory=dict)
    cleaned: int = 0
    expired: int = 0
    clean_below: tuple[int | None, int | None] = (None, None)
    rules: KeyRules = KAFKAS_RULES
    high_watermarks: tuple[int | None, int | None] = (None, None)
    log_starts: tuple[int | None, int | None] = (None, None)


CASES = {
    "the same": Two(log({0: K1, 1: K2}), log({0: K1, 1: K2})),
    "cleaned in one": Two(log({0: K1, 1: K2}), log({1: K2}), cleaned=1, clean_below=(None, END)),
    "cleaned in the other": Two(log({1: K2}), log({0: K1, 1: K2}), cleaned=1, clean_below=(END, None)),
    "neither was cleaned": Two(log({0: K1, 1: K2}), log({1: K2}), {"missing": 1}),
    "the clean part ends below": Two(
        log({0: K1, 5: L1, 6: K2}), log({0: K1, 6: K2}), {"missing": 1}, clean_below=(0, 5)
    ),
    "the clean part ends above": Two(
        log({0: K1, 4: L1, 5: L1, 6: K2}), log({0: K1, 5: L1, 6: K2}), cleaned=1, clean_below=(0, 5)
    ),
    "the newest is gone": Two(log({0: K1, 1: K2}), log({0: K1}), {"latest": 1}, cleaned=1, clean_below=(None, END)),
    "all of a key is gone": Two(log({0: K1, 1: L1}), log({1: L1}), {"latest": 1}, cleaned=1, clean_below=(None, END)),
    "a deletion is over in one": Two(
        log({0: K1, 1: GONE, 2: L1}), log({2: L1}), cleaned=2, expired=1, clean_below=(None, END)
    ),
    "a deletion is over, and the key is back": Two(
        log({1: GONE, 2: L1}), log({0: K1, 2: L1}), {"latest": 1}, cleaned=2, clean_below=(END, END)
    ),
    "by version a deletion is over, a late write came": Two(
        log({0: versioned(b"k", 9, None), 5: versioned(b"k", 3, b"late")}), log({5: versioned(b"k", 3, b"late")}),
        cleaned=1, expired=1, rules=VERSIONED,
    ),
    "by version the other one wins": Two(
        log({0: versioned(b"k", 9, b"high"), 5: versioned(b"k", 3, b"low")}), log({5: versioned(b"k", 3, b"low")}),
        {"latest": 1}, cleaned=1, rules=VERSIONED,
    ),
    "another value": Two(log({0: K1}), log({0: K2}), {"altered": 1}),
    "another key": Two(log({0: K1}), log({0: L1}), {"altered": 1}),
    "the same by another leader": Two(
        {0: log({0: K1}, epoch=3)[0] + log({1: L1}, epoch=4)[0], END: b""}, log({0: K1, 1: L1}, epoch=3), {"epoch": 1}
    ),
    "another record by another leader": Two(log({0: K1}, epoch=3), log({0: K2}, epoch=4), {"altered": 1, "epoch": 1}),
    "another leader's, cleaned in one": Two(
        log({0: K1, 1: K2}, epoch=3), log({1: K2}, epoch=3), cleaned=1, clean_below=(None, END)
    ),
    "an epoch in one, an old format in the other": Two(
        {0: encode_legacy(0, b"k", b"1", magic=1, timestamp=BASE_TIMESTAMP_MS), END: b""}, log({0: K1}, epoch=3)
    ),
    "keyless goes": Two(log({0: Record(None, b"x"), 1: K1}), log({1: K1}), cleaned=1, clean_below=(None, END)),
    "acknowledged in one only": Two(log({0: K1, 7: K2}), log({0: K1}), high_watermarks=(8, 5)),
    "acknowledged in both": Two(log({0: K1, 7: K2}), log({0: K1}), {"missing": 1}, high_watermarks=(8, 8)),
    "retention came further in one": Two(log({0: K1, 7: K2}), log({7: K2}), log_starts=(None, 7)),
    "committed and aborted": Two(committed(commit=True), committed(commit=False), {"committed": 1}),
    "damaged: what is in there counts as gone": Two(
        log({0: K1}), {0: log({0: K1})[0][:-1] + b"\xff", END: b""}, {"damaged": 1, "latest": 1},
        cleaned=1, clean_below=(END, END),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def reported(spark: SparkSession) -> dict[str, Divergence]:
    """All cases in one job, and right cleanings of random logs, in both orders."""
    pairs = {f"pair {seed}": Pair(seed).case() for seed in range(120)}
    cases = dict(CASES)
    for name, case in pairs.items():
        if not any(case.expected.values()) and not case.log_start:
            cases[name] = Two(case.before, case.after, rules=case.rules, clean_below=(0, case.clean_end))
            cases[f"{name}, turned"] = Two(case.after, case.before, rules=case.rules, clean_below=(case.clean_end, 0))
    names = {f"t{number}": name for number, name in enumerate(cases)}
    with scratch() as root:
        for side in (0, 1):
            partitions = {}
            for topic, name in names.items():
                two = cases[name]
                partitions[f"{topic}-0"] = Partition(
                    (two.one, two.other)[side],
                    high_watermark=two.high_watermarks[side],
                    log_start_offset=two.log_starts[side],
                    indexes=False,
                )
            make_log_dir(root / str(side), partitions)
        found = [
            find_logs([root / str(side)], (), lambda topic: cases[names[topic]].rules, lambda *_: True)
            for side in (0, 1)
        ]
        ends = {(log.log_dir, log.name.topic): cases[names[log.name.topic]].clean_below[side]
                for side in (0, 1) for log in found[side]}  # fmt: skip
        pairs_found, notes = pairs_of(found[0], [found[1]])
        assert notes == []
        whole = {topic for topic, name in names.items() if cases[name].rules == KAFKAS_RULES}
        compared = compare_logs(
            spark,
            pairs_found,
            clean_end_of=lambda log: 0 if (end := ends[log.log_dir, log.name.topic]) is None
            and log.name.topic in whole else end,
        )  # fmt: skip
        return {names[each.name.topic]: each for each in compared}


@pytest.mark.parametrize("name", CASES)
def test_cases(reported: dict[str, Divergence], name: str) -> None:
    """The findings, the explained differences, and their places."""
    case, found = CASES[name], reported[name]
    assert {kind: count for kind, count in found.findings.items() if count} == dict(case.findings)
    assert (found.cleaned, found.expired) == (case.cleaned, case.expired)
    assert found.examples.keys() == {kind for kind, count in case.findings.items() if count}


def test_right_cleanings_explain_all(reported: dict[str, Divergence]) -> None:
    """Random logs and right cleanings of them, under every strategy: nothing is unexplained."""
    others = {name: each for name, each in reported.items() if name not in CASES}
    assert len(others) > 60
    assert {name: dict(each.findings) for name, each in others.items() if each.found} == {}
    assert sum(each.cleaned for each in others.values()) > 50


def test_replicas_without_a_common_offset(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One ends long before the other begins: they were reported as equal."""
    monkeypatch.delenv(DRIVER_VARIABLE, raising=False)
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
    for name, start, end in (("one", None, 10), ("other", 12, 20), ("new", None, 0)):
        records = log({0: K1, 9: L1, 12: K2}) if end else {0: b""}
        make_log_dir(tmp_path / name, {"t-0": Partition(records, high_watermark=end, log_start_offset=start)})
    paths = [str(tmp_path / name) for name in ("one", "other", "new")]
    assert run(["spark", "divergence", *paths, "--json"]) == 0
    assert [each["compared"] for each in json.loads(capsys.readouterr().out)["partitions"]] == [False, True]
    assert run(["spark", "divergence", *paths]) == 0
    reported = capsys.readouterr().out
    assert "no offset in both" in reported
    assert "1 pair of replicas without a common offset: not compared" in reported
    assert "1 pair of replicas: cleanings explain" in reported


def test_damage_is_reported_with_its_place(spark: SparkSession, tmp_path: Path) -> None:
    """Also damage that only decoding finds, in either replica; where both are damaged at the same byte.

    A place once.
    """
    bad = encode_batch([K1], base_offset=0, payload=b"\x0e\x00\x00\x00\x02k\x02")
    logs = {"t-0": ({0: bad, END: b""},) * 2, "u-0": (log({0: K1}), {0: log({0: K1})[0][:-1] + b"\xff", END: b""})}
    for side in (0, 1):
        partitions = {name: Partition(both[side], indexes=False) for name, both in logs.items()}
        make_log_dir(tmp_path / str(side), partitions)
    for by in (spark, None):
        decoded, by_headers = Logs(by, tmp_path / "0").compare_replicas(tmp_path / "1").partitions
        assert decoded.findings["damaged"] == 2
        places = [f"{tmp_path}/{side}/t-0/{0:020d}.log at byte 0" for side in (0, 1)]
        assert sorted(text.partition(": ")[0] for text in decoded.damaged) == places
        assert [text.partition(": ")[0] for text in by_headers.damaged] == [f"{tmp_path}/1/u-0/{0:020d}.log at byte 0"]


def test_differing_records_are_listed_with_their_keys(tmp_path: Path) -> None:
    """The lowest offsets by kind, in whichever replica a record is; the file shows the replica."""
    three = {2: Record(b"x", b"1"), 3: Record(b"y", b"1"), 4: Record(b"z", b"1")}
    sides = (log({0: K1, 1: L1, **three}), log({0: K2, 5: Record(b"m", b"1"), **three}), log({0: K1, 1: L1}))
    one, other, short = (
        make_log_dir(tmp_path / str(number), {"t-0": Partition(segments, cleaner_offset=END)})
        for number, segments in enumerate(sides)
    )
    (found,) = Logs(None, one).compare_replicas(other).partitions
    named = {(each.kind, each.offset, each.key, each.file.split("/")[-3], each.what) for each in found.places}
    assert named == {
        ("altered", 0, b"k", "0", "in both, with another value"),
        ("latest", 1, b"l", "0", "only here, value of 1 bytes"),
        ("latest", 5, b"m", "1", "only here, value of 1 bytes"),
    }
    (found,) = Logs(None, short).compare_replicas(one, examples=2).partitions
    assert [each.key for each in found.places] == [b"x", b"y"]
    assert found.findings["latest"] == 3


@pytest.mark.long
def test_the_command_and_the_api(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three brokers: all further ones are compared with the first; exit code 5 for unexplained differences."""
    alike, other = log({0: K1, 1: L1}), log({0: K2, 1: L1})
    places = [make_log_dir(tmp_path / str(number), {"t-0": Partition(segments)})
              for number, segments in enumerate((alike, alike, other))]  # fmt: skip
    make_log_dir(tmp_path / "more", {"u-0": Partition(alike)})
    compared = Logs(spark, places[0]).compare_replicas([places[1], tmp_path / "2"])
    assert [each.found for each in compared.partitions] == [0, 1]
    with pytest.raises(ConfigError, match="no partition has two replicas"):
        Logs(spark, places[0]).compare_replicas(tmp_path / "more")
    monkeypatch.setenv(DRIVER_VARIABLE, "1")
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
    assert run(["spark", "divergence", str(places[0]), str(places[1]), "--quiet"]) == 0
    assert "1 pair of replicas: cleanings explain all differences" in capsys.readouterr().out
    assert run(["spark", "divergence", *map(str, places), "--json"]) == 5
    document = json.loads(capsys.readouterr().out)
    assert [each["findings"]["altered"] for each in document["partitions"]] == [0, 1]
    assert document["partitions"][1]["first_offsets"] == {"altered": 0}
    (record,) = document["partitions"][1]["records"]
    assert (record["kind"], record["offset"], record["key"]) == ("altered", 0, "k")
    assert run(["spark", "divergence", str(places[0]), str(places[2]), "--quiet"]) == 5
    assert "t-0 altered offset 0 key" in capsys.readouterr().out
    assert run(["spark", "divergence", str(places[0])]) == 2
