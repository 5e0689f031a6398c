"""Preconditions sent once per connection, and the events that make the agent check them again (U-3, U-36)."""

from __future__ import annotations

import hashlib
import shutil
import struct
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd_lab.demo.broker import Broker
from tests.agent.building import changed_build, changed_source
from tests.agent.live import PROPERTIES, Live
from tests.agent.raw_client import RefusedError
from tests.brokers.node import wait_until
from tests.kafka.judge import fetch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cleanerd.cleaner.manifest import Manifest
    from tests.agent.live import Topic
    from tests.agent.raw_client import Asking

pytestmark = [pytest.mark.kafka, pytest.mark.broker]

CUT = """
        java.nio.file.Path cut = java.nio.file.Path.of(System.getProperty("cleanerd.test.cut"));
        if (java.nio.file.Files.exists(cut)) { // as a follower's log is, whose leader has another history
            long offset = Long.parseLong(java.nio.file.Files.readString(cut).strip());
            java.nio.file.Files.delete(cut);
            try {
                Reflect.call(Reflect.method(log.log.getClass(), "truncateTo", long.class), log.log, offset);
            } catch (NoSuchMethodException e) {
                throw new IllegalStateException(e);
            }
            throw new Refusal("busy", "cut");
        }
"""
HALF = """
                    java.nio.file.Path half = java.nio.file.Path.of(System.getProperty("cleanerd.test.half"));
                    if (java.nio.file.Files.exists(half)) { // as when the last of the broker's renames goes wrong
                        java.nio.file.Files.delete(half);
                        java.nio.file.Files.createFile(
                                log.dir().resolve(Group.brokerName(group.base(), "timeindex") + ".swap"));
                        throw new IOException("half-way");
                    }
"""
REPLACED = "        attempt.replace(sources);\n"
FIRST_LINE = "        Preconditions.check(log, request);\n        evidence.renew();\n"


@pytest.fixture(scope="module", params=["4.3", pytest.param("3.9", marks=pytest.mark.long)])
def cutting(request: pytest.FixtureRequest) -> Iterator[tuple[Live, Path]]:
    """A broker whose agent truncates a log to the offset in a file at the next swap request.

    If there is a file ``half`` beside that one, the next swap stops half-way. A listing is valid for hours.
    """
    jars = fetch(request.param)
    work_dir = Path(tempfile.mkdtemp(prefix=f"evidence-{request.param}-"))
    cut = work_dir / "cut"
    changed_source(work_dir, "cutting", "Evidence.java", ("LISTING_TIMES = 20;", "LISTING_TIMES = 1_000_000_000;"))
    changes = ((FIRST_LINE, CUT + FIRST_LINE), (REPLACED, REPLACED + HALF))
    jar = changed_build(work_dir, "cutting", "Swap.java", *changes)
    cut_and_half = [f"-Dcleanerd.test.cut={cut}", f"-Dcleanerd.test.half={cut.with_name('half')}"]
    arguments = [*cut_and_half, f"-javaagent:{jar}"]
    broker = Broker(jars.libs, work_dir / "broker", version=jars.version, properties=PROPERTIES, jvm_args=arguments)
    try:
        broker.start()
        yield Live(broker), cut
    finally:
        broker.kill()
        shutil.rmtree(work_dir)


def requests_of(topic: Topic, manifest: Manifest) -> list[dict[str, Any]]:
    """One request per group; only the first contains the preconditions."""
    requests = [topic.request(manifest, (group,)) for group in manifest.groups]
    return [requests[0], *({k: v for k, v in each.items() if k != "witnesses"} for each in requests[1:])]


@pytest.mark.long
def test_preconditions_are_sent_once(cutting: tuple[Live, Path]) -> None:
    """U-3: the connection's next groups are swapped without; another connection or plan has to send them."""
    live, _ = cutting
    topic = live.topic("named-once", transactions=False)
    manifest = topic.stage(output_bytes=4_000)
    assert len(manifest.groups) > 2
    first, second, *rest = requests_of(topic, manifest)
    with live.asking() as asking:
        assert code(asking, second) == "no_evidence"
        assert asking.ask("swap", **first)["witnesses_kept"] is True
        with live.asking() as other:
            assert code(other, second) == "no_evidence"
        assert code(asking, {**second, "plan": "20260101t000000-00000000"}) == "no_evidence"
        assert code(asking, second) == "no_evidence", "after any refusal they have to be sent again"
        witnesses = preconditions_of(asking, topic, manifest)
        assert asking.ask("swap", **second, witnesses=witnesses)["done"] == [manifest.groups[1].base]
        for request in rest:
            assert asking.ask("swap", **request)["done"] == [request["groups"][0]["base"]]
    assert topic.read() == topic.latest


def code(asking: Asking, request: dict[str, Any]) -> str:
    with pytest.raises(RefusedError) as refused:
        asking.ask("swap", **request)
    return refused.value.code


def test_truncated_and_extended_again(cutting: tuple[Live, Path]) -> None:
    """U-3: the last segment of the preconditions is truncated, written and closed again between two requests of a plan.

    The broker has the same object at the same place; only the next segment is a different one.
    """
    live, cut = cutting
    topic = live.topic("cut", transactions=False)
    manifest = topic.stage(output_bytes=4_000)
    first, second, *_ = requests_of(topic, manifest)
    last = manifest.witnesses[-1]
    assert last.base not in manifest.groups[1].sources, "U-26: only the preconditions notice it"
    with live.asking() as asking:
        assert asking.ask("swap", **first)["done"] == [manifest.groups[0].base]
        cut.write_text(str(last.base + 2))
        with live.asking() as other:
            assert code(other, {**second, "witnesses": first["witnesses"]}) == "busy", "U-26: it was cut"
        assert asking.ask("log", topic=topic.name, partition=0)["leo"] == last.base + 2
        topic.fill(transactions=False)
        wait_until(
            "the segment is closed again",
            lambda: asking.ask("log", topic=topic.name, partition=0)["recovery_point"] > last.base + 20,
        )
        rows = {row[0]: row for row in asking.ask("log", topic=topic.name, partition=0)["segments"][:-1]}
        assert rows[last.base][3] == last.inode, "U-26: the same file"
        assert code(asking, second) in {"evidence_changed", "source_changed"}


def test_a_swap_that_stopped_half_way(cutting: tuple[Live, Path]) -> None:
    """U-34: after that, a listing valid for hours is void: the next group is refused until the swap is completed.

    Until then the broker's cleaner stays paused.
    """
    live, cut = cutting
    topic = live.topic("half", transactions=False)
    manifest = topic.stage(output_bytes=4_000)
    assert len(manifest.groups) > 2
    first, second, third, *_ = requests_of(topic, manifest)
    both = {**second, "groups": [*second["groups"], *third["groups"]]}
    with live.asking() as asking:
        assert not asking.ask("swap", **first).get("warnings"), "U-26: so there is a listing"
        cut.with_name("half").touch()
        with pytest.raises(RefusedError) as refused:
            asking.ask("swap", **both)
        assert refused.value.code == "busy"
        assert refused.value.answer["done"] == [manifest.groups[1].base]
        assert "was left by a swap that failed" in str(refused.value)
        assert asking.ask("log", topic=topic.name, partition=0)["cleaning"] == "paused"
        assert asking.ask("info")["failed_resumes"] == [f"{topic.name}-0"]
        (left,) = topic.directory.glob("*.swap")
        left.unlink()
        wait_until("the cleaner is resumed", lambda: asking.ask("info")["failed_resumes"] == [])
        again = {**third, "witnesses": preconditions_of(asking, topic, manifest)}
        assert asking.ask("swap", **again)["done"] == [manifest.groups[2].base]
    assert topic.read() == topic.latest


def preconditions_of(asking: Asking, topic: Topic, manifest: Manifest) -> list[dict[str, Any]]:
    """All segments that the decision depends on, as the broker has them now."""
    reported = asking.ask("log", topic=topic.name, partition=0)["segments"][:-1]
    names = ("base", "size", "mtime_ms", "ino")
    return [dict(zip(names, row, strict=True)) for row in reported if row[0] < manifest.bound]


def digest_of_aborted(topic: Topic, below: int) -> str:
    digest = hashlib.sha256()
    for index in sorted(topic.directory.glob("*.txnindex")):
        for _, *numbers, _ in struct.iter_unpack(">hqqqq", index.read_bytes()):
            if numbers[1] < below:
                digest.update(struct.pack(">qqq", *numbers))
    return digest.hexdigest()


def test_aborted_transactions(cutting: tuple[Live, Path]) -> None:
    """U-32: a plan made from other transaction indexes than the present ones is refused.

    Outputs have fewer entries, and transactions that began later do not matter.
    """
    live, _ = cutting
    topic = live.topic("aborted-ones")
    manifest = topic.stage(output_bytes=4_000)
    assert len(manifest.groups) > 1
    first, second, *_ = (topic.request(manifest, (group,)) for group in manifest.groups)
    aborted = {"below": manifest.bound, "sha256": digest_of_aborted(topic, manifest.bound)}
    assert aborted["sha256"] != hashlib.sha256().hexdigest(), "U-26"
    with live.asking() as asking:
        assert asking.ask("log", topic=topic.name, partition=0)["compares_aborted"] is True
        empty = {**aborted, "sha256": hashlib.sha256().hexdigest()}
        assert code(asking, {**first, "aborted": empty}) == "evidence_changed"
        assert code(asking, {**first, "aborted": {"below": 1}}) == "bad_request"
        without = {name: value for name, value in second.items() if name != "witnesses"}
        assert code(asking, {**without, "aborted": aborted}) == "bad_plan"
        outputs = asking.ask("swap", **first, aborted=aborted)["outputs"]
        kept = [each for each in second["witnesses"] if each["base"] not in manifest.groups[0].sources]
        second["witnesses"] = sorted([*kept, *outputs], key=lambda each: each["base"])
        after = {"below": manifest.bound, "sha256": digest_of_aborted(topic, manifest.bound)}
        assert asking.ask("swap", **second, aborted=after)["done"] == [manifest.groups[1].base]
    assert topic.read() == topic.latest
