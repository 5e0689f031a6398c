"""A failure of the state directory is shown, however short it lasts (OP-10)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cleanerd.daemon.status.log_messages import StandingWarnings
from cleanerd.host.clock import Clock
from cleanerd.state.cleaner_checkpoint import StateStore

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def store(tmp_path: Path) -> StateStore:
    return StateStore(tmp_path)


def trouble(store: StateStore, name: str) -> str:
    """The warning of a file that cannot be written."""
    text = f"{name}: cannot be written"
    store.warnings.append(text)
    store.standing[store.root / name] = text
    return text


def test_a_warning_that_ends_before_it_is_shown(store: StateStore) -> None:
    """Raised and over before the next scan: it is reported once, as a past event."""
    warnings = StandingWarnings(store, Clock())
    reported = trouble(store, "a")
    assert warnings.passed() == []
    store.standing.clear()
    assert warnings.current() == ()
    assert warnings.passed() == [reported]
    assert warnings.passed() == []


def test_a_shown_warning_is_not_logged_again(store: StateStore) -> None:
    """Nor for each of thousands of files: once per directory."""
    warnings = StandingWarnings(store, Clock())
    reported = trouble(store, "a")
    trouble(store, "b")
    assert warnings.passed() == []
    assert warnings.current() == (f"{reported} (and 1 files more there)",)
    assert warnings.passed() == []
    store.standing.clear()
    assert warnings.current() == ()
    assert warnings.passed() == []


def test_one_of_many_warnings_is_logged(store: StateStore) -> None:
    warnings = StandingWarnings(store, Clock())
    for number in range(1000):
        trouble(store, str(number))
    assert warnings.passed() == []
    store.standing.clear()
    assert len(warnings.passed()) == 1


def test_a_single_event_is_logged_at_once(store: StateStore) -> None:
    warnings = StandingWarnings(store, Clock())
    store.warnings.append("damaged")
    assert warnings.passed() == ["damaged"]
    assert warnings.passed() == []
