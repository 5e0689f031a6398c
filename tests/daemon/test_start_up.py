"""Starts with a failure already present: a disk that hangs, a full state directory; and an end at any moment."""

from __future__ import annotations

import contextlib
import random
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.daemon.process import Daemon, is_done, large, leftovers, newest
from tests.daemon.service import assignments, broker
from tests.support.log_dirs import make_log_dir
from tests.support.mounts import tmpfs
from tests.torture import shim

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def has_cleaned(view: dict[str, Any]) -> bool:
    return bool(view["totals"]["cleanings"].get("cleaned", 0) >= 1)


def errors_of(view: dict[str, Any]) -> list[str]:
    return [each["error"] for each in view["log_dirs"]]


@pytest.mark.long
def test_a_log_directory_hangs_at_the_very_start(root: Path) -> None:
    """It delays nothing: the broker's other one is cleaned, the daemon answers and ends; later it is cleaned as usual.

    A scan of one directory also reads others: for metadata, for the agent's socket, for replicas that are being moved.
    """
    hanging = root.parent / "hanging"
    make_log_dir(hanging, {"orders-1": large(3, 10)})
    while_there = root.parent / "it-hangs"
    while_there.touch()
    environ = {"LD_PRELOAD": str(shim.build()), "HANG_BELOW": str(hanging), "HANG_WHILE": str(while_there)}
    settings = assignments(root, hanging)
    with broker(root):
        with Daemon(settings, root.parent, environ) as daemon:
            # In either order: the hanging one is skipped after some seconds, and a cleaning takes its time.
            daemon.until(
                "the other is cleaned, and the hanging one named",
                lambda view: has_cleaned(view) and "does its disk hang?" in str(view["log_dirs"]),
            )
            assert daemon.end(signal.SIGTERM) == 143
        with Daemon(settings, root.parent, environ) as daemon:
            daemon.until("it answers", bool)
            while_there.unlink()
            daemon.until("it is like any other", lambda view: errors_of(view) == ["", ""])
            assert daemon.end(signal.SIGTERM) == 143
    assert not leftovers(root)
    assert not leftovers(hanging)


@pytest.mark.slow
def test_a_log_directory_is_missing_at_the_start(root: Path) -> None:
    """A disk that is mounted later: it is reported, the others are cleaned, and it is like any other once mounted."""
    missing = root.parent / "mounted-later"
    with broker(root), Daemon(assignments(root, missing), root.parent) as daemon:
        view = daemon.until(
            "the other is cleaned, and the missing one named",
            lambda view: has_cleaned(view) and errors_of(view)[1] != "",
        )
        assert errors_of(view) == ["", f"{missing}: does not exist (name a directory from the broker's log.dirs)"]
        assert [each["online"] for each in view["log_dirs"]] == [True, False]
        assert not missing.exists()
        make_log_dir(missing, {"orders-1": large(3, 10)})
        daemon.until("it is like any other", lambda view: errors_of(view) == ["", ""])
        assert daemon.end(signal.SIGTERM) == 143


@pytest.fixture
def full(root: Path) -> Iterator[Path]:
    """A file system of 1 MiB that is full."""
    with tmpfs(root.parent / "full", "size=1m,nr_inodes=200") as place:
        with contextlib.suppress(OSError), (place / "ballast").open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        yield place


@pytest.mark.slow
def test_the_state_directory_is_on_a_full_disk(root: Path, full: Path) -> None:
    """OP-10: it reports the file, and loses nothing; with space it cleans, by itself or at the next start."""
    settings = assignments(root, cleanerd_state_dir=str(full / "state"))
    with broker(root, {"orders-0": large(3, 10)}), Daemon(settings, root.parent) as daemon:
        before = newest(root, "orders-0")
        view = daemon.until("it says so", lambda view: "No space left" in str(view["warnings"]))
        assert str(full) in str(view["warnings"])
        (full / "ballast").unlink()
        daemon.until("it is cleaned", lambda view: bool(view["totals"]["cleanings"].get("cleaned", 0)))
        assert daemon.end(signal.SIGTERM) == 143
        assert "Traceback" not in daemon.log.read_text()
    assert newest(root, "orders-0") == before
    assert not leftovers(root)


def starts_and_stops(root: Path, times: int) -> None:
    """SIGTERM and SIGKILL at any moment from the first instruction on; nothing is lost, and in the end all is clean."""
    dice = random.Random(times)
    names = [f"orders-{number}" for number in range(3)]
    slow = assignments(root, cleanerd_io_write_max_bytes_per_second="32KiB", log_cleaner_backoff_ms="50")
    with broker(root, {name: large(4, 25) for name in names}) as agent:
        agent.settings["file.delete.delay.ms"] = "0"
        before = {name: newest(root, name) for name in names}
        for _ in range(times):
            with Daemon(slow, root.parent) as daemon:
                if dice.random() < 0.5:
                    daemon.until("it answers", bool)
                time.sleep(dice.uniform(0, 1.2))
                number = dice.choice((signal.SIGTERM, signal.SIGKILL))
                # Before the handlers are set, a signal ends it like any program.
                assert daemon.end(number) in {143, -signal.SIGTERM, -signal.SIGKILL}, daemon.log.read_text()
            agent.wait_until_left()
            assert {name: newest(root, name) for name in names} == before
        waits = {"cleanerd_retry_backoff_ms": "200", "cleanerd_retry_backoff_max_ms": "1000"}
        with Daemon(assignments(root, **waits), root.parent) as daemon:
            daemon.until("all is clean", is_done)
            assert daemon.end(signal.SIGTERM) == 143
        assert "Traceback" not in daemon.log.read_text()
        assert {name: newest(root, name) for name in names} == before
        assert not leftovers(root)


@pytest.mark.slow
def test_four_starts_and_stops(root: Path) -> None:
    """OP-10: the short version."""
    starts_and_stops(root, 4)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_fifty_starts_and_stops(root: Path) -> None:
    """OP-10: fifty times."""
    starts_and_stops(root, 50)
