"""Lets something happen to a log at a chosen moment of a round: while it is indexed, decided, staged or swapped."""

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
    """At the first ``moment``, ``action``.

    index: before the first dirty segment is read; decide: when all has been read; stage: when the first group lies in
    the staging directory, before it is verified and synced; swap: right before its request.
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

    # Between two steps of one cleaning, where nothing outside of it can tell how far it is.
    monkeypatch.setattr(place, name, first)
