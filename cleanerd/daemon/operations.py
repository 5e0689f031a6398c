"""Operators' operations: pause, resume, trigger, retry or reload, with time and caller; stored over a restart.

``operations.json`` in the state directory has the latest ones, the daemon's log all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

import structlog

from cleanerd.daemon.log_events import LogEvent
from cleanerd.fsio.state_files import DAMAGE
from cleanerd.state.document import Document

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
