"""Limiting the load on a broker: preconditions sent once, small groups, pauses (U-3, U-36, R-9).

And trusted sockets.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cleanerd.broker.agent_client import AgentClient, AgentLostError
from cleanerd.broker.agent_transport import SOCKET
from cleanerd.cleaner.cleaner import Cleaning
from cleanerd.cleaner.manifest import MANIFEST, READY, STAGING
from cleanerd.errors import AgentUnavailableError
from cleanerd.policy.grouping import MAX_SOURCES
from cleanerd.segments.log_dir import CLEANER_CHECKPOINT, cleaner_offset
from cleanerd.swap.agent_swap import sources_for
from cleanerd.swap.files import PartitionFiles
from cleanerd.swap.swapping_broker import SwappingBroker, SwapSources
from tests.cleaner.driver import NAME, config, scratch
from tests.support.fake_agent import Refusal, refuse
from tests.support.log_dirs import write_checkpoint
from tests.support.root import needs_root
from tests.swap.live_round import QUICK, clean_beside, cleaned_offline, content, running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

    from tests.support.fake_agent import FakeAgent

OTHER_USER = 65534


@pytest.fixture
def root() -> Iterator[Path]:
    with scratch() as path:
        yield path / "logs"


@pytest.mark.slow
def test_the_timeout_grows_with_the_sources(root: Path) -> None:
    """A-23.3: the agent reads the headers of all sources; forty of them may be a hundred times the staged bytes."""

    def late(_agent: FakeAgent, request: dict[str, Any]) -> bytes:
        time.sleep(1.5)
        return json.dumps({"id": request["id"], "ok": True, "result": {"done": [0]}}).encode() + b"\n"

    patience = replace(QUICK, swap_seconds=0.3)
    with running(root) as agent, SwappingBroker(agent.socket_path, patience) as broker:
        agent.fail("swap", late, late)
        sources = [{"base": base, "size": 1 << 30} for base in range(2)]
        assert broker.swap({"groups": [{"base": 0, "sources": sources}]}, 1000).done == [0]
        with pytest.raises(AgentLostError):
            broker.swap({"groups": [{"base": 0, "sources": [{"base": 0, "size": 1000}]}]}, 1000)


def test_preconditions_are_sent_once(root: Path) -> None:
    """U-3: 65 groups of a log of 13,000 segments do not send 65 lists of 13,000."""
    expected = cleaned_offline(root)
    with running(root) as agent:
        agent.keeps_witnesses = True
        assert clean_beside(agent).outcome == "cleaned"
        assert content(root) == expected
        assert ["witnesses" in request for request in agent.requested("swap")] == [True, False]


def test_forgotten_preconditions_are_sent_again(root: Path) -> None:
    """U-3: after a new connection the agent has none, reports that, and gets the present ones."""
    expected = cleaned_offline(root)

    def forget(agent: FakeAgent, _request: dict[str, Any]) -> bytes | None:
        agent.forget()
        raise Refusal("no_evidence")

    with running(root) as agent:
        agent.keeps_witnesses = True
        agent.fail("swap", lambda _agent, _request: None, forget)
        assert clean_beside(agent).outcome == "cleaned"
        assert content(root) == expected
        one, _, three = agent.requested("swap")
        reported = {witness["base"]: witness["ino"] for witness in three["witnesses"]}
        assert reported[0] == (root / NAME / f"{0:020d}.log").stat().st_ino
        assert reported[0] != {witness["base"]: witness["ino"] for witness in one["witnesses"]}[0]


def test_an_earlier_attempt_took_the_staged_files(root: Path) -> None:
    """A-24: the staged files were moved in before the refusal, so the retry misses them: new plan, no quarantine."""
    expected = cleaned_offline(root)
    with running(root) as agent:
        agent.fail("swap", refuse("busy"), refuse("no_staged_file"))
        assert clean_beside(agent).outcome == "cleaned"
        assert content(root) == expected


def test_the_pause_after_a_swap_grows_with_its_duration(root: Path) -> None:
    """R-9: the longer a swap blocked appends, the longer the pause before the next one."""
    with running(root) as agent:
        agent.held_us = 40_000
        begun: list[float] = []

        def note(_agent: FakeAgent, _request: dict[str, Any]) -> bytes | None:
            begun.append(time.monotonic())
            return None

        agent.fail("swap", note, note)
        result = clean_beside(agent)
        assert (result.outcome, result.seconds["held"]) == ("cleaned", 0.04)
        assert begun[1] - begun[0] >= 0.4


@pytest.mark.slow
def test_large_groups_are_split(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """U-36: a group with more sources than allowed becomes several; the resulting log is the same."""
    large = config(segment_bytes=1 << 20)
    expected = cleaned_offline(root)
    joined: list[int] = []
    groups = Cleaning.groups
    # the split is not visible in any output
    monkeypatch.setattr(Cleaning, "groups", lambda self: joined.extend(map(len, found := groups(self))) or found)
    with running(root) as agent:
        agent.held_us = 1_000_000
        one = SwapSources(first=1, fewest=1)
        assert clean_beside(agent, topic=large, sources=one).outcome == "cleaned"
        assert max(joined) > 1, "U-26: there was something to cut"
        assert {len(request["groups"][0]["sources"]) for request in agent.requested("swap")} == {1}
        assert content(root) == expected


def test_the_number_of_sources_per_swap() -> None:
    """U-36: as many as are swapped in 2 ms, half-way at once, never more than 60 of the 200 and not too few."""
    assert sources_for(0.002, 40, 40) == 40
    assert sources_for(0.004, 40, 40) == 30
    assert sources_for(0.000_001, 60, 60) == 60 < MAX_SOURCES
    assert sources_for(10.0, 40, 40) == 25
    assert sources_for(0.001, 40, 40) == 60
    assert sources_for(0.000_1, 3, 40) == 40, "a small group shows nothing about large ones"
    assert sources_for(0.020, 3, 40) == 25


def test_the_cleaners_checkpoint_is_read_from_the_file(root: Path) -> None:
    """C-13: cleanerd reads it, once per version of the file; the broker never reads it per partition."""
    with running(root) as agent:
        (name,) = (log["topic"] for log in agent.do_logs({})["logs"])
        partition = live_name(agent)
        assert (name, cleaner_offset(root, partition)) == ("orders", None)
        write_checkpoint(root / CLEANER_CHECKPOINT, {NAME: 5})
        assert cleaner_offset(root, partition) == 5
        fresh = root / "fresh"
        write_checkpoint(fresh, {NAME: 4})
        fresh.replace(root / CLEANER_CHECKPOINT)
        assert cleaner_offset(root, partition) == 4
        (root / CLEANER_CHECKPOINT).unlink()
        assert cleaner_offset(root, partition) is None


@pytest.mark.parametrize("waits", [True, False])
def test_live_staging_leaves_no_plan_behind(root: Path, monkeypatch: pytest.MonkeyPatch, waits: bool) -> None:
    """D-05: at the swap the manifest exists, but no plan for a later command; each output is flushed once.

    After a crash of the machine in the middle of a swap, the broker completes it. A new staging directory is not listed
    before the swap; in one that existed a plan that waits for ``apply`` is found, and dropped.
    """
    listed: list[str] = []
    flushed: list[str] = []
    names, sync = PartitionFiles.names, os.fsync
    # listings and flushes leave no trace on a disk
    monkeypatch.setattr(PartitionFiles, "names", lambda self, place=".": listed.append(place) or names(self, place))

    def noted(descriptor: int) -> None:
        flushed.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)  # see above
    waiting = root / NAME / STAGING / "20260101t000000-00000001"
    with running(root) as agent:
        found: list[set[str]] = []
        left: list[int] = []
        seen: list[bool] = []

        def at_the_swap(_agent: FakeAgent, request: dict[str, Any]) -> bytes | None:
            staged = root / NAME / STAGING / request["plan"]
            found.append({each.name for each in staged.iterdir()})
            left.append(listed.count(STAGING))
            staged_flushes = [each for each in flushed if each.startswith(str(staged))]
            outputs = {str(each) for each in staged.iterdir() if each.name != MANIFEST}
            once = len(staged_flushes) == len(set(staged_flushes))
            seen.append(
                outputs <= set(staged_flushes)
                and str(staged / MANIFEST) not in staged_flushes
                and once
                and not waiting.exists()
            )
            return None

        agent.fail("swap", *[at_the_swap] * 9)
        if waits:
            waiting.mkdir(parents=True)
            (waiting / READY).write_text("{}")
        assert clean_beside(agent).outcome == "cleaned"
        assert len(found) > 1, "U-26: there is more than one group"
        assert seen == [True] * len(found)
        assert all(MANIFEST in each for each in found)
        # Once more with the waiting plan, and once after it is gone.
        assert left[0] == (3 if waits else 0)
    assert not (root / NAME / STAGING).exists()


def live_name(agent: FakeAgent) -> Any:
    from cleanerd.segments.log_dir import read_log_dir  # noqa: PLC0415

    return read_log_dir(agent.log_dir).partitions[0]


@needs_root
def test_a_socket_of_another_user_is_not_queried(root: Path) -> None:
    """A-29: a socket whose server is neither root, this user nor the directory's owner gets no request."""
    root.mkdir()
    root.chmod(0o777)
    for parent in root.parents:
        if parent.stat().st_uid == 0 and parent != parent.parent and parent.stat().st_mode & 0o777 == 0o700:
            parent.chmod(0o711)
    program = (
        "import os, socket, sys\n"
        f"os.setgid({OTHER_USER}); os.setuid({OTHER_USER})\n"
        "s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); os.chmod(sys.argv[1], 0o666); s.listen(1)\n"
        "print(flush=True); sys.stdin.read()\n"
    )
    path = root / SOCKET
    command = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        server.stdout.readline()
        with pytest.raises(
            AgentUnavailableError, match=f"served by uid {OTHER_USER}, but its directory belongs to uid 0"
        ):
            AgentClient.connect(path)
        os.chown(root, OTHER_USER, OTHER_USER)
        AgentClient.connect(path).close()
        assert server.stdin is not None
        server.stdin.close()
