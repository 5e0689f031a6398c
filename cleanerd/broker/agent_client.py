"""The protocol of the agent in a broker's JVM: JSON lines, one answer per request, in order (agent/README.md)."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import time
from dataclasses import make_dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar, cast

from pydantic import ConfigDict, TypeAdapter, ValidationError

from cleanerd.broker import agent_transport
from cleanerd.closeable import Closeable
from cleanerd.errors import TOO_MANY, AgentRefusalError, AgentUnavailableError, RefusedError
from cleanerd.fsio.json_text import line_bytes
from cleanerd.humanize import human_bytes

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Hashable
    from pathlib import Path

T = TypeVar("T")
R = TypeVar("R")

PROTOCOL: Final = 1
CONNECT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 30.0
"""Time limit of all requests except swaps: the agent only reads."""
MAX_REQUEST_BYTES: Final = 4 << 20
MAX_REQUEST_VALUES: Final = 200_000
"""Limit of values that an agent reads in a line (A-32); a segment has five."""
MAX_ANSWER_BYTES: Final = 64 << 20
"""Limit of an answer: a million segments of a partition, or 100,000 partitions with the longest topic names."""
_TOO_MANY_SEGMENTS: Final = "it has too many segments: clean it once with stage and apply, or with the broker stopped"

_STRICT: Final = ConfigDict(strict=True, extra="ignore")
_RECEIVE_BYTES: Final = 1 << 16
_MOMENT_SECONDS: Final = 0.05


class AgentLostError(AgentUnavailableError):
    """The connection ended, timed out or sent an invalid answer: whether the request was carried out is unknown."""


class _TooLongError(Exception):
    """An answer exceeds ``MAX_ANSWER_BYTES``."""


class AgentClient(Closeable):
    """One connection; not thread-safe.

    After a failure it is closed, because answers and requests no longer match. Make another one.
    """

    def __init__(self, connection: socket.socket, where: str, answer_seconds: float) -> None:
        """Use :meth:`connect`, which opens the connection. ``answer_seconds``: the time limit of a call; may be set."""
        self.answer_seconds = answer_seconds
        self.used_at = time.monotonic()
        self._socket: socket.socket | None = connection
        self._limit_seconds = 0.0
        self._received = bytearray()
        self._ids = itertools.count(1)
        self.where = where

    @classmethod
    def connect(
        cls, path: Path, *, timeout_seconds: float = CONNECT_SECONDS, answer_seconds: float = ANSWER_SECONDS
    ) -> Self:
        """Connect to the agent that ``path`` leads to. ``answer_seconds``: the time limit of a call.

        Raises:
            AgentUnavailableError: no process listens there, or not the broker.
            AgentRefusalError: the queue of connections is full (code ``too_many``).
        """
        try:
            connection = agent_transport.connect(path, timeout_seconds)
        except BlockingIOError:  # it listens, but its queue of connections is full
            raise no_place("others wait for one", path) from None
        except OSError as error:
            raise AgentUnavailableError(
                f"no agent answers here: {error.strerror or error}",
                where=str(path),
                hint="start the broker with the agent, or run cleanerd agent attach",
            ) from error
        return cls(connection, str(path), answer_seconds)

    @property
    def is_closed(self) -> bool:
        """Whether the connection is unusable."""
        return self._socket is None

    def close(self) -> None:
        """Close the connection; the agent completes its work and resumes what this connection paused."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def call(self, operation: str, *, timeout_seconds: float | None = None, **fields: Any) -> dict[str, Any]:
        """Send one request; returns the answer's ``result``.

        Raises:
            AgentRefusalError: the agent refused.
            RefusedError: the request exceeds the agent's limits, or the answer ``MAX_ANSWER_BYTES``.
            AgentLostError: no valid answer; the connection is closed.
        """
        return self._call(operation, timeout_seconds, fields, self._judged)

    def call_for(
        self, kind: type[T], operation: str, *, timeout_seconds: float | None = None, **fields: Any
    ) -> T | dict[str, Any]:
        """As :meth:`call`; the ``result`` as a ``kind``, or unchanged if it does not fit, which the caller reports.

        The line is parsed once: with thousands of small partitions parsing dominates the cost of an answer.
        """

        def read(line: bytes, number: int, operation: str) -> T | dict[str, Any]:
            try:
                answer = _adapter_of_answer(cast("Hashable", kind)).validate_json(line)
            except ValidationError:
                return self._judged(line, number, operation)
            if answer.id != number:
                return self._judged(line, number, operation)
            result: T = answer.result
            return result

        return self._call(operation, timeout_seconds, fields, read)

    def _call(
        self,
        operation: str,
        timeout_seconds: float | None,
        fields: dict[str, Any],
        read: Callable[[bytes, int, str], R],
    ) -> R:
        self.used_at = time.monotonic()
        number = next(self._ids)
        line = _encode({"v": PROTOCOL, "id": number, "op": operation, **fields})
        deadline = time.monotonic() + (self.answer_seconds if timeout_seconds is None else timeout_seconds)
        try:
            try:
                self._send(line, deadline)
            except AgentLostError:
                # An agent without a free place reports that and closes the connection before it reads anything.
                with contextlib.suppress(AgentLostError):
                    return read(self._line(time.monotonic()), number, operation)
                raise
            return read(self._line(deadline), number, operation)
        except _TooLongError:
            self.close()
            raise _too_long_answer(operation, fields, self.where) from None
        except AgentRefusalError:
            raise
        except BaseException:
            self.close()
            raise

    def _judged(self, line: bytes, number: int, operation: str) -> dict[str, Any]:
        answer = self._parsed(line)
        if answer.get("id") not in (number, None) or isinstance(answer.get("id"), bool):
            raise self._lost_error("the answer belongs to another request")
        if answer.get("ok") is True and answer.get("id") == number and isinstance(answer.get("result"), dict):
            result: dict[str, Any] = answer["result"]
            return result
        code, message, done = answer.get("code"), answer.get("error"), answer.get("done", [])
        if answer.get("ok") is not False or not isinstance(code, str) or not _is_numbers(done):
            raise self._lost_error(f"the answer to {operation} cannot be understood")
        if answer.get("id") is None:  # not an answer to this request; the agent closes the connection after it
            self.close()
            if code == TOO_MANY:
                raise no_place(_printable(message) if isinstance(message, str) else "", self.where)
            raise self._lost_error(f"refused the connection: {_printable(code)}")
        text = _printable(message) if isinstance(message, str) else ""
        raise AgentRefusalError(
            f"the broker's agent refuses {operation}: {_printable(code)}" + (f": {text}" if text else ""),
            operation=operation,
            code=code,
            done=tuple(done),
            where=self.where,
        )

    def _send(self, line: bytes, deadline: float) -> None:
        if self._socket is None:
            raise self._lost_error("the connection is closed")
        try:
            self._wait_until(deadline, self._socket)
            self._socket.sendall(line)
        except OSError as error:
            raise self._lost_error(f"the request could not be sent: {error.strerror or error}") from error

    def _line(self, deadline: float) -> bytes:
        """The next answer line."""
        begin = 0
        while (end := self._received.find(b"\n", begin)) < 0:
            begin = len(self._received)
            if begin > MAX_ANSWER_BYTES:
                raise _TooLongError
            self._received += self._some(deadline)
        data = bytes(self._received[:end])
        del self._received[: end + 1]
        return data

    def _parsed(self, line: bytes) -> dict[str, Any]:
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            raise self._lost_error("the answer is not JSON") from None
        if not isinstance(answer, dict):
            raise self._lost_error("the answer is not a JSON object")
        return answer

    def _some(self, deadline: float) -> bytes:
        if self._socket is None:
            raise self._lost_error("the connection is closed")
        try:
            self._wait_until(deadline, self._socket)
            data = self._socket.recv(_RECEIVE_BYTES)
        except TimeoutError as error:
            raise self._lost_error("no answer in time") from error
        except OSError as error:
            raise self._lost_error(f"the answer could not be read: {error.strerror or error}") from error
        if not data:
            raise self._lost_error("closed the connection before it answered")
        return data

    def _wait_until(self, deadline: float, connection: socket.socket) -> None:
        """Set the time limit of the next call. A slightly longer one is kept, because setting it is a system call."""
        left = _left(deadline)
        if not left <= self._limit_seconds <= left + _MOMENT_SECONDS:
            connection.settimeout(left)
            self._limit_seconds = left

    def _lost_error(self, message: str) -> AgentLostError:
        return AgentLostError(f"the broker's agent: {message}", where=self.where)


def no_place(why: str, where: Path | str) -> AgentRefusalError:
    """The agent runs, but has no free connection; nothing was requested."""
    return AgentRefusalError(
        f"the broker's agent has no free connection: {why}; try again in a moment",
        operation="connect",
        code=TOO_MANY,
        where=str(where),
    )


def _too_long_answer(operation: str, fields: dict[str, Any], where: str) -> RefusedError:
    """A broker with so much of it is refused by name: to ask again gives the same answer."""
    hint = "the broker has too many partitions: use stage and apply"
    if "topic" in fields:
        where, hint = f"{fields['topic']}-{fields['partition']}", _TOO_MANY_SEGMENTS
    what = f"the answer of the broker's agent to {operation} is larger than {human_bytes(MAX_ANSWER_BYTES)}"
    return RefusedError(what, where=where, hint=hint)


def _encode(request: dict[str, Any]) -> bytes:
    """The request's line.

    Raises:
        RefusedError: it exceeds the agent's limit.
    """
    line = line_bytes(request) + b"\n"
    if len(line) > MAX_REQUEST_BYTES or _most_values(line) > MAX_REQUEST_VALUES:
        raise RefusedError(
            f"a request of {len(line)} bytes is larger than an agent accepts",
            where=str(request.get("topic", "")),
            hint=_TOO_MANY_SEGMENTS,
        )
    return line


def _most_values(line: bytes) -> int:
    """An upper bound of the number of values in the line; names with such a letter count too."""
    if len(line) <= MAX_REQUEST_VALUES:
        return 0  # too short to have too many
    return 1 + sum(line.count(letter) for letter in (b",", b"[", b"{"))


@functools.cache
def _adapter_of_answer(kind: Hashable) -> TypeAdapter[Any]:
    """The adapter of a positive answer with a result of this kind; unknown fields are ignored."""
    fields = [("id", int), ("ok", Literal[True]), ("result", kind)]
    answer = make_dataclass("Answer", fields, frozen=True, slots=True, namespace={"__pydantic_config__": _STRICT})
    return TypeAdapter(answer)


def _left(deadline: float) -> float:
    """Seconds until the deadline, above 0: a socket's time-out of 0 would mean not to wait."""
    return max(deadline - time.monotonic(), 0.001)


def _is_numbers(values: object) -> bool:
    return isinstance(values, list) and all(isinstance(value, int) for value in values)


def _printable(text: str) -> str:
    """Text from another process, made safe for one line."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:500])
