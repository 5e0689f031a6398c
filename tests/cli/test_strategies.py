"""Strategies on the command line: delegation (U-8), its messages, and what a switch would retain instead."""

from __future__ import annotations

import json
import random
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.clean_log_dirs import COMPACT, NOW, Shell, batch, dirty, keys, make, only_partition, write_metadata
from tests.cli.strategy_topics import DELEGATED, HEADER, OFFSET, TIMESTAMP, set_topic, versioned
from tests.support.format_bytes import config as config_record
from tests.support.format_bytes import metadata_batch
from tests.support.log_dirs import Partition, make_log_dir, tree

if TYPE_CHECKING:
    from pathlib import Path


ASSUMED = ("--set", "cleanerd.delegation=assumed")
QUIET = ("--set", "topics.orders.delete.retention.ms=30d")
"""Longer than segment.ms: nothing to warn about (R280-13)."""


ALL_RULES = {
    "timestamp": TIMESTAMP,
    "header": HEADER,
    "flag": set_topic("tombstone.mode", "flag"),
    "tombstones in headers": (*set_topic("tombstone.mode", "header"), *set_topic("tombstone.header", "d")),
}


@pytest.mark.parametrize("rules", ALL_RULES.values(), ids=ALL_RULES)
@pytest.mark.parametrize("command", ["clean", "stage"])
def test_an_undelegated_topic_is_refused(root: Path, shell: Shell, command: str, rules: tuple[str, ...]) -> None:
    """U-8: nothing is written; reason and solution are shown; --force does not help. The same run cleans `good`."""
    path = make_log_dir(root / "logs", {"orders-0": dirty(), "good-0": Partition({0: batch(0, ("k", "1")), 1: b""})})
    write_metadata(path, topics={"orders": {"cleanup.policy": "compact"}, "good": {}})
    before = tree(path / "orders-0", without=())
    yes = ["--yes"] if command == "clean" else []
    answer = shell(command, path, *yes, "--force", "--json", "--partition", "orders-0", "--now-ms", NOW, *rules)
    assert answer.code == 4
    assert only_partition(answer)["outcome"] == "refused"
    assert "run cleanerd delegate orders" in only_partition(answer)["reason"]
    assert "needs delegation (Kafka's cleaner must skip the topic)" in answer.err
    assert tree(path / "orders-0", without=()) == before


def test_one_refused_topic_stops_no_other(root: Path, shell: Shell) -> None:
    """U-8, OP-21: the others are cleaned, and the exit code shows that not all were."""
    path = make_log_dir(root / "logs", {"orders-0": dirty(), "good-0": dirty()})
    write_metadata(path, topics={name: {"cleanup.policy": "compact"} for name in ("orders", "good")})
    answer = shell("clean", path, "--yes", "--force", "--json", "--now-ms", NOW, *TIMESTAMP)
    assert answer.code == 6
    assert [entry["outcome"] for entry in answer.json["partitions"]] == ["cleaned", "refused"]


def test_plan_and_explain_show_reason_and_solution(root: Path, shell: Shell) -> None:
    """U-8: the verdict is the first rule that prevents a cleaning."""
    path = make(root)
    write_metadata(path, topics={"orders": {**DELEGATED, "min.cleanable.dirty.ratio": "0.9"}})
    row = only_partition(shell("plan", path, "--json", *TIMESTAMP))
    assert (row["action"], row["delegation"]) == ("none", "undelegated")
    assert "min.cleanable.dirty.ratio is '0.9' on the topic (it has to be 1)" in row["reason"]
    report = shell("explain", "orders-0", path, "--json", *TIMESTAMP).json
    assert (report["rule"], report["changes"]) == ("delegation", "run cleanerd delegate orders")
    assert shell("plan", path, "--exit-code", *TIMESTAMP).code == 0, "no cleaning that could be done"


@pytest.mark.parametrize("rules", ALL_RULES.values(), ids=ALL_RULES)
def test_a_delegated_topic_is_cleaned(root: Path, shell: Shell, rules: tuple[str, ...]) -> None:
    """U-8, U-9: by the cluster's metadata; the broker's ratio of 1 is ignored, so it needs no --force either."""
    path = make(root)
    write_metadata(path, topics={"orders": DELEGATED})
    answer = shell("clean", path, "--yes", "--json", "--now-ms", NOW, *rules, *QUIET)
    assert (answer.code, only_partition(answer)["outcome"]) == (0, "cleaned")


def test_a_brokers_lag_defeats_the_ratio(root: Path, shell: Shell) -> None:
    """U-8: the dynamic default of the cluster is used, and server.properties too; without them it is unknown."""
    path = make(root)
    bare = {key: DELEGATED[key] for key in ("cleanup.policy", "min.cleanable.dirty.ratio")}
    metadata = write_metadata(path, topics={"orders": bare})
    properties = root / "server.properties"
    properties.write_text("node.id=1\n")
    read = ("--set", f"cleanerd.broker.properties={properties}")
    states = {}

    def state(*options: str) -> str:
        found: str = only_partition(shell("plan", path, "--json", *TIMESTAMP, *options))["delegation"]
        return found

    states["not looked"] = state()
    states["looked"] = state(*read)
    properties.write_text("log.cleaner.max.compaction.lag.ms=1000\n")
    states["server.properties"] = state(*read)
    properties.write_text("")
    size = (metadata / f"{0:020d}.log").stat().st_size
    assert size
    with (metadata / f"{0:020d}.log").open("ab") as file:
        file.write(metadata_batch(3, config_record(4, "", "log.cleaner.max.compaction.lag.ms", "1000")))
    states["cluster default"] = state(*read)
    assert states == {
        "not looked": "unknown",
        "looked": "delegated",
        "server.properties": "undelegated",
        "cluster default": "undelegated",
    }


def test_without_metadata_only_the_operators_confirmation_helps(root: Path, shell: Shell) -> None:
    """U-8: settings of the same names prove nothing; ``cleanerd.delegation=assumed`` is reported as unproven."""
    path = make(root)
    settings = [word for key, text in DELEGATED.items() for word in set_topic(key, text)]
    refused = shell("clean", path, "--yes", "--force", "--json", "--now-ms", NOW, *settings, *TIMESTAMP)
    assert refused.code == 4
    assert "cleanerd.delegation=assumed" in only_partition(refused)["reason"]
    cleaned = shell("clean", path, "--yes", "--force", "--json", "--now-ms", NOW, *COMPACT, *TIMESTAMP, *ASSUMED)
    assert (cleaned.code, only_partition(cleaned)["outcome"]) == (0, "cleaned")


def test_the_operators_confirmation_does_not_override_the_cluster(root: Path, shell: Shell) -> None:
    path = make(root)
    write_metadata(path, topics={"orders": {"cleanup.policy": "compact"}})
    assert shell("clean", path, "--yes", "--force", "--now-ms", NOW, *TIMESTAMP, *ASSUMED).code == 4


def test_a_cleaning_staged_before_the_topic_was_undelegated_is_discarded(root: Path, shell: Shell) -> None:
    """U-8: an operator may hand the topic back between stage and apply; then the broker's cleaner has it again."""
    path = make(root)
    metadata = write_metadata(path, topics={"orders": DELEGATED})
    staged = shell("stage", path, "--force", "--json", *TIMESTAMP, *QUIET)
    assert only_partition(staged)["outcome"] == "staged"
    with (metadata / f"{0:020d}.log").open("ab") as file:
        file.write(metadata_batch(4, config_record(2, "orders", "min.cleanable.dirty.ratio", "0.5")))
    before = keys(path / "orders-0")
    answer = shell("apply", path, "--json", *TIMESTAMP, *QUIET)
    assert answer.code == 0, "the broker starts with the unchanged log"
    assert "needs delegation (Kafka's cleaner must skip the topic)" in only_partition(answer)["reason"]
    assert keys(path / "orders-0") == before


def test_saved_values_decide_when_a_delegated_topic_is_cleaned(root: Path, shell: Shell) -> None:
    """U-9: those of this cluster; a ratio that the log does not reach, then one that it does."""
    path = make(root, cleaner_offset=2)
    write_metadata(path, topics={"orders": DELEGATED})
    (root / "state").mkdir()

    def save(ratio: str, cluster: str = "5L6g3nShT-eMCtK--X86sw") -> None:
        change = {"before": None, "effective": ratio, "after": "1"}
        entry = {"cluster_id": cluster, "topic": "orders", "topic_id": "", "delegated_ms": 1}
        document = {"format": 1, "delegations": [{**entry, "changes": {"min.cleanable.dirty.ratio": change}}]}
        (root / "state" / "delegations.json").write_text(json.dumps(document))

    def explain() -> dict[str, Any]:
        found: dict[str, Any] = shell("explain", "orders-0", path, "--json", *QUIET, *OFFSET).json
        return found

    save("0.95")
    reported = explain()
    assert reported["rule"] == "min.cleanable.dirty.ratio"
    ratio = reported["settings"]["min.cleanable.dirty.ratio"]
    assert ratio == {"value": 0.95, "origin": "saved by cleanerd delegate"}
    save("0.1")
    assert explain()["cleaned_now"]
    save("0.1", cluster="another")
    assert explain()["settings"]["min.cleanable.dirty.ratio"]["value"] == 1
    (root / "state" / "delegations.json").write_text("{")
    answer = shell("explain", "orders-0", path, "--json", *QUIET)
    assert "delegations.json: damaged" in answer.err


def test_the_table_has_a_strategy_column_only_if_they_differ(root: Path, shell: Shell) -> None:
    path = make_log_dir(root / "logs", {"orders-0": dirty(), "good-0": dirty()})
    write_metadata(path, topics={"orders": DELEGATED, "good": {"cleanup.policy": "compact"}})
    assert "strategy" not in shell("plan", path, *OFFSET).out
    lines = shell("plan", path, *HEADER, *set_topic("tombstone.mode", "flag")).out.splitlines()
    assert lines[2].split()[:2] == ["partition", "strategy"]
    assert [re.split("  +", line)[1] for line in lines[3:5]] == ["offset", "header:v, flag tombstones"]


def test_json_has_the_rules_and_the_formats(root: Path, shell: Shell) -> None:
    """R192-4, U-6."""
    path = make(root)
    write_metadata(path, topics={"orders": {**DELEGATED, "max.message.bytes": "2000000"}})
    row = only_partition(shell("plan", path, "--json", *HEADER, *set_topic("tombstone.guard", "forever")))
    assert {key: row[key] for key in ("strategy", "strategy_header", "tombstone_mode", "fingerprint", "warnings")} == {
        "strategy": "header",
        "strategy_header": "v",
        "tombstone_mode": "null",
        "fingerprint": "strategy=header;header=v;encoding=long;tombstone.mode=null",
        "warnings": [],
    }
    assert (row["lowest_magic"], row["highest_magic"], row["max_message_bytes"]) == (2, 2, 2_000_000)


def test_warnings_are_reported_once_per_topic(root: Path, shell: Shell) -> None:
    """R280-13, R280-7: by plan, explain, clean and stage; two partitions are one topic."""
    path = make_log_dir(root / "logs", {"orders-0": dirty(), "orders-1": dirty()})
    write_metadata(path, topics={"orders": {**DELEGATED, "delete.retention.ms": "1000"}})
    for command in ("plan", "clean", "stage"):
        yes = ["--yes"] if command == "clean" else []
        reported = shell(command, path, *yes, "--quiet", "--force", "--now-ms", NOW, *TIMESTAMP).err
        assert reported.count("delete.retention.ms of orders is 1.0 s") == 1, command
    assert "brings its key back" in shell("explain", "orders-0", path, *TIMESTAMP).err
    fallen = shell("plan", path, "--json", *set_topic("compaction.strategy", "header"))
    assert "is blank: cleaned by offset;" in fallen.err
    assert fallen.json["partitions"][0]["strategy"] == "offset"


def test_explain_shows_that_the_settings_changed(root: Path, shell: Shell) -> None:
    """U-6, R280-11: the clean section stays as it is."""
    path = make(root)
    write_metadata(path, topics={"orders": DELEGATED})
    assert shell("clean", path, "--yes", "--force", "--now-ms", NOW, *QUIET, *TIMESTAMP).code == 0
    report = shell("explain", "orders-0", path, "--json", *QUIET, *HEADER).json
    assert report["cleaned_by_fingerprint"] == "strategy=timestamp;tombstone.mode=null"
    assert report["fingerprint"] == "strategy=header;header=v;encoding=long;tombstone.mode=null"
    (note,) = report["notes"]
    assert "strategy timestamp -> header, header none -> v, encoding none -> long" in note
    assert "Keys without new records stay as they are" in note
    assert shell("explain", "orders-0", path, "--json", *QUIET, *TIMESTAMP).json["notes"] == []


def test_exact_counts_unexpected_headers(root: Path, shell: Shell) -> None:
    """R280-6: absent, malformed, right; the active segment is not read."""
    sealed = versioned(0, "a", 1) + versioned(1, "b", None) + versioned(2, "c", b"short") + versioned(3, "a", 0)
    path = make_log_dir(root / "logs", {"orders-0": Partition({0: sealed, 4: versioned(4, "z", None)})})
    write_metadata(path, topics={"orders": DELEGATED})
    exact = only_partition(shell("plan", path, "--exact", "--json", "--now-ms", NOW, *HEADER))["exact"]
    assert {key: exact[key] for key in ("dirty_records", "without_version", "malformed_versions", "kept")} == {
        "dirty_records": 4,
        "without_version": 2,
        "malformed_versions": 1,
        "kept": 3,
    }
    reported = shell("clean", path, "--yes", "--force", "--json", "--now-ms", NOW, *HEADER)
    note = "orders-0: 2 dirty records have no version in header 'v', 1 of them with a malformed one (at offsets 2)"
    assert note in reported.err
    assert (only_partition(reported)["without_version"], only_partition(reported)["malformed_versions"]) == (2, 1)


def test_exact_counts_timestamps_of_the_far_future(root: Path, shell: Shell) -> None:
    """More than an hour ahead of --now-ms: such a record is the retained one of its key until then."""
    hour = 3_600_000
    sealed = b"".join(versioned(at, "k", None, timestamp=NOW + ahead) for at, ahead in enumerate((0, hour, hour + 1)))
    path = make_log_dir(root / "logs", {"orders-0": Partition({0: sealed, 3: b""})})
    write_metadata(path, topics={"orders": DELEGATED})
    assert (
        only_partition(shell("plan", path, "--exact", "--json", "--now-ms", NOW, *TIMESTAMP))["exact"][
            "far_future_timestamps"
        ]
        == 1
    )
    reported = shell("clean", path, "--yes", "--force", "--json", "--now-ms", NOW, *TIMESTAMP)
    assert only_partition(reported)["far_future_timestamps"] == 1
    assert any("more than an hour in the future" in note for note in only_partition(reported)["notes"])


def winners(records: list[tuple[str, int, int | None]], strategy: str) -> dict[str, int]:
    """Offsets of the retained records by a dict; records are (key, timestamp, version) in offset order (R280-3..6)."""
    found: dict[str, tuple[tuple[bool, int], int]] = {}
    for offset, (key, timestamp, version) in enumerate(records):
        rank = {
            "offset": (True, offset),
            "timestamp": (True, timestamp),
            "header": (version is not None, version or 0),
        }[strategy]
        if key not in found or rank >= found[key][0]:
            found[key] = (rank, offset)
    return {key: offset for key, (_, offset) in found.items()}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("switch", ["offset", "timestamp", "header"])
@pytest.mark.parametrize("current", ["offset", "timestamp", "header"])
def test_a_switch_is_counted_exactly(root: Path, shell: Shell, current: str, switch: str, seed: int) -> None:
    """``plan --strategy``: the keys whose retained record differs, compared with a dict; from the log start."""
    chance = random.Random(seed)
    records = [
        (f"k{chance.randrange(40)}", NOW - chance.randrange(50), chance.choice([None, *range(-3, 4)]))
        for _ in range(300)
    ]
    batches = [versioned(at, key, v, timestamp=when) for at, (key, when, v) in enumerate(records)]
    segments = {at: b"".join(batches[at : at + 100]) for at in (0, 100, 200)}
    start = chance.choice([0, 37])
    partition = Partition({**segments, 300: versioned(300, "z", 1)}, cleaner_offset=150, log_start_offset=start)
    path = make_log_dir(root / "logs", {"orders-0": partition})
    write_metadata(path, topics={"orders": DELEGATED})
    rules = {"offset": (), "timestamp": TIMESTAMP, "header": HEADER}[current]
    wanted = f"{switch}:v" if switch == "header" else switch
    before = tree(path, without=())
    row = only_partition(shell("plan", path, "--json", "--strategy", wanted, "--now-ms", NOW, *rules))
    assert tree(path, without=()) == before
    # Records below the log start are ignored (U-2); a list of holes keeps the offsets.
    visible = [record if at >= start else ("", 0, None) for at, record in enumerate(records)]
    now, then = winners(visible, current), winners(visible, switch)
    differing = {key for key in now if key and now[key] != then[key]}
    assert row["switch"]["keys"] == len(set(now) - {""})
    assert row["switch"]["other_winner"] == len(differing)
    assert row["switch"]["to"] == wanted
    if switch == "header":
        assert row["switch"]["without_version"] == sum(v is None for _, _, v in records[start:])
    if current != switch:
        assert differing, "otherwise the case proves nothing"


def test_a_switch_is_shown_and_needs_no_delegation(root: Path, shell: Shell) -> None:
    """Counting is allowed before anything is switched on, which is its purpose."""
    sealed = versioned(0, "a", 2) + versioned(1, "a", 1) + versioned(2, "b", 1)
    path = make_log_dir(root / "logs", {"orders-0": Partition({0: sealed, 3: b""})})
    reported = shell("plan", path, "--strategy", "header:v", *COMPACT).out.splitlines()
    titles = ("partition", "strategy", "would be", "keys", "other winner", "share", "no version")
    assert all(title in reported[-2] for title in titles)
    assert reported[-1].split() == ["orders-0", "offset", "header:v", "2", "1", "50.00", "%", "0"]


@pytest.mark.parametrize("text", ["newest", "header", "header:", "header: ", "offset:v", ""])
def test_a_strategy_that_is_none(root: Path, shell: Shell, text: str) -> None:
    answer = shell("plan", make(root), "--strategy", text, *COMPACT)
    assert answer.code == 2
    assert "is not offset, timestamp or header:NAME" in answer.err
