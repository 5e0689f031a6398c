"""``clean --live``, ``agent``, and the mode in ``plan`` and ``doctor``, with a fake agent."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.broker.agent_attach import Jvm
from cleanerd.broker.agent_client import MAX_ANSWER_BYTES
from cleanerd.broker.agent_jar import build_of_jar, jar_path
from cleanerd.broker.agent_transport import SOCKET
from cleanerd.cli import agent as agent_module
from tests.cleaner.driver import NAME
from tests.cli.clean_log_dirs import Shell, lock_holder
from tests.support.fake_agent import refuse, wait_for
from tests.support.log_dirs import Partition, make_log_dir, tree
from tests.support.patience import PATIENCE_SECONDS
from tests.swap.live_round import content, leftovers, running
from tests.swap.offline_round import NOW

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.fake_agent import FakeAgent


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    return Shell(tmp_path, capsys, monkeypatch)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[FakeAgent]:
    with running(tmp_path / "logs") as agent:
        agent.settings = {"min.cleanable.dirty.ratio": "0.0"}
        yield agent


def live(shell: Shell, *arguments: object) -> tuple[str, ...]:
    return ("clean", "--live", "--yes", "--json", "--quiet", "--now-ms", NOW, *arguments)  # type: ignore[return-value]


def test_clean(shell: Shell, agent: FakeAgent) -> None:
    """The JSON of ``clean``; the broker's own configuration; no question whether the topic is compacted."""
    answer = shell(*live(shell, agent.log_dir))
    assert (answer.code, answer.err) == (0, "") if build_of_jar() is None else answer.code == 0
    (entry,) = answer.json["partitions"]
    assert (entry["outcome"], entry["removed"]["superseded"], entry["groups"]) == ("cleaned", 3, 2)
    assert entry["seconds"].keys() == {"index", "decide", "rewrite", "swap", "held"}
    assert agent.checkpoints == {NAME: 8}
    assert not leftovers(agent.log_dir)


def test_the_ratio_is_the_brokers(shell: Shell, agent: FakeAgent) -> None:
    """U-23, C-09."""
    agent.settings = {"min.cleanable.dirty.ratio": "1.0"}
    answer = shell(*live(shell, agent.log_dir))
    (entry,) = answer.json["partitions"]
    assert (answer.code, entry["outcome"]) == (0, "skipped")
    assert "is not above min.cleanable.dirty.ratio 1" in entry["reason"]


@pytest.mark.long
def test_busy(shell: Shell, agent: FakeAgent) -> None:
    """4, the partition is busy; the log is unchanged."""
    before = tree(agent.log_dir / NAME)
    agent.fail("swap", *[refuse("busy")] * 100)
    answer = shell(*live(shell, agent.log_dir))
    (entry,) = answer.json["partitions"]
    assert (answer.code, entry["outcome"]) == (4, "skipped")
    assert "busy" in entry["reason"]
    assert tree(agent.log_dir / NAME) == before


def test_not_compacted_by_the_broker(shell: Shell, agent: FakeAgent) -> None:
    """A topic that the broker deletes is not cleaned, named or not: a usage error, as without --live."""
    agent.settings = {"cleanup.policy": "delete"}
    assert shell(*live(shell, agent.log_dir)).json == {"schema": 1, "partitions": [], "errors": []}
    answer = shell(*live(shell, agent.log_dir, "--partition", NAME))
    assert answer.code == 3
    assert "cleanup.policy is delete, not compact" in answer.json["partitions"][0]["reason"]


def test_an_option_that_needs_the_files(shell: Shell, agent: FakeAgent) -> None:
    assert shell(*live(shell, agent.log_dir, "--unclean")).code == 2


def test_replaced_segments_can_be_kept(shell: Shell, agent: FakeAgent) -> None:
    """S-40: ``undo --list`` shows it like any other cleaning; refused while the broker runs, or without a directory."""
    before = content(agent.log_dir)
    missing = shell(*live(shell, agent.log_dir, "--keep-replaced", shell.root / "nowhere"))
    assert (missing.code, content(agent.log_dir)) == (3, before)
    (shell.root / "kept").mkdir()
    assert shell(*live(shell, agent.log_dir, "--keep-replaced", shell.root / "kept")).code == 0
    assert content(agent.log_dir) != before
    (entry,) = shell("undo", agent.log_dir, "--list", "--json").json["cleanings"]
    assert (entry["topic"], entry["partition"]) == ("orders", 0)
    assert shell("undo", agent.log_dir, "--yes").code == 4
    assert content(agent.log_dir) != before


def test_without_an_agent(shell: Shell, tmp_path: Path) -> None:
    """Refused with the solution; a stopped broker's directory is for ``clean`` without ``--live``."""
    with running(tmp_path / "logs") as agent:
        agent.stop()
        answer = shell(*live(shell, agent.log_dir))
        assert answer.code == 4
        assert "cannot be cleaned live" in answer.err
        assert "cleanerd stage works without an agent" in answer.err
        agent.socket_path.unlink()
        assert "without cleanerd's agent" in shell(*live(shell, agent.log_dir)).err
    answer = shell(*live(shell, tmp_path / "logs"))
    assert answer.code == 4
    assert "clean it without --live" in answer.err


@pytest.mark.long
@pytest.mark.parametrize(
    ("info", "reason"),
    [
        ({"protocol": 2}, "protocol 2"),
        ({"ready": False, "capable": False}, "not finished its start"),
        ({"capable": False, "missing": ["UnifiedLog.replaceSegments"]}, "UnifiedLog.replaceSegments"),
        ({"accepting_swaps": False}, "takes no more swaps"),
        ({"log_dirs": ["/nowhere"], "node_id": 77}, "belongs to another broker"),
    ],
)
def test_modes(shell: Shell, agent: FakeAgent, info: dict[str, object], reason: str) -> None:
    """Live only with a suitable agent; ``plan`` and ``doctor`` show the mode and its reason."""
    report = shell("plan", agent.log_dir, "--json").json["log_dirs"]
    assert [(entry["mode"], entry["log_dir"]) for entry in report] == [("live", str(agent.log_dir))]
    found = [f for f in shell("doctor", agent.log_dir, "--json").json["findings"] if f["check"] == "mode"]
    assert [(f["level"], f["what"].split(":")[0]) for f in found] == [("ok", "live")]
    agent.info = info
    (entry,) = shell("plan", agent.log_dir, "--json").json["log_dirs"]
    assert entry["mode"] == "on-start"
    assert reason in entry["reason"]
    (finding,) = [f for f in shell("doctor", agent.log_dir, "--json").json["findings"] if f["check"] == "mode"]
    assert finding["level"] == "note"
    assert reason in finding["what"]
    assert "cleanerd stage" in finding["fix"]
    assert shell(*live(shell, agent.log_dir)).code == 4


def test_the_offline_mode(shell: Shell, tmp_path: Path) -> None:
    path = make_log_dir(tmp_path / "logs", {NAME: Partition({0: b""})})
    (entry,) = shell("plan", path, "--json").json["log_dirs"]
    assert (entry["mode"], entry["reason"]) == ("offline", "no broker runs on it")


def test_plan_uses_the_brokers_offsets_and_settings(shell: Shell, agent: FakeAgent) -> None:
    """As ``clean --live`` would see it: the broker's offsets and settings; nothing is written."""
    agent.facts = {"lso": 5}
    before = tree(agent.log_dir)
    (entry,) = shell("plan", agent.log_dir, "--json", "--exact").json["partitions"]
    assert (entry["action"], entry["end_offset"], entry["limited_by"]) == ("clean", 5, "an open transaction")
    assert entry["origins"]["min.cleanable.dirty.ratio"] == "the running broker"
    assert tree(agent.log_dir) == before


@pytest.mark.parametrize("operation", ["log", "logs"])
def test_an_answer_that_is_too_large(shell: Shell, agent: FakeAgent, operation: str) -> None:
    """A-42: the partition with too many segments is named, and the other one is cleaned; or the broker is named."""

    def large(_agent: FakeAgent, _request: dict[str, Any]) -> bytes:
        return b'{"id":1,"ok":true,"result":{"segments":[' + bytes(MAX_ANSWER_BYTES + 1)

    shutil.copytree(agent.log_dir / NAME, agent.log_dir / "orders-1")
    agent.facts = dict.fromkeys(("hw", "lso", "leo", "recovery_point"), 8)
    agent.fail(operation, large)
    answer = shell("clean", "--live", "--yes", "--json", "--now-ms", NOW, agent.log_dir)
    if operation == "logs":
        assert answer.code == 4
        assert f"{agent.socket_path}: the answer of the broker's agent to logs is larger than 64.0 MiB" in answer.err
        return
    refused, cleaned = answer.json["partitions"]
    assert (refused["outcome"], cleaned["outcome"]) == ("refused", "cleaned")
    assert "orders-0: the answer of the broker's agent to log is larger than 64.0 MiB" in refused["reason"]
    assert "too many segments" in refused["reason"]
    assert len([each for each in agent.requested("log") if each["partition"] == 0]) == 1, "queried again without need"


def test_a_stuck_pause_is_a_problem(shell: Shell, agent: FakeAgent) -> None:
    """A-22: the broker's own cleaner and retention stay off for these partitions until it restarts."""
    agent.info = {"failed_resumes": ["orders-0"], "errors": ["IOException: no"]}
    answer = shell("doctor", agent.log_dir, "--json")
    assert answer.code == 4
    levels = {f["level"] for f in answer.json["findings"] if f["check"] == "agent"}
    assert levels >= {"problem", "warning"}


@pytest.mark.parametrize("command", [("agent", "info"), ("doctor", "-v"), ("plan",), ("clean", "--live", "--yes")])
def test_a_broker_without_a_version(shell: Shell, agent: FakeAgent, command: tuple[str, ...]) -> None:
    """R-2: an answer without a version, like Kafka 4.4.0's, is no reason to stop."""
    agent.info = {"version": None}
    answer = shell(*command, agent.log_dir)
    assert "cannot be understood" not in answer.out + answer.err
    assert answer.code in {0, 1}
    if command[0] in {"agent", "doctor"}:
        assert "a Kafka that does not report its release" in answer.out


def test_the_self_test_is_reported(shell: Shell, agent: FakeAgent) -> None:
    """R-10: the agent's swap in a test log. Its absence is a warning, since the release is known."""
    reported = "files were as they should be"
    agent.info = {"self_test": "passed", "self_test_detail": reported}
    assert f"passed: {reported}" in shell("agent", "info", agent.log_dir).out
    findings = shell("doctor", agent.log_dir, "--json").json["findings"]
    assert [f["level"] for f in findings if reported in f["what"]] == ["ok"]
    agent.info = {"self_test": "not_run", "self_test_detail": "no place"}
    assert "could not be made: no place" in shell("agent", "info", agent.log_dir).out
    (found,) = [f for f in shell("doctor", agent.log_dir, "--json").json["findings"] if "no place" in f["what"]]
    assert found["level"] == "warning"
    assert "java.io.tmpdir" in found["fix"]
    agent.info = {"self_test": "failed", "capable": False, "why_incapable": "the trial went wrong: no index"}
    assert "no: the trial went wrong: no index" in shell("agent", "info", agent.log_dir).out
    assert "this agent makes none" not in shell("agent", "info", agent.log_dir).out
    agent.info = {}
    assert "this agent makes none" in shell("agent", "info", agent.log_dir).out


def test_info(shell: Shell, agent: FakeAgent) -> None:
    """By log directory or by setting; without an agent 4, without any directory to search 3."""
    answer = shell("agent", "info", agent.log_dir, "--json")
    assert (answer.code, answer.json["version"], answer.json["found_at"]) == (0, "4.3.1", str(agent.socket_path))
    assert "Kafka 4.3.1" in shell("agent", "info", agent.log_dir).out
    named = shell("agent", "info", "--json", "--set", f"cleanerd.agent.socket={agent.socket_path}")
    assert named.json["pid"] == 1
    assert shell("agent", "info").code == 3
    agent.info = {"capable": False, "missing": ["a", "b"]}
    answer = shell("agent", "info", agent.log_dir)
    assert answer.code == 4
    assert "no: Kafka 4.3.1 does not fit: a, b" in answer.out
    agent.info = {"capable": False, "version": None, "why_incapable": "it is too young"}
    answer = shell("agent", "info", agent.log_dir)
    assert answer.code == 4
    assert "a Kafka that does not report its release" in answer.out
    assert "no: it is too young" in answer.out

    agent.stop()
    assert shell("agent", "info", agent.log_dir).code == 4


def test_another_build_is_reported(shell: Shell, agent: FakeAgent) -> None:
    """LT-12, A-03: an old copy on the broker's class path has precedence silently; cleanerd reports it."""
    if build_of_jar() is None:
        pytest.fail("the jar is missing: make setup")
    answer = shell("agent", "info", agent.log_dir, "--json")
    assert answer.json["same_build"] is False
    assert f"is build {agent.do_info({})['build']}, but this cleanerd has {build_of_jar()}" in answer.err
    agent.info = {"build": build_of_jar()}
    answer = shell("agent", "info", agent.log_dir, "--json")
    assert (answer.json["same_build"], answer.err) == (True, "")


def test_path(shell: Shell) -> None:
    answer = shell("agent", "path")
    assert (answer.code, answer.out.strip()) == (0, str(jar_path()))
    assert shell("agent", "path", "--json").json["build"] == build_of_jar()


def test_the_broker_is_found_by_its_lock(shell: Shell, tmp_path: Path) -> None:
    """By the process that holds the log directory's lock; here that is not a JVM, so nothing is loaded."""
    idle = make_log_dir(tmp_path / "idle", {})
    answer = shell("agent", "attach", idle)
    assert (answer.code, "no broker runs there" in answer.err) == (4, True)
    assert shell("agent", "attach", tmp_path / "nowhere").code == 3
    first, second = (make_log_dir(tmp_path / name, {}) for name in ("first", "second"))
    with lock_holder(first) as pid, lock_holder(second) as other:
        answer = shell("agent", "attach", first)
        assert (answer.code, f"process {pid}: is not a HotSpot JVM" in answer.err) == (4, True)
        answer = shell("agent", "attach", first, second)
        assert answer.code == 3
        assert f"{second}: process {other}" in answer.err
    assert shell("agent", "attach").code == 2
    assert shell("agent", "attach", first, "--pid", 1).code == 2


def test_process_one_is_a_process(shell: Shell) -> None:
    """A broker's, in its container; here it is not a JVM, or another user's process."""
    assert shell("agent", "attach", "--pid", 1).code == 4
    assert shell("agent", "attach", "--pid", 0).code == 2
    relative = shell("agent", "attach", "--pid", 1, "--socket", "run/agent.sock")
    assert (relative.code, "give an absolute path" in relative.err) == (2, True), relative.err


def test_loaded_already(shell: Shell, agent: FakeAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent of this build that answers is left alone; one of another build is replaced."""
    if build_of_jar() is None:
        pytest.fail("the jar is missing: make setup")
    loaded: list[str] = []
    jvm = Jvm(os.getpid(), os.geteuid(), os.getegid(), os.getpid(), catches_quit=True)
    # No JVM runs here; tests/agent has some.
    monkeypatch.setattr(agent_module, "inspect_process", lambda _pid: jvm)
    monkeypatch.setattr(agent_module, "log_dirs_of", lambda _jvm: [agent.log_dir])

    def attach(_jvm: Jvm, jar: str, _options: str) -> None:
        loaded.append(jar)
        agent.info = {"build": build_of_jar()}

    monkeypatch.setattr(agent_module, "attach", attach)  # as above: there is no JVM
    answer = shell("agent", "attach", "--pid", 7)
    assert (answer.code, loaded) == (0, [str(jar_path())])
    answer = shell("agent", "attach", "--pid", 7)
    assert (answer.code, len(loaded)) == (0, 1)
    assert "already loaded" in answer.err
    assert "can swap" in answer.out
    shell("agent", "attach", "--pid", 7, "--allow-unknown-version")
    assert len(loaded) == 2, "options beyond that need the agent"


@pytest.mark.parametrize(("pid", "reason"), [(None, "is not a HotSpot JVM"), (2**22 + 1, "does not exist")])
def test_attach_is_for_brokers(shell: Shell, pid: int | None, reason: str) -> None:
    """A-05: SIGQUIT ends a process that is not a JVM; this test process (None) would be killed."""
    answer = shell("agent", "attach", "--pid", os.getpid() if pid is None else pid)
    assert answer.code == 4
    assert reason in answer.err


def test_a_socket_far_down(shell: Shell, tmp_path: Path) -> None:
    """U-31: in a log directory whose path is longer than a socket's address may be."""
    root = tmp_path / ("long-" * 20) / "logs"
    root.parent.mkdir()
    with running(tmp_path / "logs") as agent:
        place = agent.log_dir.rename(root)
        assert len(str(place / SOCKET)) > 110
        agent.log_dir = place
        assert shell("agent", "info", place, "--json").json["version"] == "4.3.1"
        assert shell(*live(shell, place)).code == 0


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_killed_between_stage_and_swap(tmp_path: Path, agent: FakeAgent, shell: Shell, number: int) -> None:
    """The swap is complete or did not happen; the next cleaning continues there and removes leftovers."""
    signalled = threading.Event()
    agent.fail("swap", wait_for(signalled))
    settings = [f"cleanerd.state.dir={tmp_path / 'state'}", "cleanerd.disk.reserve=0"]
    command = [sys.executable, "-m", "cleanerd", *map(str, live(shell, agent.log_dir))]
    process = subprocess.Popen(
        [*command, *(word for setting in settings for word in ("--set", setting))], stdout=subprocess.DEVNULL
    )
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not agent.requested("swap"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(number)
    if number == signal.SIGKILL:
        process.wait(PATIENCE_SECONDS)
    signalled.set()
    code = process.wait(PATIENCE_SECONDS)
    assert code == (-signal.SIGKILL if number == signal.SIGKILL else 128 + signal.SIGTERM)
    if number == signal.SIGTERM:
        assert not leftovers(agent.log_dir), "stopped in order: the swap under way is waited for"
    agent.wait_until_left()
    assert shell(*live(shell, agent.log_dir)).code == 0
    values = [value for _, _, value in content(agent.log_dir)]
    assert values == [b"1", b"x" * 3000, b"2", b"3"]
    assert not leftovers(agent.log_dir)
