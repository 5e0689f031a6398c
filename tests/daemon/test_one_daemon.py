"""One daemon manages a log directory, whatever the state directory and port of another one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.cli import main
from cleanerd.daemon.discovery.daemon_lock import DaemonLock
from cleanerd.daemon.discovery.log_dir_scan import DirMode
from cleanerd.errors import LogDirBusyError, RefusedError
from cleanerd.fsio.held_file import DAEMON_FILE, HeldFile, holder_of
from cleanerd_lab.demo.broker import STARTED
from tests.daemon.service import assignments, broker, partition, serve, until
from tests.support.log_dirs import make_log_dir
from tests.support.other_process import other_process
from tests.swap.offline_round import two_groups

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.daemon.service import Service
    from tests.kafka.fixtures import StartBroker

HOLD = "hold = HeldFile.acquire(path, DAEMON_FILE)"


async def nothing(_service: Service) -> None:
    await until("never", lambda: False)


def test_a_second_daemon_is_refused(root: Path) -> None:
    """U-39: at its start, before it does anything; the message names the process that has the directory."""
    with broker(root) as agent, other_process(root, HOLD) as pid:
        with pytest.raises(RefusedError, match=rf"{root}: cleanerd clean \(process {pid}\) works on this directory"):
            serve(assignments(root), nothing)
        assert agent.requested("swap") == []
    with broker(root.with_name("other")):
        pass


@pytest.mark.long
def test_a_daemon_that_only_observes_needs_no_lock(root: Path) -> None:
    """It writes nothing to a log directory, so two of them may read it."""
    with broker(root), other_process(root, HOLD):
        before = sorted(os.listdir(root))

        async def story(service: Service) -> None:
            await until("it was observed", lambda: partition(service.view()).mode == "observe")

        serve(assignments(root, cleanerd_mode="observe"), story)
        assert sorted(os.listdir(root)) == before


def test_the_lock_is_held_while_the_daemon_runs(root: Path) -> None:
    """U-39: also when the file is deleted; released at the end."""
    with broker(root):

        async def story(service: Service) -> None:
            await until("it is held", lambda: holder_of(root, DAEMON_FILE) is not None)
            (root / DAEMON_FILE).unlink()
            await until("it is held again", lambda: holder_of(root, DAEMON_FILE) is not None)
            assert service.view().log_dirs[0].mode == "live"

        serve(assignments(root), story)
        assert not (root / DAEMON_FILE).exists()


@pytest.mark.parametrize("by_link", [False, True])
def test_another_directory_in_its_place_is_held(root: Path, *, by_link: bool) -> None:
    """U-39: a disk that was mounted again, or a changed link: the lock is on the directory that is cleaned."""
    make_log_dir(root, {"orders-0": two_groups()})
    hold, mode = DaemonLock(root), DirMode("live", "", "live")
    hold.checked(mode)
    old = root.rename(root.with_name("old"))
    new = make_log_dir(root.with_name("new") if by_link else root, {"orders-0": two_groups()})
    if by_link:
        root.symlink_to(new)
    with other_process(root, HOLD) as pid:
        waits = hold.checked(mode)
        assert (waits.work, f"process {pid}" in hold.taken) == (None, True)
        assert holder_of(old, DAEMON_FILE) is None, "no daemon manages that one"
        assert not (old / DAEMON_FILE).exists()
        os.kill(pid, 9)
    assert hold.checked(mode) == mode
    with pytest.raises(LogDirBusyError):
        HeldFile.acquire(root, DAEMON_FILE)
    hold.end()


@pytest.mark.slow
def test_a_directory_of_a_reload_waits_until_it_is_free(root: Path) -> None:
    """A running daemon does not end because of it: it names the other process, and starts when the lock is free."""
    with broker(root) as agent, other_process(root, HOLD) as pid:
        settings = assignments(root, cleanerd_mode="observe")

        async def story(service: Service) -> None:
            await until("it observes", lambda: bool(service.view().ready))
            service.configuration.reread = lambda: load([*assignments(root)])
            service.reload()
            reported = f"waits: cleanerd clean (process {pid}) works on this directory"
            await until("it waits", lambda: service.view().log_dirs[0].mode_reason == reported)
            waits_since_ms = service.view().made_ms
            await until("it has waited for a moment", lambda: service.view().made_ms > waits_since_ms + 500)
            assert agent.requested("swap") == []
            os.kill(pid, 9)
            await until("it is clean", lambda: service.view().totals.cleanings.get("cleaned") == 1)

        serve(settings, story)


def load(settings: list[str]) -> Any:
    from cleanerd.config.load import load_settings  # noqa: PLC0415

    return load_settings([], settings, {})


def test_a_file_system_without_locks(root: Path) -> None:
    """On a file system without locks, or a read-only one, cleaning continues with a warning.

    Claims are per partition.
    """

    def refused(_log_dir: Path, _name: str) -> HeldFile:
        raise OSError(37, "No locks available")

    hold = DaemonLock(root, refused)
    mode = DirMode("live", "", "live")
    assert hold.checked(mode) == mode
    (warning,) = hold.warnings
    assert "cannot be locked (No locks available)" in warning
    assert hold.checked(DirMode("observe", "", "observe")).work == "observe"
    assert hold.warnings == ()


def test_a_running_scan_does_not_lock_it_again(root: Path) -> None:
    """U-39: a directory that a reload removed stayed locked if its thread was scanning: no other daemon got it."""
    make_log_dir(root, {"orders-0": two_groups()})
    mode, ends = DirMode("live", "", "live"), False

    def meanwhile(log_dir: Path, name: str) -> HeldFile:
        held = HeldFile.acquire(log_dir, name)
        if ends:
            hold.end()
        return held

    hold = DaemonLock(root, meanwhile)
    hold.checked(mode)
    assert holder_of(root, DAEMON_FILE) is not None
    hold.release()
    ends = True
    for _ in range(2):
        hold.checked(mode)
        assert holder_of(root, DAEMON_FILE) is None
        assert not (root / DAEMON_FILE).exists()


@pytest.mark.slow
def test_a_command_in_progress_is_not_a_broker(root: Path) -> None:
    """U-39: while ``clean`` holds Kafka's lock the daemon reports it, and starts nothing."""
    make_log_dir(root, {"orders-0": two_groups()})
    with other_process(root, "lock = LogDirLock.acquire(path)") as pid:

        async def story(service: Service) -> None:
            reported = f"no broker runs on it; cleanerd clean (process {pid}) is running there"
            await until("it is distinguished", lambda: service.view().log_dirs[0].mode_reason == reported)
            assert service.view().log_dirs[0].mode == "offline"
            assert service.view().totals.cleanings == {}

        serve(assignments(root, topics_orders_cleanup_policy="compact"), story)


@pytest.mark.long
def test_a_command_warns_about_another_command(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``clean`` and ``explain`` during another ``clean``."""
    make_log_dir(root, {"orders-0": two_groups()})
    compact = ["--set", "topics.orders.cleanup.policy=compact", "--set", f"cleanerd.state.dir={root.parent / 'state'}"]
    with other_process(root, "lock = LogDirLock.acquire(path)") as pid:
        assert main.run(["clean", str(root), "--yes", *compact]) == 4
        assert f".lock: is held by cleanerd clean (process {pid}) (wait until it ends" in capsys.readouterr().err
        assert main.run(["explain", "orders-0", str(root), *compact]) == 0
        assert "A broker runs" not in capsys.readouterr().out


@pytest.mark.long
@pytest.mark.parametrize("release", [pytest.param("broker_39", marks=pytest.mark.long), "broker_43"])
def test_no_broker_opens_the_files(request: pytest.FixtureRequest, release: str) -> None:
    """U-39: both files exist, locked and left over, when a broker starts, runs and stops; they stay unchanged."""
    start: StartBroker = request.getfixturevalue(release)
    running = start()
    (log_dir,) = running.log_dirs
    running.stop()
    with other_process(log_dir, HOLD):
        (log_dir / ".cleanerd-verb.lock").write_text("{}")
        running.start()
        assert STARTED in running.log_text()
        running.stop()
        assert ".cleanerd-" not in running.log_text(), "the broker's log does not mention them"
        assert (log_dir / ".cleanerd-verb.lock").read_text() == "{}"
        assert holder_of(log_dir, DAEMON_FILE) is not None
