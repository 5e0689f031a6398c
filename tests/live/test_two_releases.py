"""Upgrade and downgrade of cleanerd under load: two installed releases, daemons and agents of both in turns."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from cleanerd.broker.agent_transport import SOCKET
from tests.agent.building import changed_build
from tests.brokers.node import cleanerd, errors, names_ending, wait_until
from tests.daemon.process import Daemon
from tests.daemon.service import assignments
from tests.live.late_writer import NO_LAG, STRATEGY, TOPIC, LateWriter, read_winners
from tests.live.load import WRITINGS, Load, create_topics
from tests.support.releases import next_release, this_release

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

    from cleanerd_lab.demo.broker import Broker
    from tests.kafka.fixtures import StartBroker
    from tests.support.releases import Release

pytestmark = [pytest.mark.kafka, pytest.mark.broker, pytest.mark.long, pytest.mark.timeout(1500)]

BETWEEN = 12
"""Swaps between one step and the next."""


class Upgrade:
    """One broker under load, its daemons one after the other, and their output."""

    def __init__(self, broker: Broker, base: Path, load: Load, late: LateWriter) -> None:
        self.broker = broker
        self.base = base
        self.load = load
        self.late = late
        self.swaps: list[int] = []

    def settings(self, strategy: tuple[str, ...]) -> list[str]:
        """Settings with which cleanerd cleans every topic often.

        The broker never does, because its dirty ratio is 1.
        """
        often = [f"topics.{writing.topic}.min.cleanable.dirty.ratio=0.05" for writing in WRITINGS]
        common = assignments(
            *self.broker.log_dirs,
            cleanerd_state_dir=str(self.base / "state"),
            cleanerd_control_socket=str(self.base / "control.sock"),
            log_cleaner_backoff_ms="300",
            cleanerd_broker_properties=str(self.broker.properties_file),
        )
        return [*common, *often, *strategy]

    @contextmanager
    def daemon(
        self, release: Release, *, ends_by: signal.Signals, strategy: tuple[str, ...] = STRATEGY
    ) -> Iterator[Daemon]:
        """The daemon of ``release`` until the block ends."""
        with Daemon(self.settings(strategy), self.base, release.environment) as daemon:
            yield daemon
            daemon.end(ends_by)

    def swap_on(self, daemon: Daemon) -> dict[str, Any]:
        """Wait for ``count`` more swaps; every key of the topic with versions is right."""
        before = daemon.until("it answers", lambda _: True)["totals"]["swaps"]
        view = daemon.until("swaps go on", lambda view: view["totals"]["swaps"] >= before + BETWEEN)
        assert not self.load.ledger.problems, self.load.ledger.problems[:5]
        assert not [each for each in view["partitions"] if each["phase"] == "quarantined"]
        assert view["totals"]["dead_workers"] == 0
        self.check_versions()
        self.swaps.append(view["totals"]["swaps"] - before)
        return view

    def check_versions(self) -> None:
        expected = self.late.winners()
        seen = read_winners(self.broker, expected)
        assert all(seen[key][0] >= rank for key, (rank, _) in expected.items())

    def put_agent_in(self, release: Release) -> None:
        """Run the release's own ``agent attach``; the loaded agent ends its swap first."""
        reported = release.run("agent", "attach", *self.broker.log_dirs)
        assert reported.code == 0, reported.err
        assert reported.document["same_build"] is True


def test_up_and_down_under_load(broker_43: StartBroker, tmp_path: Path) -> None:
    """U-6, U-10, A-03: agent first, daemon first, killed and stopped.

    No record is lost, and every topic keeps its strategy.
    """
    old = this_release(tmp_path / "old")
    next_agent = changed_build(tmp_path, "next", "Hex.java", ("Java 11 has no HexFormat.", "The next release's."))
    new = next_release(tmp_path / "new", jar=next_agent)
    broker = broker_43()
    create_topics(broker, [writing.topic for writing in WRITINGS], partitions=2, segment_bytes=10_000)
    create_topics(broker, [TOPIC], segment_bytes=10_000, max_compaction_lag_ms=NO_LAG)
    load, late = Load(broker, partitions=2), LateWriter(broker)
    day = Upgrade(broker, tmp_path, load, late)
    day.put_agent_in(old)
    with load, late:
        with day.daemon(old, ends_by=signal.SIGKILL) as daemon:
            day.swap_on(daemon)
            day.put_agent_in(new)
            day.swap_on(daemon)  # the old daemon, the new agent; then killed, perhaps in the middle of a swap
        with day.daemon(new, ends_by=signal.SIGTERM) as daemon:
            day.swap_on(daemon)
            day.put_agent_in(old)
            day.swap_on(daemon)  # the new daemon with the old agent
        staged = new.run("stage", *broker.log_dirs, "--force", "--partition", f"{WRITINGS[0].topic}-0", *_set(day))
        assert staged.code in {0, 4}, staged.err
        # Downgrade, and the strategy settings are missing: no topic is cleaned by another strategy.
        with day.daemon(old, ends_by=signal.SIGKILL, strategy=()) as daemon:
            view = day.swap_on(daemon)
            (versioned,) = (each for each in view["partitions"] if each["topic"] == TOPIC)
            assert "was last cleaned by" in str(versioned) or "newer cleanerd" in str(versioned), versioned
        with day.daemon(old, ends_by=signal.SIGTERM) as daemon:
            view = day.swap_on(daemon)
            daemon.until("versions go on", lambda view: _cleaned(view, TOPIC))
    check(day, old)
    print(f"\n{day.swaps} swaps, {load.ledger.count} records")  # noqa: T201


def _set(day: Upgrade) -> list[str]:
    return [word for each in day.settings(STRATEGY) for word in ("--set", each)]


def _cleaned(view: dict[str, Any], topic: str) -> bool:
    return any(each["result"]["outcome"] == "cleaned" and each["topic"] == topic for each in view["history"])


def check(day: Upgrade, last: Release) -> None:
    """Every acknowledged record exists; versions win; no swap leaves files; no problem is reported."""
    day.load.check()
    assert day.late.problems == []
    assert read_winners(day.broker, day.late.winners()) == day.late.winners()
    message = (day.base / "daemon.log").read_text()
    assert "report it" not in message
    assert "a worker died" not in message
    assert "quarantined" not in message
    assert "written by a newer cleanerd (format 2, this one knows 1)" in message
    verified = cleanerd("verify", day.broker.log_dirs, day.base / "state")
    assert verified.exit_code == 0, (verified.document, verified.stderr)
    info = last.run("agent", "info", *day.broker.log_dirs).document
    assert (info["pauses"], info["failed_resumes"]) == ([], [])
    assert (day.broker.log_dirs[0] / SOCKET).is_socket()
    assert not day.broker.log_dirs[0].joinpath("cleaner-offset-checkpoint").read_text().count(TOPIC), (
        "not Kafka's rules"
    )
    wait_until(
        "replaced segments are deleted", lambda: not names_ending(day.broker.log_dirs, ".deleted", ".swap", ".cleaned")
    )
    assert not errors(day.broker.log_text())
