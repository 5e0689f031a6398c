"""``cleanerd move-aside``: moves replicas out of a stopped broker's log directory, so that it fetches them again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cleanerd.admin.client_config import read_client_config
from cleanerd.cli.each_dir import collected
from cleanerd.cli.output import Column
from cleanerd.cli.scope import select_in
from cleanerd.errors import CleanerdError, RefusedError, worst_exit_code
from cleanerd.host.clock import wall_ms
from cleanerd.humanize import counted
from cleanerd.resolution.log_dir_session import LogDirSession
from cleanerd.resolution.long_away import long_away, require_replaceable
from cleanerd.state.cleaner_checkpoint import StateStore
from cleanerd.state.moved_aside import record_aside_dir
from cleanerd.swap.lock import LogDirLock
from cleanerd.swap.move_aside import aside_dir, move_aside
from cleanerd.swap.session import LockedDir

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cleanerd.admin.cluster import LeaderAndIsr
    from cleanerd.cli.options import Common
    from cleanerd.format.names import TopicPartition
    from cleanerd.resolution.broker_facts import BrokerFacts
    from cleanerd.resolution.selection import PartitionSelection
    from cleanerd.segments.log_dir import LogDir

LOCK_WAIT_SECONDS = 2.0


def move_aside_command(
    common: Common, log_dirs: tuple[Path, ...], *, partitions: tuple[str, ...], to: Path | None, yes: bool
) -> int:
    """What ``cleanerd move-aside`` does; its command line is in ``cleaning_commands.py``."""
    log_dirs = common.log_dirs(log_dirs)
    request = _MoveRequest(common, log_dirs, partitions, to, yes=yes)
    for path in log_dirs:
        with collected(request.failures):
            request.move_in(path)
    return request.finish()


class _MoveRequest:
    """The request, and the replicas moved so far."""

    def __init__(
        self, common: Common, paths: Sequence[Path], partitions: Sequence[str], to: Path | None, *, yes: bool
    ) -> None:
        self.output = common.output
        self.settings = common.load_settings()
        self.paths, self.to, self.yes = paths, to, yes
        self.wanted: PartitionSelection = select_in(partitions, paths)
        self.moved: list[tuple[TopicPartition, Path]] = []
        self.failures: list[CleanerdError] = []

    def move_in(self, path: Path) -> None:
        """Move the requested replicas of one log directory, after a question.

        Raises:
            CleanerdError: the directory is in use, or cannot be read.
        """
        state_dir = self.settings.daemon.cleanerd_state_dir
        # Before the lock: a wrong directory must not get a lock file.
        session = LogDirSession.open(self.settings, StateStore(state_dir), path, self.paths)
        with LogDirLock.acquire(path, wait_seconds=LOCK_WAIT_SECONDS) as lock:
            session = session.refreshed()
            log_dir, facts = session.log_dir, session.facts
            names = self._allowed(log_dir, facts)
            if not names:
                return
            place = aside_dir(path, self.to, self.paths)
            some = ", ".join(map(str, names[:5])) + (", ..." if len(names) > 5 else "")
            what = f"{counted(len(names), 'partition')} ({some})"
            question = f"Move {what} from {path} to {place}? The broker fetches all their data again."
            if not self.output.confirm(question, yes=self.yes):
                raise click.Abort
            if self.to is not None:
                record_aside_dir(state_dir, place)
            locked = LockedDir(log_dir, lock, session.store, facts.resources())
            for name in names:
                with collected(self.failures):
                    self.moved.append((name, move_aside(locked, name, place)))

    def _allowed(self, log_dir: LogDir, facts: BrokerFacts) -> list[TopicPartition]:
        """The requested replicas here, without those that may be the only complete copy; these are reported."""
        if self.wanted:
            names = [name for name in log_dir.partitions if name in self.wanted]
        else:
            names = [each.name for each in long_away(log_dir, facts, wall_ms())]
        known = self._query_cluster(log_dir, names) if names else {}
        allowed = []
        for name in names:
            with collected(self.failures):
                if name in known:
                    _require_led_elsewhere(facts, name, known[name])
                else:
                    require_replaceable(facts, name)
                allowed.append(name)
        return allowed

    def _query_cluster(self, log_dir: LogDir, names: Sequence[TopicPartition]) -> Mapping[TopicPartition, LeaderAndIsr]:
        """The current leaders and ISR; empty if no cluster is configured: then the metadata log decides."""
        from cleanerd.admin.cluster import Cluster  # noqa: PLC0415 - the Kafka client takes a while to import

        daemon = self.settings.daemon
        try:
            client = read_client_config(daemon.cleanerd_command_config)
            servers = daemon.bootstrap_servers or client.servers
            if servers is None:
                return {}
            with Cluster(servers, client) as cluster:
                cluster_id, known = cluster.cluster_id(), cluster.replicas(sorted({name.topic for name in names}))
        except CleanerdError as error:
            self.output.warning(f"{error}; the metadata log on this host decides")
            return {}
        if cluster_id != log_dir.meta.cluster_id:
            raise RefusedError(f"is another cluster than that of {log_dir.path}", where=f"bootstrap.servers={servers}")
        return known

    def finish(self) -> int:
        """Report, with the command that reverts it. Returns the exit code."""
        if self.output.as_json:
            self.output.json({
                "moved": [
                    {"topic": name.topic, "partition": name.partition, "path": str(path)} for name, path in self.moved
                ],
                "errors": [error.to_json() for error in self.failures],
            })  # fmt: skip
        elif self.moved:
            self.output.table([Column("partition"), Column("is now in")], [[str(n), str(p)] for n, p in self.moved])
            self.output.line()
            self.output.line("Start the broker. It fetches these partitions from their leaders.")
            self.output.line("Delete a moved directory when the partition's ISR is full again:")
            self.output.line("  kafka-topics.sh --bootstrap-server HOST:PORT --describe --under-replicated-partitions")
            self.output.line("To bring one back, stop the broker, delete the new directory, and move the old one back.")
        elif not self.failures:
            self.output.line("Nothing to move: no replica here was away longer than delete.retention.ms.")
        return worst_exit_code({error.exit_code for error in self.failures}, some_done=bool(self.moved))


def _require_led_elsewhere(facts: BrokerFacts, name: TopicPartition, now: LeaderAndIsr) -> None:
    why = (
        "its node id is unknown" if facts.node_id is None else now.why_needed(facts.node_id, facts.topic_id(name.topic))
    )
    if why:
        raise RefusedError(
            f"its replica here may be the only complete one: {why}",
            where=str(name),
            hint="wait until another broker leads the partition, with this one out of the ISR",
        )
