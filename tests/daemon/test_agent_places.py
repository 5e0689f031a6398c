"""An agent serves a limited number of connections: a client without a connection waits, and stays live (A-37)."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import TYPE_CHECKING, Any, Final

import pytest

from cleanerd.broker.agent_pool import AgentPool, share_of
from cleanerd.broker.agent_transport import SOCKET, connect
from cleanerd.broker.live_broker import LiveBroker, RetryPolicy, find_socket
from cleanerd.broker.mode import choose_mode
from cleanerd.config.load import load_settings
from cleanerd.daemon.discovery.log_dir_scan import ScanContext
from cleanerd.daemon.discovery.log_dir_scanner import LogDirScanner
from cleanerd.daemon.limits import DaemonLimits
from cleanerd.errors import TOO_MANY, AgentRefusalError
from cleanerd.format.names import parse_topic_partition_dir
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.state.cleaner_checkpoint import StateStore
from tests.daemon.service import assignments, broker, serve, until
from tests.support.fake_agent import FakeAgent, wait
from tests.support.log_dirs import make_log_dir
from tests.support.patience import PATIENCE_SECONDS
from tests.swap.live_round import held
from tests.swap.offline_round import two_groups

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from cleanerd.daemon.service import Service

IMPATIENT: Final = RetryPolicy(
    tries=1, place_seconds=0.2, connect_seconds=PATIENCE_SECONDS, answer_seconds=PATIENCE_SECONDS
)


class ManyDirectories(FakeAgent):
    """One agent of a broker with several log directories: a partition's requests go to its directory."""

    def __init__(self, roots: list[Path], places: int) -> None:
        super().__init__(roots[0], roots[0] / SOCKET, places=places)
        self.parts = [FakeAgent(root, root / SOCKET) for root in roots]
        self.info = {"log_dirs": [str(root) for root in roots]}

    def _part(self, request: dict[str, Any]) -> FakeAgent:
        name = f"{request['topic']}-{request['partition']}"
        return next(part for part in self.parts if (part.log_dir / name).is_dir())

    def do_logs(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"logs": [row for part in self.parts for row in part.do_logs(request)["logs"]]}

    def do_log(self, request: dict[str, Any]) -> dict[str, Any]:
        return self._part(request).do_log(request)

    def do_swap(self, request: dict[str, Any]) -> dict[str, Any]:
        return self._part(request).do_swap(request)

    def do_checkpoint(self, request: dict[str, Any]) -> dict[str, Any]:
        return self._part(request).do_checkpoint(request)


@contextlib.contextmanager
def broker_of(roots: list[Path], places: int) -> Iterator[ManyDirectories]:
    """A broker that holds all of ``roots``, with two partitions in each."""
    with contextlib.ExitStack() as stack:
        for number, root in enumerate(roots):
            names = (f"orders-{2 * number}", f"orders-{2 * number + 1}")
            make_log_dir(root, {name: two_groups() for name in names}, clean_shutdown=False)
            stack.enter_context(held(root))
        yield stack.enter_context(ManyDirectories(roots, places))


@contextlib.contextmanager
def all_in_use(agent: FakeAgent) -> Iterator[Callable[[], None]]:
    """Other processes use all connections of the agent; calling the yielded function closes them."""
    others = []
    try:
        for _ in range(agent.places):
            other = socket.socket(socket.AF_UNIX)
            other.connect(str(agent.socket_path))
            other.sendall(b'{"id":1,"op":"info"}\n')
            assert other.recv(1 << 16)
            others.append(other)
        yield lambda: [other.close() for other in others] and None
    finally:
        for other in others:
            other.close()


@pytest.mark.slow
@pytest.mark.parametrize("places", [8, 64])
def test_24_directories_and_32_threads(tmp_path: Path, places: int) -> None:
    """A-37: all is cleaned, nothing is staged, and the agent never counts as missing.

    With more than eight directories or threads, the daemon itself used all eight connections. Its scans got none, and
    treated the agent as missing.
    """
    roots = [tmp_path / "disks" / f"d{number:02d}" for number in range(24)]
    with broker_of(roots, places) as agent:
        agent.fail("log", *[wait(0.01)] * 150)
        seen: set[str] = set()

        async def story(service: Service) -> None:
            def done() -> bool:
                view = service.view()
                seen.update(found.mode for found in view.log_dirs)
                return view.totals.cleanings.get("cleaned") == 48

            await until("all are clean", done)
            assert set(service.view().totals.cleanings) == {"cleaned"}

        settings = assignments(*roots, log_cleaner_threads="32", log_cleaner_backoff_ms="100")
        patient = DaemonLimits(agent_seconds=PATIENCE_SECONDS, place_seconds=PATIENCE_SECONDS)
        serve(settings, story, limits=patient)  # the fake agent, in Python, is slow on a busy machine
        assert seen == {"live"}
        assert agent.most_connections <= share_of(places)


def test_the_directories_of_a_broker_ask_once_which_partitions_are_compacted(tmp_path: Path) -> None:
    """U-23: they share an answer, but not one from before their scan: a topic may be compacted no longer."""
    roots = [tmp_path / "disks" / f"d{number}" for number in range(3)]
    settings = load_settings([], assignments(*roots), {})
    with broker_of(roots, 8) as agent, AgentPool() as pool:
        scanners = [LogDirScanner(root) for root in roots]

        def scanned() -> list[int]:
            context = ScanContext(settings, roots, StateStore(tmp_path / "state"), agents=pool)
            return [len(scanner.scan(context).present) for scanner in scanners]

        assert scanned() == [2, 2, 2]
        assert len(agent.requested("logs")) == 1
        agent.parts[1].settings["cleanup.policy"] = "delete"
        assert scanned() == [2, 0, 2]
        assert len(agent.requested("logs")) == 2


def test_a_full_queue_of_the_listener_is_retried(tmp_path: Path) -> None:
    """A-37: the kernel refuses connections while the listener's queue is full."""
    path = tmp_path / SOCKET
    with socket.socket(socket.AF_UNIX) as listener, contextlib.ExitStack() as waiting:
        listener.bind(str(path))
        listener.listen(0)
        client = waiting.enter_context(socket.socket(socket.AF_UNIX))
        client.setblocking(False)
        while client.connect_ex(str(path)) == 0:
            client = waiting.enter_context(socket.socket(socket.AF_UNIX))
            client.setblocking(False)

        def free() -> None:
            listener.accept()[0].close()

        freed = threading.Timer(0.1, free)
        freed.start()
        connect(path, PATIENCE_SECONDS).close()
        freed.join()


def test_a_scan_waits_for_a_free_connection(root: Path) -> None:
    """A-37: until another client disconnects."""
    with broker(root) as agent, all_in_use(agent) as let_go:
        threading.Timer(0.3, let_go).start()
        assert choose_mode(read_log_dir(root), [], None).mode == "live"


def test_an_agent_without_a_free_connection_is_not_missing(root: Path) -> None:
    """A-37: the agent answers that it is busy, so nothing is staged, and a scan keeps the earlier mode."""
    settings = load_settings([], assignments(root), {})
    scanner = LogDirScanner(root, limits=DaemonLimits(place_seconds=0.2))
    with broker(root) as agent:
        pool = AgentPool()
        context = ScanContext(settings, (root,), StateStore(root.parent / "state"), agents=pool)
        assert scanner.scan(context).mode.mode == "live"
        pool.close()
        with all_in_use(agent):
            with pytest.raises(AgentRefusalError, match="no free connection") as error:
                choose_mode(read_log_dir(root), [], None, patience=IMPATIENT)
            assert error.value.code == TOO_MANY
            assert scanner.scan(context).mode.mode == "live"


def test_a_lease_is_waited_for_and_ends(root: Path) -> None:
    """A-37: this process has at most its share of leases; the previous connection is used again if it is free."""
    with broker(root) as agent, AgentPool() as pool:
        name = parse_topic_partition_dir("orders-0")
        assert name is not None
        pool.learn_places(agent.socket_path, 3)
        lease = {"place_seconds": PATIENCE_SECONDS, "connect_seconds": PATIENCE_SECONDS}
        with pool.lease(agent.socket_path, **lease) as first:
            requested = LiveBroker(agent.socket_path, IMPATIENT, pool)
            with pytest.raises(AgentRefusalError, match="in use"):
                requested.log(name)
            patient = LiveBroker(agent.socket_path, RetryPolicy(place_seconds=PATIENCE_SECONDS), pool)
            waiting = threading.Thread(target=lambda: patient.log(name))
            waiting.start()
        waiting.join(PATIENCE_SECONDS)
        assert not waiting.is_alive()
        pool.learn_places(agent.socket_path, 64)
        with pool.lease(agent.socket_path, **lease) as again:
            assert again is first
            with pool.lease(agent.socket_path, **lease) as second:
                pass
        with pool.lease(agent.socket_path, last=second, **lease) as kept:
            assert kept is second


def test_a_broker_that_was_restarted(root: Path) -> None:
    """A-37: each idle connection would fail once; the first failure closes the others."""
    with broker(root) as agent, AgentPool() as pool:
        lease = {"place_seconds": PATIENCE_SECONDS, "connect_seconds": PATIENCE_SECONDS}
        with contextlib.ExitStack() as stack:
            for _ in range(5):
                stack.enter_context(pool.lease(agent.socket_path, **lease)).call("info")
        agent.stop()
        agent.start()
        name = parse_topic_partition_dir("orders-0")
        assert name is not None
        assert LiveBroker(agent.socket_path, IMPATIENT, pool).log(name).leo == 8


def test_a_socket_file_without_a_listener(root: Path) -> None:
    """U-31: of a directory that the broker no longer uses; the agent listens in another one."""
    gone = root.parent / "a-gone"
    make_log_dir(gone, {})
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(gone / SOCKET))
    stale.close()
    with broker(root) as agent:
        assert find_socket(None, [gone, root]) == agent.socket_path
        assert choose_mode(read_log_dir(root), [gone], None).mode == "live"
    assert find_socket(None, [gone, root]) == gone / SOCKET, "connecting to it reports why that fails"


@pytest.mark.slow
def test_a_partition_that_waits_gives_the_worker_back(root: Path) -> None:
    """D-10: old files of three partitions are deleted seconds later; the only worker cleans the fourth first."""
    with broker(root, 4) as agent:
        agent.settings["file.delete.delay.ms"] = "6000"
        for number in range(3):
            (root / f"orders-{number}" / f"{0:020d}.log.deleted").write_bytes(b"")
        began = time.monotonic()

        async def story(service: Service) -> None:
            await until("the fourth is clean", lambda: service.view().totals.cleanings.get("cleaned") == 1)
            took.append(time.monotonic() - began)
            for number in range(3):
                (root / f"orders-{number}" / f"{0:020d}.log.deleted").unlink()
            await until("the others are, too", lambda: service.view().totals.cleanings.get("cleaned") == 4)
            took.append(time.monotonic() - began)

        took: list[float] = []
        serve(assignments(root, log_cleaner_threads="1"), story)
        assert took[0] < 5.0, "no worker waited for the others' files"
        assert took[1] < 14.0, "they are tried again once their files are deleted, not fifteen seconds later"
