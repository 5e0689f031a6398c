"""Mistakes about strategies and tombstone modes: who takes part, who wins, when a tombstone may go (R280, R87, U-1)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

STRATEGY = "cleanerd/policy/strategy.py"
TOMBSTONE = "cleanerd/policy/tombstone.py"
RETAIN = "cleanerd/policy/retain.py"
HEAD = "cleanerd/cleaner/head.py"
PURGE = "cleanerd/cleaner/purge.py"

TABLE = "tests/cleaner/test_strategies_table.py::test_strategy"
DELETED = "tests/cleaner/test_strategies_table.py::test_tombstones"
ROUNDS = "tests/cleaner/test_strategy_rounds.py"

STRATEGIES = (
    Mutant(
        "published-map-of-the-dirty-part-alone",
        "R280-10",
        HEAD,
        "if not self._plan.rules.versioned:",
        "if self._plan.rules.versioned or not self._plan.rules.versioned:",
        (TABLE,),
    ),
    Mutant(
        "clean-winner-forgotten",
        "R280-10",
        HEAD,
        "head[: len(evidence.won)] |= evidence.won",
        "head[: len(evidence.won)] |= evidence.won & np.uint64(0)",
        (TABLE,),
    ),
    Mutant(
        "aborted-data-of-the-clean-part-competes",
        "U-2",
        HEAD,
        "excluded = evidence.add(chunk).excluded",
        "excluded = evidence.add(chunk).excluded & False",
        ("tests/cleaner/test_strategy_rounds.py::test_aborted_data_of_a_clean_segment",),
    ),
    Mutant(
        "below-the-log-start-competes",
        "U-2",
        HEAD,
        "rows = known.rows(evidence.visible_from, records)",
        "rows = known.rows(0, records)",
        (TABLE,),
    ),
    Mutant(
        "below-the-log-start-judged",
        "U-2",
        RETAIN,
        "if records.unjudged_records:",
        "if records.unjudged_records < 0:",
        ("tests/policy/test_retain.py::test_below_the_log_start", TABLE),
    ),
    Mutant(
        "no-version-is-minus-one",
        "R280-6",
        STRATEGY,
        "return Versions(records.version, (records.flags & FLAG_HAS_VERSION) != 0)",
        "return Versions(np.where((records.flags & FLAG_HAS_VERSION) != 0, records.version, -1), "
        "np.ones(len(records), dtype=np.bool_))",
        ("tests/policy/test_strategy.py::test_header", TABLE),
    ),
    Mutant(
        "earlier-shards-forgotten-in-the-clean-part",
        "OP-2",
        HEAD,
        "words.copy() if evidence.won is None else evidence.won | words",
        "words.copy()",
        ("tests/cleaner/test_strategy_rounds.py::test_same_bytes_with_any_number_of_threads",),
    ),
    Mutant(
        "flag-wants-a-null",
        "R87-2",
        TOMBSTONE,
        "flagged: NDArray[np.bool_] = (flags & FLAG_TOMBSTONE) != 0",
        "flagged: NDArray[np.bool_] = null & ((flags & FLAG_TOMBSTONE) != 0)",
        ("tests/policy/test_tombstone.py::test_modes", DELETED),
    ),
    Mutant(
        "null-without-flag-deletes",
        "R87-3",
        TOMBSTONE,
        "flagged: NDArray[np.bool_] = (flags & FLAG_TOMBSTONE) != 0",
        "flagged: NDArray[np.bool_] = null | ((flags & FLAG_TOMBSTONE) != 0)",
        ("tests/policy/test_tombstone.py::test_modes", DELETED),
    ),
    Mutant(
        "expired-tombstone-goes-unproven",
        "U-1",
        PURGE,
        "if not rules.versioned:",
        "if not rules.versioned or rules.tombstone_guard:",
        (DELETED, f"{ROUNDS}::test_a_deleted_key_does_not_come_back_between_two_groups"),
    ),
    Mutant(
        "tail-is-no-evidence",
        "U-1",
        PURGE,
        "for source in plan.tail:",
        "for source in ():",
        (DELETED, f"{ROUNDS}::test_a_tombstone_waits_for_late_data_in_the_tail"),
    ),
    Mutant(
        "rest-of-the-last-segment-is-no-evidence",
        "U-1",
        PURGE,
        "self._meet(chunk, mask | beyond)",
        "self._meet(chunk, mask)",
        (DELETED,),
    ),
    Mutant(
        "a-tombstone-holds-itself-back",
        "R534-6",
        PURGE,
        "mask &= ~held.rows(known.record, len(chunk.records))",
        "mask &= True",
        (DELETED,),
    ),
    Mutant(
        "tombstones-of-one-key-do-not-see-each-other",
        "U-1",
        PURGE,
        "proof.hold_against(replace(each, bits=_words(held, each)))",
        "proof.hold_against(each)",
        (DELETED,),
    ),
    Mutant(
        "guard-for-ever-forgotten",
        "U-4",
        PURGE,
        'if rules.tombstone_guard == "forever":',
        'if rules.tombstone_guard == "always":',
        (DELETED,),
    ),
    Mutant(
        "kafkas-checkpoint-moved-by-versions",
        "U-10",
        "cleanerd/apply/remember.py",
        "if fingerprint == KAFKAS_FINGERPRINT:",
        "if fingerprint:",
        (f"{ROUNDS}::test_clean_point_is_our_own",),
    ),
    Mutant(
        "kafkas-checkpoint-believed-under-versions",
        "U-10",
        "cleanerd/cleaner/survey.py",
        "theirs = log.cleaner_offset if config.is_kafkas else None",
        "theirs = log.cleaner_offset",
        (f"{ROUNDS}::test_clean_point_is_our_own",),
    ),
    Mutant(
        "verify-knows-offsets-alone",
        "R280-4",
        "cleanerd/verify/keys.py",
        'np.lexsort((part["offset"], part["version"], part["has_version"], old, key))',
        'np.lexsort((part["offset"], old, key))',
        ("tests/verify/test_strategies.py::test_rules",),
    ),
)
