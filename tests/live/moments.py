"""Triggers an event at a chosen step of a cleaning: index, decide, stage or swap."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cleanerd.cleaner import cleaner, decide
from cleanerd.cleaner.index import DirtyIndex

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from tests.live.rounds import Rounds

MOMENTS: Final = ("index", "decide", "stage", "swap")


def happens_once(monkeypatch: pytest.MonkeyPatch, rounds: Rounds, moment: str, action: Callable[[], None]) -> None:
    """Run ``action`` at the first ``moment``.

    index: before the first dirty segment is read; decide: after all are read; stage: when the first group is in the
    staging directory, before its verification and sync; swap: right before its request.
    """
    waiting = [action]

    def now() -> None:
        if waiting:
            waiting.pop()()

    if moment == "swap":
        rounds.before_swap = lambda _request: now()
        return
    place, name = {
        "index": (DirtyIndex, "build"),
        "decide": (decide, "_make_decision"),
        "stage": (cleaner, "verify_staged"),
    }[moment]
    real = getattr(place, name)

    def first(*arguments: Any, **more: Any) -> Any:
        now()
        return real(*arguments, **more)

    # Between two steps of one cleaning, whose progress is not visible from outside.
    monkeypatch.setattr(place, name, first)
