"""A broker whose logs are cleaned live, and SIGKILLs of cleanerd, the broker or both, mostly during a swap.

After each kill: every group is exactly old or exactly new, and no checkpoint is too high. Consumers of both kinds find
no record lost, back, twice or out of order. At the end no files are left.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cleanerd.broker.agent_transport import SOCKET
from cleanerd.errors import CleanerdError
from cleanerd_lab.demo.broker import Broker, BrokerError
from tests.brokers.node import cleanerd, open_files, wait_until
from tests.daemon.service import assignments
from tests.kafka.judge import fetch_jars
from tests.live.forks import Cleaner, ForkedDaemon, ForkServer
from tests.live.kill_checks import Readers, Requested, left_behind, now_loaded, too_high
from tests.live.kill_moment import Strike
from tests.live.kill_writers import WRITTEN, Writers
from tests.live.load import Load, create_topics
from tests.live.proxy import Proxy
from tests.live.rounds import with_agent
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Sequence

PARTITIONS: Final = 2
ON_DISK: Final = "while a swap is on the disk"
IN_BETWEEN: Final = "between request and answer"
VICTIMS: Final = ("cleanerd", "daemon", "broker beside cleanerd", "broker beside the daemon", "both", "both, a daemon")
DAEMON: Final = "daemon"
OFTEN: Final = 0.05
STOPPED: Final = 128 + signal.SIGTERM
"""Exit code of a daemon after SIGTERM."""
# A killed broker may return once the controller's session timeout has expired: 9 s by default.
_PROPERTIES: Final = {"broker.session.timeout.ms": "1500", "broker.heartbeat.interval.ms": "300"}
AT_ONCE: Final = 6
"""Number of kills of cleanerd that share one write before and one read after them."""


@dataclass
class Killing:
    """Six partitions, writers of three kinds, and readers of two kinds."""

    broker: Broker
    work: Path
    proxies: dict[str, Proxy]
    forks: ForkServer
    dice: random.Random
    load: Load = field(init=False)
    writers: Writers = field(init=False)
    readers: Readers = field(init=False)
    daemon: ForkedDaemon = field(init=False)
    requested: dict[Path, Requested] = field(default_factory=dict)
    moments: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    finishes: bool = True

    def __post_init__(self) -> None:
        self.load = Load(self.broker, WRITTEN, partitions=PARTITIONS, brokers_come_and_go=True, to_the_end=True)
        self.writers = Writers(self.load, self.dice)
        self.readers = Readers(self.load, self.writers)
        self.daemon = ForkedDaemon(self._settings(DAEMON), self.work, forks=self.forks)
        for proxy in self.proxies.values():
            proxy.before_swap = self._note

    @property
    def kills(self) -> int:
        """Kills so far; one of both processes counts once."""
        return self.moments["kills"]

    def with_dice(self, dice: random.Random) -> None:
        """Replace the random generator."""
        self.dice = self.writers.dice = dice

    def kill(self, victims: str, times: int = 1) -> None:
        """Kill one of ``VICTIMS`` ``count`` times, then check everything."""
        if victims == "cleanerd":
            while times:
                times -= self._kill_cleanings(min(times, AT_ONCE))
        elif victims == "daemon":
            self._kill_daemon(times)
        else:
            for _ in range(times):
                self._kill_broker(both=victims.startswith("both"), beside_daemon="daemon" in victims)

    # -- cleanerd alone -------------------------------------------------------------------------------------------

    def _kill_cleanings(self, count: int) -> int:
        """Run cleanings in parallel, each of its own partition, and kill each of them."""
        self.writers.write()
        strikes: list[tuple[Cleaner, Strike]] = []
        for name in self.dice.sample(self._names(), count):
            process = self._clean(name)
            strike = Strike(self._killer(process, name), self._delay_seconds())
            self._arm(name, strike)
            strikes.append((process, strike))
        struck = 0
        for process, strike in strikes:
            code = process.wait(PATIENCE_SECONDS)
            self.outcomes[f"cleanerd: {code}"] += 1
            struck += strike.done.is_set()
            assert code in {0, -signal.SIGKILL}, code
        self._disarm()
        self._read_disk()
        self._read_all()
        return struck

    def _kill_daemon(self, times: int) -> None:
        """Kill and restart the daemon repeatedly; at the end every partition is clean."""
        self.writers.write()
        for _ in range(times):
            strike = self._strike_daemon()
            # do not wait for a swap if every partition is clean
            wait_until("the daemon swaps", lambda strike=strike: strike.done.is_set() or self._is_idle())  # type: ignore[misc]
            if not strike.done.is_set():
                self.writers.write()
                wait_until("the daemon swaps", strike.done.is_set)
            self.outcomes[f"daemon: {self.daemon.process.wait(PATIENCE_SECONDS)}"] += 1
            self._read_disk()
        self._let_the_daemon_end()
        self._read_all()

    def _strike_daemon(self) -> Strike:
        """A daemon that is killed as soon as it requests a swap."""
        self.daemon.start()
        strike = Strike(self._killer(self.daemon.process, DAEMON), self._delay_seconds())
        self._arm(DAEMON, strike)
        return strike

    def _let_the_daemon_end(self) -> None:
        """Wait until everything is clean, including partitions to retry, then send SIGTERM."""
        self._disarm()
        if self.daemon.process.poll() is not None:
            self.daemon.start()
        self.daemon.until("the daemon continues", lambda _: True)
        self.daemon.ask("retry")
        wait_until("the daemon has cleaned everything", self._is_idle)
        view = self.daemon.ask("status")
        self.wrong += [f"quarantined: {each}" for each in view["partitions"] if each["state"] == "quarantined"]
        wait_until("the daemon has no file of a log open", lambda: self._held(self.daemon.process.pid) == [])
        code = self.daemon.end(signal.SIGTERM)
        if code != STOPPED:
            self.wrong.append(f"the daemon ended with {code}")

    def _is_idle(self) -> bool:
        """Whether the daemon has no work left; partitions skipped after two deaths are retried first."""
        try:
            reported = self.daemon.ask("status")["partitions"]
            partitions = [each for each in reported if each["state"] != "excluded"]
            if any(each["state"] == "quarantined" for each in partitions):
                self.outcomes["skipped after two deaths, retried"] += 1
                self.daemon.ask("retry")
                return False
        except CleanerdError:
            return False  # the socket is not open yet, or closed again
        idle = [each for each in partitions if each["state"] == "idle" and each["dirty_ratio"] < OFTEN]
        return len(idle) == len(partitions) == len(self._names())

    # -- with the broker --------------------------------------------------------------------------------------------

    def _kill_broker(self, *, both: bool, beside_daemon: bool) -> None:
        """Kill the broker alone or with the cleaner beside it, sometimes once more during recovery."""
        self.writers.write()
        cleaners: list[tuple[str, Cleaner]]
        if beside_daemon:
            self.daemon.start()
            cleaners = [(DAEMON, self.daemon.process)]
        else:
            cleaners = [(name, self._clean(name)) for name in self.dice.sample(self._names(), 2)]

        def kill() -> None:
            self.writers.in_flight()
            time.sleep(self.dice.uniform(0, 0.005))
            os.kill(self.broker.pid, signal.SIGKILL)
            if both:
                for _, process in cleaners:
                    process.kill()

        strike = Strike(kill, self._delay_seconds())
        for name, _ in cleaners:
            self._arm(name, strike)
        wait_until("a swap is requested", strike.done.is_set)
        self._disarm()
        self.broker.kill()
        self._count(*(name for name, _ in cleaners), what="both" if both else "broker")
        if both:
            for _, process in cleaners:
                process.wait(PATIENCE_SECONDS)
        self._read_disk()
        self._start_broker()
        self.writers.settle()
        if beside_daemon:
            self._let_the_daemon_end()
        else:
            for _, process in cleaners:
                self.outcomes[f"cleanerd beside a broker that was killed: {process.wait(PATIENCE_SECONDS)}"] += 1
        self._read_all()

    def _start_broker(self) -> None:
        """Start the broker; half of the time kill it once more while it starts, with the state of the first kill."""
        if self.dice.random() < 0.5:
            once_more = threading.Timer(self.dice.uniform(0.4, 1.6), lambda: os.kill(self.broker.pid, signal.SIGKILL))
            once_more.start()
            with suppress(BrokerError):
                self.broker.start()
            once_more.join()
            self.broker.kill()
            self._count(*self.proxies, what="broker while it starts")
            self._read_disk()
        self.broker.start()

    # -- triggers of a kill -------------------------------------------------------------------------------------------

    def _killer(self, process: Cleaner, name: str) -> Callable[[], None]:
        def kill() -> None:
            if process.poll() is None:
                on_disk = self._is_on_the_disk(name)
                process.kill()
                self._count(name, what="daemon" if name == DAEMON else "cleanerd", on_disk=on_disk)

        return kill

    def _count(self, *names: str, what: str, on_disk: bool = False) -> None:
        """Count a kill by its moment.

        ``on_disk``: a swap was on the disk right before the kill; if not, one may be there right after it. When
        cleanerd alone is killed, the agent goes on, perhaps faster than this check.
        """
        self.moments["kills"] += 1
        self.moments[f"of {what}"] += 1
        self.moments[ON_DISK] += on_disk or self._is_on_the_disk(*names)
        proxies = [self.proxies[name] for name in names]
        self.moments[IN_BETWEEN] += any(proxy.requested_at and not proxy.answered_at for proxy in proxies)

    def _is_on_the_disk(self, *names: str) -> bool:
        directories = list(self.requested) if DAEMON in names else [self._directory(name) for name in names]
        return any(
            requests.is_on_the_disk() for each in directories if (requests := self.requested.get(each)) is not None
        )

    def _delay_seconds(self) -> float:
        """Delay from the request to the kill; zero half of the time."""
        return self.dice.choice((0, self.dice.uniform(0, 0.008)))

    def _arm(self, name: str, strike: Strike) -> None:
        """Arm the kill for the next swap, or in one of ten cases for a random time."""
        if self.dice.random() < 0.9:
            self.proxies[name].after_swap = strike
            return
        threading.Timer(self.dice.uniform(0.4, 1.5), strike).start()

    def _disarm(self) -> None:
        for proxy in self.proxies.values():
            proxy.after_swap = lambda: None

    def _note(self, request: dict[str, Any]) -> None:
        directory = Path(request["dir"])
        requests = Requested.of(request, directory)
        if requests is not None:
            self.requested[directory] = requests

    # -- cleaners ---------------------------------------------------------------------------------------------------

    def _names(self) -> list[str]:
        return [f"{place.topic}-{place.partition}" for place in self.load.places]

    def _directory(self, name: str) -> Path:
        return self.broker.log_dirs[0] / name

    def _settings(self, proxy: str) -> list[str]:
        often = [f"topics.{each.topic}.min.cleanable.dirty.ratio={OFTEN}" for each in WRITTEN]
        common = assignments(
            *self.broker.log_dirs,
            cleanerd_state_dir=str(self.work / "state"),
            cleanerd_control_socket=str(self.work / "control.sock"),
            cleanerd_agent_socket=str(self.proxies[proxy].path),
            log_cleaner_backoff_ms="100",
        )
        return [*common, *(often if proxy == DAEMON else ())]

    def _clean(self, name: str) -> Cleaner:
        """Clean through the proxy; one of ten in a process of its own.

        A named partition is always cleaned, however often cleanerd was killed at it.
        """
        words = [word for each in self._settings(name) for word in ("--set", each)]
        words = ["clean", "--live", "--yes", "--force", "--quiet", "--partition", name, *words]
        words += map(str, self.broker.log_dirs)
        reported = self.work / "clean.log"
        if self.dice.random() < 0.9:
            return self.forks.start(words, reported)
        with reported.open("ab") as log:
            return subprocess.Popen([sys.executable, "-m", "cleanerd", *words], stdout=log, stderr=log)

    # -- checks -------------------------------------------------------------------------------------------------------

    def _read_disk(self) -> None:
        """Requested groups are old or new and checkpoints are right, before any process but the agent goes on."""
        for requests in list(self.requested.values()):  # another thread may still append the last requests
            found = requests.outcome()
            self.outcomes[f"groups found {found or 'mixed'}"] += 1
            if found is None:
                self.wrong.append(f"a mixture: {requests.directory.name} {requests.base}..{requests.end}")
        self.requested.clear()
        self._check_points()

    def _check_points(self) -> None:
        self.wrong += too_high(self.broker.log_dirs[0], self.work / "state", self.writers)
        self.outcomes["checks of checkpoints"] += 1

    def _read_all(self) -> None:
        self.writers.settle()
        self._check_points()
        self.wrong += self.readers.read()

    def finish(self) -> None:
        """Clean without kills; then no files are left, every key is right, and ``verify`` finds no problem."""
        self._disarm()
        self.writers.write()
        self.writers.settle()
        time.sleep(1)  # file.delete.delay.ms
        for name in self._names():
            code = self._clean(name).wait(PATIENCE_SECONDS)
            self.wrong += [f"the last cleaning of {name} ended with {code}"] if code != 0 else []
        self._read_all()
        self.load.check()
        wait_until("no files are left", lambda: left_behind(self.broker, self.work / "state") == [])
        self._collect_garbage()
        wait_until("the broker has no deleted files open", lambda: self._held(self.broker.pid, "(deleted)") == [])
        self.broker.stop()
        self.wrong += [f"{name} cannot be loaded" for name in self._names() if not now_loaded(self._directory(name))]
        verified = cleanerd("verify", self.broker.log_dirs, self.work / "state")
        if verified.exit_code != 0:
            self.wrong.append(f"verify: {verified.document} {verified.stderr}")
        assert not self.wrong, self.wrong[:20]

    def _held(self, process: int, what: str = "") -> list[str]:
        """Files of partitions that the process has open or mapped."""
        names = tuple(f"/{name}/" for name in self._names())
        maps = Path(f"/proc/{process}/maps").read_text().splitlines()
        return [each for each in (*open_files(process), *maps) if what in each and any(n in each for n in names)]

    def _collect_garbage(self) -> None:
        """Kafka 3.3 unmaps removed indexes only during garbage collection, also those replaced by its own cleaner."""
        subprocess.run(["jcmd", str(self.broker.pid), "GC.run"], check=True, stdout=subprocess.DEVNULL)

    @property
    def reported(self) -> Counter[str]:
        """Kills by moment and victim, results of groups and processes, and how transactions ended."""
        ended = {f"transactions {fate}": count for fate, count in self.writers.ended.items()}
        return self.moments + self.outcomes + Counter(ended) + Counter({"reads": self.readers.reads})


@contextmanager
def killing_field(profile: str, dice: random.Random) -> Iterator[Killing]:
    """A broker of that release to kill repeatedly; at its end the leftovers are checked."""
    work = Path(tempfile.mkdtemp(prefix=f"kills-{profile}-"))
    jars = fetch_jars(profile)
    broker = Broker(jars.libs, work / "broker", version=jars.version, properties=_PROPERTIES, jvm_args=with_agent())
    try:
        broker.start()
        create_topics(broker, [each.topic for each in WRITTEN], partitions=PARTITIONS, segment_bytes=8_000)
        names = [f"{each.topic}-{number}" for each in WRITTEN for number in range(PARTITIONS)]
        with ExitStack() as stack:
            proxies = {
                name: stack.enter_context(Proxy(work / f"{name}.sock", broker.log_dirs[0] / SOCKET))
                for name in (*names, DAEMON)
            }
            killing = Killing(broker, work, proxies, stack.enter_context(ForkServer()), dice)
            stack.callback(killing.daemon.end_however_it_is)
            yield killing
            if killing.finishes:
                killing.finish()
    finally:
        broker.kill()
        shutil.rmtree(work)


def kill_all(killing: Killing, kinds: Sequence[str] = VICTIMS, at_once: int = AT_ONCE) -> None:
    """Kill each victim in turn; cleanerd alone, the cheapest, several times."""
    for victims in kinds:
        killing.kill(victims, at_once if victims in {"cleanerd", "daemon"} else 1)
