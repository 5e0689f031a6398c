"""A round beside a running broker: what is asked of its agent, and what its answers lead to."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cleanerd.apply import agent_client, live_broker
from cleanerd.log.delegation import Delegation
from cleanerd.log.partition import read_partition
from tests.apply.live_scene import QUICK, clean_beside, content, leftovers, running
from tests.apply.offline_scene import NOW, TOPIC, batch, force, state_file, two_groups
from tests.cleaner.driver import NAME, clean, config, means, scratch
from tests.support.fake_agent import do_and_forget, do_and_hang_up, hang_up, refuse, say, wait
from tests.support.log_dirs import Partition, make_log_dir, read_segments, tree
from tests.support.logs import Record, encode_batch, encode_legacy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

    from tests.support.fake_agent import FakeAgent


@pytest.fixture
def root() -> Iterator[Path]:
    with scratch() as path:
        yield path / "logs"


def offline_twin(root: Path, partition: Partition | None = None) -> list[tuple[int, bytes | None, bytes | None]]:
    """What the offline way leaves of the same log."""
    twin = root.parent / "twin"
    make_log_dir(twin, {NAME: partition or two_groups()})
    assert clean(twin, force(), TOPIC, state=root.parent / "twin-state").outcome == "cleaned"
    return content(twin)


def test_a_round(root: Path) -> None:
    """U-16, A-20, U-10: group by group, ascending; the same log as offline; clean point and checkpoint at the end."""
    expected = offline_twin(root)
    with running(root) as agent:
        before = content(root)
        result = clean_beside(agent)
        assert (result.outcome, result.reason) == ("cleaned", "")
        assert content(root) == expected != before
        assert [request["groups"][0]["base"] for request in agent.asked("swap")] == [0, 5]
        assert all(len(request["groups"]) == 1 for request in agent.asked("swap"))
        assert agent.checkpoints == {NAME: 8}
        assert result.dropped.superseded == 3
        assert result.segments_rewritten == 2
        assert result.bytes_after == sum(segment.size_bytes for segment in _log(agent).segments[:-1])
        state = json.loads(state_file(root).read_text())
        assert state["clean_point"]["offset"] == 8
        assert state["clean_point"]["last_segment"]["inode"] == (root / NAME / f"{5:020d}.log").stat().st_ino
        assert not leftovers(root)
        assert clean_beside(agent, force()).reason.startswith("nothing to clean: dirty from offset 8")


def _log(agent: FakeAgent) -> Any:
    from cleanerd.log.log_dir import read_log_dir  # noqa: PLC0415

    found = read_log_dir(agent.log_dir)
    return read_partition(found, found.partitions[0])


def test_every_request_has_witnesses_of_everything(root: Path) -> None:
    """U-3: from log start to the bound, each as it is before this request; an output stands for its sources."""
    with running(root) as agent:
        first = {row[0]: row for row in agent.do_log({"topic": "orders", "partition": 0})["segments"]}
        clean_beside(agent)
        one, two = agent.asked("swap")
        for base in (0, 4, 5):
            assert [one["witnesses"][[0, 4, 5].index(base)][key] for key in ("base", "size", "mtime_ms", "ino")] == (
                first[base]
            )
        now = {row[0]: row for row in agent.do_log({"topic": "orders", "partition": 0})["segments"]}
        told = {witness["base"]: witness for witness in two["witnesses"]}
        assert [told[0][key] for key in ("base", "size", "mtime_ms", "ino")] == now[0] != first[0]
        assert told[5]["ino"] == first[5][3]
        assert one["topic_id"] is not None
        assert one["log_start"] is None, "Kafka's own cleaner does not mind under offset"


def test_the_log_start_is_compared_under_a_versioned_strategy(root: Path) -> None:
    """U-2."""
    topic = replace(config(segment_bytes=3000, compaction_strategy="timestamp"), delegation=Delegation("delegated"))
    with running(root) as agent:
        assert clean_beside(agent, topic=topic).outcome == "cleaned"
        assert {request["log_start"] for request in agent.asked("swap")} == {0}
        assert agent.checkpoints == {}, "U-10: Kafka's checkpoint is about Kafka's rules"


@pytest.mark.parametrize("code", ["busy", "not_ready", "no_log", "io_error", "internal"])
def test_what_passes_is_asked_again(root: Path, code: str) -> None:
    """The same request; nothing was changed by the refusal."""
    expected = offline_twin(root)
    with running(root) as agent:
        agent.fail("swap", refuse(code), refuse(code))
        result = clean_beside(agent)
        assert result.outcome == "cleaned"
        assert content(root) == expected
        one, two, three, *_ = agent.asked("swap")
        assert {**one, "id": 0} == {**two, "id": 0} == {**three, "id": 0}


def test_the_checkpoint_is_told_again(root: Path) -> None:
    """A-20: the broker's cleaner glances at every log now and then, and a clean point is told once only."""
    with running(root) as agent:
        agent.fail("checkpoint", refuse("busy"), refuse("busy"))
        result = clean_beside(agent)
        assert (result.outcome, result.notes) == ("cleaned", ())
        assert agent.checkpoints == {NAME: 8}


def test_it_left_its_log_directory(root: Path) -> None:
    """Section 8: moved to another directory, or deleted; nothing is wrong with it, so nothing is quarantined."""

    def move(agent: FakeAgent, request: dict[str, Any]) -> bytes | None:
        (root / NAME).rename(root / f"{NAME}.0123-delete")
        return refuse("log_changed")(agent, request)

    with running(root) as agent:
        agent.fail("swap", move)
        result = clean_beside(agent)
        assert result.outcome == "skipped"
        assert "it left this log directory" in result.reason
        assert not (root.parent / "state").exists()


def test_busy_for_too_long_is_an_ordinary_outcome(root: Path) -> None:
    """Skipped with the reason; the log is as it was; exit code 4."""
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
def test_what_changed_is_planned_again(root: Path, code: str) -> None:
    """Another plan, from the log as it is then; what was swapped by the first stays."""
    expected = offline_twin(root)
    with running(root) as agent:
        agent.fail("swap", lambda _agent, _request: None, refuse(code))
        result = clean_beside(agent)
        assert result.outcome == "cleaned"
        assert content(root) == expected
        plans = [request["plan"] for request in agent.asked("swap")]
        assert plans[0] == plans[1] != plans[2]
        assert not leftovers(root)


@pytest.mark.parametrize("code", ["bad_log", "foreign_batch", "last_batch", "bad_path", "no_staged_file"])
def test_what_the_agent_calls_damaged_is_quarantined(root: Path, code: str) -> None:
    """Then what was staged is wrong, and trying again would make the same."""
    with running(root) as agent:
        before = tree(root / NAME)
        agent.fail("swap", refuse(code))
        result = clean_beside(agent)
        assert result.outcome == "quarantined"
        assert tree(root / NAME) == before
        assert code in json.loads(state_file(root).read_text())["quarantine"]
        assert len(agent.asked("swap")) == 1


@pytest.mark.parametrize("code", ["incapable", "stopped", "unsupported"])
def test_an_agent_that_can_not_is_left_alone(root: Path, code: str) -> None:
    with running(root) as agent:
        agent.fail("swap", refuse(code))
        result = clean_beside(agent)
        assert (result.outcome, len(agent.asked("swap"))) == ("skipped", 1)


def test_a_refusal_that_says_done_counts(root: Path) -> None:
    """Section 4: finished groups of a request that stopped half-way stay swapped."""
    expected = offline_twin(root)

    def done_and_refused(agent: FakeAgent, request: dict[str, Any]) -> bytes | None:
        agent.do_swap(request)
        return refuse("internal", done=(0,))(agent, request)

    with running(root) as agent:
        agent.fail("swap", done_and_refused)
        assert clean_beside(agent).outcome == "cleaned"
        assert content(root) == expected


@pytest.mark.parametrize("fault", [hang_up, do_and_hang_up, do_and_forget, wait(1.3)], ids=lambda fault: fault.__name__)
def test_a_lost_answer(root: Path, fault: Any) -> None:
    """A-25: asked again, or looked up in the log; swapped exactly once in any case."""
    expected = offline_twin(root)
    with running(root) as agent:
        agent.fail("swap", fault)
        result = clean_beside(agent)
        assert (result.outcome, result.reason) == ("cleaned", "")
        assert content(root) == expected
        assert agent.checkpoints == {NAME: 8}
        assert len({request["plan"] for request in agent.asked("swap")}) == 1
        assert not leftovers(root)


def test_staged_files_lost_with_the_broker(root: Path) -> None:
    """A-25, A-17: killed while it took them in, its next start threw them away: staged again by another plan."""
    expected = offline_twin(root)

    def take_and_die(agent: FakeAgent, request: dict[str, Any]) -> bytes | None:
        for name in request["groups"][0]["files"].values():
            (agent.log_dir / NAME / ".kstage" / request["plan"] / name).unlink()
        agent.forget()
        return hang_up(agent, request)

    with running(root) as agent:
        agent.fail("swap", take_and_die)
        assert clean_beside(agent).outcome == "cleaned"
        assert content(root) == expected
        assert len({request["plan"] for request in agent.asked("swap")}) == 2


def test_a_broker_that_stays_away(root: Path) -> None:
    """Skipped; nothing staged is left behind."""
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
def test_nonsense(root: Path, operation: str, data: bytes) -> None:
    """Whatever comes back, nothing counts as done because of it, and the round goes on with a new connection."""
    expected = offline_twin(root)
    with running(root) as agent:
        agent.fail(operation, say(data))
        assert clean_beside(agent).outcome == "cleaned"
        assert content(root) == expected


def test_nonsense_without_end(root: Path) -> None:
    """Every answer is nonsense: skipped within the round's patience; the log is as it was."""
    with running(root) as agent:
        before = tree(root / NAME)
        agent.fail("swap", *[say(b'{"id":1,"ok":true,"result":{"done":[0],"outputs":[{"base":"x"}]}}\n')] * 50)
        result = clean_beside(agent)
        assert result.outcome == "skipped"
        assert tree(root / NAME) == before


def test_an_answer_that_lies(root: Path) -> None:
    """Swapped, it says, and nothing is: the log is asked, and the round does not go on from there."""
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
        assert "holds another segment" in result.reason
        assert tree(root / NAME) == before


@pytest.mark.parametrize("facts", [{"hw": 5, "lso": 5}, {"lso": 5}, {"recovery_point": 5}])
def test_the_brokers_offsets_count(root: Path, facts: dict[str, int]) -> None:
    """U-23, S-01: its high watermark, last stable offset and recovery point, not those of the checkpoint files."""
    with running(root) as agent:
        agent.facts = dict(facts)
        result = clean_beside(agent, force(from_start=True))
        assert result.end_offset == 5
        assert all(request["groups"][0]["end"] <= 5 for request in agent.asked("swap"))


def test_segments_that_the_broker_does_not_have(root: Path) -> None:
    """D-06: the directory and the broker disagree: looked at again, and then skipped."""
    with running(root) as agent:
        before = tree(root / NAME)
        rows = agent.do_log({"topic": "orders", "partition": 0})["segments"]
        agent.facts = {"segments": [[*rows[0][:3], rows[0][3] + 1], *rows[1:]]}
        result = clean_beside(agent)
        assert (result.outcome, len(agent.asked("log"))) == ("skipped", QUICK.tries)
        assert "segment 0 is not the one that the broker has" in result.reason
        assert tree(root / NAME) == before


def test_a_segment_rolled_meanwhile_is_not_looked_at(root: Path) -> None:
    """The active segment is the broker's: what begins after it was not there when the broker spoke."""
    with running(root) as agent:
        rows = agent.do_log({"topic": "orders", "partition": 0})["segments"]
        agent.facts = {"segments": rows[:3], "hw": 8, "lso": 8}
        result = clean_beside(agent)
        assert result.end_offset == 5
        assert [request["groups"][0]["base"] for request in agent.asked("swap")] == []


def test_replaced_a_moment_ago(root: Path) -> None:
    """D-04: while the old files of a base offset are still there it is not swapped again."""
    expected = offline_twin(root)
    with running(root) as agent:
        old = root / NAME / f"{5:020d}.log.deleted"
        old.write_bytes(b"")
        result = clean_beside(agent)
        assert (result.outcome, agent.asked("swap")) == ("skipped", [])
        assert "file.delete.delay.ms" in result.reason
        assert len(agent.asked("log")) == 1, "not decided again and again"
        threading.Timer(0.15, old.unlink).start()
        soon = config(segment_bytes=3000, file_delete_delay_ms=100)
        assert clean_beside(agent, topic=soon).outcome == "cleaned", "a moment can be waited for"
        assert content(root) == expected


@pytest.mark.parametrize(("producers", "stays"), [({}, False), ({"7": [1, 0]}, True), ({"7": [None, 0]}, False)])
def test_an_active_producers_last_batch(root: Path, producers: dict[str, Any], stays: bool) -> None:
    """R192-1: what the broker holds on to stays, even where we would take the producer for long gone."""
    record = Record(key=b"a", value=b"1", timestamp=NOW - 5000)
    mine = encode_batch([record, record], base_offset=0, producer_id=7, producer_epoch=0, base_sequence=0)
    partition = Partition({0: mine + batch(2, ("b", "1")), 3: batch(3, ("a", "2"), ("b", "2")), 5: b""})
    with running(root, partition) as agent:
        agent.facts = {"producers": producers}
        assert clean_beside(agent, with_means=means(expiration_ms=1)).outcome == "cleaned"
        headers = [stored.header for found in read_segments(root / NAME).values() for stored in found]
        assert (7 in {header.producer_id for header in headers}) is stays
        assert b"1" not in {value for _, _, value in content(root)}


@pytest.mark.parametrize(
    ("facts", "reason"),
    [({"future": True}, "moved"), ({"remote": True}, "remote storage"), ({"deleted": True}, "deleted")],
)
def test_partitions_on_their_way(root: Path, facts: dict[str, Any], reason: str) -> None:
    """A-13."""
    with running(root) as agent:
        agent.facts = facts
        result = clean_beside(agent)
        assert (result.outcome, len(agent.asked("swap"))) == ("skipped", 0)
        assert reason in result.reason


def test_plans_of_a_killed_cleanerd_go(root: Path) -> None:
    """Staged files without a process; a ready plan of `cleanerd stage` stays until something is swapped."""
    with running(root) as agent:
        staging = root / NAME / ".kstage"
        for plan, ready in (("20261121t001400-0123abcd", False), ("20261121t001401-0123abcd", True)):
            (staging / plan).mkdir(parents=True)
            (staging / plan / f"{0:020d}.log").write_bytes(b"half")
            if ready:
                (staging / plan / "ready.json").write_bytes(b"{}")
        agent.facts = {"lso": 0}
        assert clean_beside(agent).outcome == "skipped"
        assert [path.name for path in staging.iterdir()] == ["20261121t001401-0123abcd"]
        agent.facts = {}
        assert clean_beside(agent).outcome == "cleaned"
        assert not staging.exists()


def test_old_message_formats_are_refused(root: Path) -> None:
    """U-18: v2 only beside a running broker; offline it is cleaned."""
    old = b"".join(encode_legacy(offset, b"a", b"1") for offset in range(3))
    partition = Partition({0: old, 3: batch(3, ("a", "9")), 4: b""})
    offline_twin(root, partition)
    with running(root, partition) as agent:
        before = tree(root / NAME)
        result = clean_beside(agent)
        assert (result.outcome, agent.asked("swap")) == ("skipped", [])
        assert "v0 or v1" in result.reason
        assert tree(root / NAME) == before


def test_an_agent_that_hung_up_meanwhile(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deciding took so long that the connection is taken for dead: a new one, and no doubt about any answer."""
    monkeypatch.setattr(live_broker, "_IDLE_SECONDS", 0.0)
    with running(root) as agent:
        assert clean_beside(agent).outcome == "cleaned"
        assert len(agent.asked("swap")) == 2


def test_more_segments_than_a_request_can_name(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is sent, and nothing tried twice."""
    monkeypatch.setattr(agent_client, "MAX_REQUEST_BYTES", 700)
    with running(root) as agent:
        before = tree(root / NAME)
        result = clean_beside(agent)
        assert (result.outcome, agent.asked("swap"), len(agent.asked("log"))) == ("skipped", [], 1)
        assert "too many segments" in result.reason
        assert tree(root / NAME) == before


def test_a_full_disk_is_not_the_logs_fault(root: Path) -> None:
    """U-16: skipped with the reason, nothing quarantined, nothing left; a later round works."""
    with running(root) as agent:
        before = tree(root / NAME)
        result = clean_beside(agent, with_means=means(disk_reserve_bytes=1 << 60))
        assert result.outcome == "skipped"
        assert "not enough free space" in result.reason
        assert result.error is not None
        assert result.error.exit_code == 1
        assert tree(root / NAME) == before
        assert not (root.parent / "state").exists()
        assert clean_beside(agent).outcome == "cleaned"
