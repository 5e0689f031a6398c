"""PySpark's rows in the demonstration, compared with the acknowledged records; ``test_run`` runs the lines."""

from __future__ import annotations

from cleanerd_lab.demo.dataframe import LINES, compared
from cleanerd_lab.demo.traffic import AcknowledgedTopic

WRITTEN = AcknowledgedTopic("t", "none", {0: (b"a", b"1"), 1: (b"b", b"2"), 2: (b"a", b"3"), 3: (b"b", None)})


def test_a_right_latest_state_is_accepted() -> None:
    """Superseded records may be missing, deleted keys have no newest value."""
    read = compared(WRITTEN, {"2": ["61", "33"], "3": ["62", None]}, {"61": "33"})
    assert (read.good, read.records, read.keys) == (True, 2, 1)


def test_a_wrong_latest_state_is_found() -> None:
    """Another value, a deleted key that is back, a missing one, and no rows at all."""
    assert compared(WRITTEN, {"2": ["61", "34"]}, {"61": "33"}).wrong_records == 1
    assert compared(WRITTEN, {"9": ["61", "33"]}, {"61": "33"}).wrong_records == 1
    assert compared(WRITTEN, {"2": ["61", "33"]}, {"61": "31"}).wrong_keys == 1
    assert compared(WRITTEN, {"2": ["61", "33"]}, {"61": "33", "62": "32"}).wrong_keys == 1
    assert compared(WRITTEN, {"2": ["61", "33"]}, {}).wrong_keys == 1
    assert not compared(AcknowledgedTopic("t", "none"), {}, {}).good


def test_five_lines() -> None:
    assert len(LINES.splitlines()) == 5
