"""Mistakes in what stays: records, batches, tombstones, transactions, producers (``policy/``)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

RETAIN = "cleanerd/policy/retain.py"
TOMBSTONE = "cleanerd/policy/tombstone.py"
TRANSACTION = "cleanerd/policy/transaction.py"
PRODUCER = "cleanerd/policy/producer.py"

ONE_BATCH = "tests/policy/test_retain.py::test_one_batch"

RETENTION = (
    Mutant(
        "past-the-range-cleaned-too",
        "C-45.1",
        RETAIN,
        "keep = (untouched | (current & ~expired) | control)",
        "keep = ((current & ~expired) | control)",
        ("tests/policy/test_retain.py::test_end_of_range",),
    ),
    Mutant(
        "tombstone-goes-at-once",
        "C-45.5",
        RETAIN,
        "late = records.tombstone & _records_in(past_horizon, first_record)",
        "late = records.tombstone",
        (ONE_BATCH,),
    ),
    Mutant(
        "horizon-moved-on-rewrite",
        "C-49",
        RETAIN,
        "(batch_flags & (BATCH_HAS_HORIZON | BATCH_NO_HORIZON)) == 0",
        "(batch_flags & BATCH_NO_HORIZON) == 0",
        (ONE_BATCH,),
    ),
    Mutant(
        "no-horizon-for-a-marker-that-ends-nothing",
        "C-48",
        RETAIN,
        "waits = (kept_tombstones > 0) | ((kept > 0) & ((batch_flags & BATCH_ENDS_NOTHING) != 0))",
        "waits = kept_tombstones > 0",
        (ONE_BATCH,),
    ),
    Mutant(
        "marker-judged-by-its-key",
        "C-40",
        RETAIN,
        "(current & ~expired) | control) & ~aborted",
        "(current & ~expired)) & ~aborted",
        (ONE_BATCH,),
    ),
    Mutant(
        "marker-goes-before-its-horizon",
        "C-40",
        RETAIN,
        "_records_in(((batch_flags & BATCH_ENDS_NOTHING) != 0) & past_horizon, first_record)",
        "_records_in((batch_flags & BATCH_ENDS_NOTHING) != 0, first_record)",
        (ONE_BATCH,),
    ),
    Mutant(
        "last-batch-of-a-producer-dropped",
        "C-39.1",
        RETAIN,
        "np.flatnonzero((kept == 0) & ((batch_flags & BATCH_PROTECTED) != 0))",
        "np.flatnonzero((kept < 0) & ((batch_flags & BATCH_PROTECTED) != 0))",
        (ONE_BATCH,),
    ),
    Mutant(
        "end-of-a-group-dropped",
        "U-13",
        RETAIN,
        "if actions[-1] != ACTION_DROP:",
        "if actions[-1] >= ACTION_DROP:",
        ("tests/policy/test_retain.py::test_end_of_group", "tests/cleaner/test_segments.py::test_end_of_the_log_stays"),
    ),
    Mutant(
        "closing-batch-keeps-its-time",
        "S-09",
        RETAIN,
        "return ACTION_EMPTY if at_bound else ACTION_EMPTY | ACTION_TIMELESS",
        "return ACTION_EMPTY",
        ("tests/policy/test_retain.py::test_closing_action",),
    ),
    Mutant(
        "horizon-reached-is-not-past",
        "C-45.5",
        TOMBSTONE,
        "(base_timestamp <= now_ms)",
        "(base_timestamp < now_ms)",
        ("tests/policy/test_tombstone.py::test_expired",),
    ),
    Mutant(
        "horizon-that-overflows-is-cut",
        "C-50",
        TOMBSTONE,
        "return horizon_ms if 0 <= horizon_ms <= LONG_MAX else -1",
        "return min(horizon_ms, LONG_MAX)",
        ("tests/policy/test_tombstone.py::test_new_horizon",),
    ),
    Mutant(
        "abort-of-any-producer",
        "C-37",
        TRANSACTION,
        "(place < len(self._keys)) & (self._keys[inside] // self._step == rank[rows])",
        "place < len(self._keys)",
        ("tests/policy/test_transaction.py::test_covers",),
    ),
    Mutant(
        "abort-that-begins-after-the-batch",
        "C-37",
        TRANSACTION,
        "result[rows] = same_producer & (self._first_offsets[inside] <= last_offset[rows])",
        "result[rows] = same_producer",
        ("tests/policy/test_transaction.py::test_covers",),
    ),
    Mutant(
        "transactions-forgotten-at-a-segment-end",
        "C-33",
        TRANSACTION,
        "[producer in seen for producer in ids]",
        "[False for producer in ids]",
        ("tests/cleaner/test_transactions.py::test_data_and_marker_in_two_segments",),
    ),
    Mutant(
        "any-marker-ends-any-data",
        "C-37",
        TRANSACTION,
        "((COMMITTED_DATA, COMMIT, self._committed), (ABORTED_DATA, ABORT, self._aborted))",
        "((COMMITTED_DATA, ABORT, self._committed), (ABORTED_DATA, COMMIT, self._aborted))",
        ("tests/policy/test_transaction.py::test_ended",),
    ),
    Mutant(
        "last-batch-known-by-its-base-offset",
        "C-39.1",
        PRODUCER,
        "_holds_offset(batches.last_offset, self.data_offsets)",
        "_holds_offset(batches.base_offset, self.data_offsets)",
        ("tests/policy/test_producer.py::test_the_last_offset_of_a_longer_batch",),
    ),
    Mutant(
        "markers-of-an-older-epoch-protected",
        "C-39.1",
        PRODUCER,
        "self.marker_epochs[place] == batches.producer_epoch[rows]",
        "self.marker_epochs[place] >= batches.producer_epoch[rows]",
        ("tests/policy/test_producer.py::test_markers",),
    ),
)
