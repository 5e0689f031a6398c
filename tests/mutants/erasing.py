"""Mistakes about erasures: a date that is too early, a proof that proves nothing (U-85..U-88)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

REMOVAL = "cleanerd/policy/removal.py"
STEPS = "tests/policy/test_removal.py"
PROOF = "cleanerd/verify/erasure_proof.py"
CERTIFICATES = "tests/cli/test_erase_certify.py"

ERASING = (
    Mutant(
        "the-active-segment-is-rolled-by-time-alone",
        "U-85",
        REMOVAL,
        "        if covering and covering[-1].is_active:\n",
        "        if False:\n",
        (f"{STEPS}::test_only_a_write_rolls_the_active_segment",),
    ),
    Mutant(
        "kafkas-cleaner-returns-for-tombstones",
        "U-85",
        REMOVAL,
        """        if self._facts.cleaned_by == "daemon":\n""",
        """        if self._facts.cleaned_by != "operator":\n""",
        (f"{STEPS}::test_kafkas_cleaner_does_not_return_for_a_tombstone",),
    ),
    Mutant(
        "an-event-without-a-bound-is-left-out-of-the-date",
        "U-85",
        REMOVAL,
        "return None if None in bounds else max(",
        "return max(",
        (f"{STEPS}::test_only_a_write_rolls_the_active_segment",),
    ),
    Mutant(
        "a-date-does-not-wait-for-replicas",
        "U-85",
        REMOVAL,
        "    way.replicated(facts.expiry)\n",
        "",
        (f"{STEPS}::test_a_tombstone_waits_for_every_replica",),
    ),
    Mutant(
        "kafka-cleans-what-its-cleaner-is-kept-away-from",
        "U-85",
        "cleanerd/resolution/erasure_plan.py",
        "found.config.is_kafkas and not found.config.may_be_kept_away",
        "found.config.is_kafkas",
        ("tests/resolution/test_erasure_plan.py::test_where_kafkas_cleaner_does_not_clean",),
    ),
    Mutant(
        "a-stale-metadata-log-shows-all-replicas-soon",
        "U-85",
        REMOVAL,
        "expiry.at_ms < self._facts.now_ms - _STALE_MS",
        "expiry.at_ms < 0",
        (f"{STEPS}::test_a_tombstone_waits_for_every_replica",),
    ),
    Mutant(
        "a-changed-certificate-is-read",
        "U-86",
        "cleanerd/verify/certificate.py",
        "    except InvalidSignature:\n        return False\n",
        "    except InvalidSignature:\n        return True\n",
        (f"{CERTIFICATES}::test_changed_after_it_was_signed",),
    ),
    Mutant(
        "files-that-appear-during-the-search-are-not-named",
        "U-86",
        "cleanerd/verify/searched_files.py",
        "for path, _ in files_of(place) if path not in known]",
        "for path, _ in files_of(place) if False]",
        (f"{CERTIFICATES}::test_files_that_change_during_the_search",),
    ),
    Mutant(
        "a-directory-that-was-not-named-counts-as-searched",
        "U-86",
        "cleanerd/cli/erase_certify.py",
        "    searched.unsearched += _not_named(settings, log_dirs)\n",
        "",
        (f"{CERTIFICATES}::test_a_directory_of_the_broker_that_was_not_named",),
    ),
    Mutant(
        "a-replica-without-the-tombstone-closes-the-request",
        "U-86",
        "cleanerd/cli/erase_certify.py",
        "    if behind:\n        return FOUND\n",
        "",
        (f"{CERTIFICATES}::test_searched_before_the_tombstone",),
    ),
    Mutant(
        "an-untrusted-signature-counts",
        "U-87",
        PROOF,
        "    if each.public_key not in trusted:\n",
        "    if not trusted:\n",
        (f"{CERTIFICATES}::test_a_foreign_signature",),
    ),
    Mutant(
        "a-search-below-the-tombstone-counts",
        "U-87",
        PROOF,
        "if end <= tombstones.get(number, -1)]",
        "if end < tombstones.get(number, -1)]",
        (f"{CERTIFICATES}::test_searched_before_the_tombstone",),
    ),
    Mutant(
        "an-older-statement-counts",
        "U-87",
        PROOF,
        "key=lambda each: each.statement.ended_ms)",
        "key=lambda each: -each.statement.ended_ms)",
        (f"{CERTIFICATES}::test_the_newest_statement_counts",),
    ),
    Mutant(
        "a-replica-without-a-certificate-is-not-missed",
        "U-87",
        PROOF,
        'return ProvenReplica(partition, broker, None, ("a certificate is missing",))',
        "return ProvenReplica(partition, broker, None, ())",
        (f"{CERTIFICATES}::test_every_replica_is_needed",),
    ),
    Mutant(
        "a-tombstone-is-as-high-as-the-largest-version",
        "U-88",
        "cleanerd/client/erasure.py",
        'return {"version": 0 if largest is None else largest + 1}',
        'return {"version": 0 if largest is None else largest}',
        ("tests/client/test_erasure.py::test_by_version_the_largest_of_all_partitions_counts",),
    ),
    Mutant(
        "a-partition-is-cleaned-for-an-erasure-again-and-again",
        "U-88",
        "cleanerd/daemon/registry/partition_entry.py",
        "look.clean_offset <= tracked.erase_offset < look.bound_offset",
        "tracked.erase_offset < look.bound_offset",
        ("tests/daemon/test_erasures.py::test_the_tombstone_is_cleaned_next",),
    ),
    Mutant(
        "an-erasure-is-about-any-topic-of-that-name",
        "U-88",
        "cleanerd/daemon/erasures.py",
        "if topic_id is None or request.topic_id in {None, uuid_to_base64(topic_id)}:",
        "if True:",
        ("tests/daemon/test_erasures.py::test_partitions_that_it_is_not_about",),
    ),
    Mutant(
        "damage-at-the-tombstones-offset-counts-as-gone",
        "U-88",
        "cleanerd/daemon/erasures.py",
        "        return False  # the broker replaced",
        "        return True  # the broker replaced",
        ("tests/daemon/test_erasures.py::test_the_log_shows_when_the_tombstone_is_gone",),
    ),
)
