"""Brokers on the JVMs in common use: swaps work on each, or a clear message says why not."""

from __future__ import annotations

import shutil
import stat
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cleanerd_lab.demo.broker import Broker, BrokerError
from tests.agent.live import PROPERTIES, Live
from tests.brokers.node import error_lines, wait_until
from tests.cli.clean_log_dirs import Shell
from tests.kafka.judge import fetch_jars
from tests.live.load import WRITINGS, Load, create_topics
from tests.live.rounds import with_agent
from tests.support.jvms import fetch_jvm, has_module, image

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.kafka, pytest.mark.broker, pytest.mark.long]


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    return Shell(tmp_path, capsys, monkeypatch)


@contextmanager
def broker_on(java: Path, profile: str, *jvm_args: str) -> Iterator[Broker]:
    """A broker of that release on that JVM, not started yet."""
    jars = fetch_jars(profile)
    work_dir = Path(tempfile.mkdtemp(prefix=f"jvm-{profile}-"))
    broker = Broker(jars.libs, work_dir, version=jars.version, properties=PROPERTIES, jvm_args=jvm_args, java=java)
    try:
        yield broker
    finally:
        broker.kill()
        shutil.rmtree(work_dir)


G1, Z = "-XX:+UseG1GC", "-XX:+UseZGC"


@pytest.mark.parametrize(
    ("java", "release", "options"),
    [
        ("11", "3.3", (G1,)),
        ("11", "3.6", with_agent()),
        ("11", "3.9", (G1, *with_agent())),
        ("17", "3.3", (G1,)),
        ("17", "3.6", (Z, *with_agent())),
        ("21", "3.9", (G1,)),
        ("21", "4.4", (Z, "-XX:+ZGenerational", *with_agent())),
        ("25", "4.4", (G1,)),
        ("25", "4.4", (Z, *with_agent())),
    ],
)
def test_swaps_on(shell: Shell, java: str, release: str, options: tuple[str, ...]) -> None:
    """R-2, R-10, A-33: the self-test passes and topics are cleaned, with the agent attached or in the start options."""
    with broker_on(fetch_jvm(java), release, *options) as broker:
        broker.start()
        named = options[-1].startswith("-javaagent")
        if not named:
            answer = shell("agent", "attach", "--pid", broker.pid, "--json")
            assert answer.code == 0, answer.err
            assert (answer.json["capable"], answer.json["version"]) == (True, broker.version)
        clean_under_load(shell, broker)
        topic = Live(broker).topic("orders")
        with Live(broker).asking() as agent:
            info = agent.ask("info")
            assert (info["self_test"], info["loaded"]) == ("passed", "premain" if named else "agentmain")
            assert info["transport"] == ("loopback" if java == "11" else "unix")
            assert len(agent.ask("swap", **topic.request(topic.stage(output_bytes=12_000)))["done"]) > 1
        assert topic.read() == topic.latest
        assert error_lines(broker.log_text()) == []
        has_peer_check = java == "11" or has_module(
            fetch_jvm(java), "jdk.net"
        )  # Java 11 has no check of the peer's identity
        assert broker.log_text().count("has no module jdk.net") == (0 if has_peer_check else 1)


def test_an_image_without_jdk_net(shell: Shell, tmp_path: Path) -> None:
    """A-29: the peer's identity is unavailable, so only the socket file's mode protects it.

    The agent used to refuse every client.
    """
    java = image(tmp_path / "image", "java.instrument")
    assert not has_module(java, "jdk.net")
    with broker_on(java, "4.4", *with_agent()) as broker:
        broker.start()
        clean_under_load(shell, broker)
        assert broker.log_text().count("has no module jdk.net") == 1
        assert "was not accepted" not in broker.log_text()
        socket = broker.log_dirs[0] / ".cleanerd-agent.sock"
        assert stat.S_IMODE(socket.lstat().st_mode) == 0o600


def clean_under_load(shell: Shell, broker: Broker) -> None:
    """``clean --live`` of a topic during writes and reads."""
    create_topics(broker, [WRITINGS[2].topic])
    load = Load(broker, WRITINGS[2:3])
    with load:
        wait_until("there is something to clean", lambda: load.ledger.count > 1000)
        answer = shell("clean", "--live", "--yes", "--force", "--json", "--quiet", *broker.log_dirs)
    assert answer.code == 0, answer.err
    assert answer.json["partitions"][0]["outcome"] == "cleaned"
    load.check()


def test_an_image_without_instrument(shell: Shell, tmp_path: Path) -> None:
    """With ``-javaagent`` the JVM itself does not start.

    ``attach`` names the missing module and the broker keeps on.
    """
    java = image(tmp_path / "image")
    assert not has_module(java, "java.instrument")
    with broker_on(java, "4.4", *with_agent()) as broker, pytest.raises(BrokerError, match=r"java\.instrument"):
        broker.start()
    with broker_on(java, "4.4") as broker:
        broker.start()
        answer = shell("agent", "attach", "--pid", broker.pid)
        assert answer.code != 0
        assert "java.instrument" in answer.err
        assert broker.running
