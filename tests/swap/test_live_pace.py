"""How hard a broker is leaned on: witnesses named once, small groups, rests (U-3, U-36, R-9), and who is believed."""

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
from tests.swap.live_round import QUICK, clean_beside, content, offline_twin, running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

    from tests.support.fake_agent import FakeAgent

NOBODY = 65534


@pytest.fixture
def root() -> Iterator[Path]:
    with scratch() as path:
        yield path / "logs"


@pytest.mark.slow
def test_sources_take_their_time(root: Path) -> None:
    """A-23.3: the agent reads the headers of all sources, and forty of them may be a hundred times what is staged."""

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


def test_witnesses_are_named_once(root: Path) -> None:
    """U-3: 65 groups of a log of 13,000 segments are not 65 lists of 13,000."""
    expected = offline_twin(root)
    with running(root) as agent:
        agent.keeps_witnesses = True
        assert clean_beside(agent).outcome == "cleaned"
        assert content(root) == expected
        assert ["witnesses" in request for request in agent.requested("swap")] == [True, False]


def test_witnesses_that_were_forgotten(root: Path) -> None:
    """U-3: after a break of the connection the agent has none, says so, and gets them as they must be by now."""
    expected = offline_twin(root)

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


def test_a_try_before_took_what_was_staged(root: Path) -> None:
    """A-24: refused with the files moved in already, they are gone at the next try: planned again, not quarantined."""
    expected = offline_twin(root)
    with running(root) as agent:
        agent.fail("swap", refuse("busy"), refuse("no_staged_file"))
        assert clean_beside(agent).outcome == "cleaned"
        assert content(root) == expected


def test_the_pause_after_a_swap_grows_with_its_duration(root: Path) -> None:
    """R-9: the longer a swap kept appends waiting, the longer until the next one begins."""
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
def test_groups_are_cut(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """U-36: a group of more sources than a swap may have becomes several; the log is the same."""
    large = config(segment_bytes=1 << 20)
    expected = offline_twin(root)
    joined: list[int] = []
    groups = Cleaning.groups
    # Whether there was anything to cut shows nowhere else.
    monkeypatch.setattr(Cleaning, "groups", lambda self: joined.extend(map(len, found := groups(self))) or found)
    with running(root) as agent:
        agent.held_us = 1_000_000
        one = SwapSources(first=1, fewest=1)
        assert clean_beside(agent, topic=large, sources=one).outcome == "cleaned"
        assert max(joined) > 1, "U-26: there was something to cut"
        assert {len(request["groups"][0]["sources"]) for request in agent.requested("swap")} == {1}
        assert content(root) == expected


def test_how_many_sources_a_swap_may_have() -> None:
    """U-36: as many as are swapped in 2 ms, half-way at once, never more than 60 of the 200 and not too few."""
    assert sources_for(0.002, 40, 40) == 40
    assert sources_for(0.004, 40, 40) == 30
    assert sources_for(0.000_001, 60, 60) == 60 < MAX_SOURCES
    assert sources_for(10.0, 40, 40) == 25
    assert sources_for(0.001, 40, 40) == 60
    assert sources_for(0.000_1, 3, 40) == 40, "a small group says nothing of large ones"
    assert sources_for(0.020, 3, 40) == 25


def test_the_cleaners_checkpoint_as_it_stands(root: Path) -> None:
    """C-13: read by us, once for each version of the file, and never by the broker for each partition."""
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
def test_a_round_leaves_nothing_that_nobody_takes_up(root: Path, monkeypatch: pytest.MonkeyPatch, waits: bool) -> None:
    """D-05: at the swap there is the manifest, and no plan for whoever comes later; each output is flushed, once.

    Nothing else there is: who finds a swap half done after a crash of the machine has the broker make an end of it.
    What lies staged is listed once before the swap; a plan that waits for ``apply`` is found all the same, and dropped.
    """
    listed: list[str] = []
    flushed: list[str] = []
    names, sync = PartitionFiles.names, os.fsync
    # What is listed and flushed leaves no trace on a disk.
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
            mine = [each for each in flushed if each.startswith(str(staged))]
            outputs = {str(each) for each in staged.iterdir() if each.name != MANIFEST}
            once = len(mine) == len(set(mine))
            seen.append(outputs <= set(mine) and str(staged / MANIFEST) not in mine and once and not waiting.exists())
            return None

        agent.fail("swap", *[at_the_swap] * 9)
        if waits:
            waiting.mkdir(parents=True)
            (waiting / READY).write_text("{}")
        assert clean_beside(agent).outcome == "cleaned"
        assert len(found) > 1, "U-26: there is more than one group"
        assert seen == [True] * len(found)
        assert all(MANIFEST in each for each in found)
        # Again for the plan that waited, and when that was gone.
        assert left[0] == (3 if waits else 1)
    assert not (root / NAME / STAGING).exists()


def live_name(agent: FakeAgent) -> Any:
    from cleanerd.segments.log_dir import read_log_dir  # noqa: PLC0415

    return read_log_dir(agent.log_dir).partitions[0]


@needs_root
def test_a_socket_of_another_user_is_not_queried(root: Path) -> None:
    """A-29: one that is served by neither root, this user nor the owner of its directory is not asked."""
    root.mkdir()
    root.chmod(0o777)
    for parent in root.parents:
        if parent.stat().st_uid == 0 and parent != parent.parent and parent.stat().st_mode & 0o777 == 0o700:
            parent.chmod(0o711)
    program = (
        "import os, socket, sys\n"
        f"os.setgid({NOBODY}); os.setuid({NOBODY})\n"
        "s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); os.chmod(sys.argv[1], 0o666); s.listen(1)\n"
        "print(flush=True); sys.stdin.read()\n"
    )
    path = root / SOCKET
    command = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        server.stdout.readline()
        with pytest.raises(AgentUnavailableError, match=f"served by uid {NOBODY}, but its directory belongs to uid 0"):
            AgentClient.connect(path)
        os.chown(root, NOBODY, NOBODY)
        AgentClient.connect(path).close()
        assert server.stdin is not None
        server.stdin.close()
