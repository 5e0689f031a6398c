"""``cleanerd doctor``: the source of the topics' configuration, and the settings of their last cleaning."""

from __future__ import annotations

import json
import os
import time
import uuid
from typing import TYPE_CHECKING

import pytest

from cleanerd.segments.log_dir import read_log_dir
from cleanerd.state.zk_topics import CachedTopic, CachedTopics, TopicCache
from tests.cli.clean_log_dirs import dirty, make, write_metadata
from tests.cli.findings import findings
from tests.cli.strategy_topics import HEADER, clean_forced, log_dir_by_version, remember_delegation
from tests.support.log_dirs import CLUSTER_ID, Partition, make_log_dir

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.clean_log_dirs import Answer, Shell


def problems(answer: Answer) -> list[str]:
    """Findings about the topics' settings, without the surprises."""
    return [what for level, what in findings(answer, "strategy") if level == "problem"]


def test_forgotten_settings(root: Path, shell: Shell) -> None:
    """U-6: a refusal of ``clean`` is a problem here, once per topic, with the same reason and exit code."""
    path = log_dir_by_version(root)
    assert clean_forced(shell, path, *HEADER).code == 0
    refused = clean_forced(shell, path)
    answer = shell("doctor", path, "--json")
    assert (refused.code, answer.code) == (4, 4)
    (what,) = problems(answer)
    assert what in refused.err
    assert "was last cleaned by header:v" in what
    assert not problems(shell("doctor", path, "--json", *HEADER))


@pytest.mark.parametrize("kind", ["damaged", "set aside", "newer"])
def test_delegations_that_cannot_be_read(root: Path, shell: Shell, kind: str) -> None:
    """U-6: such a file may contain the topic's delegation, so the topic is not cleaned by Kafka's strategy."""
    path = log_dir_by_version(root)
    remember_delegation(root)
    file = root / "state" / "delegations.json"
    assert not findings(shell("doctor", path, "--json", *HEADER), "delegations")
    if kind == "newer":
        file.write_text(json.dumps({"format": 99}))
    elif kind == "damaged":
        file.write_text("{")
    else:
        file.rename(file.with_suffix(".damaged"))
    answer = shell("doctor", path, "--json", *HEADER)
    ((level, what),) = findings(answer, "delegations")
    assert (level, answer.code) == ("warning", 0)
    assert {"damaged": "damaged", "set aside": "set aside", "newer": "newer cleanerd"}[kind] in what
    answer = shell("doctor", path, "--json")
    assert answer.code == 4
    assert "is unknown" in problems(answer)[0]


def test_a_broker_in_zookeeper_mode(root: Path, shell: Shell) -> None:
    """U-40: it has no metadata log; the broker's answer is used, or the error why there is none."""
    path = make(root)
    (path / "meta.properties").write_text(f"version=0\nbroker.id=1\ncluster.id={CLUSTER_ID}\n")
    answer = shell("doctor", path, "--json")
    assert not findings(answer, "KRaft metadata")
    ((level, what),) = findings(answer, "topics")
    assert (level, "never queried" in what) == ("warning", True)
    reported_by_plan = shell("plan", path).err
    assert ("never queried" in reported_by_plan, "__cluster_metadata-0" in reported_by_plan) == (True, False)
    now_ms = time.time_ns() // 1_000_000
    reported = {"orders": CachedTopic("", {"cleanup.policy": "compact"}, now_ms)}
    TopicCache(root / "state").save(CachedTopics(CLUSTER_ID, 1, read_log_dir(path).place.name, now_ms, reported))
    answer = shell("doctor", path, "--json")
    assert findings(answer, "topics") == [("ok", "ZooKeeper mode: the broker reported 1 topic when it was last asked")]
    assert findings(answer, "compacted partitions") == [("ok", "1 of 1")]
    (root / "state" / "topics.json").write_text("{")
    assert "damaged" in findings(shell("doctor", path, "--json"), "topics")[0][1]


def test_a_metadata_log_of_another_cluster(root: Path, shell: Shell) -> None:
    """It has other topics of the same name, and other settings of brokers: nothing is cleaned with them."""
    path = make_log_dir(root / "logs", {"orders-0": dirty(topic_id=None)})
    other = make_log_dir(root / "other", {"x-0": Partition({0: b""}, topic_id=uuid.UUID(int=5))})
    write_metadata(other, topics={"orders": {"cleanup.policy": "compact"}})
    named = ("--set", f"cleanerd.metadata.log.dir={other}")
    meta = other / "meta.properties"
    text = meta.read_text().replace("node.id=1", "node.id=7")
    meta.write_text(text.replace(CLUSTER_ID, "another"))
    before = [segment.stat().st_size for segment in sorted((path / "orders-0").glob("*.log"))]
    answer = shell("clean", path, "--yes", "--force", *named)
    assert answer.code == 3, answer.out
    assert f"belongs to cluster another, {path} to {CLUSTER_ID}" in answer.err
    assert findings(shell("doctor", path, "--json", *named), "configuration")[0][0] == "problem"
    assert [segment.stat().st_size for segment in sorted((path / "orders-0").glob("*.log"))] == before
    meta.write_text(text)
    assert shell("clean", path, "--yes", "--force", *named).code == 0, "a controller of the same cluster"


OFFSETS = "__consumer_offsets"
LET_IT_CLEAN = ("--set", f"cleanerd.topics.include=*,{OFFSETS}", "--set", "cleanerd.mode=auto")


def of_offsets(shell: Shell, path: Path, *options: str) -> tuple[str, str, str]:
    """Level, text and fix of doctor's finding about the internal topic."""
    answer = shell("doctor", path, "--json", "--set", f"topics.{OFFSETS}.cleanup.policy=compact", *options)
    (found,) = [each for each in answer.json["findings"] if each["check"] == "internal topics"]
    return found["level"], found["what"], found["fix"]


def test_offsets_that_are_never_compacted(root: Path, shell: Shell) -> None:
    """I-22: no cleaner has cleaned two GiB: doctor names the settings; with them, it names the cleaner of the topic."""
    path = make_log_dir(root / "logs", {f"{OFFSETS}-0": dirty(), f"{OFFSETS}-1": dirty()})
    assert of_offsets(shell, path)[0] == "ok"
    os.truncate(path / f"{OFFSETS}-1" / "00000000000000000002.log", 2 * 2**30)
    level, what, fix = of_offsets(shell, path)
    assert level == "warning"
    assert f"2.0 GiB of {OFFSETS} are not compacted yet, 2.0 GiB of them in {OFFSETS}-1" in what
    assert f'"cleanerd.topics.include" = "*,{OFFSETS}" and "cleanerd.mode" = "auto"' in fix
    assert '"cleanerd.mode" = "auto"' in of_offsets(shell, path, *LET_IT_CLEAN[:2])[2]
    level, what, _ = of_offsets(shell, path, *LET_IT_CLEAN)
    assert (level, "the daemon cleans it" in what) == ("note", True)


def test_a_large_clean_topic_of_offsets(root: Path, shell: Shell) -> None:
    """I-22: if Kafka's cleaner has cleaned all of it, it may be as large as necessary."""
    path = make_log_dir(root / "logs", {f"{OFFSETS}-0": dirty(cleaner_offset=4)})
    os.truncate(path / f"{OFFSETS}-0" / "00000000000000000002.log", 2 * 2**30)
    assert of_offsets(shell, path)[0] == "ok"
