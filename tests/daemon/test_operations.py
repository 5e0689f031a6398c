"""The journal of operators' requests: user, request, time, and answer."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.cli.status import format_user
from cleanerd.daemon.control_api import MAX_ARGUMENTS, Operation, Operations, read_operations
from cleanerd.daemon.control_client import send_request
from cleanerd.daemon.limits import DaemonLimits
from cleanerd.daemon.registry import pauses
from cleanerd.errors import CleanerdError
from cleanerd.state import document
from tests.daemon.service import assignments, broker, control_requests, is_clean, rounds, serve, until
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.daemon.service import Service


def test_every_operation_is_recorded_with_its_user(root: Path) -> None:
    """The user comes from the kernel. Refusals are recorded, reads are not; the journal survives a restart."""
    with broker(root, 2):
        control = control_requests(root)

        async def asks(service: Service) -> None:
            await until("ready", lambda: service.view().ready)
            await control("status")
            await control("pause", partitions=["orders"])
            with pytest.raises(CleanerdError):
                await control("trigger", partitions=["nope-0"])
            await control("resume")

        async def asks_after_restart(service: Service) -> None:
            await until("ready", lambda: service.view().ready)
            await control("reload")
            reported = (await control("operations"))["operations"]
            assert [(each["operation"], each["partitions"], bool(each["refused"])) for each in reported] == [
                ("pause", ["orders"], False),
                ("trigger", ["nope-0"], True),
                ("resume", [], False),
                ("reload", [], False),
            ]
            assert {(each["uid"], each["pid"]) for each in reported} == {(os.geteuid(), os.getpid())}
            assert [each["at_ms"] for each in reported] == sorted(each["at_ms"] for each in reported)

        serve(assignments(root), asks)
        serve(assignments(root), asks_after_restart)


def test_the_latest_operations_are_kept(tmp_path: Path) -> None:
    """A script that sends requests all day fills no disk, and a list of ten thousand names is not repeated."""
    journal = Operations(tmp_path / "state", most=20)
    names = tuple(f"orders-{number}" for number in range(MAX_ARGUMENTS + 5))
    for number in range(23):
        requested = Operation(number, "pause", names if number == 3 else names[:1], 0, 7)
        assert journal.save(journal.log(requested)) == ""
    kept = read_operations(tmp_path / "state")
    assert [each.at_ms for each in kept] == list(range(3, 23))
    assert kept[0].partitions == (*names[:MAX_ARGUMENTS], "and 5 more")


@pytest.mark.parametrize(
    "text",
    [
        '{"operations": [{"at_ms": "x"}]}',
        '{"operations": [{"at_ms": 1e999, "operation": "pause", "partitions": [], "uid": 0, "pid": 7, "refused": ""}]}',
        "[" * 100_000,
        "[]",
    ],
    ids=["a word as a time", "an infinite time", "depth", "a list"],
)
def test_a_damaged_journal_is_replaced(tmp_path: Path, text: str) -> None:
    """Whatever it contains, no operation fails because of it."""
    (tmp_path / "operations.json").write_text(text)
    assert read_operations(tmp_path) == []
    assert Operations(tmp_path).save(Operation(1, "reload", (), None, None)) == ""
    assert [each.operation for each in read_operations(tmp_path)] == ["reload"]


def test_a_journal_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    """The operation is done nevertheless, and the daemon's log has it."""
    (tmp_path / "state").write_text("a file, not a directory")
    unwritten = Operations(tmp_path / "state").save(Operation(1, "pause", (), 0, 7))
    assert "operations.json: cannot be written" in unwritten


@pytest.mark.parametrize("file", ["operations.json", "daemon.json"])
def test_a_disk_that_hangs_delays_no_request(root: Path, monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    """The event loop waits for no disk; requests are done, answered, and written in order once the disk works again."""
    released, gave_up = threading.Event(), []
    write = document.write_state_file

    def hangs(path: Path, *rest: Any) -> None:
        if path.name == file and not released.wait(10):
            gave_up.append(path)
        write(path, *rest)

    with broker(root):
        control = control_requests(root)

        async def story(service: Service) -> None:
            await until("ready", lambda: service.view().ready)
            # Only root can make a file system that hangs, so the function that writes the one file hangs instead.
            monkeypatch.setattr(document, "write_state_file", hangs)
            for paused in (True, False, True):
                await control("pause" if paused else "resume")
                assert (await control("status"))["paused"] is paused
            assert "does not answer; until it does, pauses end with the daemon" in service.view().warnings[-1]
            released.set()
            deadline = time.monotonic() + PATIENCE_SECONDS
            while len(reported := (await control("operations"))["operations"]) < 3:
                assert time.monotonic() < deadline
            assert gave_up == []
            assert [each["operation"] for each in reported] == ["pause", "resume", "pause"]

        serve(assignments(root), story, limits=DaemonLimits(write_seconds=0.05))
    assert pauses.load_pauses(root.parent / "state") == (pauses.Pauses(everything=True), "")


def test_pauses_of_a_newer_release(root: Path) -> None:
    """D-22: the earlier release cleans nothing until an operator resumes, and reports why.

    Then it replaces the file.
    """
    state_dir = root.parent / "state"
    state_dir.mkdir()
    (state_dir / "daemon.json").write_text('{"format": 2}')
    with broker(root) as agent:
        control = control_requests(root)

        async def story(service: Service) -> None:
            await until("ready", lambda: service.view().ready)
            await rounds(service)
            assert service.view().paused
            assert not agent.requested("swap")
            (warning,) = (each for each in service.view().warnings if "daemon.json" in each)
            assert warning.endswith("everything is paused until cleanerd resume")
            await control("resume")
            await until("clean", lambda: is_clean(service.view(), 8))

        serve(assignments(root), story)
    assert pauses.load_pauses(state_dir) == (pauses.NO_PAUSES, "")


def test_a_user_by_name() -> None:
    assert format_user(0) == "root"
    assert format_user(4_000_000_123) == "uid 4000000123"
    assert format_user(None) == "a signal"


def test_a_client_cannot_choose_its_recorded_user(root: Path) -> None:
    """A user name in the request is ignored."""
    with broker(root):

        async def story(service: Service) -> None:
            await until("ready", lambda: service.view().ready)
            reported = await control_requests(root)("pause", uid=12345, pid=1)
            assert reported["paused"] == "all"

        serve(assignments(root), story)
    (only,) = read_operations(root.parent / "state")
    assert (only.uid, only.pid) == (os.geteuid(), os.getpid())
    with pytest.raises(CleanerdError):
        send_request(root.parent / "control.sock", "operations")
