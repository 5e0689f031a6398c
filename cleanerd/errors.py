"""The error tree.

::

    CleanerdError                 exit code 1: anything else (an unreadable file)
    ├── KernelError                  (1) the decision does not fit the file, or a fault of cleanerd
    ├── MachineError                 (1) the file system is read-only, or files or memory ran out
    │   └── NoSpaceError               no free space for the next segment above the reserve
    ├── ConfigError               3: a setting, or a file that holds settings, is wrong
    │   └── NotCompactedError       the topic's cleanup.policy lacks compact
    ├── RefusedError              4: cleanerd will not touch this now
    │   ├── OutOfRangeError         an offset on the command line is out of range
    │   ├── LogDirBusyError         another process has the log directory or a segment open
    │   ├── LogGrowsError           cleaned, the log would be larger
    │   ├── UnsupportedLogError     this version cannot clean the data
    │   │   ├── BatchTooLargeError    a batch that takes more memory than allowed
    │   │   ├── DisorderedLogError    offsets decrease so that a cleaning would lose data
    │   │   ├── SegmentGrowsError     a segment that is larger than one can be when it is cleaned
    │   │   └── LogTooLargeError      too many batches and records for the memory
    │   ├── LaterError              try again after a known time
    │   ├── StalePlanError          the log changed under the plan
    │   │   └── SegmentChangedError   a listed file was replaced
    │   ├── AgentUnavailableError   no agent in the broker, or it lacks the function
    │   └── AgentRefusalError       the agent refused a request
    ├── ReportedError                (1) the error of another cleanerd process
    └── CorruptionError           5: bytes contradict the format

An error says what happened, where, and what to do: ``message``, ``where`` (the file and byte position), ``hint``.
``str(error)`` is the one line that an operator reads.

Every class has a :class:`Cause`, and :data:`CONSEQUENCES` defines what it means for a partition, whether it was cleaned
offline, staged, applied, cleaned live, by the daemon or by Spark.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, Self


class Cause(StrEnum):
    """Why a cleaning failed."""

    DATA = "data"
    """The files of the partition's directory, or files made from them."""
    ENVIRONMENT = "environment"
    """The machine. Nothing is wrong with the log."""
    OPERATOR = "operator"
    """An operator has to set, start or decide something."""
    TRANSIENT = "transient"
    """It passes by itself: the log changed meanwhile, or the broker is busy."""
    BUSY = "busy"
    """Another process works there."""


@dataclass(frozen=True, slots=True)
class Consequence:
    """The consequence of an error for its partition.

    ``remembered``: the state directory stores the reason, and the daemon counts failures. ``passes``: trying again in a
    moment may help; otherwise the daemon waits longer each time.
    """

    outcome: Literal["quarantined", "failed", "refused", "skipped", "busy"]
    remembered: bool
    passes: bool


CONSEQUENCES: Final[Mapping[Cause, Consequence]] = {
    Cause.DATA: Consequence("quarantined", remembered=True, passes=False),
    Cause.ENVIRONMENT: Consequence("failed", remembered=False, passes=True),
    Cause.OPERATOR: Consequence("refused", remembered=False, passes=False),
    Cause.TRANSIENT: Consequence("skipped", remembered=False, passes=True),
    Cause.BUSY: Consequence("busy", remembered=False, passes=True),
}

SOME_DONE: Final = 6
"""The exit code if some partitions were done and others failed."""

_EXIT_ORDER: Final = (3, 4, 5, 1)


def worst_exit_code(codes: Collection[int], *, some_done: bool = False) -> int:
    """The process exit code if several items failed with ``codes``; 0 if none did."""
    if some_done and codes:
        return SOME_DONE
    return next((code for code in _EXIT_ORDER if code in codes), 0)


class CleanerdError(Exception):
    """Root of the tree. ``exit_code``: the process exit code if this is the worst error.

    ``plan_again``: the same partition may be planned again at once. ``moved_on``: the log changed since it was planned,
    which is not a failure.
    """

    exit_code = 1
    cause = Cause.DATA
    plan_again = False
    moved_on = False

    @property
    def consequence(self) -> Consequence:
        """The consequence for the partition."""
        return CONSEQUENCES[self.cause]

    def __init__(self, message: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint

    def without_frames(self) -> Self:
        """The error without its traceback, whose frames would keep files, buffers and offset maps alive."""
        chain: list[BaseException] = [self]
        for error in chain:
            error.__traceback__ = None
            chain += [each for each in (error.__cause__, error.__context__) if each is not None and each not in chain]
        return self

    def to_json(self) -> dict[str, object]:
        """An error of ``--json``."""
        return {"message": self.message, "where": self.where, "hint": self.hint, "exit_code": self.exit_code}

    def __str__(self) -> str:
        line = f"{self.where}: {self.message}" if self.where else self.message
        return f"{line} ({self.hint})" if self.hint else line


class MachineError(CleanerdError):
    """A read-only file system, too many open files, no memory; the log is not at fault (U-38)."""

    cause = Cause.ENVIRONMENT


class NoSpaceError(MachineError):
    """No room on the disk, or only the reserve."""


class KernelError(CleanerdError):
    """The kernel got arguments that do not fit together, such as keep bits of another file; or it found a bug.

    If the file changed meanwhile, :class:`SegmentChangedError` is raised instead.
    """


class ConfigError(CleanerdError):
    """A setting, or a file with settings, is wrong."""

    exit_code = 3
    cause = Cause.OPERATOR


class NotCompactedError(ConfigError):
    """The topic was named, but is not compacted."""


class RefusedError(CleanerdError):
    """Cleaning is possible in principle, but not now or not by this version."""

    exit_code = 4
    cause = Cause.OPERATOR


class OutOfRangeError(RefusedError):
    """An offset on the command line is outside the allowed range; the log itself is fine."""


class LogGrowsError(RefusedError):
    """A cleaning would only make the log larger (U-54)."""


class LogDirBusyError(RefusedError):
    """A broker (or another cleanerd) has the log directory or one of its segments open."""

    cause = Cause.BUSY


class UnsupportedLogError(RefusedError):
    """The log holds data that this version cannot clean; the partition is quarantined with this reason."""

    cause = Cause.DATA


class BatchTooLargeError(UnsupportedLogError):
    """A batch would take more memory than allowed (U-35), so it is refused before."""

    def __init__(self, message: str, *, where: str | None = None, position: int = -1) -> None:
        super().__init__(
            message,
            where=where if where is None or position < 0 else f"{where} at byte {position}",
            hint="a batch may take what cleanerd.max.unpacked.bytes and the memory limit of cleanerd allow: raise the "
            "lower of them, or lower log.cleaner.threads",
        )
        self.position = position


DELETE_RECORDS: Final = (
    "kafka-delete-records.sh; a topic with cleanup.policy=compact refuses that until you set retention.ms=-1 and "
    "retention.bytes=-1, then cleanup.policy=compact,delete; set them back afterwards"
)
"""A broker deletes records only where cleanup.policy has ``delete`` (``Partition.deleteRecordsOnLeader``)."""


def delete_segment_hint(segment: str) -> str:
    """The way out where every replica has the bytes that cannot be cleaned. ``segment``: words for their segment.

    A broker removes whole segments, so a lower offset leaves the batch in the log. Its own cleaner fails for many of
    these batches, too.
    """
    return f"every replica has these bytes: delete the records up to the end of {segment} with {DELETE_RECORDS}"


class DisorderedLogError(UnsupportedLogError):
    """Offsets descend, and every order of the records might lose data (U-45). ``end``: of the segment."""

    def __init__(self, message: str, end: int, *, where: str) -> None:
        super().__init__(message, where=where, hint=delete_segment_hint(f"this segment (offset {end})"))


class SegmentGrowsError(UnsupportedLogError):
    """The retained records of a segment exceed the segment size after recompression: split it first (U-55)."""

    def __init__(self, base: int, most_bytes: int, *, where: str | None = None) -> None:
        super().__init__(
            f"segment {base} grows past {most_bytes} bytes when it is cleaned: it has to be split first",
            where=where,
            hint="stop the broker and run cleanerd clean on it",
        )
        self.base = base


class TooManyPassesError(CleanerdError):
    """The keys of the dirty section need more passes than one cleaning may make (D-11).

    ``end_offset``: the keys below it fit.
    """

    def __init__(self, message: str, end_offset: int, *, where: str, hint: str) -> None:
        super().__init__(message, where=where, hint=hint)
        self.end_offset = end_offset


class LogTooLargeError(UnsupportedLogError):
    """A log has too many batches or records: their metadata takes more memory than allowed (U-35)."""

    def __init__(self, message: str, *, where: str | None = None) -> None:
        super().__init__(message, where=where, hint="raise the memory limit of cleanerd, or lower log.cleaner.threads")


class RetryLaterError(RefusedError):
    """It can be cleaned in ``seconds``; until then clean other partitions (D-10)."""

    cause = Cause.TRANSIENT

    def __init__(self, message: str, *, where: str, seconds: float) -> None:
        super().__init__(message, where=where, hint=f"try again in {seconds:.0f} s")
        self.seconds = seconds


class StalePlanError(RefusedError):
    """The log changed since the plan, which must not be applied."""

    cause = Cause.TRANSIENT
    plan_again = True
    moved_on = True


class SegmentChangedError(StalePlanError):
    """A file is no longer the listed one: the broker cleaned, cut or deleted it meanwhile.

    This is normal whenever a log is read: it is planned again, and left for the next cleaning if it keeps changing.
    """


class AgentUnavailableError(RefusedError):
    """No agent answers, its answer is malformed, or it does not support this broker: no live cleaning."""

    cause = Cause.TRANSIENT
    plan_again = True


NO_LOG: Final = "no_log"
"""The broker does not have the partition: not yet, not any more, or not since its log directory failed."""
TOO_MANY: Final = "too_many"
"""All connections of the agent are in use, so callers wait."""
LATER: Final = frozenset({"busy", "not_ready", NO_LOG, TOO_MANY})
"""The agent's codes for a partition that is busy at the moment; the same request may be sent again."""
NO_EVIDENCE: Final = "no_evidence"
"""The connection lacks the plan's evidence: the same request is sent again with it."""
REPLAN_CODES: Final = frozenset({
    "evidence_changed", "log_changed", "log_start", "not_below_bound", "not_eligible", "not_sealed", "source_changed",
    "source_gone", "topic_id",
})  # fmt: skip
"""The log changed since it was planned."""
IO_ERROR: Final = "io_error"
"""The broker's disk or its limits failed; wrong staged files have other codes."""
LOG_DIR_FAILED: Final = "log_dir_failed"
"""The broker takes the log directory offline. A start completes the group in ``done``, if any."""
UNAVAILABLE_CODES: Final = frozenset({"incapable", "stopped", "unsupported"})
"""The agent of this broker cannot swap now."""


class AgentRefusalError(RefusedError):
    """The agent refused ``operation``.

    ``code`` is its reason, ``done`` the bases of groups that it had swapped. For a swap, any other code than those of
    :data:`LATER`, :data:`REPLAN_CODES`, :data:`UNAVAILABLE_CODES`, :data:`IO_ERROR` and :data:`LOG_DIR_FAILED` means
    that the staged files are wrong, a fault of cleanerd: another try would repeat it. For other operations the agent
    has not checked the staged files, so no fault of the log is known.
    """

    def __init__(
        self, message: str, *, operation: str, code: str, done: tuple[int, ...] = (), where: str | None = None
    ) -> None:
        super().__init__(message, where=where)
        self.operation = operation
        self.code = code
        self.done = done
        passes = operation != "swap" or code in LATER | REPLAN_CODES | UNAVAILABLE_CODES
        is_of_disk = code in {IO_ERROR, LOG_DIR_FAILED}
        self.cause = Cause.TRANSIENT if passes else Cause.ENVIRONMENT if is_of_disk else Cause.DATA
        self.moved_on = code in REPLAN_CODES
        # A swap was already retried.
        self.plan_again = self.moved_on or (code in LATER and operation != "swap")


class ReportedError(CleanerdError):
    """The error of another cleanerd process, with its text and cause only."""

    def __init__(self, message: str, *, cause: Cause, where: str | None = None) -> None:
        super().__init__(message, where=where)
        self.cause = cause
        self.moved_on = cause is Cause.TRANSIENT  # Spark only stages: nothing else there passes by itself


class CorruptionError(CleanerdError):
    """Bytes that contradict the format. ``position`` is the byte position in ``where``, or -1."""

    exit_code = 5

    def __init__(self, message: str, *, where: str | None = None, position: int = -1, hint: str | None = None) -> None:
        super().__init__(message, where=where, hint=hint)
        self.position = position

    def __str__(self) -> str:
        place = self.where or "?"
        if self.position >= 0:
            place = f"{place} at byte {self.position}"
        line = f"{place}: {self.message}"
        return f"{line} ({self.hint})" if self.hint else line


_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_MACHINE: Final = frozenset({errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM})


def kind_of(error: OSError) -> type[CleanerdError]:
    """The class for an error of the system: missing resources of the machine are not the log's fault."""
    if error.errno in _NO_SPACE:
        return NoSpaceError
    return MachineError if error.errno in _MACHINE else CleanerdError


def machine_error(error: OSError) -> type[MachineError]:
    """The class for an error of the system that does not concern a log."""
    return NoSpaceError if error.errno in _NO_SPACE else MachineError


def system_error(what: str, where: str, error: OSError) -> CleanerdError:
    """A system error as cleanerd's: ``what`` could not be done at ``where``."""
    kind = kind_of(error)
    return kind(f"{what}: {error.strerror}", where=where)


def as_cleanerd_error(error: CleanerdError | OSError, where: str) -> CleanerdError:
    """``error``, or a system error from code without a better message, as a CleanerdError."""
    if isinstance(error, CleanerdError):
        return error
    kind = kind_of(error)
    return kind(error.strerror or str(error), where=str(error.filename or where))
