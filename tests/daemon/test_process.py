"""The daemon as a process: signals, exit codes, systemd, and its state after a kill at any moment."""

from __future__ import annotations

import contextlib
import json
import random
import re
import signal
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cleanerd.cli import main
from cleanerd.daemon.registry.pauses import Pauses, save_pauses
from cleanerd_lab.demo.ports import free_port
from tests.daemon.process import Daemon, content_of, is_done, large, leftovers, newest
from tests.daemon.service import assignments, broker
from tests.support.patience import PATIENCE_SECONDS
from tests.swap.live_round import content


@pytest.mark.long
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_during_a_cleaning(root: Path, number: signal.Signals, code: int) -> None:
    """130 / 143; it ends soon, between two chunks, and every group is old or new."""
    with broker(root, {"orders-0": large(40, 50)}) as agent:
        agent.settings["file.delete.delay.ms"] = "0"
        before = newest(root, "orders-0")
        slow = assignments(root, cleanerd_io_write_max_bytes_per_second="100KiB")
        with Daemon(slow, root.parent) as daemon:
            daemon.until("it rewrites", lambda view: any(each["phase"] == "rewrite" for each in view["running"]))
            assert daemon.end(number) == code
        assert daemon.log.read_text().splitlines()[-1].endswith(f"event=daemon_stopped signal={number.name}")
        assert newest(root, "orders-0") == before
        assert not leftovers(root)
        assert not (root.parent / "control.sock").exists()
        with Daemon(assignments(root), root.parent) as daemon:
            daemon.until("it continues", lambda view: view["totals"]["cleanings"].get("cleaned", 0) == 1)
        assert newest(root, "orders-0") == before
        assert len(content(root)) == len(before)


def kill_again_and_again(root: Path, kills: int) -> None:
    names = [f"orders-{n}" for n in range(3)]
    dice = random.Random("kill the daemon")
    in_the_middle = 0
    with broker(root, {name: large(4, 25) for name in names}) as agent:
        agent.settings["file.delete.delay.ms"] = "0"
        before = {name: newest(root, name) for name in names}
        # A partition at which the process is killed twice in a row is paused for a while (U-35): here for a short one.
        waits = {"cleanerd_retry_backoff_ms": "200", "cleanerd_retry_backoff_max_ms": "1000"}
        slow = {"cleanerd_io_write_max_bytes_per_second": "32KiB", "log_cleaner_backoff_ms": "50"}
        settings = assignments(root, **slow, **waits)
        for _ in range(kills):
            with Daemon(settings, root.parent) as daemon:
                view = daemon.until("it began", lambda view: bool(view["running"]) or is_done(view))
                in_the_middle += bool(view["running"])
                time.sleep(dice.uniform(0.0, 0.4))
                assert daemon.end(signal.SIGKILL) == -signal.SIGKILL
            agent.wait_until_left()
            assert {name: newest(root, name) for name in names} == before
        with Daemon(assignments(root, **waits), root.parent) as daemon:
            daemon.until("all is clean", is_done)
            assert daemon.end(signal.SIGTERM) == 143
        assert in_the_middle >= 2, "U-26"
        assert {name: newest(root, name) for name in names} == before
        assert all(len(content_of(root, name)) == len(before[name]) for name in names)
        assert not leftovers(root)


@pytest.mark.long
def test_killed_again_and_again_nothing_is_lost(root: Path) -> None:
    """OP-10: SIGKILL at random moments; the next start continues, and in the end all is clean, with no leftover."""
    kill_again_and_again(root, 4)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_killed_fifty_times(root: Path) -> None:
    """SIGKILL at any moment: every group is old or new, and the next start continues."""
    kill_again_and_again(root, 50)


def hanging_clients(port: int) -> list[socket.socket]:
    """One client sends nothing, one half a request, and one requests metrics a thousand times and never reads."""
    clients = []
    for number in range(60):
        client = socket.create_connection(("127.0.0.1", port))
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setblocking(False)
        request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
        with contextlib.suppress(BlockingIOError):
            client.send((b"", request[:-2], request * 1000)[number % 3])
        clients.append(client)
    return clients


def wait_until_it_listens(port: int) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
            return
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.long
def test_clients_that_hang_delay_neither_cleaning_nor_the_end(root: Path) -> None:
    """A stopped consumer of metrics, hanging HTTP clients; SIGTERM works within TimeoutStopSec, with a complete log."""
    names = [f"orders-{n}" for n in range(4)]
    unit = (Path(__file__).parents[2] / "systemd" / "cleanerd.service").read_text()
    (most_seconds,) = re.findall(r"^TimeoutStopSec=(\d+)s$", unit, re.MULTILINE)
    with broker(root, {name: large(2, 10) for name in names[:3]} | {names[3]: large(40, 50)}) as agent:
        agent.settings["file.delete.delay.ms"] = "0"
        before = {name: newest(root, name) for name in names}
        port = free_port()
        settings = assignments(root, cleanerd_http_listen=f"127.0.0.1:{port}",
                               cleanerd_io_write_max_bytes_per_second="150KiB")  # fmt: skip
        # The hanging clients connect before there is anything to clean.
        save_pauses(root.parent / "state", Pauses(everything=True, names=frozenset({names[3]})))
        with Daemon(settings, root.parent) as daemon:
            wait_until_it_listens(port)
            clients = hanging_clients(port)
            assert daemon.until("ready", lambda view: view["ready"])["totals"]["cleanings"] == {}
            daemon.ask("resume")
            daemon.until("cleaned", lambda view: view["totals"]["cleanings"].get("cleaned") == 3)
            daemon.ask("resume", partition=names[3])
            # Some twelve seconds at this rate, so that a slow machine still finds a cleaning in progress.
            daemon.until("it rewrites", lambda view: any(each["phase"] == "rewrite" for each in view["running"]))
            started = time.monotonic()
            assert daemon.end(signal.SIGTERM) == 143
            assert time.monotonic() - started < int(most_seconds)
        for client in clients:
            client.close()
        assert {name: newest(root, name) for name in names} == before
        assert not leftovers(root)


@pytest.mark.slow
def test_reload_by_signal_and_by_command(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """SIGHUP: safe changes take effect, unsafe ones are listed, invalid ones change nothing; no count is lost."""
    config = root.parent / "cleanerd.toml"
    with broker(root):
        config.write_text('"log.cleaner.threads" = 1\n')
        with Daemon(assignments(root), root.parent, config=config) as daemon:
            daemon.until("clean", lambda view: view["totals"]["cleanings"].get("cleaned") == 1)
            config.write_text('"log.cleaner.threads" = 3\n"cleanerd.topics.exclude" = "orders"\n'
                              '"cleanerd.metrics.partitions.max" = 7\n')  # fmt: skip
            daemon.process.send_signal(signal.SIGHUP)
            view = daemon.until("reloaded", lambda view: view["settings_generation"] == 2 and view["ready"])
            assert view["threads"] == 3
            assert view["totals"]["cleanings"] == {"cleaned": 1}
            assert "cleanerd.metrics.partitions.max was changed: takes effect at the next start" in view["warnings"]
            assert len(view["history"]) == 1
            daemon.until("excluded", lambda view: view["partitions"][0]["state"] == "excluded")
            config.write_text('"log.cleaner.thread" = 3\n')
            daemon.process.send_signal(signal.SIGHUP)
            view = daemon.until("reported", lambda view: any("not reloaded" in w for w in view["warnings"]))
            assert view["settings_generation"] == 2
            assert "did you mean log.cleaner.threads?" in " ".join(view["warnings"])
            config.write_text("")
            done = command(root, capsys, "reload", "--config", str(config))
            assert done.code == 0
            assert "log.cleaner.threads" in done.out
            view = daemon.until("reloaded", lambda view: view["settings_generation"] == 3)
            assert view["threads"] == 1
            assert not any("not reloaded" in warning for warning in view["warnings"]), "the invalid setting is fixed"
            config.write_text('[topics."orders"]\n"min.compaction.lag.ms" = "1h"\n')
            assert "changed: topics.orders.min.compaction.lag.ms" in command(root, capsys, "reload").out
            config.write_text("")
            assert daemon.ask("reload")["changed"] == ["topics.orders.min.compaction.lag.ms"], (
                "and when the setting is removed"
            )
            rows = command(root, capsys, "status", "--operations").out.splitlines()
            assert [row.split()[2] for row in rows[1:3]] == ["reload", "reload"]
            assert any(row.split()[1:3] == ["a", "signal"] and "did you mean" in row for row in rows)
            assert command(root, capsys, "status", "--operations", "orders").code == 2


@dataclass(frozen=True)
class Done:
    """A command that ended."""

    code: int
    out: str
    err: str


def command(root: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> Done:
    """Any other command, while the daemon runs."""
    code = main.run([*arguments, *(word for each in assignments(root) for word in ("--set", each))])
    output = capsys.readouterr()
    return Done(code, output.out, output.err)


@pytest.mark.slow
def test_a_key_that_needs_a_restart_is_named(root: Path) -> None:
    config = root.parent / "cleanerd.toml"
    with broker(root):
        config.write_text("")
        settings = [each for each in assignments(root) if not each.startswith("cleanerd.http.listen")]
        with Daemon(settings, root.parent, config=config, environ={"CLEANERD_CLEANERD_HTTP_LISTEN": "off"}) as daemon:
            daemon.until("ready", lambda view: view["ready"])
            assert daemon.ask("reload")["needs_restart"] == []


@pytest.mark.slow
def test_systemd_is_notified(root: Path) -> None:
    """sd_notify: READY after the first scan, WATCHDOG in time, RELOADING, STOPPING; STATUS when it changes.

    The line that ``systemctl status`` shows stayed that of the start, whatever was quarantined since.
    """
    with broker(root), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        path = root.parent / "notify.sock"
        listener.bind(str(path))
        listener.settimeout(PATIENCE_SECONDS)
        environ = {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "400000"}
        with Daemon(assignments(root), root.parent, environ) as daemon:
            message = "WATCHDOG=1"
            while message == "WATCHDOG=1":  # on a slow disk it is alive before it is ready
                message = listener.recv(4096).decode()
            assert message.startswith("READY=1\nSTATUS=auto: 1 partition,")
            while message != "WATCHDOG=1":
                message = listener.recv(4096).decode()
            daemon.ask("pause")
            while not (message.startswith("STATUS=") and ", paused" in message):
                message = listener.recv(4096).decode()
            assert message == "STATUS=auto: 1 partition, 0 being cleaned, 0 quarantined, paused"
            daemon.process.send_signal(signal.SIGHUP)
            while not message.startswith("RELOADING=1\nMONOTONIC_USEC="):
                message = listener.recv(4096).decode()
            while not message.startswith("READY=1"):
                message = listener.recv(4096).decode()
            assert daemon.end(signal.SIGTERM) == 143
            while message != "STOPPING=1":
                message = listener.recv(4096).decode()


@pytest.mark.long
def test_a_log_that_cannot_be_written_does_not_stop_the_daemon(root: Path) -> None:
    """On a full disk, or with a lost journal, it continues, shows a warning, and ends normally.

    It ended with the first line that it could not write.
    """
    with broker(root):
        nowhere = ["sh", "-c", 'exec "$@" 2>/dev/full', "sh"]
        with Daemon(assignments(root), root.parent, prefix=nowhere) as daemon:
            view = daemon.until("clean", lambda view: view["totals"]["cleanings"].get("cleaned") == 1)
            assert daemon.ask("reload")["generation"] == 2
            daemon.until("reported", lambda view: any("lines of the log are lost" in text for text in view["warnings"]))
            assert not view["totals"]["dead_workers"]
            assert daemon.end(signal.SIGTERM) == 143


@pytest.mark.long
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["cleanerd.log.dirs="], "no log directory is named"),
        (["cleanerd.state.dir=logs/state"], "is in the log directory"),
        (["cleanerd.control.socket=/proc/none/control.sock"], "cannot be listened on"),
    ],
)
def test_start_up_errors_are_one_line(root: Path, settings: list[str], message: str) -> None:
    """Exit code 3, one line."""
    with broker(root):
        reported = [each.replace("=logs/", f"={root}/") for each in settings]
        with Daemon([*assignments(root), *reported], root.parent) as daemon:
            assert daemon.process.wait(PATIENCE_SECONDS) == 3
        assert message in daemon.log.read_text()
        assert "Traceback" not in daemon.log.read_text()


@pytest.mark.slow
def test_the_commands(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Status, trigger, pause, resume, retry, as a table or as JSON; 4 when no daemon answers."""
    with broker(root):
        assert command(root, capsys, "status").code == 4
        with Daemon(assignments(root), root.parent) as daemon:
            daemon.until("clean", lambda view: view["totals"]["cleanings"].get("cleaned") == 1)
            status = command(root, capsys, "status")
            assert status.code == 0
            assert "orders-0" in status.out
            assert "1 cleaned" in status.out
            assert '"schema": 1' in command(root, capsys, "status", "--json").out
            assert "orders-0" in command(root, capsys, "status", "orders-0").out
            one = json.loads(command(root, capsys, "status", "--json", "orders-0").out)
            assert [each["topic"] for each in one["partitions"]] == ["orders"]
            assert command(root, capsys, "status", "unknown-0").code == 3
            assert "orders-0: paused" in command(root, capsys, "pause", "orders-0").out
            assert "still paused: orders-0" in command(root, capsys, "resume").out
            assert "orders-0: resumed" in command(root, capsys, "resume", "orders-0").out
            assert "orders-0: will be cleaned next" in command(root, capsys, "trigger", "orders-0").out
            assert "nothing is quarantined" in command(root, capsys, "retry").out
            unknown = command(root, capsys, "trigger", "unknown-0")
            assert unknown.code == 3
            assert "cleanerd status" in unknown.err
            assert command(root, capsys, "top").code == 4


@pytest.mark.parametrize("seconds", ["nan", "inf", "0", "-1", "1e9", "soon"])
def test_invalid_intervals_of_top(seconds: str) -> None:
    """Bad usage; ``nan`` and ``inf`` were unexpected errors, after the first screen."""
    assert main.run(["top", "--seconds", seconds]) == 2


def test_the_screen_of_top() -> None:
    """Every part of a status that it shows, also in a narrow terminal."""
    from rich.console import Console  # noqa: PLC0415

    from cleanerd.cli.top import REASON_LINES, frame  # noqa: PLC0415

    job = {"topic": "orders", "partition": 0, "trigger": "ratio", "phase": "rewrite", "done_bytes": 5,
           "total_bytes": 10, "started_ms": 0}  # fmt: skip
    row: dict[str, Any] = {
        "topic": "orders", "partition": 0, "state": "cleaning", "mode": "live", "dirty_bytes": 10, "dirty_ratio": 0.5,
        "reclaimable_bytes": 5, "reclaimable_low_bytes": 1, "reclaimable_high_bytes": 9, "reclaimable_method": "sample",
        "reclaimable_exact": False, "next_purge_ms": 99_000, "reason": "a\x1b[2Jreason",
    }  # fmt: skip
    view = {
        "version": "1", "mode": "auto", "ready": True, "healthy": True, "unhealthy_reason": "", "paused": False,
        "window_open": True, "started_ms": 0, "made_ms": 1000, "partitions": [row] * 40, "running": [job],
        "warnings": ["careful"], "totals": {"cleanings": {"cleaned": 3}, "bytes_before": 10, "bytes_after": 4},
    }  # fmt: skip
    console = Console(width=100, record=True)
    console.print(frame(view))
    text = console.export_text()
    for word in (
        "50 %",
        "rewrite",
        "orders-0",
        "in 1 min 38 s",
        "~5 B",
        "and 10 more",
        "warning: careful",
        "3 cleaned",
    ):
        assert word in text, word
    assert "\x1b[2J" not in text
    row["reason"] = "nothing to clean: " * 20
    console = Console(width=80, record=True)
    console.print(frame(view))
    lines = console.export_text().splitlines()
    rows = [line for line in lines if "nothing to" in line]
    assert sum(row.startswith("orders-0") for row in rows) == 30
    assert len(rows) <= 30 * REASON_LINES, "a long reason leaves space for the other partitions"
    assert sum(line.rstrip().endswith("...") for line in lines) == 30
    assert all(len(line) <= 80 for line in lines)
