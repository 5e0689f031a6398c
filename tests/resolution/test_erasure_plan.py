"""Which cleaner cleans a partition, and its limits, for the date of an erasure (U-85)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.cleaner.survey import CleaningOptions, survey
from cleanerd.config.load import load_settings
from cleanerd.format.names import TopicPartition
from cleanerd.policy.removal import NO_LIMIT_MS, bound_of, steps_of_tombstone, steps_of_value
from cleanerd.resolution.erasure_plan import removal_facts
from cleanerd.resolution.explanation import Explanation
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.state.cleaner_checkpoint import StateStore
from tests.cleaner.driver import config
from tests.cli.clean_log_dirs import NOW, batch
from tests.support.log_dirs import Partition, make_log_dir

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.policy.removal import RemovalFacts

SEGMENTS = {0: batch(0, ("a", "1")), 1: batch(1, ("a", None)), 2: b""}
LIVE = {"mode": "live", "phase": "idle"}


def facts(
    root: Path, daemon: dict[str, str] | None, *, running: bool = False, requested: bool = True, **more: Any
) -> RemovalFacts:
    path = make_log_dir(root / "logs", {"orders-0": Partition(SEGMENTS, recovery_point=1)})
    found = survey(
        read_log_dir(path),
        TopicPartition("orders", 0),
        config(**more),
        StateStore(root / "state"),
        CleaningOptions(NOW),
    )
    answer = Explanation(found, None, None, running)
    return removal_facts(answer, load_settings((), ()), NOW, daemon=daemon, has_request=requested)


@pytest.mark.parametrize(
    ("daemon", "expected"),
    [
        pytest.param(LIVE, "daemon", id="live"),
        pytest.param({**LIVE, "phase": "queued"}, "daemon", id="queued"),
        pytest.param({**LIVE, "phase": "quarantined"}, "kafka", id="quarantined"),
        pytest.param({**LIVE, "phase": "paused"}, "kafka", id="paused"),
        pytest.param({**LIVE, "mode": "observe"}, "kafka", id="observed"),
        pytest.param({**LIVE, "mode": "on-start"}, "kafka", id="staged for a restart"),
        pytest.param(None, "kafka", id="no daemon"),
    ],
)
def test_the_cleaner_of_a_partition(tmp_path: Path, daemon: dict[str, str] | None, expected: str) -> None:
    """Only a daemon that swaps live keeps a date by itself."""
    assert facts(tmp_path, daemon).cleaned_by == expected


def test_topics_that_kafkas_cleaner_skips(tmp_path: Path) -> None:
    """Another strategy, a topic that it skips, and one whose configuration is unknown."""
    assert facts(tmp_path / "1", None, compaction_strategy="timestamp").cleaned_by == "operator"
    delegated = {"min_cleanable_dirty_ratio": "1", "max_compaction_lag_ms": str(NO_LIMIT_MS)}
    assert facts(tmp_path / "2", None, **delegated).cleaned_by == "operator"


def test_a_running_broker_moves_its_recovery_point(tmp_path: Path) -> None:
    """U-49: it flushes a segment when it rolls it; of a stopped broker the point is a limit."""
    assert "the recovery point" in facts(tmp_path / "stopped", LIVE).limits
    beside = facts(tmp_path / "running", LIVE, running=True)
    assert "the recovery point" not in beside.limits
    assert bound_of(steps_of_value(beside, 0, 1)) == NOW + beside.scan_ms + 2 * beside.file_delete_delay_ms


def test_a_request_replaces_the_maximum_lag(tmp_path: Path) -> None:
    requested = facts(tmp_path / "one", LIVE, running=True)
    plain = facts(tmp_path / "two", LIVE, running=True, requested=False)
    assert bound_of(steps_of_tombstone(requested, 1, None)) is not None
    assert bound_of(steps_of_tombstone(plain, 1, None)) is None
