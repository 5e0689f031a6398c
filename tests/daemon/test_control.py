"""The control socket, from outside as the verbs use it."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import re
import socket
import stat
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from cleanerd.daemon.control import MAX_REQUEST_BYTES, ControlServer
from cleanerd.daemon.control_client import send_request
from cleanerd.daemon.service import Service
from cleanerd.errors import CleanerdError, ConfigError, RefusedError
from tests.daemon.service import asking, assignments, broker, is_clean, partition, rounds, serve, until
from tests.support.fake_agent import refuse, wait
from tests.support.log_dirs import make_log_dir
from tests.swap.offline_round import two_groups

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
def test_pause_stops_what_runs_and_resume_lets_it_go_on(root: Path) -> None:
    """A cleaning ends between two chunks; nothing begins while it is paused; the pause outlives the daemon."""
    with broker(root, 2) as agent:
        control = asking(root)

        async def pauses(service: Service) -> None:
            agent.fail("swap", wait(0.5))
            await until("one runs", lambda: bool(agent.requested("swap")))
            answer = await control("pause")
            assert answer["paused"] == "all"
            await until("it has ended", lambda: not service.dispatcher.running)
            await until("it is shown", lambda: {p.phase for p in service.view().partitions} == {"paused"})
            assert service.view().paused
            with pytest.raises(CleanerdError, match="is paused"):
                await control("trigger", partition="orders-0")
            swaps = len(agent.requested("swap"))
            await rounds(service)
            assert len(agent.requested("swap")) == swaps

        async def resumes(service: Service) -> None:
            await until("ready", lambda: service.view().ready)
            assert service.view().paused, "remembered"
            await control("pause", partition="orders-1")
            answer = await control("resume")
            assert (answer["resumed"], answer["still_paused"], answer["all_paused"]) == ("all", ["orders-1"], False)
            await until("one is clean", lambda: is_clean(service.view(), 8))
            assert partition(service.view(), "orders-1").phase == "paused"
            await control("resume", partition="orders-1")
            await until("the other too", lambda: is_clean(service.view(), 8, "orders-1"))

        serve(assignments(root), pauses)
        serve(assignments(root), resumes)


def test_trigger_cleans_what_is_clean_enough(root: Path) -> None:
    """Whatever the dirty ratio says; nothing else is touched."""
    with broker(root, 2) as agent:
        agent.settings["min.cleanable.dirty.ratio"] = "1"
        control = asking(root)

        async def story(service: Service) -> None:
            await until("ready", lambda: service.view().ready)
            assert "min.cleanable.dirty.ratio" in partition(service.view()).reason
            answer = await control("trigger", partition="orders-1")
            assert answer["triggered"] == [{"partition": "orders-1", "work": "live", "running": False}]
            await until("done", lambda: len(service.view().history) == 1)
            await until("seen", lambda: is_clean(service.view(), 8, "orders-1"))
            (clean,) = service.view().history
            assert (clean.topic, clean.partition, clean.trigger) == ("orders", 1, "manual")
            assert partition(service.view(), "orders-0").clean_offset == 0

        serve(assignments(root), story)


def test_trigger_of_what_is_refused(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is tried, for the cause may be gone; who asked hears why it was refused, and the log says what came of it."""
    with broker(root):
        control = asking(root)

        async def story(service: Service) -> None:
            await until("ready", lambda: service.view().ready)
            (reported,) = (await control("trigger", partition="orders-0"))["triggered"]
            assert "cleanerd delegate" in reported["was_refused"]
            # What is written while the capture is read is lost: it is read when the line is there.
            await until("tried", lambda: service.registry.named("orders-0")[0].answered is not None)
            await asyncio.sleep(0.3)
            message = capsys.readouterr()
            assert "cleaning_not_done" in message.err + message.out
            assert partition(service.view()).clean_offset == 0

        serve([*assignments(root), "topics.orders.compaction.strategy=timestamp"], story)


@pytest.mark.slow
def test_retry_ends_a_quarantine(root: Path) -> None:
    """OP-10: with its reason and age; left alone until then; the state directory remembers it."""
    with broker(root) as agent:
        agent.fail("swap", refuse("bad_batch"))
        control = asking(root)

        async def fails(service: Service) -> None:
            await until("quarantined", lambda: partition(service.view()).phase == "quarantined")
            found = partition(service.view()).quarantine
            assert found is not None
            assert "bad_batch" in found.reason
            assert found.failures == 1
            assert found.retry_at_ms == found.since_ms + 60_000
            (state,) = (root.parent / "state" / "partitions").rglob("*.json")
            assert json.loads(state.read_text())["retry"]["failures"] == 1

        async def is_retried(service: Service) -> None:
            await until("ready", lambda: service.view().ready)
            found = partition(service.view()).quarantine
            assert found is not None, "remembered"
            assert found.failures == 1
            requested = len(agent.requested("swap"))
            await rounds(service)
            assert len(agent.requested("swap")) == requested
            assert (await control("retry"))["retried"] == ["orders-0"]
            await until("clean", lambda: is_clean(service.view(), 8))
            assert partition(service.view()).quarantine is None

        serve(assignments(root), fails)
        serve(assignments(root), is_retried)


@pytest.mark.slow
def test_a_retry_outlives_the_daemon(root: Path) -> None:
    """OP-10: also where nothing is to be cleaned, so that no cleaning would end the quarantine; one of a verb too."""
    with broker(root) as agent:
        agent.settings["min.cleanable.dirty.ratio"] = "1"
        control = asking(root)
        state: list[Path] = []

        async def fails(service: Service) -> None:
            await until("ready", lambda: service.view().ready)
            agent.fail("swap", refuse("bad_batch"))
            await control("trigger", partition="orders-0")
            await until("quarantined", lambda: partition(service.view()).phase == "quarantined")
            state.extend((root.parent / "state" / "partitions").rglob("*.json"))

        async def is_retried(service: Service) -> None:
            await until("ready", lambda: service.view().ready)
            assert (await control("retry"))["retried"] == ["orders-0"]
            await until("forgotten", lambda: json.loads(state[0].read_text())["quarantine"] is None)
            assert json.loads(state[0].read_text())["retry"] is None
            await until("shown", lambda: partition(service.view()).phase == "idle")
            assert (await control("retry", partition="orders-0"))["healthy"] == ["orders-0"]

        serve(assignments(root), fails)
        serve(assignments(root), is_retried)
        document = json.loads(state[0].read_text())
        state[0].write_text(json.dumps({**document, "quarantine": "what cleanerd stage met", "retry": None}))
        serve(assignments(root), is_retried)


def test_several_names_are_all_or_nothing(root: Path) -> None:
    """A topic and a pattern stand for their partitions; one unknown word, and nothing is done; all are named."""
    with broker(root, {"orders-0": two_groups(), "orders-1": two_groups(), "carts-0": two_groups()}) as agent:
        agent.settings["min.cleanable.dirty.ratio"] = "1"
        control = asking(root)

        async def story(service: Service) -> None:
            await until("ready", lambda: service.view().ready)
            for operation in ("pause", "resume", "retry", "trigger"):
                with pytest.raises(CleanerdError, match=r"nope-0, no\*: the daemon knows no such") as caught:
                    await control(operation, partitions=["orders-0", "nope-0", "no*"])
                assert caught.value.exit_code == 3
            assert service.registry.pauses.names == frozenset()
            assert not any(entry.requested for entry in service.registry.partitions.values())
            assert (await control("pause", partitions=["orders"]))["paused"] == ["orders-0", "orders-1"]
            with pytest.raises(CleanerdError, match="orders-0: is paused: cleanerd resume orders-0"):
                await control("trigger", partitions=["orders-0", "carts-0"])
            assert not service.registry.named("carts-0")[0].requested, "all or nothing"
            reported = await control("trigger", partitions=["*-0"])
            assert [each["partition"] for each in reported["triggered"]] == ["carts-0"]
            assert [each["partition"] for each in reported["left_out"]] == ["orders-0"]
            await until("done", lambda: len(service.view().history) == 1)
            assert (await control("resume", partitions=["ord*"]))["resumed"] == ["orders-0", "orders-1"]

        serve(assignments(root), story)


def test_as_many_names_as_a_command_line_holds(root: Path) -> None:
    """``xargs cleanerd pause`` gives 128 KiB of them: it was told that no daemon answers, as from 64 KiB on."""
    names = [f"orders-{number}" for number in range(20_000)]
    with broker(root):
        control = asking(root)

        async def story(service: Service) -> None:
            await until("ready", lambda: service.view().ready)
            with pytest.raises(
                CleanerdError, match=r"^orders-1, orders-2, .* and 19,979 more: the daemon knows no such"
            ):
                await control("pause", partitions=names)
            (noted,) = (await control("operations"))["operations"]
            assert len(json.dumps(noted)) < 4096, "what was refused is kept, not all that was typed"

        serve(assignments(root), story)


def test_answers_about_pauses_and_failures_are_true(root: Path) -> None:
    """``resume orders-0`` does not end the pause of everything; ``retry`` of a healthy partition tries nothing."""
    with broker(root, 2) as agent:
        agent.settings["min.cleanable.dirty.ratio"] = "1"
        control = asking(root)

        async def story(service: Service) -> None:
            await until("ready", lambda: service.view().ready)
            await control("pause")
            await control("pause", partitions=["orders-0"])
            reported = await control("resume", partitions=["orders"])
            assert reported == {
                "resumed": ["orders-0"],
                "not_paused": ["orders-1"],
                "all_paused": True,
                "still_paused": [],
            }
            assert (await control("resume"))["not_paused"] == []
            assert (await control("resume"))["not_paused"] == ["all"]
            reported = await control("retry", partitions=["orders-0"])
            assert reported == {"retried": [], "healthy": ["orders-0"], "paused": [], "not_due": {}}

        serve(assignments(root), story)


def test_status_and_explain(root: Path) -> None:
    """Every field that /status promises, and the numbers of ``cleanerd explain``."""
    with broker(root):
        control = asking(root)

        async def story(service: Service) -> None:
            await until("clean", lambda: len(service.view().history) == 1)
            await until("seen", lambda: is_clean(service.view(), 8))
            status = await control("status")
            assert status["schema"] == 1
            assert status["ready"] is True
            assert status["mode"] == "auto"
            assert status["swaps_total"] == 2
            assert status["partitions"][0]["state"] == "idle"
            reported = await control("explain", partition="orders-0")
            assert reported["cleaned_now"] is False
            assert reported["first_dirty_offset"] == 8
            assert reported["broker_running"] is True
            assert reported["daemon"]["mode"] == "live"
            assert await service.control_api.explain("orders-0") == reported
            with pytest.raises(CleanerdError, match="no such compacted partition"):
                await control("explain", partition="nobody-0")

        serve(assignments(root), story)


def test_only_the_daemons_user_may_connect(root: Path) -> None:
    """0600, and a stale socket is no hindrance; a second daemon is refused."""
    with broker(root):
        path = root.parent / "control.sock"
        stale = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        stale.bind(str(path))
        stale.close()

        async def story(service: Service) -> None:
            await until("ready", lambda: service.view().ready)
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            with pytest.raises(RefusedError, match="another cleanerd answers"):
                await Service(service.configuration.settings, service.configuration.reread).run()

        serve(assignments(root), story)
        assert not path.exists()


def test_one_of_two_daemons_that_start_at_once_is_refused(root: Path) -> None:
    """Both see that nobody listens on what a daemon left that was killed; the second must not remove the first's."""
    root.mkdir()
    path = root / "control.sock"
    stale = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    stale.bind(str(path))
    stale.close()

    async def story() -> None:
        async def status(_request: object) -> dict[str, Any]:
            return {"is": "here"}

        servers = [ControlServer(path, {"status": status}) for _ in range(2)]
        refused = [each for each in await asyncio.gather(*(s.start() for s in servers), return_exceptions=True) if each]
        assert [type(each) for each in refused] == [RefusedError]
        assert await asyncio.to_thread(send_request, path, "status") == {"is": "here"}
        for each in servers:
            await each.stop()
        assert not path.exists()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(story())


def test_a_lock_on_its_directory_does_not_hold_up_the_start(tmp_path: Path) -> None:
    """Whoever can read the directory can lock it, and keep it: the start ends with what to do."""
    holder = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(holder, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match="another process keeps this directory locked") as caught:
            asyncio.run(ControlServer(tmp_path / "control.sock", {}, alone_seconds=0.2).start())
    finally:
        os.close(holder)
    assert str(tmp_path) in str(caught.value)
    assert "lslocks" in str(caught.value)
    assert caught.value.exit_code == 4, "it may pass: its unit is started again"
    assert not (tmp_path / "control.sock").exists()


def test_a_lock_that_is_given_back_is_waited_for(tmp_path: Path) -> None:
    """As of another daemon that starts at the same moment."""
    holder = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_EX)

    async def story() -> None:
        asyncio.get_running_loop().call_later(0.2, os.close, holder)
        server = ControlServer(tmp_path / "control.sock", {})
        await server.start()
        assert server.path.is_socket()
        await server.stop()

    asyncio.run(story())


def test_hostile_clients_do_not_disturb(root: Path) -> None:
    """Rubbish, an endless line, many connections, a client that never reads: answered, or hung up on."""
    with broker(root):
        path = root.parent / "control.sock"
        control = asking(root)

        async def story(service: Service) -> None:
            await until("ready", lambda: service.view().ready)
            reader, writer = await asyncio.open_unix_connection(str(path))
            for line in (b"rubbish", b"[]", b'{"op": 7}', b'{"op": "no"}', b'{"op": "pause", "partition": 7}'):
                writer.write(line + b"\n")
                assert json.loads(await reader.readline())["ok"] is False
            writer.write(b"x" * (MAX_REQUEST_BYTES + 1))
            assert json.loads(await reader.readline())["error"] == "the request is longer than 4194304 bytes"
            assert await reader.read() == b"", "and no more: what follows is the rest of it"
            others = [await asyncio.open_unix_connection(str(path)) for _ in range(40)]
            for other in others:
                other[1].close()
            await asyncio.sleep(0.1)
            assert (await control("status"))["ready"]
            writer.close()

        serve(assignments(root), story)


def test_plan_and_explain_ask_the_daemon(root: Path) -> None:
    """D-17: they say what a running daemon does with the partition, if it looks after that directory."""
    sets = [f"cleanerd.control.socket={root.parent / 'control.sock'}", f"cleanerd.state.dir={root.parent / 'verbs'}"]
    words = [word for each in (*sets, "topics.orders.cleanup.policy=compact") for word in ("--set", each)]
    with broker(root):
        control = asking(root)

        async def explained(path: Path, *more: str) -> str:
            return await run("explain", "orders-0", str(path), *more)

        async def planned(path: Path, *more: str) -> str:
            return await run("plan", str(path), *more)

        async def run(*command: str) -> str:
            line = [sys.executable, "-m", "cleanerd", *command, *words]
            done = await asyncio.to_thread(subprocess.run, line, capture_output=True, check=True)
            return done.stdout.decode()

        async def story(service: Service) -> None:
            await until("clean", lambda: len(service.view().history) == 1)
            await control("pause")
            await until("it is shown", lambda: {p.phase for p in service.view().partitions} == {"paused"})
            assert json.loads(await explained(root, "--json"))["daemon"]["phase"] == "paused"
            copy = make_log_dir(root.parent / "copy", {"orders-0": two_groups()})
            assert "daemon" not in json.loads(await explained(copy, "--json")), "it does not look after that one"
            assert "The running daemon: paused" in await explained(root)
            (row,) = json.loads(await planned(root, "--json"))["partitions"]
            assert row["daemon"]["phase"] == "paused"
            assert row["daemon"].keys() == json.loads(await explained(root, "--json"))["daemon"].keys()
            (row,) = json.loads(await planned(copy, "--json"))["partitions"]
            assert "daemon" not in row
            assert re.search(r"daemon .*\n.* paused ", await planned(root))

        serve(assignments(root), story)
