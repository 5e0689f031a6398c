"""The error tree.

::

    CleanerdError                 exit code 1: anything else (no space, unreadable file)
    ├── NoSpaceError                 (1) the disk, or what is kept free of it, has no room for the next segment
    ├── ConfigError               3: a setting, or a file that holds settings, is wrong
    │   └── NotCompactedError       nothing is wrong with it, but the topic's cleanup.policy has no compact
    ├── RefusedError              4: cleanerd will not touch this now
    │   ├── OutOfRangeError         the command line asks for what this log cannot give
    │   ├── LogDirBusyError         somebody (a broker) has the log directory or a segment open
    │   ├── UnsupportedLogError     data that this version does not know how to clean
    │   ├── StalePlanError          the log changed under the plan
    │   ├── AgentUnavailableError   nobody in a broker to talk to, or it can not do what is asked for
    │   └── AgentRefusalError       the agent in the broker looked at a request and said no
    └── CorruptionError           5: bytes that do not mean what the format says

Every error says what happened, where, and what to do: ``message`` is the what, ``where`` the file (and
byte position), ``hint`` the way out. ``str(error)`` is the one line an operator reads.
"""

from __future__ import annotations

import errno


class CleanerdError(Exception):
    """Root of the tree. ``exit_code`` is the process exit code when this is the worst that happened."""

    exit_code = 1

    def __init__(self, message: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        line = f"{self.where}: {self.message}" if self.where else self.message
        return f"{line} ({self.hint})" if self.hint else line


class NoSpaceError(CleanerdError):
    """No room on the disk, or only what is kept free; nothing is wrong with the log."""


class ConfigError(CleanerdError):
    """A setting, or a file that holds settings, is wrong."""

    exit_code = 3


class NotCompactedError(ConfigError):
    """A topic that is asked for by name is not compacted."""


class RefusedError(CleanerdError):
    """Cleaning is possible in principle, but not now or not by this version."""

    exit_code = 4


class OutOfRangeError(RefusedError):
    """An offset on the command line lies outside of what this log allows; nothing is wrong with the log."""


class LogDirBusyError(RefusedError):
    """A broker (or another cleanerd) has the log directory or one of its segments open."""


class UnsupportedLogError(RefusedError):
    """The log holds data that this version cannot clean; the partition is quarantined with this reason."""


class StalePlanError(RefusedError):
    """The log is no longer what the plan was made for; nothing of the plan may be applied."""


class AgentUnavailableError(RefusedError):
    """There is no agent that answers, it makes no sense, or it can not work with this broker: live is not possible."""


class AgentRefusalError(RefusedError):
    """The agent said no to ``operation``.

    ``code`` is its word for why, ``done`` are bases of groups that were swapped all the same.
    """

    def __init__(
        self, message: str, *, operation: str, code: str, done: tuple[int, ...] = (), where: str | None = None
    ) -> None:
        super().__init__(message, where=where)
        self.operation = operation
        self.code = code
        self.done = done


class CorruptionError(CleanerdError):
    """Bytes that do not mean what the format says. ``position`` is the byte position in ``where``, or -1."""

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


def unwritable(what: str, where: str, error: OSError) -> CleanerdError:
    """What the system refused to write, as an error of ours: a full disk is not the log's fault."""
    kind = NoSpaceError if error.errno in {errno.ENOSPC, errno.EDQUOT} else CleanerdError
    return kind(f"{what}: {error.strerror}", where=where)
