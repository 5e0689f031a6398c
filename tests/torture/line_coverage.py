"""The lines and branch directions of cleanerd that ran so far.

With ``sys.monitoring`` (3.12) a place is reported once, so known places cost nothing. Otherwise ``sys.settrace``
reports every line each time, which is at least ten times slower.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import cleanerd

if TYPE_CHECKING:
    from types import CodeType, FrameType

OURS: Final = str(Path(cleanerd.__file__).parent)
FAST: Final = hasattr(sys, "monitoring")


class Lines:
    """``reached``: number of places, growing. ``files``: where they are. Includes threads that start in the block."""

    def __init__(self, ours: str = OURS) -> None:
        """``ours``: path prefixes of the files to include."""
        self._ours = ours
        self.reached = 0
        self.files: set[str] = set()
        self._seen: set[tuple[CodeType, int]] = set()
        self._ways: dict[tuple[CodeType, int], int] = {}

    def __enter__(self) -> Self:
        if not FAST:
            threading.settrace(self._call)
            sys.settrace(self._call)
            return self
        reported: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
        events = reported.events
        reported.use_tool_id(reported.COVERAGE_ID, "cleanerd torture")
        reported.register_callback(reported.COVERAGE_ID, events.LINE, self._line_once)
        reported.register_callback(reported.COVERAGE_ID, events.BRANCH, self._way)
        reported.set_events(reported.COVERAGE_ID, events.LINE | events.BRANCH)
        reported.restart_events()
        return self

    def __exit__(self, *_: object) -> None:
        if not FAST:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
            return
        reported: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
        reported.set_events(reported.COVERAGE_ID, 0)
        reported.free_tool_id(reported.COVERAGE_ID)

    def _line_once(self, code: CodeType, _line: int) -> Any:
        if code.co_filename.startswith(self._ours):
            self.reached += 1
            self.files.add(code.co_filename)
        return sys.monitoring.DISABLE  # type: ignore[attr-defined,unused-ignore]

    def _way(self, code: CodeType, at: int, to: int) -> Any:
        """Reported until both directions were taken: the first input takes one, and the other one guides the search."""
        if code.co_filename.startswith(self._ours):
            first = self._ways.setdefault((code, at), to)
            if first == to:
                return None
            self.reached += 1
        return sys.monitoring.DISABLE  # type: ignore[attr-defined,unused-ignore]

    def _line(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        place = frame.f_code, frame.f_lineno
        if place not in self._seen:
            self._seen.add(place)
            self.reached += 1
            self.files.add(frame.f_code.co_filename)
        return self._line

    def _call(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        return self._line if frame.f_code.co_filename.startswith(self._ours) else None
