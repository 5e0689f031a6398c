"""``cleanerd agent attach`` on real brokers, and the life of a broker that got its agent that way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cleanerd.broker.agent_jar import build_of_jar
from tests.brokers.node import wait_until
from tests.cli.clean_log_dirs import Shell
from tests.live.load import WRITINGS, Load, create_topics

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.fixtures import StartBroker

pytestmark = [pytest.mark.kafka, pytest.mark.broker, pytest.mark.long]


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    return Shell(tmp_path, capsys, monkeypatch)


@pytest.mark.parametrize("release", ["43", pytest.param("39", marks=pytest.mark.long)])
def test_attach_clean_restart(request: pytest.FixtureRequest, shell: Shell, release: str) -> None:
    """I-2, LT-1: the agent loads without a restart, also twice, and is gone after a restart; every command notices."""
    start: StartBroker = request.getfixturevalue(f"broker_{release}")
    broker = start(log_dirs=2)
    create_topics(broker, [WRITINGS[0].topic])
    clean = ("clean", "--live", "--yes", "--force", "--json", "--quiet", *broker.log_dirs)
    assert shell(*clean).code == 4
    load = Load(broker, WRITINGS[:1])
    with load:
        answers = [shell("agent", "attach", "--pid", broker.pid, "--json") for _ in range(2)]
        assert [answer.code for answer in answers] == [0, 0], answers[0].err
        assert all(answer.json["build"] == build_of_jar() for answer in answers)
        assert answers[0].json["capable"] is True
        assert answers[0].json["pid"] == broker.pid
        assert answers[0].json["version"] == broker.version
        info = shell("agent", "info", "--pid", broker.pid, "--json").json
        assert info["loaded"] == "agentmain"
        wait_until("there is something to clean", lambda: load.ledger.count > 1000)
        answer = shell(*clean)
        assert answer.code == 0, answer.err
        assert answer.json["partitions"][0]["outcome"] == "cleaned"
    load.check()
    assert "SIGQUIT" not in broker.log_text()
    assert "Full thread dump" not in broker.log_text(), "A-05"
    assert not list(broker.work_dir.glob(".attach_pid*"))
    broker.stop()
    broker.start()
    answer = shell(*clean)
    assert answer.code == 4
    assert "without cleanerd's agent" in answer.err
    assert "cleanerd agent attach" in answer.err
    # then attach in the other way, which later commands keep
    arguments = ("agent", "attach", *broker.log_dirs, "--json", "--transport")
    assert shell(*arguments, "loopback").json["transport"] == "loopback"
    assert shell(*arguments, "loopback").code == 0
    refused = shell(*arguments, "unix")
    assert refused.code == 4
    assert "has an agent that is reached by TCP on 127.0.0.1, each side with a proof already" in refused.err
    assert shell(*clean).code == 0


@pytest.mark.parametrize(
    ("flag", "code", "reason"),
    [
        pytest.param("-XX:+DisableAttachMechanism", 4, "does not open its socket", marks=pytest.mark.long),
        ("-XX:-EnableDynamicAgentLoading", 1, "did not load the agent"),
    ],
)
def test_a_jvm_that_refuses(broker_43: StartBroker, shell: Shell, flag: str, code: int, reason: str) -> None:
    """``attach`` reports it, and the broker keeps running."""
    broker = broker_43(jvm_args=(flag,))
    answer = shell("agent", "attach", "--pid", broker.pid)
    assert answer.code == code, answer.err
    assert reason in answer.err
    assert "-javaagent" in answer.err
    assert broker.running
    assert not list(broker.work_dir.glob(".attach_pid*"))
