"""Answers operators' requests: the operations of the control socket, and ``explain``.

Operators' operations (pause, resume, trigger, retry, reload) are stored over a restart, with time and caller:
``operations.json`` in the state directory has the latest ones, the daemon's log all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import structlog

from cleanerd.cleaner.survey import CleaningOptions
from cleanerd.daemon.control_client import UNKNOWN
from cleanerd.daemon.http.status_body import StatusBody
from cleanerd.daemon.limits import DAEMON_LIMITS, DaemonLimits
from cleanerd.daemon.log_events import LogEvent
from cleanerd.daemon.registry.canary import too_large
from cleanerd.daemon.registry.partition_entry import OperatorOutcome, PartitionEntry, is_overdue
from cleanerd.daemon.registry.pauses import save_pauses
from cleanerd.daemon.status.partition_status import status_of
from cleanerd.daemon.status.view_parts import explain_answer
from cleanerd.daemon.with_timeout import with_timeout
from cleanerd.daemon.workers import WorkerDiedError
from cleanerd.errors import CleanerdError, ConfigError, RefusedError, system_error
from cleanerd.format.names import METAVAR, TopicPartition, parse_topic_partition_dir
from cleanerd.fsio.state_files import DAMAGE
from cleanerd.host.clock import wall_ms
from cleanerd.humanize import counted
from cleanerd.resolution.broker_facts import meta_of
from cleanerd.resolution.explanation import explain
from cleanerd.resolution.selection import PartitionSelection, select
from cleanerd.state.document import Document
from cleanerd.state.ignored_replicas import change_ignored_replicas, ignored_replicas

if TYPE_CHECKING:
    from cleanerd.daemon.canary import Canary
    from cleanerd.daemon.configuration import Configuration
    from cleanerd.daemon.control import Handler, Peer
    from cleanerd.daemon.discovery.log_dir_scan import ScanContext
    from cleanerd.daemon.discovery.log_dir_scanner import LogDirScanner
    from cleanerd.daemon.dispatcher import Dispatcher
    from cleanerd.daemon.registry.partition_registry import PartitionRegistry
    from cleanerd.daemon.scan_loop import ScanLoop
    from cleanerd.daemon.status.publisher import Publisher


JOURNALED: Final = frozenset(
    {"trigger", "pause", "resume", "retry", "reload", "ignore-replica", "wait-for-replica", "release-canary"}
)
"""The operations of the control socket that change something."""

MAX_OPERATIONS: Final = 500
MAX_ARGUMENTS: Final = 20
"""Limit of stored names per operation; the others are counted."""

MOST_CHARACTERS: Final = 1000
"""Limit of a name's and an answer's length, because the whole file is rewritten each time."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation. ``uid`` and ``pid`` of the caller, None for a signal; ``partitions`` as they were typed.

    ``refused``: the daemon's refusal; empty if it was done.
    """

    at_ms: int
    operation: str
    partitions: tuple[str, ...]
    uid: int | None
    pid: int | None
    refused: str = ""


@dataclass(frozen=True, slots=True)
class _OperationsFile:
    operations: tuple[Operation, ...]


_DOCUMENT: Final = Document("operations.json", _OperationsFile)


class Operations:
    """The journal of one daemon, in ``state_dir``."""

    def __init__(self, state_dir: Path, most: int = MAX_OPERATIONS) -> None:
        """``most``: how many operations are stored."""
        self._state_dir = state_dir
        self._most = most

    def log(self, operation: Operation) -> Operation:
        """Write it to the daemon's log; returns the operation to store."""
        words = operation.partitions
        if len(words) > MAX_ARGUMENTS:
            words = (*words[:MAX_ARGUMENTS], f"and {len(words) - MAX_ARGUMENTS} more")
        words = tuple(_cut(word) for word in words)
        operation = replace(operation, partitions=words, refused=_cut(operation.refused))
        fields = {key: value for key, value in asdict(operation).items() if value not in (None, "", ())}
        fields.pop("at_ms")  # the log has its own timestamp
        _log.info(LogEvent.OPERATOR_REQUEST, **fields)
        return operation

    def save(self, operation: Operation) -> str:
        """Store it; returns why that failed, or an empty text. One at a time: the file is read and replaced."""
        try:
            known = (*read_operations(self._state_dir), operation)
            _DOCUMENT.write(self._state_dir, _OperationsFile(known[-self._most :]))
        except OSError as error:
            return f"{self._state_dir / _DOCUMENT.name}: cannot be written ({error.strerror}); see the daemon's log"
        return ""


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 3]}..."


def read_operations(state_dir: Path) -> Sequence[Operation]:
    """The last operations, the oldest first; none if the file is missing or damaged.

    Raises:
        OSError: it cannot be read.
    """
    try:
        found = _DOCUMENT.get(state_dir)
    except DAMAGE:
        return []
    return [] if found is None else list(found.operations)


_MOST_DIGITS: Final = 10


class ControlApi:
    """Answers requests.

    ``reload`` reads the settings again; raises CleanerdError. ``write`` runs a writing function in a thread, in the
    order of the calls, and passes its result on, so that the event loop does not wait for a disk.
    """

    def __init__(
        self,
        configuration: Configuration,
        registry: PartitionRegistry,
        publisher: Publisher,
        dispatcher: Dispatcher,
        scan_loop: ScanLoop,
        reload: Callable[[], dict[str, Any]],
        write: Callable[[Callable[[], str], Callable[[str], None]], None],
        *,
        canary: Canary,
        limits: DaemonLimits = DAEMON_LIMITS,
    ) -> None:
        self._limits = limits
        self._configuration = configuration
        self._state_dir = configuration.settings.daemon.cleanerd_state_dir
        self._registry = registry
        self._publisher = publisher
        self._dispatcher = dispatcher
        self._scan_loop = scan_loop
        self._reload_settings = reload
        self._write = write
        self._canary = canary
        self._journal = Operations(self._state_dir)
        self._status_body = StatusBody()
        self._status_turn = asyncio.Lock()

    def handlers(self) -> dict[str, Handler]:
        """The operations by name."""
        return {
            "status": self._status,
            "trigger": self._trigger,
            "pause": self._pause,
            "resume": self._resume,
            "retry": self._retry,
            "release-canary": self._release_canary,
            "outcomes": self._outcomes,
            "reload": self._reload,
            "explain": self._explain,
            "operations": self._operations,
            "ignored-replicas": self._ignored_replicas,
            "ignore-replica": partial(self._change_replicas, ignored=True),
            "wait-for-replica": partial(self._change_replicas, ignored=False),
        }

    async def explain(self, name: str) -> dict[str, Any]:
        """Why the partition is or is not cleaned now, as ``cleanerd explain --json``, with the daemon's part.

        Raises:
            ConfigError: no such partition.
            CleanerdError: it cannot be read.
        """
        entry = self._partition(name)

        def scan(scanner: LogDirScanner, context: ScanContext) -> dict[str, Any] | CleanerdError:
            try:
                reading = scanner.read(context, entry.name)
                return explain(reading, context.store, CleaningOptions(context.now_ms(), unclean=True)).to_json()
            except CleanerdError as error:
                return error

        try:
            answer = await self._scan_loop.run_in_scanner(Path(entry.path), scan)
        except WorkerDiedError as error:
            raise RefusedError(f"could not be read: {error}", where=name) from error
        if isinstance(answer, CleanerdError):
            raise answer
        return explain_answer(self._registry, entry, answer)

    async def _status(self, _request: Mapping[str, Any]) -> bytes:
        # Thousands of partitions take a while to encode, and no other request should wait for that.
        async with self._status_turn:
            return await asyncio.to_thread(self._status_body.plain, self._publisher.view)

    async def _explain(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        return await self.explain(next(iter(_string_list(request)), ""))

    async def _operations(self, _request: Mapping[str, Any]) -> Mapping[str, Any]:
        await self._written()
        try:
            found = await asyncio.to_thread(read_operations, self._state_dir)
        except OSError as error:
            raise system_error("cannot be read", str(self._state_dir), error) from error
        return {"operations": [asdict(each) for each in found]}

    async def _ignored_replicas(self, _request: Mapping[str, Any]) -> Mapping[str, Any]:
        """U-78: the ignored brokers in the clusters of the daemon's log directories."""
        return {"ignored": await asyncio.to_thread(self._read_ignored)}

    def _read_ignored(self) -> list[int]:
        warnings: list[str] = []
        found = (ignored_replicas(self._state_dir, cluster, warnings) for cluster in self._clusters())
        return sorted(frozenset().union(*found))

    def _clusters(self) -> set[str]:
        """Reads from disk: call it in a thread."""
        known = (meta_of(Path(path)) for path in tuple(self._registry.dirs))
        return {meta.cluster_id for meta in known if meta is not None and meta.cluster_id is not None}

    async def _change_replicas(self, request: Mapping[str, Any], *, ignored: bool) -> Mapping[str, Any]:
        """Ignore some brokers' replicas, or wait for them again; effective from the next scan."""
        words = _string_list(request)
        if not words or not all(word.isdecimal() and len(word) < _MOST_DIGITS for word in words):
            raise ConfigError("no broker id was named", hint="BROKER is a number, the broker's node.id")
        brokers = {int(word) for word in words}
        unwritten: list[str] = []

        def change() -> str:
            return change_ignored_replicas(self._state_dir, self._clusters(), brokers, ignored=ignored)

        self._write(change, unwritten.append)
        if not await self._written() or any(unwritten):
            raise CleanerdError(next(filter(None, unwritten), "does not answer"), where=str(self._state_dir))
        self._scan_loop.wake()
        return await self._ignored_replicas(request)

    def note(self, operation: str, request: Mapping[str, Any], peer: Peer, refused: str) -> None:
        """Log a request over the socket if it changes something."""
        if operation in JOURNALED:
            try:
                words = tuple(_string_list(request))
            except ConfigError:
                words = ()
            self._write_down(Operation(wall_ms(), operation, words, peer.uid, peer.pid, refused))

    def note_signal(self, refused: str) -> None:
        """Log a SIGHUP, whose sender is unknown."""
        self._write_down(Operation(wall_ms(), "reload", (), None, None, refused))

    def _write_down(self, operation: Operation) -> None:
        kept = self._journal.log(operation)
        self._write(partial(self._journal.save, kept), self._report_unwritten)

    async def _reload(self, _request: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._reload_settings()

    async def _trigger(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Clean partitions now, whatever their dirty ratio and the windows.

        If one of the named ones cannot be cleaned, none is. Those of a pattern are left out, unless none is left.
        """
        wanted = self._select(request)
        found: dict[TopicPartition, PartitionEntry] = {}
        for entry in self._registry.partitions.values():
            if entry.name in wanted:
                found.setdefault(entry.name, entry)
        refused = {name: reason for name, entry in found.items() if (reason := self._not_now_reason(entry))}
        if refused and (len(refused) == len(found) or not refused.keys().isdisjoint(wanted.named)):
            name, reason = next(iter(refused.items()))
            more = f", nor can {counted(len(refused) - 1, 'other partition')}" if len(refused) > 1 else ""
            nothing = "" if len(found) == 1 else f": nothing is triggered{more}"
            raise RefusedError(f"{reason}{nothing}", where=str(name))
        triggered = []
        for name, entry in found.items():
            if name not in refused:
                entry.requested, entry.answered = True, None
                entry.touch()
                running = entry.trigger is not None
                answer = {"partition": str(name), "work": self._registry.work_of(entry), "running": running}
                # Try it anyway: the obstacle may be gone.
                was = entry.scan.reason if entry.scan is not None and entry.scan.refused else ""
                triggered.append({**answer, "was_refused": was} if was else answer)
        self._schedule()
        left_out = [{"partition": str(name), "reason": reason} for name, reason in refused.items()]
        return {"triggered": triggered, "left_out": left_out}

    def _not_now_reason(self, entry: PartitionEntry) -> str:
        """Why a requested cleaning cannot begin."""
        if entry.excluded:
            return entry.excluded
        if self._registry.pauses.everything:
            return "all cleaning is paused: cleanerd resume"
        if entry.paused:
            return f"is paused: cleanerd resume {entry.name}"
        if self._registry.work_of(entry) in {"live", "stage"} and entry.scan is not None:
            canary = self._registry.held or too_large(self._registry.settings.canary, entry.scan.size_bytes)
            if canary:
                return canary
        return self._registry.dirs[entry.path].mode.reason if self._registry.work_of(entry) is None else ""

    async def _pause(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Pause some partitions or everything; running cleanings stop between two chunks."""
        wanted = self._select(request, everything=True)
        names = sorted(map(str, wanted)) if wanted else None
        self._registry.pause(names, paused=True)
        stopped = self._dispatcher.interrupt(lambda job: not wanted or job.name in wanted)
        await self._save_pauses()
        return {"paused": "all" if names is None else names, "stopped": stopped}

    async def _resume(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """End the pauses of some partitions or of everything; also returns the remaining ones."""
        before = self._registry.pauses
        wanted = self._select(request, everything=True)
        names = sorted(map(str, wanted)) if wanted else None
        self._registry.pause(names, paused=False)
        self._schedule()
        await self._save_pauses()
        now = self._registry.pauses
        return {
            "resumed": "all" if names is None else [name for name in names if name in before.names],
            "not_paused": ([] if before.everything else ["all"])
            if names is None
            else [name for name in names if name not in before.names],
            "all_paused": now.everything,
            "still_paused": sorted(now.names),
        }

    async def _retry(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """End the quarantine or wait of some partitions; without names, all quarantines."""
        wanted = self._select(request, everything=True)
        everyone = self._registry.partitions.values()
        requested = [t for t in everyone if (t.name in wanted if wanted else t.is_quarantined)]
        waiting = [entry for entry in requested if entry.is_waiting]
        hold = self._canary.release(accept=False, only=[str(name) for name in wanted] if wanted else None)
        for entry in waiting:
            self._dispatcher.clear_failures(entry)
        self._scan_loop.wake()
        self._schedule()
        retried = {str(entry.name) for entry in waiting}
        paused = {str(t.name) for t in waiting if t.paused or self._registry.pauses.everything}
        healthy = {str(entry.name) for entry in requested} - retried
        not_due = {str(t.name): why for t in waiting if str(t.name) not in paused and (why := self._not_due_reason(t))}
        again = {} if hold is None else {"verified_again": hold.partition}
        answer = {"retried": sorted(retried), "healthy": sorted(healthy), "paused": sorted(paused), "not_due": not_due}
        return {**answer, **again}

    async def _release_canary(self, _request: Mapping[str, Any]) -> Mapping[str, Any]:
        """D-20: continue although a cleaning was found wrong; returns the finding."""
        hold = self._canary.release(accept=True)
        self._schedule()
        if not await self._written():
            self._report_unwritten(f"{self._state_dir}: does not answer; the canary may hold again after a restart")
        return {"released": None if hold is None else asdict(hold)}

    def _not_due_reason(self, entry: PartitionEntry) -> str:
        """Why a partition without failures is not cleaned; empty if it is."""
        standing = status_of(self._registry, entry)
        if entry.scan is None:
            return ""
        if standing.outlook == "no":
            return standing.reason
        if self._configuration.window_is_open() or is_overdue(entry.scan, entry.scan.scanned_ms):
            return ""
        return "it waits for cleanerd.windows (cleanerd trigger does not)"

    async def _outcomes(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """OP-12: the result of the last trigger of each named partition; ``pending``: none yet."""
        found = []
        for name in _string_list(request):
            here = next(iter(self._registry.named(name)), None)
            if here is not None and (here.requested or here.trigger is not None):
                found.append({"partition": name, "pending": True})
            else:
                gone = OperatorOutcome(
                    "refused", "it is no longer in a log directory of this daemon", RefusedError.exit_code
                )
                answered = gone if here is None or here.answered is None else here.answered
                found.append({"partition": name, "pending": False, **asdict(answered)})
        return {"outcomes": found}

    def _schedule(self) -> None:
        self._dispatcher.schedule()
        self._publisher.publish()

    async def _save_pauses(self) -> None:
        """Wait for the file, but not long: the pause is effective at once."""
        self._write(partial(save_pauses, self._state_dir, self._registry.pauses), self._report_unwritten)
        self._publisher.publish()
        if not await self._written():
            self._report_unwritten(f"{self._state_dir}: does not answer; until it does, pauses end with the daemon")

    async def _written(self) -> bool:
        """Wait for pending writes; False if they take longer than `write_seconds`."""
        there = asyncio.Event()
        self._write(str, lambda _nothing: there.set())
        if there.is_set():
            return True
        try:
            await with_timeout(self._limits.write_seconds, there.wait())
        except TimeoutError:
            return False
        return True

    def _report_unwritten(self, unwritten: str) -> None:
        if unwritten:
            self._publisher.warn(unwritten)
            self._publisher.publish()

    def _select(self, request: Mapping[str, Any], *, everything: bool = False) -> PartitionSelection:
        """The partitions of a request; without names an error, or all if ``everything``."""
        words = _string_list(request)
        if not words and not everything:
            raise ConfigError("no partition was named", hint=METAVAR)
        # A paused partition that was deleted can still be resumed.
        gone = (parse_topic_partition_dir(name) for name in self._registry.pauses.names)
        there = (entry.name for entry in self._registry.partitions.values())
        known = [*there, *(name for name in gone if name is not None and request.get("op") == "resume")]
        return select(words, known, what=UNKNOWN, hint="see cleanerd status")

    def _partition(self, name: str) -> PartitionEntry:
        found = self._registry.named(name)
        if not found:
            raise ConfigError(UNKNOWN, where=name, hint="see cleanerd status")
        return found[0]


def _string_list(request: Mapping[str, Any]) -> list[str]:
    """``partitions``, a list of words, or ``partition``, one of them.

    Raises:
        ConfigError: it is another value.
    """
    one = request.get("partition")
    words = request.get("partitions", [] if one is None else [one])
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ConfigError("partitions is not a list of texts")
    return words
