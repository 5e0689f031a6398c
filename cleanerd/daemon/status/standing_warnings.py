"""Warnings about the daemon as a whole: a state directory that cannot be written, a clock that jumped.

Each is logged when it begins and when it ends, and shown in between.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

import structlog

from cleanerd.daemon.log_events import LogEvent

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.host.clock import Clock
    from cleanerd.state.cleaner_checkpoint import StateStore

_log = structlog.get_logger()
_CLOCK: Final = "clock"


class StandingWarnings:
    """The warnings of one service; used by its event loop only."""

    def __init__(self, store: StateStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._known: dict[str, str] = {}
        self._unshown: dict[str, str] = {}

    def current(self) -> tuple[str, ...]:
        """The current warnings; new ones and ended ones are logged."""
        found = {**self._of_state(), **self._of_clock()}
        for key in found.keys() - self._known.keys():
            _log.warning(LogEvent.WARNING_RAISED, kind=_kind(key), reason=found[key])
        for key in self._known.keys() - found.keys():
            _log.info(LogEvent.WARNING_CLEARED, kind=_kind(key), reason=self._known[key])
        self._known = found
        return tuple(found.values())

    def passed(self) -> list[str]:
        """Short events of the state directory since the last call: damaged files.

        An event that ended before :meth:`current` could show it is reported the next time.
        """
        happened, self._store.warnings = self._store.warnings, []
        standing = tuple(self._store.standing.items())
        texts = {text for _, text in standing}
        over = [text for key, text in self._unshown.items() if text not in texts and key not in self._known]
        self._unshown = {
            str(path.parent): text
            for path, text in standing
            if str(path.parent) not in self._known and (text in happened or text in self._unshown.values())
        }
        return [*over, *(each for each in happened if each not in texts)]

    def _of_state(self) -> dict[str, str]:
        """One per directory: if thousands of files cannot be written, one line reports it."""
        by_directory: dict[Path, list[str]] = defaultdict(list)
        for path, text in tuple(self._store.standing.items()):
            by_directory[path.parent].append(text)
        return {
            str(directory): texts[0] + ("" if len(texts) == 1 else f" (and {len(texts) - 1} files more there)")
            for directory, texts in by_directory.items()
        }

    def _of_clock(self) -> dict[str, str]:
        warning = self._clock.observe()
        return {_CLOCK: warning} if warning else {}


def _kind(key: str) -> str:
    """One of a few values: any other key is a directory of the state."""
    return key if key == _CLOCK else "state"
