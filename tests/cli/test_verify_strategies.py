"""``verify`` and ``audit`` under strategies: the real cleaner's result is right, and errors are found.

Their rules are written independently of the cleaner's (U-28); these tests compare the two.
"""

from __future__ import annotations

import random
import shutil
import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.cleaner.strategy_upsets import truncate
from tests.cli.clean_log_dirs import NOW, Shell
from tests.support.log_dirs import (
    CLEANER_CHECKPOINT,
    Partition,
    make_log_dir,
    write_checkpoint,
    write_partition,
    write_segment,
)
from tests.support.logs import Record, encode_batch, encode_legacy

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.clean_log_dirs import Answer

DAY_MS = 86_400_000
LATER = NOW + 2 * DAY_MS


def topic(key: str, value: object) -> tuple[str, str]:
    return "--set", f"topics.orders.{key}={value}"


OFFSET: tuple[str, ...] = ()
TIMESTAMP = topic("compaction.strategy", "timestamp")
HEADER = (*topic("compaction.strategy", "header"), *topic("compaction.strategy.header", "v"))
VARLONG = (*HEADER, *topic("compaction.strategy.header.encoding", "varlong"))
STRATEGIES = {"offset": OFFSET, "timestamp": TIMESTAMP, "header": HEADER, "varlong": VARLONG}
MODES = {
    "null": (),
    "flag": topic("tombstone.mode", "flag"),
    "header": (*topic("tombstone.mode", "header"), *topic("tombstone.header", "d")),
}
KNOWN = (*topic("cleanup.policy", "compact"), "--set", "cleanerd.delegation=assumed")


def record(key: str, version: int | bytes | None = None, *, timestamp: int = NOW, **facts: Any) -> Record:
    value = struct.pack(">q", version) if isinstance(version, int) else version
    headers: tuple[tuple[bytes, bytes | None], ...] = () if value is None else ((b"v", value),)
    headers += facts.pop("headers", ())
    return Record(key=key.encode(), timestamp=timestamp, headers=headers, **{"value": b"x", **facts})


def random_record(chance: random.Random) -> Record:
    """A few keys, versions and times; tombstones of every kind, and values that look like one."""
    version = chance.choice([None, b"short", *range(-3, 4)])
    markers: list[tuple[bytes, bytes | None]] = [(b"d", b"1"), (b"d", b"0"), (b"d", None), (b"e", b"1")]
    return record(
        f"k{chance.randrange(12)}",
        version,
        timestamp=NOW - chance.randrange(20),
        value=chance.choice([None, b"", b"x", b"y"]),
        attributes=chance.choice([0, 0, 0x20]),
        headers=tuple(chance.sample(markers, chance.randrange(3))),
    )


def log_of(seed: int) -> Partition:
    chance = random.Random(seed)
    segments: dict[int, bytes] = {}
    offset = 0
    for _ in range(4):
        base = offset
        data = b""
        for _ in range(6):
            records = [random_record(chance) for _ in range(chance.randrange(1, 5))]
            data += encode_batch(records, base_offset=offset)
            offset += len(records)
        segments[base] = data
    return Partition({**segments, offset: encode_batch([record("z")], base_offset=offset)})


def verify(shell: Shell, path: Path, copy: Path, clean_below: int, *options: str) -> Answer:
    arguments = ("--against", copy, "--clean-below", clean_below, "--now-ms", LATER, "--json")
    return shell("verify", path, *arguments, *options)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_a_cleaned_log_passes_verification(
    root: Path, shell: Shell, strategy: tuple[str, ...], mode: str, seed: int
) -> None:
    """R280-3 to R280-6, R87-2 to R87-4: two cleanings, the second after the horizons."""
    rules = (*strategy, *MODES[mode], *KNOWN)
    path = make_log_dir(root / "logs", {"orders-0": log_of(seed)}) / "orders-0"
    shutil.copytree(path, root / "copy")
    for now in (NOW, LATER):
        done = shell("clean", path.parent, "--yes", "--force", "--json", "--from-start", "--now-ms", now, *rules)
        (entry,) = done.json["partitions"]
        assert done.code == 0
        answer = verify(shell, path, root / "copy", entry["end_offset"], "--many-cleanings", *rules)
        (verdict,) = answer.json["verified"]
        reported = [
            f"{found['rule']}: {found['what']}" for found in verdict["findings"] if found["severity"] == "error"
        ]
        assert (answer.code, reported) == (0, [])


def test_the_checkpoint_comes_from_cleanerds_state(root: Path, shell: Shell) -> None:
    """U-10: Kafka's checkpoint is for Kafka's strategy; without cleanerd's state the keys would not be compared."""
    rules = (*HEADER, *KNOWN)
    path = make_log_dir(root / "logs", {"orders-0": log_of(1)})
    done = shell("clean", path, "--yes", "--force", "--json", "--from-start", "--now-ms", NOW, *rules)
    (entry,) = done.json["partitions"]
    for requested in (path, path / "orders-0"):
        answer = shell("verify", requested, "--json", "--now-ms", NOW, *rules)
        assert answer.code == 0
        assert answer.json["verified"][-1]["clean_below"] == entry["end_offset"]
    shutil.rmtree(root / "state")
    assert shell("verify", path / "orders-0", "--json", *rules).json["verified"][-1]["clean_below"] is None


def test_the_checkpoint_applies_to_the_cleaned_log_only(root: Path, shell: Shell) -> None:
    """U-10: a copy is as clean; a log that was truncated and grew again is not, and that is not an error."""
    rules = (*HEADER, *KNOWN)
    path = make_log_dir(root / "logs", {"orders-0": log_of(1)})
    done = shell("clean", path, "--yes", "--force", "--json", "--from-start", "--now-ms", NOW, *rules)
    (entry,) = done.json["partitions"]

    def clean_below(requested: Path) -> int | None:
        answer = shell("verify", requested, "--json", "--now-ms", NOW, *rules)
        assert answer.code == 0, answer.out
        found: int | None = answer.json["verified"][-1]["clean_below"]
        return found

    shutil.copytree(path, root / "copy", copy_function=shutil.copyfile)
    assert clean_below(root / "copy") == entry["end_offset"]
    last = max(int(log.stem) for log in (path / "orders-0").glob("*.log") if int(log.stem) < entry["end_offset"])
    truncate(path / "orders-0", last)
    again = [record("twice", 2), *[record("twice", 1)] * (entry["end_offset"] - last)]
    write_segment(path / "orders-0", last, encode_batch(again, base_offset=last))
    end = last + len(again)
    write_segment(path / "orders-0", end, b"")
    assert clean_below(path) is None
    assert shell("verify", path / "orders-0", "--clean-below", end, "--json", *rules).code == 5


@pytest.mark.parametrize("whose", ["what cleanerd wrote", "what stood there before", "news"])
def test_kafkas_checkpoint_is_used_as_for_a_cleaning(root: Path, shell: Shell, whose: str) -> None:
    """U-10: the log was truncated and grew again while the broker's cleaner was off: the offset was never lowered."""
    path = make_log_dir(root / "logs", {"orders-0": log_of(1)})
    checkpoint = path / CLEANER_CHECKPOINT
    clean_end = max(int(log.stem) for log in (path / "orders-0").glob("*.log"))
    end = clean_end + 1
    if whose == "what stood there before":
        write_checkpoint(checkpoint, {"orders-0": end})
    shell("clean", path, "--yes", "--force", "--from-start", "--now-ms", NOW, *KNOWN)
    last = max(int(log.stem) for log in (path / "orders-0").glob("*.log") if int(log.stem) < clean_end)
    truncate(path / "orders-0", last)
    again = [record("twice", 2), *[record("twice", 1)] * (clean_end - last)]
    write_segment(path / "orders-0", last, encode_batch(again, base_offset=last))
    write_segment(path / "orders-0", end, b"")
    if whose != "what cleanerd wrote":
        write_checkpoint(checkpoint, {"orders-0": end})
    found = [shell("verify", each, "--json", "--now-ms", NOW, *KNOWN) for each in (path, path / "orders-0")]
    report = [(answer.code, answer.json["verified"][-1]["clean_below"]) for answer in found]
    assert report == [(5, end) if whose == "news" else (0, None)] * 2
    planned = shell("plan", path, "--json", "--now-ms", NOW, *KNOWN).json["partitions"][0]
    assert planned["first_dirty_offset"] == (end if whose == "news" else 0)


WRONG: list[tuple[str, list[Record], list[int], tuple[str, ...], set[str]]] = [
    ("the version's loser stays", [record("a", 2), record("a", 1)], [1], HEADER, {"R280-9", "R534-6"}),
    ("the offset's loser stays", [record("a", 2), record("a", 1)], [0], OFFSET, {"R280-9", "R534-6"}),
    ("absent beats present", [record("a", -9), record("a")], [1], HEADER, {"R280-9", "R534-6"}),
    ("malformed counts as present", [record("a", -9), record("a", b"1234567")], [1], HEADER, {"R280-9", "R534-6"}),
    ("the older of two equal versions", [record("a", 1), record("a", 1)], [0], HEADER, {"R280-9", "R534-6"}),
    (
        "the older time",
        [record("a", timestamp=NOW), record("a", timestamp=NOW - 1)],
        [1],
        TIMESTAMP,
        {"R280-9", "R534-6"},
    ),
    ("a value lost", [record("a", 1), record("b", 1)], [1], HEADER, {"R280-9"}),
    (
        "a flag that was none",
        [record("a", 1, value=None), record("b")],
        [1],
        (*HEADER, *MODES["flag"]),
        {"R280-9"},
    ),
    (
        "a mark that says no",
        [record("a", headers=((b"d", b"1"), (b"d", b"false"))), record("b")],
        [1],
        MODES["header"],
        {"R280-9"},
    ),
]


@pytest.mark.parametrize(
    ("records", "kept", "rules", "expected"), [row[1:] for row in WRONG], ids=[r[0] for r in WRONG]
)
def test_superseded_records_are_found_under_each_strategy(
    root: Path, shell: Shell, records: list[Record], kept: list[int], rules: tuple[str, ...], expected: set[str]
) -> None:
    """Each case is right under another strategy or mode, so a verifier without strategies finds nothing."""
    end = encode_batch([record("z", 1)], base_offset=2)
    write_partition(root / "copy", Partition({0: encode_batch(records) + end, 3: b""}))
    left = [replace(records[row], offset_delta=row) for row in kept]
    cleaned = encode_batch(left, last_offset_delta=1, base_timestamp=records[0].timestamp)
    path = make_log_dir(root / "logs", {"orders-0": Partition({0: cleaned + end, 3: b""})}) / "orders-0"
    answer = verify(shell, path, root / "copy", 3, *rules, *KNOWN)
    (verdict,) = answer.json["verified"]
    found = {each["rule"] for each in verdict["findings"] if each["severity"] == "error"}
    assert (answer.code, found) == (5, expected)


def test_tombstones_with_values_may_be_removed_after_their_horizon(root: Path, shell: Shell) -> None:
    """R87-6: a tombstone of this mode may be missing; under another mode the same record is a loss."""
    records = [record("a", attributes=0x20), record("b", headers=((b"d", b"1"),))]
    end = encode_batch([record("z", 1)], base_offset=2)
    expired = encode_batch(records, delete_horizon=NOW)
    write_partition(root / "copy", Partition({0: expired + end, 3: b""}))
    path = make_log_dir(root / "logs", {"orders-0": Partition({0: end, 3: b""})}) / "orders-0"
    lost = {}
    for mode, rules in MODES.items():
        (verdict,) = verify(shell, path, root / "copy", 3, *rules, *KNOWN).json["verified"]
        lost[mode] = [each["offset"] for each in verdict["findings"] if each["rule"] == "R280-9"]
    assert lost == {"null": [0, 1], "flag": [1], "header": [0]}


def test_audit_shows_versions_and_the_modes_tombstones(root: Path, shell: Shell) -> None:
    """R87-2, R87-3, R280-6: per record; v0 and v1 have only null values."""
    data = encode_legacy(0, b"k", None) + encode_batch(
        [
            record("k", 7, attributes=0x20),
            record("k", b"\x0e", value=None),
            record("k", b"bad", headers=((b"d", b"1"),)),
            record("k"),
        ],
        base_offset=1,
    )
    path = make_log_dir(root / "logs", {"orders-0": Partition({0: data, 5: b""})})

    def scan(*rules: str) -> list[tuple[int | None, bool]]:
        answer = shell("audit", "orders-0", path, "--key", "k", "--json", *rules)
        (key,) = answer.json["keys"]
        return [(row["version"], row["tombstone"]) for row in key["occurrences"]]

    assert scan() == [(None, True), (None, False), (None, True), (None, False), (None, False)]
    assert scan(*HEADER, *MODES["flag"]) == [(None, True), (7, True), (None, False), (None, False), (None, False)]
    assert scan(*VARLONG, *MODES["header"]) == [(None, True), (None, False), (7, True), (None, True), (None, False)]
    assert scan(*TIMESTAMP)[1:] == [(NOW, False), (NOW, True), (NOW, False), (NOW, False)]
    text = shell("audit", "orders-0", path, "--key", "k", *HEADER, *MODES["flag"]).out
    assert "version" in text.splitlines()[0]
    assert "tombstone, 1 B" in text
    assert "version" not in shell("audit", "orders-0", path, "--key", "k").out.splitlines()[0]
