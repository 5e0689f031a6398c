"""Mistakes of the digests of replicas: equal logs that differ by them, and different ones that do not."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

READING = "cleanerd/cleaner/state_digest.py"
RULES = "cleanerd/policy/state_digest.py"
HISTORIES = "tests/cleaner/test_state_digest.py::test_replicas_of_a_history_have_the_digests_of_the_model"
TESTS = "tests/cleaner/test_state_digest.py"
DAEMON = "tests/daemon/test_digests.py"
COMPARED = "tests/policy/test_state_digest.py::test_which_states_are_compared"

STATE_DIGESTS = (
    Mutant(
        "states-below-the-active-segment",
        "U-90",
        READING,
        "low = max(log.active.base, found.proven_offset,",
        "low = max(found.proven_offset,",
        (f"{TESTS}::test_no_state_is_below_the_active_segment_where_a_key_is_repeated",),
    ),
    Mutant(
        "states-that-a-copied-cleaning-has-reached",
        "U-90",
        READING,
        "[state for state in states if state.end_offset >= known_from]",
        "[state for state in states if known_from >= 0]",
        (f"{TESTS}::test_no_state_is_below_the_first_repeated_key",),
    ),
    Mutant(
        "tombstones-count-in-a-state",
        "U-90",
        READING,
        "values = ~_bits(evidence.tombstone.words(), evidence.records)",
        "values = np.ones(evidence.records, np.bool_)",
        (HISTORIES, f"{TESTS}::test_superseded_records_and_tombstones_do_not_count"),
    ),
    Mutant(
        "states-reach-to-the-high-watermark",
        "U-90",
        READING,
        "*([] if first_open is None else [first_open])",
        "*[]",
        (f"{TESTS}::test_an_open_transaction_ends_the_states",),
    ),
    Mutant(
        "the-index-decides-aborted-data-in-a-state",
        "U-90",
        READING,
        "if corrected is not None:",
        "if corrected is None:",
        (f"{TESTS}::test_a_marker_above_the_last_stable_offset_counts",),
    ),
    Mutant(
        "one-pass-over-the-keys-of-a-state",
        "U-90",
        READING,
        "self.winners[: len(bits)] |= bits",
        "self.winners[: len(bits)] = bits",
        (f"{TESTS}::test_keys_that_need_several_passes",),
    ),
    Mutant(
        "a-state-has-the-retained-records-of-a-higher-one",
        "U-90",
        READING,
        "below[row:] = False",
        "below[len(below) :] = False",
        (HISTORIES,),
    ),
    Mutant(
        "each-log-start-is-a-start-of-its-own",
        "U-90",
        READING,
        "self.begin_offset = grid_start(self.log_start_offset, self.end_offset)",
        "self.begin_offset = self.log_start_offset",
        (f"{TESTS}::test_log_starts_that_differ_a_little",),
    ),
    Mutant(
        "digests-by-other-rules-are-remembered",
        "U-90",
        "cleanerd/daemon/registry/partition_entry.py",
        "old = self.digests if self.rules == later.rules else ()",
        "old = self.digests",
        (f"{DAEMON}::test_the_newest_digests_are_remembered",),
    ),
    Mutant(
        "digests-of-a-truncated-log-are-remembered",
        "U-90",
        "cleanerd/daemon/registry/partition_entry.py",
        "and each.end_offset <= log_end]",
        "]",
        (f"{DAEMON}::test_the_newest_digests_are_remembered",),
    ),
    Mutant(
        "the-only-replica-is-digested",
        "U-90",
        "cleanerd/daemon/registry/due.py",
        "if coarsest is None or (replicas is not None and replicas.is_alone(scan.name.partition)):",
        "if coarsest is None:",
        (f"{DAEMON}::test_partitions_that_are_not_digested",),
    ),
    Mutant(
        "records-of-one-replica-alone-are-named",
        "U-90",
        "cleanerd/spark/example.py",
        "for found in (in_one, in_other) if offset in found]",
        "for found in (in_one, in_one) if offset in found]",
        ("tests/spark/test_divergence.py::test_differing_records_are_listed_with_their_keys",),
    ),
    Mutant(
        "the-lowest-common-state-decides",
        "U-90",
        RULES,
        "at = max(common)",
        "at = min(common)",
        (COMPARED,),
    ),
    Mutant(
        "states-below-a-first-dirty-offset-are-compared",
        "U-90",
        RULES,
        "if d.end_offset >= cleaned}",
        "if d.end_offset >= 0}",
        (COMPARED,),
    ),
    Mutant(
        "states-by-other-rules-are-compared",
        "U-90",
        RULES,
        " or replicas[one].rules != replicas[other].rules:",
        ":",
        (COMPARED,),
    ),
)
