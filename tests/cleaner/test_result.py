"""Exit codes of several partitions and the JSON of one."""

from __future__ import annotations

import pytest

from cleanerd.cleaner.result import CleaningResult, Outcome, RemovedRecords, exit_code
from cleanerd.errors import CleanerdError, ConfigError, CorruptionError, LogDirBusyError, RefusedError, StalePlanError
from cleanerd.format.names import TopicPartition

NAME = TopicPartition("orders", 3)
CONFIG, REFUSED, BUSY = ConfigError("x"), RefusedError("x"), LogDirBusyError("x")
CORRUPT, OTHER = CorruptionError("x"), CleanerdError("x")


def result(outcome: Outcome, error: CleanerdError | None = None) -> CleaningResult:
    return CleaningResult(NAME, "/logs", outcome, error=error)


DONE, UNCHANGED, SKIPPED = result("cleaned"), result("unchanged"), result("skipped")


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        pytest.param([], 0, id="none"),
        pytest.param([DONE, UNCHANGED, SKIPPED], 0, id="all done or nothing to do"),
        pytest.param([DONE, result("quarantined", CORRUPT)], 6, id="some done, some not"),
        pytest.param([UNCHANGED, result("quarantined", OTHER)], 6, id="unchanged is done"),
        pytest.param([SKIPPED, result("quarantined", CORRUPT)], 5, id="skipped is not done"),
        pytest.param([result("quarantined", OTHER), result("quarantined", CORRUPT)], 5, id="corruption before others"),
        pytest.param([result("quarantined", CORRUPT), result("quarantined", BUSY)], 4, id="refused before corruption"),
        pytest.param([result("quarantined", REFUSED), result("skipped", CONFIG)], 3, id="configuration first"),
        pytest.param([result("quarantined", OTHER)], 1, id="anything else"),
    ],
)
def test_exit_code(results: list[CleaningResult], expected: int) -> None:
    """The worst outcome counts: corrupt before busy, busy before any other failure."""
    assert exit_code(results) == expected


def test_a_log_that_changed_only_fails_a_command_that_had_to_clean() -> None:
    """`spark clean` that skipped all partitions has not done what was requested."""
    moved = result("skipped", StalePlanError("x"))
    assert exit_code([moved, moved]) == 0
    assert exit_code([moved, moved], must_do_some=True) == 4
    assert exit_code([moved, DONE], must_do_some=True) == 0
    assert exit_code([SKIPPED], must_do_some=True) == 0


def test_json() -> None:
    """Seconds are rounded, reasons kept, every counter there."""
    entry = CleaningResult(
        NAME,
        "/logs",
        "cleaned",
        removed=RemovedRecords(superseded=1, tombstone=2, no_key=4),
        seconds={"index": 0.123456789},
        notes=("a",),
    )
    document = entry.to_json()
    assert (document["topic"], document["partition"], document["log_dir"]) == ("orders", 3, "/logs")
    assert document["removed"] == {"superseded": 1, "tombstone": 2, "aborted": 0, "no_key": 4, "marker": 0}
    assert document["seconds"] == {"index": 0.123457}
    assert document["notes"] == ["a"]
    assert entry.removed.total == 7
