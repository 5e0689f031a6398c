"""Records without a key: every cleaning removes them, and they do not affect other records."""

from __future__ import annotations

from cleanerd.cleaner.survey import CleaningOptions
from tests.cleaner.driver import NAME, clean, clean_all, scratch
from tests.support.log_dirs import Partition, make_log_dir, read_segments
from tests.support.logs import BASE_TIMESTAMP_MS, keyed_batch

NOW = BASE_TIMESTAMP_MS + 1000


def test_records_without_a_key_in_the_clean_section_are_removed() -> None:
    """C-20, C-45: none is in the index, so none would be newer; they are removed, also from the clean section."""
    logs = {
        0: keyed_batch(0, [("a", "1"), (None, "2"), ("", "3")]),
        3: keyed_batch(3, [("b", "1"), (None, "2")]),
        5: b"",
    }
    with scratch() as path:
        make_log_dir(path / "logs", {NAME: Partition(logs, cleaner_offset=3)})
        result = clean(path / "logs", CleaningOptions(now_ms=NOW, force=True))
        stay = [
            r.offset for batches in read_segments(path / "logs" / NAME).values() for b in batches for r in b.records
        ]
    assert result.first_dirty_offset == 3
    assert stay == [0, 2, 3]
    assert (result.removed.no_key, result.removed.superseded) == (2, 0)


def test_records_without_a_key_in_the_dirty_section_have_their_own_count() -> None:
    """C-20: a removed one is not counted as superseded by the next one without a key; "" is a key."""
    with scratch() as path:
        logs = {0: keyed_batch(0, [(None, "1"), ("", "2"), (None, "3")]), 3: b""}
        make_log_dir(path / "logs", {NAME: Partition(logs)})
        dropped = clean_all(path / "logs", NOW).removed
    assert (dropped.no_key, dropped.superseded) == (2, 0)
