"""Settings that are read again while the daemon runs: running jobs follow them too, and nothing gets stuck."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
import uvloop

from cleanerd.cli.options import Common
from cleanerd.cli.output import Output
from cleanerd.cli.run import reread
from cleanerd.config.load import Settings, load_settings
from cleanerd.daemon.configuration import Configuration
from cleanerd.daemon.notify import Notifier
from cleanerd.daemon.service import Service
from cleanerd.daemon.superseded_by_reload import is_superseded
from cleanerd.errors import CleanerdError, ConfigError
from cleanerd.format.names import TopicPartition
from tests.daemon.process import Daemon, large, leftovers, newest
from tests.daemon.service import assignments, broker, recorded, serve, until
from tests.support.log_dirs import make_log_dir
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from cleanerd.daemon.work.job import CleaningJob

RUNS = ["cleanerd.mode=auto"]
CHANGES = {
    "excluded": ("cleanerd.topics.exclude=ord*", {"live", "stage", "observe", "estimate"}),
    "no longer included": ("cleanerd.topics.include=carts", {"live", "stage", "observe", "estimate"}),
    "observes": ("cleanerd.mode=observe", {"live", "stage"}),
    "only stages": ("cleanerd.mode=on-start", {"live"}),
    "only live": ("cleanerd.mode=live", {"stage"}),
    "other rules": ("topics.orders.compaction.strategy=timestamp", {"live", "stage"}),
    "other rules for all": ("log.cleaner.compaction.strategy=timestamp", {"live", "stage"}),
    "younger records": ("topics.ord*.min.compaction.lag.ms=1d", {"live", "stage"}),
    "tombstones stay": ("topics.orders.tombstone.guard=forever", {"live", "stage"}),
    "producers are forgotten": ("producer.id.expiration.ms=1h", {"live", "stage"}),
    "rules of another topic": ("topics.carts.compaction.strategy=timestamp", set()),
    "another topic is excluded": ("cleanerd.topics.exclude=carts", set()),
    "more at once": ("log.cleaner.threads=7", set()),
    "outside of the windows": ("cleanerd.windows=Mon 00:00-00:01", set()),
    "a higher ratio": ("log.cleaner.min.cleanable.ratio=0.9", set()),
}


@pytest.mark.parametrize("change", CHANGES)
def test_which_jobs_a_reload_stops(change: str) -> None:
    """One that would not start now, or with other compaction settings; no other change restarts a cleaning of hours."""
    reported, kinds = CHANGES[change]
    before, after = load_settings([], RUNS, {}), load_settings([], [*RUNS, reported], {})
    jobs = {kind: job(kind) for kind in ("live", "stage", "observe", "estimate")}
    assert {kind for kind, each in jobs.items() if is_superseded(each, before, after)} == kinds
    assert not any(is_superseded(each, after, after) for kind, each in jobs.items() if kind not in kinds)


def job(kind: str) -> CleaningJob:
    """A job with these properties only."""
    return cast("CleaningJob", SimpleNamespace(kind=kind, name=TopicPartition("orders", 0)))


@pytest.mark.long
@pytest.mark.parametrize("change", ["excluded", "other rules"])
def test_a_reload_stops_a_cleaning(root: Path, change: str) -> None:
    """It stops between two chunks; once it continued to its end, whatever the new settings were."""
    config = root.parent / "cleanerd.toml"
    config.write_text("")
    with broker(root, {"orders-0": large(12, 30)}) as agent:
        before = newest(root, "orders-0")
        settings = assignments(root, cleanerd_io_write_max_bytes_per_second="30KiB")
        with Daemon(settings, root.parent, config=config) as daemon:
            view = daemon.until("it rewrites", lambda view: any(each["phase"] == "rewrite" for each in view["running"]))
            (began,) = (each["started_ms"] for each in view["running"])
            key, _, value = CHANGES[change][0].partition("=")
            config.write_text(f'"{key}" = "{value}"\n')
            swaps = len(agent.requested("swap"))
            daemon.ask("reload")
            daemon.until("it ended", lambda view: all(each["started_ms"] != began for each in view["running"]))
            assert len(agent.requested("swap")) <= swaps + 1, "no group after the one that was being swapped"
            assert not daemon.ask("status")["totals"]["cleanings"]
            assert daemon.end(signal.SIGTERM) == 143
        assert newest(root, "orders-0") == before
        assert not leftovers(root)


@pytest.mark.slow
def test_a_cleaning_adopts_settings_that_do_not_affect_retention(root: Path) -> None:
    config = root.parent / "cleanerd.toml"
    config.write_text("")
    with broker(root, {"orders-0": large(4, 30)}):
        settings = assignments(root, cleanerd_io_write_max_bytes_per_second="60KiB")
        with Daemon(settings, root.parent, config=config) as daemon:
            view = daemon.until("it rewrites", lambda view: any(each["phase"] == "rewrite" for each in view["running"]))
            (began,) = (each["started_ms"] for each in view["running"])
            config.write_text(
                '"cleanerd.topics.exclude" = "carts"\n[topics.carts]\n"compaction.strategy" = "timestamp"\n'
            )
            daemon.ask("reload")
            view = daemon.until("it is done", lambda view: view["totals"]["cleanings"].get("cleaned") == 1)
            assert view["history"][0]["started_ms"] == began


def test_a_log_directory_around_the_state_that_is_written_to(tmp_path: Path) -> None:
    """Another state directory is used from the next start on; until then no log directory may contain this one."""
    before = [f"cleanerd.log.dirs={tmp_path}/logs", f"cleanerd.state.dir={tmp_path}/kafka/state"]
    after = [f"cleanerd.log.dirs={tmp_path}/kafka", f"cleanerd.state.dir={tmp_path}/state"]
    configuration = Configuration(load_settings([], before, {}), lambda: load_settings([], after, {}))
    with pytest.raises(ConfigError, match=r"cleanerd\.state\.dir=.*/kafka/state: is in the log directory"):
        configuration.reload()
    assert (configuration.generation, configuration.log_dirs) == (1, (tmp_path / "logs",))


def test_log_directories_that_the_brokers_file_has_now(tmp_path: Path) -> None:
    """None of our keys changed: "nothing changed" was reported while a directory was dropped and another one added."""
    properties = tmp_path / "server.properties"
    properties.write_text(f"log.dirs={tmp_path}/a\n")
    reported = [f"cleanerd.broker.properties={properties}", f"cleanerd.state.dir={tmp_path}/state"]
    configuration = Configuration(load_settings([], reported, {}), lambda: load_settings([], reported, {}))
    assert configuration.reload().keys == ()
    properties.write_text(f"log.dirs={tmp_path}/b\n")
    assert configuration.reload().keys == (f"log.dirs in {properties}",)
    assert configuration.log_dirs == (tmp_path / "b",)


def test_an_empty_log_directory_that_is_added_is_watched(root: Path) -> None:
    """It was not watched until a scan of everything found its first partition."""
    added = make_log_dir(root.parent / "added", {})
    properties = root.parent / "server.properties"
    properties.write_text(f"log.dirs={root}\n")
    followed: list[set[Path]] = []

    async def story(service: Service) -> None:
        await until("the first one is watched", lambda: followed[-1] == {root})
        properties.write_text(f"log.dirs={root},{added}\n")
        service.reload()
        await until("both are watched", lambda: followed[-1] == {root, added})

    settings = [each for each in assignments(root) if not each.startswith("cleanerd.log.dirs")]
    with broker(root):
        serve([*settings, f"cleanerd.broker.properties={properties}"], story, watcher=recorded(followed))


def test_settings_that_came_through_a_pipe(tmp_path: Path) -> None:
    """``--config <(...)``: read again it is empty, so all settings became defaults; a FIFO blocks."""
    pipe, file = tmp_path / "pipe", tmp_path / "file"
    os.mkfifo(pipe)
    file.write_text(f'"cleanerd.state.dir" = "{tmp_path}/state"\n"log.cleaner.threads" = 3\n')
    for first in (pipe, Path("/dev/null")):
        with pytest.raises(ConfigError, match="is not a file that can be read again"):
            reread(Common(Output(), (first, file), (), verbose=False))
    assert reread(Common(Output(), (file,), (), verbose=False)).daemon.log_cleaner_threads == 3
    with pytest.raises(ConfigError, match="No such file"):
        reread(Common(Output(), (tmp_path / "none",), (), verbose=False))


class Reported(Notifier):
    """The messages that systemd would get."""

    def __init__(self) -> None:
        super().__init__({})
        self.words: list[str] = []

    def _send(self, message: str) -> bool:
        self.words.append(message.partition("\n")[0])
        return True


def test_a_reload_that_fails_unexpectedly(root: Path) -> None:
    """A bug, or too little memory: the old settings stay, the failure is reported, and systemd gets its answer."""
    reported = Reported()

    def broken() -> Settings:
        raise ValueError("an unforeseen bug")

    async def main() -> None:
        service = Service(load_settings([], assignments(root), {}), broken, notifier=reported)
        running = asyncio.create_task(service.run())
        try:
            await until("ready", lambda: service.view().ready)
            with pytest.raises(CleanerdError, match="unexpected error: ValueError: an unforeseen bug"):
                service.reload()
            assert "settings not reloaded: unexpected error: ValueError" in service.view().warnings[0]
            assert service.configuration.generation == 1
        finally:
            service.stop()
            async with asyncio.timeout(PATIENCE_SECONDS):
                await running

    with broker(root), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
    assert reported.words == ["READY=1", "RELOADING=1", "READY=1", "STOPPING=1"]


def test_a_reload_during_the_start_does_not_end_it(root: Path) -> None:
    """SIGHUP before the first scan ended: the unit counted as started, and was refused a moment later."""
    reported = Reported()
    settings = load_settings([], assignments(root), {})

    async def main() -> None:
        service = Service(settings, lambda: settings, notifier=reported)
        service.reload()
        assert reported.words == []
        running = asyncio.create_task(service.run())
        try:
            await until("ready", lambda: "READY=1" in reported.words)
            service.reload()
        finally:
            service.stop()
            async with asyncio.timeout(PATIENCE_SECONDS):
                await running

    with broker(root), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
    assert reported.words == ["READY=1", "RELOADING=1", "READY=1", "STOPPING=1"]
