"""Responses of a broker's agent and their effects: refusals, silence, invalid and false answers."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest

from cleanerd.broker.live_log import RESTART
from cleanerd.errors import MachineError, RefusedError, StalePlanError
from tests.cleaner.driver import NAME, scratch
from tests.support.fake_agent import do_and_forget, do_and_hang_up, hang_up, refuse, say, wait
from tests.support.log_dirs import tree
from tests.swap.live_round import QUICK, clean_beside, cleaned_offline, content, leftovers, running
from tests.swap.offline_round import state_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

    from tests.support.fake_agent import FakeAgent


@pytest.fixture
def root() -> Iterator[Path]:
    with scratch() as path:
        yield path / "logs"


@pytest.mark.parametrize("code", ["busy", "not_ready", "no_log", "io_error", "internal"])
def test_a_passing_refusal_is_sent_again(root: Path, code: str) -> None:
    """The same request is sent again; the refusal changed nothing."""
    expected = cleaned_offline(root)
    with running(root) as agent:
        agent.fail("swap", refuse(code), refuse(code))
        result = clean_beside(agent)
        assert result.outcome == "cleaned"
        assert content(root) == expected
        one, two, three, *_ = agent.requested("swap")
        assert {**one, "id": 0} == {**two, "id": 0} == {**three, "id": 0}


def test_a_busy_cleaner_gets_the_checkpoint_again(root: Path) -> None:
    """A-20: the broker's cleaner briefly holds every log at times, and a checkpoint is sent only once."""
    with running(root) as agent:
        agent.fail("checkpoint", refuse("busy"), refuse("busy"))
        result = clean_beside(agent)
        assert (result.outcome, result.notes) == ("cleaned", ())
        assert agent.checkpoints == {NAME: 8}


def test_the_log_changes_before_the_checkpoint_is_sent(root: Path) -> None:
    """S-50: the log was truncated and extended while the cleaner was busy: the checkpoint no longer applies."""

    def cut(agent: FakeAgent, request: dict[str, Any]) -> bytes | None:
        os.utime(root / NAME / f"{5:020d}.log", ns=(1, 1))
        return refuse("busy")(agent, request)

    with running(root) as agent:
        agent.fail("checkpoint", cut)
        result = clean_beside(agent)
        assert result.outcome == "cleaned"
        assert any("evidence_changed" in note for note in result.notes), result.notes
        assert agent.checkpoints == {}


def test_the_first_error_is_reported_not_that_of_the_repeat(root: Path) -> None:
    """U-38, A-25: the disk fails after some staged files moved; the retry misses them, which is not the cause.

    Found by failing broker calls: cleanerd reported a changed log, with exit code 0 and another file.
    """
    with running(root) as agent:
        agent.fail("swap", *(refuse("io_error"), refuse("no_staged_file")) * 4)
        result = clean_beside(agent)
        assert (result.outcome, result.error and result.error.exit_code) == ("failed", 4)
        assert "io_error" in result.reason
        assert len(agent.requested("swap")) == 8
        assert clean_beside(agent).outcome == "cleaned"


def test_the_broker_takes_its_log_directory_offline(root: Path) -> None:
    """U-38: its disk fails between two groups, and the broker takes it offline.

    That is not transient, and not a fault of the log. Found by failing broker calls: one of two groups was swapped, and
    the exit code was 0.
    """

    def fail(agent: FakeAgent, request: dict[str, Any]) -> bytes | None:
        agent.info["log_dirs"] = [str(root.parent / "another")]
        return refuse("no_log")(agent, request)

    with running(root) as agent:
        agent.fail("swap", lambda _agent, _request: None, *[fail] * 100)
        result = clean_beside(agent)
        assert (result.outcome, type(result.error)) == ("failed", MachineError)
        assert "given up the log directory of" in result.reason
        assert not (root.parent / "state").exists(), "nothing to quarantine"
        del agent.faults["swap"], agent.info["log_dirs"]
        assert clean_beside(agent).outcome == "cleaned"


@pytest.mark.parametrize("is_in", [True, False])
def test_the_broker_takes_it_offline_for_a_swap(root: Path, is_in: bool) -> None:
    """A-24, U-38: the swap, or an earlier one, stopped half-way; cleanerd reports it at once and requests nothing more.

    The swapped group made cleanerd go on with the next one, and report a different failure.
    """

    def half_way(agent: FakeAgent, request: dict[str, Any]) -> bytes | None:
        if is_in:
            agent.do_swap(request)
        done = tuple(group["base"] for group in request["groups"]) if is_in else ()
        return refuse("log_dir_failed", done=done)(agent, request)

    with running(root) as agent:
        agent.fail("swap", half_way)
        result = clean_beside(agent)
        assert (result.outcome, type(result.error)) == ("failed", MachineError)
        assert "given up the log directory of" in result.reason
        assert "log_dir_failed" in result.reason
        assert (len(agent.requested("swap")), agent.checkpoints) == (1, {})
        assert not (root.parent / "state").exists(), "nothing to quarantine"
        assert clean_beside(agent).outcome == "cleaned"


def test_a_partition_that_is_missing_for_too_long(root: Path) -> None:
    """While the broker has its log directory this is an ordinary outcome: the topic may be being deleted."""
    with running(root) as agent:
        agent.fail("swap", *[refuse("no_log")] * 100)
        result = clean_beside(agent)
        assert result.outcome == "skipped"
        assert "no_log" in result.reason


def test_a_swap_that_stopped_half_way(root: Path) -> None:
    """U-34: the group is swapped, and a file keeps its temporary name: no other swap is requested; both are reported.

    Found by failing broker calls: cleanerd went on, met the ``.swap`` file, and reported with exit code 0 that the
    broker was running. Every later cleaning did the same.
    """

    def half_way(agent: FakeAgent, request: dict[str, Any]) -> None:
        agent.do_swap(request)["warnings"].append("some files keep temporary names: No space left on device")
        name = root / NAME / f"{request['groups'][0]['base']:020d}.timeindex"
        name.rename(f"{name}.swap")

    with running(root) as agent:
        agent.fail("swap", half_way)
        before = sum(path.stat().st_size for path in (root / NAME).glob("*.log"))
        result = clean_beside(agent)
        saved = before - sum(path.stat().st_size for path in (root / NAME).glob("*.log"))
        assert (result.groups, result.bytes_before - result.bytes_after) == (1, saved), "OP-12"
        assert saved > 0
        assert isinstance(result.error, RefusedError)
        assert result.error.hint == RESTART
        assert "No space left on device; 1 group was swapped before that" in result.reason
        assert len(agent.requested("swap")) == 1
        for seconds in (0.0, 50.0, -1e6):  # the clock was set back
            clock = partial(sum, (time.time(), seconds))
            assert isinstance(clean_beside(agent, patience=replace(QUICK, wall_seconds=clock)).error, StalePlanError)
        later = clean_beside(agent, patience=replace(QUICK, wall_seconds=lambda: time.time() + 61.0))
        assert isinstance(later.error, RefusedError)
        assert later.error.hint == RESTART
        assert "a swap was not completed" in later.reason
        assert len(agent.requested("swap")) == 1


def test_busy_after_a_swap_that_is_not_complete_gives_the_cause(root: Path) -> None:
    """A-24: the agent keeps the partition paused and refuses the next group; the message says why it is paused."""

    def incomplete(agent: FakeAgent, request: dict[str, Any]) -> None:
        agent.do_swap(request)["warnings"].append(
            "group 0 is swapped, but the swap reported an error: Input/output error"
        )

    with running(root) as agent:
        agent.fail("swap", incomplete, *[refuse("busy")] * 100)
        result = clean_beside(agent)
        assert result.outcome == "skipped"
        assert "busy" in result.reason
        assert "1 group was swapped before that" in result.reason
        assert "reported an error: Input/output error" in result.reason


def test_a_partition_that_left_its_log_directory_is_not_quarantined(root: Path) -> None:
    """Moved to another directory, or deleted; not a fault of the partition, so no quarantine."""

    def move(agent: FakeAgent, request: dict[str, Any]) -> bytes | None:
        (root / NAME).rename(root / f"{NAME}.0123-delete")
        return refuse("log_changed")(agent, request)

    with running(root) as agent:
        agent.fail("swap", move)
        result = clean_beside(agent)
        assert result.outcome == "refused"
        assert "it left this log directory" in result.reason
        assert not (root.parent / "state").exists()


def test_busy_for_too_long_is_an_ordinary_outcome(root: Path) -> None:
    """Skipped with the reason; the log is unchanged; exit code 4."""
    with running(root) as agent:
        before = tree(root / NAME)
        agent.fail("swap", *[refuse("busy")] * 100)
        result = clean_beside(agent)
        assert result.outcome == "skipped"
        assert "busy" in result.reason
        assert result.error is not None
        assert result.error.exit_code == 4
        assert tree(root / NAME) == before
        assert not (root.parent / "state").exists(), "nothing to quarantine"


@pytest.mark.parametrize("code", ["source_changed", "evidence_changed", "log_changed", "not_below_bound", "log_start"])
def test_a_changed_log_is_planned_again(root: Path, code: str) -> None:
    """A new plan from the present log; groups swapped by the first plan stay."""
    expected = cleaned_offline(root)
    with running(root) as agent:
        agent.fail("swap", lambda _agent, _request: None, refuse(code))
        result = clean_beside(agent)
        assert result.outcome == "cleaned"
        assert content(root) == expected
        plans = [request["plan"] for request in agent.requested("swap")]
        assert plans[0] == plans[1] != plans[2]
        assert not leftovers(root)


@pytest.mark.parametrize("code", ["bad_log", "foreign_batch", "last_batch", "bad_path", "no_staged_file"])
def test_a_plan_that_the_agent_calls_damaged_is_quarantined(root: Path, code: str) -> None:
    """The staged files are wrong, and a retry would make the same ones."""
    with running(root) as agent:
        before = tree(root / NAME)
        agent.fail("swap", refuse(code))
        result = clean_beside(agent)
        assert result.outcome == "quarantined"
        assert tree(root / NAME) == before
        assert code in json.loads(state_file(root).read_text())["quarantine"]
        assert len(agent.requested("swap")) == 1


@pytest.mark.parametrize("code", ["incapable", "stopped", "unsupported"])
def test_an_agent_that_cannot_swap_is_left_alone(root: Path, code: str) -> None:
    with running(root) as agent:
        agent.fail("swap", refuse(code))
        result = clean_beside(agent)
        assert (result.outcome, len(agent.requested("swap"))) == ("skipped", 1)


def test_finished_groups_of_a_refused_request_count(root: Path) -> None:
    """Finished groups of a request that stopped half-way stay swapped."""
    expected = cleaned_offline(root)

    def done_and_refused(agent: FakeAgent, request: dict[str, Any]) -> bytes | None:
        agent.do_swap(request)
        return refuse("internal", done=(0,))(agent, request)

    with running(root) as agent:
        agent.fail("swap", done_and_refused)
        assert clean_beside(agent).outcome == "cleaned"
        assert content(root) == expected


@pytest.mark.slow
@pytest.mark.parametrize("fault", [hang_up, do_and_hang_up, do_and_forget, wait(1.3)], ids=lambda fault: fault.__name__)
def test_a_lost_response(root: Path, fault: Any) -> None:
    """A-25: the request is repeated, or the log is checked; in any case the group is swapped exactly once."""
    expected = cleaned_offline(root)
    with running(root) as agent:
        agent.fail("swap", fault)
        result = clean_beside(agent, patience=replace(QUICK, answer_seconds=1.0, swap_seconds=1.0))
        assert (result.outcome, result.reason) == ("cleaned", "")
        assert content(root) == expected
        assert agent.checkpoints == {NAME: 8}
        assert len({request["plan"] for request in agent.requested("swap")}) == 1
        assert not leftovers(root)


def test_staged_files_lost_with_the_broker(root: Path) -> None:
    """A-25, A-17: the broker was killed while it moved them in.

    Its next start deleted them, so a new plan stages them again.
    """
    expected = cleaned_offline(root)

    def take_and_die(agent: FakeAgent, request: dict[str, Any]) -> bytes | None:
        for name in request["groups"][0]["files"].values():
            (agent.log_dir / NAME / ".kstage" / request["plan"] / name).unlink()
        agent.forget()
        return hang_up(agent, request)

    with running(root) as agent:
        agent.fail("swap", take_and_die)
        assert clean_beside(agent).outcome == "cleaned"
        assert content(root) == expected
        assert len({request["plan"] for request in agent.requested("swap")}) == 2


def test_a_broker_that_stays_away(root: Path) -> None:
    """Skipped; no staged files are left."""
    with running(root) as agent:
        before = tree(root / NAME)

        def die(agent: FakeAgent, request: dict[str, Any]) -> bytes | None:
            agent.stop()
            return hang_up(agent, request)

        agent.fail("swap", die)
        result = clean_beside(agent)
        assert result.outcome == "skipped"
        assert "no agent answers here" in result.reason
        assert tree(root / NAME) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "data",
    [
        b"\n",
        b"not json\n",
        b"[1]\n",
        b'{"id": 1}\n',
        b'{"id":null,"ok":false,"code":"bad_request","error":"x","done":[]}\n',
        b'{"id":1,"ok":true,"result":7}\n',
        b'{"id":99,"ok":true,"result":{"done":[0]}}\n',
        b'{"id":true,"ok":true,"result":{"done":[0]}}\n',
        b'{"id":1,"ok":false,"code":7,"error":"x","done":[]}\n',
        b'{"id":1,"ok":false,"code":"busy","error":"x","done":"0"}\n',
        b"\xff\xfe\n",
        b"[" * 100_000 + b"\n",
    ],
)
@pytest.mark.parametrize("operation", ["log", "swap"])
def test_an_invalid_response(root: Path, operation: str, data: bytes) -> None:
    """No invalid response counts as success, and the cleaning continues with a new connection."""
    expected = cleaned_offline(root)
    with running(root) as agent:
        agent.fail(operation, say(data))
        assert clean_beside(agent).outcome == "cleaned"
        assert content(root) == expected


def test_only_invalid_responses(root: Path) -> None:
    """Every response is invalid: skipped within the time limit; the log is unchanged."""
    with running(root) as agent:
        before = tree(root / NAME)
        agent.fail("swap", *[say(b'{"id":1,"ok":true,"result":{"done":[0],"outputs":[{"base":"x"}]}}\n')] * 50)
        result = clean_beside(agent)
        assert result.outcome == "skipped"
        assert tree(root / NAME) == before


def test_a_false_response(root: Path) -> None:
    """The agent reports a swap that did not happen: cleanerd checks the log and does not continue."""
    with running(root) as agent:
        before = tree(root / NAME)

        def lie(_agent: FakeAgent, request: dict[str, Any]) -> bytes | None:
            output = {"base": 0, "size": 1, "ino": 1, "mtime_ms": 1}
            return json.dumps({
                "id": request["id"], "ok": True, "result": {"done": [0], "outputs": [output]}
            }).encode() + b"\n"  # fmt: skip

        agent.fail("swap", *[lie] * 10)
        result = clean_beside(agent)
        assert result.outcome == "skipped"
        assert "has another segment" in result.reason
        assert tree(root / NAME) == before
