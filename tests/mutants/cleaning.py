"""Mistakes in where to look and how far to go: bounds, index of the dirty part, groups (``log/``, ``cleaner/``)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

ABORTED = "cleanerd/log/aborted.py"
CLEANABLE = "cleanerd/policy/cleanable.py"
PRODUCERS = "cleanerd/log/producers.py"
EVIDENCE = "cleanerd/cleaner/evidence.py"

CLEANING = (
    Mutant(
        "abort-marker-searched-in-own-range",
        "U-12",
        ABORTED,
        'entries[entries["first_offset"] < bound]',
        'entries[entries["last_offset"] < bound]',
        ("tests/log/test_aborted.py::test_which",),
    ),
    Mutant(
        "stopped-at-the-last-stable-offset",
        "U-12",
        ABORTED,
        'entries[entries["first_offset"] < bound]',
        'entries[(entries["first_offset"] < bound) & (entries["last_stable_offset"] < bound)]',
        ("tests/log/test_aborted.py::test_which",),
    ),
    Mutant(
        "head-ignored",
        "C-45.3",
        "cleanerd/cleaner/head.py",
        "split = [evidence for evidence in dirty if evidence.dirty_from > 0]",
        "split = [evidence for evidence in dirty if evidence.dirty_from < 0]",
        ("tests/cleaner/test_segments.py::test_every_range",),
    ),
    Mutant(
        "clean-segments-not-compared",
        "C-45.3",
        "cleanerd/cleaner/head.py",
        "head = ~evidence.superseded.words()",
        "head = ~(evidence.superseded.words() & np.uint64(0))",
        ("tests/cleaner/test_segments.py::test_clean_part_is_compared_with_the_dirty_part",),
    ),
    Mutant(
        "null-key-is-a-key",
        "C-20",
        EVIDENCE,
        "self.keyed.append((records.flags & FLAG_HAS_KEY) != 0)",
        "self.keyed.append(np.ones(len(records), np.bool_))",
        ("tests/cleaner/test_keyless.py::test_in_the_clean_part",),
    ),
    Mutant(
        "marker-keyed-like-a-record",
        "C-18",
        EVIDENCE,
        "(batch_flags & (BATCH_ABORTED | BATCH_CONTROL)) != 0,",
        "(batch_flags & BATCH_ABORTED) != 0,",
        ("tests/cleaner/test_transactions.py::test_a_marker_is_no_record",),
    ),
    Mutant(
        "aborted-data-shadows",
        "C-19",
        EVIDENCE,
        "(batch_flags & (BATCH_ABORTED | BATCH_CONTROL)) != 0,",
        "(batch_flags & BATCH_CONTROL) != 0,",
        ("tests/cleaner/test_transactions.py::test_aborted_data_shadows_nothing",),
    ),
    Mutant(
        "entry-without-its-marker",
        "C-69",
        EVIDENCE,
        "events.offset[ended & (events.kind == ABORT)]",
        "events.offset[events.kind == ABORT]",
        ("tests/cleaner/test_transactions.py::test_index_entry_of_a_marker_that_ends_nothing",),
    ),
    Mutant(
        "bound-inside-a-segment",
        "C-07",
        CLEANABLE,
        "return Bound(rounded, raw,",
        "return Bound(raw, raw,",
        ("tests/policy/test_cleanable.py::test_bound",),
    ),
    Mutant(
        "checkpoint-beyond-the-end-believed",
        "C-03",
        CLEANABLE,
        "if checkpoint > log_end_offset:",
        "if checkpoint > 2**63:",
        ("tests/policy/test_cleanable.py::test_first_dirty",),
    ),
    Mutant(
        "newest-open-transaction-sets-the-bound",
        "S-04",
        PRODUCERS,
        "return min((p.open_from",
        "return max((p.open_from",
        ("tests/log/test_producers.py::test_open_transactions",),
    ),
    Mutant(
        "producer-with-an-open-transaction-expires",
        "C-43",
        PRODUCERS,
        "if producer.open_from != NONE or now_ms - producer.timestamp_ms < expiration_ms",
        "if now_ms - producer.timestamp_ms < expiration_ms",
        ("tests/log/test_producers.py::test_an_open_transaction_keeps_its_producer",),
    ),
    Mutant(
        "sequence-outlives-its-epoch",
        "F-10",
        PRODUCERS,
        "if (epochs_after != data_epoch).any():",
        "if (epochs_after != epochs_after).any():",
        ("tests/log/test_producers.py::test_markers_and_epochs",),
    ),
    Mutant(
        "epoch-of-the-first-dirty-offset",
        "U-10",
        "cleanerd/log/clean_point.py",
        "log.leader_epoch_at(point.offset - 1)",
        "log.leader_epoch_at(point.offset)",
        ("tests/log/test_clean_point.py::test_epoch_of_the_last_clean_offset",),
    ),
    Mutant(
        "group-passes-relative-offsets",
        "U-17",
        "cleanerd/policy/grouping.py",
        "if self.last_offset - self.base > MAX_RELATIVE_OFFSET:",
        "if self.last_offset - self.base > 2 * MAX_RELATIVE_OFFSET:",
        ("tests/policy/test_grouping.py::test_group",),
    ),
    Mutant(
        "record-less-segment-left-alone",
        "D-02",
        "cleanerd/policy/grouping.py",
        "    if left.has_records and right.has_records:\n",
        "    if left.has_records or right.has_records:\n",
        ("tests/policy/test_grouping.py::test_group",),
    ),
    Mutant(
        "time-of-the-first-source",
        "S-24",
        "cleanerd/cleaner/stage.py",
        "group[-1].source.segment.mtime_ns)",
        "group[0].source.segment.mtime_ns)",
        ("tests/apply/test_offline.py::test_two_sources_time",),
    ),
)
