"""S-14 comes before the first change: not even a crash's leftovers are removed while a process has the segment open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleanerd.cleaner.survey import CleaningOptions
from cleanerd.errors import LogDirBusyError
from tests.cleaner.driver import clean
from tests.support.log_dirs import Partition, make_log_dir, tree
from tests.support.logs import keyed_batch

if TYPE_CHECKING:
    from pathlib import Path

OPTIONS = CleaningOptions(now_ms=1_800_000_000_000, force=True)


def test_nothing_is_touched_while_a_segment_is_open(tmp_path: Path) -> None:
    """S-14: the lock is free, but a process has the active segment open for writing; a dropped plan stays as well."""
    log = {0: keyed_batch(0, [("a", "1"), ("a", "2")]), 2: b""}
    log_dir = make_log_dir(tmp_path / "d", {"orders-0": Partition(log)})
    left = log_dir / "orders-0" / ".kstage" / "20260101t000000-0123abcd"
    left.mkdir(parents=True)
    (left / "plan.json").write_text("{}")
    before = tree(log_dir)
    with (log_dir / "orders-0" / "00000000000000000002.log").open("r+b"):
        result = clean(log_dir, OPTIONS)
    assert isinstance(result.error, LogDirBusyError)
    assert tree(log_dir) == before
    assert clean(log_dir, OPTIONS).outcome == "cleaned"
    assert not left.exists()
