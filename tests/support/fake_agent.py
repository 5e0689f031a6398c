"""A fake of the agent in a broker's JVM: its socket and its protocol, over the files of a directory (U-29).

It does with renames what a broker does with its own methods, so that tests see the requests; and it can misbehave.
``tests/brokers/`` use real brokers.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import struct
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from cleanerd.errors import CleanerdError
from cleanerd.format.names import TopicPartition, uuid_to_base64
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.segments.partition import read_partition
from tests.support.log_dirs import CLEANER_CHECKPOINT, read_checkpoint, write_checkpoint
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

Fault = "Callable[[FakeAgent, dict[str, Any]], bytes | None | dict[str, Any]]"


class Refusal(Exception):  # noqa: N818 - what the agent does, not what went wrong here
    """The agent says no."""

    def __init__(self, code: str, *, done: tuple[int, ...] = ()) -> None:
        super().__init__(code)
        self.code = code
        self.done = done


class HangUp(Exception):  # noqa: N818
    """The connection ends without an answer."""


def is_closed(connection: socket.socket) -> bool:
    """Whether the client has closed it, even if the thread that serves it has not noticed yet."""
    try:
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


@dataclass
class FakeAgent:
    """Serves ``log_dir`` on ``socket_path``. Use it as a context manager.

    ``faults``: by operation a queue of functions; the first is used for the next request of that operation. It gets the
    agent and the request, and may return raw bytes to send, return None for the usual answer, or raise :class:`Refusal`
    or :class:`HangUp`.
    """

    log_dir: Path
    socket_path: Path
    info: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    faults: dict[str, list[Callable[[FakeAgent, dict[str, Any]], bytes | None]]] = field(default_factory=dict)
    requests: list[dict[str, Any]] = field(default_factory=list)
    checkpoints: dict[str, int] = field(default_factory=dict)
    keeps_deleted: bool = False
    keeps_witnesses: bool = False
    held_us: int = 5
    producers: list[list[Any]] = field(default_factory=list)
    places: int = 64
    most_connections: int = 0

    def __post_init__(self) -> None:
        self._done: dict[tuple[str, tuple[int, ...]], dict[str, Any]] = {}
        self._witnesses: dict[str, list[dict[str, int]]] = {}
        self._listener: socket.socket | None = None
        self._connections: set[socket.socket] = set()
        self._serving: list[threading.Thread] = []
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        # The last request writes the checkpoint, even if its client has disconnected: its directory must still exist.
        with self._lock:
            serving = list(self._serving)
        for thread in serving:
            thread.join(PATIENCE_SECONDS)

    def start(self) -> None:
        """Listen."""
        self.socket_path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(self.socket_path))
        listener.listen(8)
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def stop(self) -> None:
        """Stop as a killed broker does: the socket's name stays."""
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def forget(self) -> None:
        """As after a restart of the broker: it forgets earlier swaps."""
        self._done.clear()
        self._witnesses.clear()

    def busy(self) -> bool:
        """Whether a client is being served, also one that has died meanwhile."""
        return bool(self._connections)

    def wait_until_left(self) -> None:
        """Wait until no client is served: a killed client's request is completed nevertheless, as by a broker."""
        with socket.socket(socket.AF_UNIX) as last, last.makefile("rb") as answer:
            last.connect(str(self.socket_path))  # earlier clients are accepted first
            last.sendall(b'{"id": 0, "op": "info"}\n')
            assert answer.readline()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.busy():
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def requested(self, operation: str) -> list[dict[str, Any]]:
        """The requests of one kind so far."""
        return [request for request in self.requests if request["op"] == operation]

    def fail(self, operation: str, *faults: Callable[[FakeAgent, dict[str, Any]], bytes | None]) -> None:
        """Misbehave at the next requests."""
        self.faults.setdefault(operation, []).extend(faults)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            if len(self._connections) >= self.places:
                with connection, contextlib.suppress(OSError):
                    connection.sendall(b'{"id":null,"ok":false,"code":"too_many","error":"all in use","done":[]}\n')
                continue
            self._connections.add(connection)
            in_use = sum(not is_closed(each) for each in list(self._connections))
            self.most_connections = max(self.most_connections, in_use)
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            with self._lock:  # no client waits for an agent that is not started yet
                thread.start()
                self._serving.append(thread)

    def _serve(self, connection: socket.socket) -> None:
        # The test is over and its directory deleted, so this is an error of ours.
        with connection, contextlib.suppress(OSError, HangUp, CleanerdError), connection.makefile("rb") as lines:
            for line in lines:
                if line.endswith(b"\n"):  # a killed client may have sent a part of a request
                    connection.sendall(self._answer(json.loads(line)))
        self._connections.discard(connection)

    def _answer(self, request: dict[str, Any]) -> bytes:
        self.requests.append(request)
        answer: dict[str, Any] = {"id": request["id"]}
        try:
            with self._lock:
                queue = self.faults.get(request["op"], [])
                raw = queue.pop(0)(self, request) if queue else None
                if raw is not None:
                    return raw
                answer |= {"ok": True, "result": getattr(self, f"do_{request['op']}")(request)}
        except Refusal as refusal:
            answer |= {"ok": False, "code": refusal.code, "error": "refused by the test", "done": list(refusal.done)}
        return json.dumps(answer).encode() + b"\n"

    # -- operations ---------------------------------------------------------------------------------------------------

    def do_info(self, _request: dict[str, Any]) -> dict[str, Any]:
        """A healthy broker, except for ``info``."""
        meta = read_log_dir(self.log_dir).meta
        return {
            "protocol": 1,
            "build": "0123456789abcdef",
            "loaded": "premain",
            "found_via": "metrics",
            "ready": True,
            "capable": True,
            "missing": [],
            "version": "4.3.1",
            "version_known": True,
            "java": "17.0.15",
            "pid": 1,
            "node_id": meta.node_id,
            "log_dirs": [str(self.log_dir)],
            "socket": str(self.socket_path),
            "cleaner": True,
            "pauses": [],
            "swaps": 0,
            "accepting_swaps": True,
            "errors": [],
            "places": self.places,
            **self.info,
        }

    def do_roll(self, request: dict[str, Any]) -> dict[str, Any]:
        """A new active segment at the end of the log, if the one of the request is still the active one."""
        path = self.log_dir / f"{request['topic']}-{request['partition']}"
        log = read_partition(read_log_dir(self.log_dir), TopicPartition(request["topic"], request["partition"]))
        if (log.active.base, str(path)) != (request["base"], request["dir"]):
            raise Refusal("log_changed")
        (path / f"{log.high_watermark:020d}.log").touch()
        return {"base": log.high_watermark}

    def do_logs(self, _request: dict[str, Any]) -> dict[str, Any]:
        """All partitions, compacted."""
        names = read_log_dir(self.log_dir).partitions
        return {
            "logs": [
                {
                    "topic": name.topic,
                    "partition": name.partition,
                    "topic_id": None,
                    "dir": str(self.log_dir / str(name)),
                    "policy": self.settings.get("cleanup.policy", "compact"),
                }
                for name in names
            ]
        }

    def do_log(self, request: dict[str, Any]) -> dict[str, Any]:
        """The values of the checkpoint files, except for ``facts``."""
        log_dir = read_log_dir(self.log_dir)
        name = next((each for each in log_dir.partitions if _is(each, request)), None)
        if name is None:
            raise Refusal("no_log")
        log = read_partition(log_dir, name)
        return {
            "dir": str(log.path),
            "topic_id": None if log.topic_id is None else uuid_to_base64(log.topic_id),
            "hw": log.high_watermark,
            "lso": log.high_watermark,
            "leo": log.high_watermark,
            "log_start": log.log_start_offset,
            "recovery_point": log.recovery_point,
            "segments": [self._held(log.path, segment.base) for segment in log.segments],
            "settings": {"cleanup.policy": "compact", "file.delete.delay.ms": "1000", **self.settings},
            "topic_level": sorted(self.settings),
            "segment_size": 3000,
            "cleaning": "none",
            "future": False,
            "remote": False,
            "deleted": False,
            "compares_aborted": True,
            "compares_clean": True,
            "proves_by_markers": True,
            **self.facts,
        }

    def do_producers(self, request: dict[str, Any]) -> dict[str, Any]:
        """The requested ones of ``producers``."""
        return {"active": [row for row in self.producers if row[0] in request["ids"]]}

    def do_swap(self, request: dict[str, Any]) -> dict[str, Any]:
        """Check the witnesses, then rename."""
        identity = request["plan"], tuple(group["base"] for group in request["groups"])
        if identity in self._done:
            return {**self._done[identity], "repeated": True}
        if "witnesses" not in request and request["plan"] not in self._witnesses:
            raise Refusal("no_evidence")
        request = {"witnesses": self._witnesses.get(request["plan"]), **request}
        outputs = []
        for group in request["groups"]:
            self._check(request, group)
            outputs.append(self._swap(request, group))
        gone = {source["base"] for group in request["groups"] for source in group["sources"]}
        if self.keeps_witnesses:
            rest = [witness for witness in request["witnesses"] if witness["base"] not in gone]
            self._witnesses[request["plan"]] = sorted(rest + outputs, key=lambda witness: witness["base"])
        self._done[identity] = {
            "done": list(identity[1]),
            "outputs": outputs,
            "held_us": [self.held_us],
            "warnings": [],
            "witnesses_kept": self.keeps_witnesses,
        }
        return self._done[identity]

    def do_checkpoint(self, request: dict[str, Any]) -> dict[str, Any]:
        """Store it, and write it where the broker's cleaner does; not if another segment is below it."""
        facts, clean = self.do_log(request), request.get("clean")
        below = [segment for segment in facts["segments"] if segment[0] < request["offset"]]
        if clean is not None and not facts["compares_clean"]:
            raise Refusal("bad_request")
        if clean is not None and below[-1] != [clean[key] for key in ("base", "size", "mtime_ms", "ino")]:
            raise Refusal("evidence_changed")
        self.checkpoints[f"{request['topic']}-{request['partition']}"] = request["offset"]
        path = self.log_dir / CLEANER_CHECKPOINT
        written = path.with_suffix(".tmp")
        write_checkpoint(written, (read_checkpoint(path) if path.exists() else {}) | self.checkpoints)
        written.replace(path)
        return {"offset": request["offset"]}

    def _check(self, request: dict[str, Any], group: dict[str, Any]) -> None:
        path = self.log_dir / f"{request['topic']}-{request['partition']}"
        facts = self.do_log(request)
        held = {segment[0]: segment for segment in facts["segments"]}
        if request["topic_id"] != facts["topic_id"]:
            raise Refusal("topic_id")
        if request["log_start"] not in {None, facts["log_start"]}:
            raise Refusal("log_start")
        for code, segments in (("source_changed", group["sources"]), ("evidence_changed", request["witnesses"])):
            for witness in segments:
                if held.get(witness["base"]) != [witness[key] for key in ("base", "size", "mtime_ms", "ino")]:
                    raise Refusal(code)
        reported = request.get("aborted")
        if reported is not None and reported["sha256"] != _digest_of_aborted(path, reported["below"]):
            raise Refusal("evidence_changed")
        for name in group["files"].values():
            if not (path / ".kstage" / request["plan"] / name).is_file():
                raise Refusal("no_staged_file")

    def _swap(self, request: dict[str, Any], group: dict[str, Any]) -> dict[str, Any]:
        path = self.log_dir / f"{request['topic']}-{request['partition']}"
        for source in group["sources"]:
            for kind in ("log", "index", "timeindex", "txnindex"):
                old = path / f"{source['base']:020d}.{kind}"
                if old.exists() and self.keeps_deleted:
                    old.rename(f"{old}.deleted")
                old.unlink(missing_ok=True)
        for name in group["files"].values():
            (path / ".kstage" / request["plan"] / name).rename(path / name)
            modified_ns = group["sources"][-1]["mtime_ms"] * 1_000_000  # Java's milliseconds
            os.utime(path / name, ns=(modified_ns, modified_ns))
        base, size, mtime_ms, inode = self._held(path, group["base"])
        return {"base": base, "size": size, "ino": inode, "mtime_ms": mtime_ms}

    def _held(self, path: Path, base: int) -> list[int]:
        status = (path / f"{base:020d}.log").stat()
        return [base, status.st_size, status.st_mtime_ns // 1_000_000, status.st_ino]


def _digest_of_aborted(path: Path, below: int) -> str:
    """U-32: a digest of the entries of all transaction indexes, in the order of the log (F-8)."""
    digest = hashlib.sha256()
    for index in sorted(path.glob("*.txnindex")):
        for _, *numbers, _ in struct.iter_unpack(">hqqqq", index.read_bytes()):
            if numbers[1] < below:
                digest.update(struct.pack(">qqq", *numbers))
    return digest.hexdigest()


def _is(name: TopicPartition, request: dict[str, Any]) -> bool:
    return (name.topic, name.partition) == (request["topic"], request["partition"])


# -- faults -----------------------------------------------------------------------------------------------------------


def refuse(code: str, *, done: tuple[int, ...] = ()) -> Callable[[FakeAgent, dict[str, Any]], bytes | None]:
    """Say no."""

    def fault(_agent: FakeAgent, _request: dict[str, Any]) -> bytes | None:
        raise Refusal(code, done=done)

    return fault


def hang_up(_agent: FakeAgent, _request: dict[str, Any]) -> bytes | None:
    """Do nothing and end the connection."""
    raise HangUp


def do_and_hang_up(agent: FakeAgent, request: dict[str, Any]) -> bytes | None:
    """Carry out the request; the answer is lost."""
    getattr(agent, f"do_{request['op']}")(request)
    raise HangUp


def do_and_forget(agent: FakeAgent, request: dict[str, Any]) -> bytes | None:
    """Carry out the request; the answer is lost, and the broker restarts and forgets it."""
    getattr(agent, f"do_{request['op']}")(request)
    agent.forget()
    raise HangUp


def say(data: bytes) -> Callable[[FakeAgent, dict[str, Any]], bytes | None]:
    """Send just these bytes."""
    return lambda _agent, _request: data


def wait_for(event: threading.Event) -> Callable[[FakeAgent, dict[str, Any]], bytes | None]:
    """Continue as usual when it is set."""

    def fault(_agent: FakeAgent, _request: dict[str, Any]) -> bytes | None:
        assert event.wait(PATIENCE_SECONDS)
        return None

    return fault


def wait(seconds: float) -> Callable[[FakeAgent, dict[str, Any]], bytes | None]:
    """Wait, then continue as usual."""

    def fault(_agent: FakeAgent, _request: dict[str, Any]) -> bytes | None:
        time.sleep(seconds)
        return None

    return fault
