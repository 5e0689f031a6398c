"""The control socket as the commands use it, from outside."""

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
from cleanerd.daemon.registry.partition_entry import Quarantine
from cleanerd.daemon.service import Service
from cleanerd.errors import CleanerdError, ConfigError, RefusedError
from tests.daemon.registries import NOW
from tests.daemon.service import assignments, broker, control_requests, is_clean, partition, rounds, serve, until
from tests.support.fake_agent import refuse, wait
from tests.support.log_dirs import make_log_dir
from tests.swap.offline_round import two_groups

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
def test_pause_stops_cleanings_and_resume_continues(root: Path) -> None:
    """A cleaning ends between two chunks; nothing starts during a pause; the pause survives a restart of the daemon."""
    with broker(root, 2) as agent:
        control = control_requests(root)

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


def test_trigger_cleans_below_the_dirty_ratio(root: Path) -> None:
    """The dirty ratio is ignored, and nothing else is touched."""
    with broker(root, 2) as agent:
        agent.settings["min.cleanable.dirty.ratio"] = "1"
        control = control_requests(root)

        async def story(service: Service) -> None:
            await until("ready", lambda: service.view().ready)
            assert "min.cleanable.dirty.ratio" in partition(service.view()).reason
            answer = await control("trigger", partition="orders-1")
            assert answer["triggered"] == [{"partition": "orders-1", "work": "live", "running": False}]
            await until("done", lambda: len(service.view().history) == 1)
            await until("seen", lambda: is_clean(service.view(), 8, "orders-1"))
            (clean,) = service.view().history
            assert (clean.topic, clean.partition, clean.trigger) == ("orders", 1, "manual")
            assert partition(service.view(), "orders-0").first_dirty_offset == 0

        serve(assignments(root), story)


def test_trigger_of_refused_partitions(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The partition is tried, because the cause may be gone. The client gets the refusal; the log has the outcome."""
    with broker(root):
        control = control_requests(root)

        async def story(service: Service) -> None:
            await until("ready", lambda: service.view().ready)
            (reported,) = (await control("trigger", partition="orders-0"))["triggered"]
            assert "cleanerd delegate" in reported["was_refused"]
            # A line written while the capture is read would be lost, so it is read once the line is there.
            await until("tried", lambda: service.registry.named("orders-0")[0].answered is not None)
            await asyncio.sleep(0.3)
            message = capsys.readouterr()
            assert "cleaning_not_done" in message.err + message.out
            assert partition(service.view()).first_dirty_offset == 0

        serve([*assignments(root), "topics.orders.compaction.strategy=timestamp"], story)


@pytest.mark.slow
def test_retry_ends_a_quarantine(root: Path) -> None:
    """OP-10: until then the quarantine stays, with reason and age; retry also clears it in the state directory."""
    with broker(root) as agent:
        agent.fail("swap", refuse("bad_batch"))
        control = control_requests(root)

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
    """OP-10: also if nothing is dirty, so that no cleaning would end the quarantine; and for one that a command set."""
    with broker(root) as agent:
        agent.settings["min.cleanable.dirty.ratio"] = "1"
        control = control_requests(root)
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
    """A topic and a pattern stand for their partitions. With one unknown name, nothing is done, and all are listed."""
    with broker(root, {"orders-0": two_groups(), "orders-1": two_groups(), "carts-0": two_groups()}) as agent:
        agent.settings["min.cleanable.dirty.ratio"] = "1"
        control = control_requests(root)

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
    """``xargs cleanerd pause`` sends up to 128 KiB of names; above 64 KiB it reported that no daemon answers."""
    names = [f"orders-{number}" for number in range(20_000)]
    with broker(root):
        control = control_requests(root)

        async def story(service: Service) -> None:
            await until("ready", lambda: service.view().ready)
            with pytest.raises(
                CleanerdError, match=r"^orders-1, orders-2, .* and 19,979 more: the daemon knows no such"
            ):
                await control("pause", partitions=names)
            (noted,) = (await control("operations"))["operations"]
            assert len(json.dumps(noted)) < 4096, "the refused names are kept, not all arguments"

        serve(assignments(root), story)


def test_answers_about_pauses_and_failures_are_true(root: Path) -> None:
    """``resume orders-0`` does not end the pause of everything; ``retry`` of a healthy partition changes nothing."""
    with broker(root, 2) as agent:
        agent.settings["min.cleanable.dirty.ratio"] = "1"
        control = control_requests(root)

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
        control = control_requests(root)

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
                await control("explain", partition="unknown-0")

        serve(assignments(root), story)


def test_only_the_daemons_user_may_connect(root: Path) -> None:
    """Mode 0600; a stale socket is replaced; a second daemon is refused."""
    with broker(root):
        path = root.parent / "control.sock"
        stale = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        stale.bind(str(path))
        stale.close()

        async def story(service: Service) -> None:
            await until("ready", lambda: service.view().ready)
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            with pytest.raises(RefusedError, match=rf"another cleanerd \(process {os.getpid()}\) answers there"):
                await Service(service.configuration.settings, service.configuration.reread).run()

        serve(assignments(root), story)
        assert not path.exists()


def test_one_of_two_daemons_that_start_at_once_is_refused(root: Path) -> None:
    """Both find a killed daemon's socket without a listener; the second must not remove the first's new socket."""
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
    """A user who can read the directory can lock it indefinitely: the start ends, and reports what to do."""
    holder = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(holder, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match="another process keeps this directory locked") as caught:
            asyncio.run(ControlServer(tmp_path / "control.sock", {}, alone_seconds=0.2).start())
    finally:
        os.close(holder)
    assert str(tmp_path) in str(caught.value)
    assert "lslocks" in str(caught.value)
    assert caught.value.exit_code == 4, "it may pass: systemd starts the unit again"
    assert not (tmp_path / "control.sock").exists()


def test_a_lock_that_is_released_is_waited_for(tmp_path: Path) -> None:
    """As that of another daemon that starts at the same moment."""
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
    """Rubbish, an endless line, many connections, a client that never reads: answered, or disconnected."""
    with broker(root):
        path = root.parent / "control.sock"
        control = control_requests(root)

        async def story(service: Service) -> None:
            await until("ready", lambda: service.view().ready)
            reader, writer = await asyncio.open_unix_connection(str(path))
            for line in (b"rubbish", b"[]", b'{"op": 7}', b'{"op": "no"}', b'{"op": "pause", "partition": 7}'):
                writer.write(line + b"\n")
                assert json.loads(await reader.readline())["ok"] is False
            writer.write(b"x" * (MAX_REQUEST_BYTES + 1))
            assert json.loads(await reader.readline())["error"] == "the request is longer than 4194304 bytes"
            assert await reader.read() == b"", "the rest of the request gets no answer"
            others = [await asyncio.open_unix_connection(str(path)) for _ in range(40)]
            for other in others:
                other[1].close()
            await asyncio.sleep(0.1)
            assert (await control("status"))["ready"]
            writer.close()

        serve(assignments(root), story)


def test_plan_and_explain_query_the_daemon(root: Path) -> None:
    """D-17: they show what a running daemon does with the partition, if it manages that directory."""
    sets = [f"cleanerd.control.socket={root.parent / 'control.sock'}", f"cleanerd.state.dir={root.parent / 'verbs'}"]
    words = [word for each in (*sets, "topics.orders.cleanup.policy=compact") for word in ("--set", each)]
    with broker(root):
        control = control_requests(root)

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
            assert "daemon" not in json.loads(await explained(copy, "--json")), (
                "the daemon does not manage that directory"
            )
            assert "The running daemon: paused" in await explained(root)
            (row,) = json.loads(await planned(root, "--json"))["partitions"]
            assert row["daemon"]["phase"] == "paused"
            assert row["daemon"].keys() == json.loads(await explained(root, "--json"))["daemon"].keys()
            (row,) = json.loads(await planned(copy, "--json"))["partitions"]
            assert "daemon" not in row
            assert re.search(r"daemon .*\n.* paused ", await planned(root))
            assert "A broker runs" not in await explained(root), "OP-11: nothing to clean, and the daemon cleans it"
            service.registry.named("orders-0")[0].quarantine = Quarantine("damaged (verify)", NOW, 1, 2 * NOW)
            service.registry.named("orders-0")[0].touch()
            await control("resume")
            await until("quarantined", lambda: partition(service.view()).phase == "quarantined")
            answer = json.loads(await explained(root, "--json"))
            assert answer["cleaned_now"] is False
            assert (answer["rule"], answer["reason"], answer["changes"]) == (
                "quarantine",
                "damaged (verify)",
                "with cleanerd retry",
            )
            message = await explained(root)
            assert message.startswith(
                "orders-0 is not cleaned now.\n  rule:    quarantine\n  reason:  damaged\n"
                "           -> verify\n"
                "  changes: with cleanerd retry\n  besides: nothing to clean"
            )
            assert "  The running daemon: quarantined, live\n" in message

        serve(assignments(root), story)
