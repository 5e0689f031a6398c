"""Brokers of the releases that the other tests do not start: the agent's self-test passes, and it swaps there."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from cleanerd_lab.demo.broker import Broker
from tests.agent.building import changed_build
from tests.agent.live import JAR, PROPERTIES, Live, attach, is_another_build
from tests.agent.raw_client import RefusedError
from tests.brokers.node import error_lines, wait_until
from tests.kafka.judge import fetch_jars
from tests.live.metrics import JVM_ARG, Jmx
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.kafka, pytest.mark.broker, pytest.mark.long]

GAUGES: Final = Path(__file__).parent / "java" / "Gauges.java"


@pytest.fixture(params=[*(pytest.param(each, marks=pytest.mark.long) for each in ("3.3", "3.4", "3.6", "3.8")), "4.4"])
def release(request: pytest.FixtureRequest) -> Iterator[Live]:
    """A broker with the agent."""
    yield from broker_of(request.param)


def broker_of(profile: str, *jvm_args: str, called: str | None = None) -> Iterator[Live]:
    """A broker with the agent, and with its own directory for temporary files.

    ``called``: its release name. Kafka reads it from a file, and the first on the class path counts.
    """
    jars = fetch_jars(profile)
    work_dir = Path(tempfile.mkdtemp(prefix=f"agent-{profile}-"))
    arguments = [f"-javaagent:{JAR}", f"-Djava.io.tmpdir={temporary(work_dir)}", JVM_ARG, *jvm_args]
    if called is not None:
        (work_dir / "called" / "kafka").mkdir(parents=True)
        (work_dir / "called" / "kafka" / "kafka-version.properties").write_text(f"version={called}\ncommitId=0\n")
        arguments.append(f"-Xbootclasspath/a:{work_dir / 'called'}")
    temporary(work_dir).mkdir()
    broker = Broker(jars.libs, work_dir, version=jars.version, properties=PROPERTIES, jvm_args=arguments)
    try:
        broker.start()
        yield Live(broker)
    finally:
        broker.kill()
        shutil.rmtree(work_dir)


def temporary(work_dir: Path) -> Path:
    """The broker's directory for temporary files."""
    return work_dir / "tmp"


def topics_with_gauges(live: Live) -> set[str]:
    """The topics that the broker's metrics know."""
    command = ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", str(GAUGES), str(Jmx(live.broker).port)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    return set(done.stdout.split())


def test_a_plan_is_swapped_in(release: Live) -> None:
    """R-2, R-10, A-11, A-20, U-27: a known release with all its members; every group is swapped, no member is missing.

    4.4 has the class with its version in another package than 4.3: ``version`` was null there. The agent's self-test
    leaves no file, gauge or error line. A known release stays usable if there is no place for the self-test.
    """
    broker = release.broker
    assert f"Kafka version: {broker.version}" in broker.log_text()
    with release.asking() as agent:
        info = agent.ask("info")
        assert (info["version"], info["version_known"]) == (broker.version, True)
        assert (info["capable"], info["missing"], info["why_incapable"]) == (True, [], "")
        assert (info["self_test"], info["errors"], info["swaps"]) == ("passed", [], 0)
        assert list(temporary(broker.work_dir).glob("cleanerd-*")) == []
        topic = release.topic("orders")
        manifest = topic.stage(output_bytes=12_000)
        assert len(manifest.groups) > 1
        point = manifest.groups[-1].end
        result = agent.ask("swap", **topic.request(manifest, checkpoint=point))
        assert result["done"] == [group.base for group in manifest.groups]
        assert (result["warnings"], result["checkpoint"]) == ([], True)
        log = agent.ask("log", topic="orders", partition=0)
        held = {segment[0]: segment[3] for segment in log["segments"]}
        assert {output["base"]: output["ino"] for output in result["outputs"]}.items() <= held.items()
        request = {"topic": "orders", "partition": 0, "topic_id": log["topic_id"], "dir": log["dir"]}
        assert agent.ask("roll", **request, base=log["segments"][-1][0]) == {"base": log["leo"]}
    gauges = topics_with_gauges(release)
    assert "orders" in gauges
    assert "cleanerd-self-test" not in gauges
    assert topic.cleaner_checkpoint == point
    assert topic.read() == topic.latest
    text = broker.log_text()
    assert error_lines(text) == []

    broker.kill()
    shutil.rmtree(temporary(broker.work_dir))
    broker.start()
    assert topic.read() == topic.latest
    assert topic.cleaner_checkpoint == point
    with release.asking() as agent:
        info = agent.ask("info")
    assert (info["capable"], info["self_test"]) == (True, "not_run")
    assert str(temporary(broker.work_dir)) in info["self_test_detail"]


def test_the_state_of_kafkas_own_cleaner(release: Live) -> None:
    """OP-13: its threads, its last scan for work, and the partitions that it marked uncleanable after an error."""
    with release.asking() as agent:
        found = agent.ask("info")["kafka_cleaner"]
        assert 0 <= found.pop("since_last_run_ms") < 60_000 * PATIENCE_SECONDS
        assert found == {"dead_threads": 0, "uncleanable": 0, "uncleanable_names": []}
        topic = release.topic("orders", transactions=False, **{"min.cleanable.dirty.ratio": "1"})
        first = min(topic.directory.glob("*.log"))
        with first.open("r+b") as file:
            file.seek(8)
            file.write(b"\0\0\0\1")  # the size of its first batch
        entries = [ConfigEntry("min.cleanable.dirty.ratio", "0", incremental_operation=AlterConfigOpType.SET)]
        resource = ConfigResource(ResourceType.TOPIC, "orders", incremental_configs=entries)
        admin = AdminClient({"bootstrap.servers": release.broker.bootstrap})
        admin.incremental_alter_configs([resource])[resource].result(PATIENCE_SECONDS)
        wait_until(
            "the cleaner has set it aside",
            lambda: agent.ask("info")["kafka_cleaner"]["uncleanable_names"] == ["orders-0"],
        )
        assert agent.ask("info")["kafka_cleaner"]["uncleanable"] == 1


@pytest.fixture
def unknown_release() -> Iterator[Live]:
    """A release that seems unknown, by its name."""
    yield from broker_of("4.4", called="4.9.0-acme")


def requested(live: Live) -> dict[str, Any]:
    """The agent's ``info``."""
    with live.asking() as agent:
        return agent.ask("info")


def is_capable(live: Live) -> bool:
    """Whether the answering agent can swap; an agent that is being replaced may close the connection first."""
    try:
        return bool(requested(live)["capable"])
    except OSError:
        return False


def test_an_unknown_release(unknown_release: Live, tmp_path: Path) -> None:
    """R-2, R-10: it is used only if the operator allows it, and only if the self-test showed that a swap works.

    Without that setting no code of Kafka is called. The self-test finds a build with a wrong call of Kafka's swap. And
    an agent without abilities is replaced by itself with other options.
    """
    assert "Kafka version: 4.9.0-acme" in unknown_release.broker.log_text()
    info = requested(unknown_release)
    assert (info["version"], info["base_version"], info["version_known"]) == ("4.9.0-acme", "4.9", False)
    assert (info["capable"], info["missing"], info["self_test"]) == (False, [], "not_run")
    assert "allow-unknown-version=true" in info["why_incapable"]
    assert "partition=cleanerd-self-test-0" not in unknown_release.broker.log_text()

    # The broker gets only the first source: the others stay in the log.
    fault = ("sources.stream().map(source", "sources.stream().limit(1).map(source")
    wrong = changed_build(tmp_path, "wrong", "BrokerLog.java", fault)
    attach(unknown_release, wrong, "allow-unknown-version=true")
    wait_until("the build with a fault", lambda: is_another_build(unknown_release, info["build"]))
    found = requested(unknown_release)
    assert (found["capable"], found["self_test"]) == (False, "failed")
    assert "the log's segments are not" in found["why_incapable"]
    with unknown_release.asking() as agent, pytest.raises(RefusedError) as refused:
        agent.ask("logs")
    assert refused.value.code == "incapable"
    assert "the log's segments are not" in str(refused.value.answer)

    shutil.rmtree(temporary(unknown_release.broker.work_dir))
    attach(unknown_release, JAR, "allow-unknown-version=true")
    wait_until("the build of the product", lambda: is_another_build(unknown_release, found["build"]))
    found = requested(unknown_release)
    assert (found["capable"], found["self_test"], found["version_known"]) == (False, "not_run", False)
    assert "could not run" in found["why_incapable"]

    temporary(unknown_release.broker.work_dir).mkdir()
    attach(unknown_release, JAR, "allow-unknown-version=true")
    wait_until("a trial that passes", lambda: is_capable(unknown_release))
    assert requested(unknown_release)["self_test"] == "passed"
    topic = unknown_release.topic("orders", transactions=False)
    with unknown_release.asking() as agent:
        assert agent.ask("swap", **topic.request(topic.stage(output_bytes=60_000)))["done"] == [0]
    assert topic.read() == topic.latest
