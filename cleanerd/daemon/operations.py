"""Operators' operations: pause, resume, trigger, retry or reload, with time and caller; kept over a restart.

``operations.json`` in the state directory has the last of them, the daemon's log all.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import structlog

from cleanerd.fsio.state_files import DAMAGE, make_directory, read_state_file, write_state_file

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

JOURNALED: Final = frozenset(
    {"trigger", "pause", "resume", "retry", "reload", "ignore-replica", "wait-for-replica", "release-canary"}
)
"""The operations of the control socket that change something."""

MAX_OPERATIONS: Final = 500
MAX_ARGUMENTS: Final = 20
"""Limit of stored names of one operation; the others are counted."""

MOST_CHARACTERS: Final = 1000
"""Limit of a name's and an answer's length: the file is rewritten each time as a whole."""

_FILE: Final = "operations.json"
_FORMAT: Final = 1

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation. ``uid`` and ``pid`` of the caller, None for a signal; ``partitions`` as they were typed.

    ``refused``: what the daemon answered instead; empty when it was done.
    """

    at_ms: int
    operation: str
    partitions: tuple[str, ...]
    uid: int | None
    pid: int | None
    refused: str = ""

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Operation:
        """From the file.

        Raises:
            One of ``DAMAGE``: it is nothing of the kind.
        """
        uid, pid = document["uid"], document["pid"]
        return cls(
            at_ms=int(document["at_ms"]),
            operation=str(document["operation"]),
            partitions=tuple(map(str, document["partitions"])),
            uid=None if uid is None else int(uid),
            pid=None if pid is None else int(pid),
            refused=str(document["refused"]),
        )


class Operations:
    """The journal of one daemon, in ``state_dir``."""

    def __init__(self, state_dir: Path, most: int = MAX_OPERATIONS) -> None:
        """``most``: how many operations are kept."""
        self._state_dir = state_dir
        self._most = most

    def log(self, operation: Operation) -> Operation:
        """Write it to the daemon's log; returns what is to be kept."""
        words = operation.partitions
        if len(words) > MAX_ARGUMENTS:
            words = (*words[:MAX_ARGUMENTS], f"and {len(words) - MAX_ARGUMENTS} more")
        words = tuple(_cut(word) for word in words)
        operation = replace(operation, partitions=words, refused=_cut(operation.refused))
        fields = {key: value for key, value in asdict(operation).items() if value not in (None, "", ())}
        fields.pop("at_ms")  # the log has its own
        _log.info("asked for", **fields)
        return operation

    def save(self, operation: Operation) -> str:
        """Write it down; why that was not possible, empty when it was. One at a time: the file is read and replaced."""
        try:
            if not self._state_dir.exists():
                make_directory(self._state_dir, self._state_dir.parent.stat())
            kept = [asdict(each) for each in (*read_operations(self._state_dir), operation)[-self._most :]]
            document = {"format": _FORMAT, "operations": kept}
            write_state_file(self._state_dir / _FILE, json.dumps(document).encode(), self._state_dir.stat())
        except OSError as error:
            return f"{self._state_dir / _FILE}: cannot be written ({error.strerror}); see the daemon's log"
        return ""


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 3]}..."


def read_operations(state_dir: Path) -> Sequence[Operation]:
    """The last operations, the oldest first. A file that is missing or damaged has none.

    Raises:
        OSError: it cannot be read.
    """
    try:
        document = json.loads(read_state_file(state_dir / _FILE))
        return [Operation.from_json(each) for each in document["operations"]]
    except (FileNotFoundError, *DAMAGE):
        return []
