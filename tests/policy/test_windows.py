"""``cleanerd.windows``: when a cleaning may start."""

from __future__ import annotations

from datetime import datetime

import pytest

from cleanerd.policy.windows import Windows, parse_windows

MONDAY = "2026-11-16"
SATURDAY = "2026-11-21"


def is_open(text: str, day: str, time: str) -> bool:
    return parse_windows(text).is_open(datetime.fromisoformat(f"{day}T{time}:00"))


def test_without_windows_it_is_always_open() -> None:
    assert Windows().is_open(datetime.fromisoformat("2026-11-16T12:00:00"))
    assert parse_windows("  ") == Windows()


@pytest.mark.parametrize(
    ("text", "day", "time", "expected"),
    [
        ("22:00-23:30", MONDAY, "22:00", True),
        ("22:00-23:30", MONDAY, "23:29", True),
        ("22:00-23:30", MONDAY, "23:30", False),
        ("22:00-06:00", MONDAY, "05:59", True),
        ("22:00-06:00", MONDAY, "06:00", False),
        ("22:00-06:00", MONDAY, "21:59", False),
        # A window that goes past midnight belongs to the day on which it begins.
        ("Mon 22:00-06:00", MONDAY, "05:00", False),
        ("Mon 22:00-06:00", "2026-11-17", "05:00", True),
        ("Sun 22:00-06:00", MONDAY, "05:00", True),
        ("Sat,Sun", SATURDAY, "12:00", True),
        ("Sat,Sun", MONDAY, "12:00", False),
        ("Fri-Mon 00:00-24:00", SATURDAY, "23:59", True),
        ("Fri-Mon 00:00-24:00", "2026-11-18", "00:00", False),
        ("mon-fri 01:00-02:00; sat", SATURDAY, "12:00", True),
        ("mon-fri 01:00-02:00; sat", MONDAY, "01:30", True),
        ("mon-fri 01:00-02:00; sat", MONDAY, "12:00", False),
    ],
)
def test_when_it_is_open(text: str, day: str, time: str, expected: bool) -> None:
    assert is_open(text, day, time) is expected


def test_a_window_is_shown_as_written() -> None:
    assert str(parse_windows("Mon-Fri 22:00-06:00 ;Sat,Sun")) == "Mon-Fri 22:00-06:00; Sat,Sun"


@pytest.mark.parametrize(
    "text", ["22-06", "22:00", "25:00-26:00", "22:60-23:00", "Foo", "Mon 22:00-06:00 x", "10:00-10:00", "Mon-", ";",
             "24:00-06:00", "Mon-Tue-Wed"]
)  # fmt: skip
def test_an_invalid_window_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="times such as"):
        parse_windows(text)
