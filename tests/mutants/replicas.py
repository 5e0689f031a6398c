"""Mistakes about replicas: a tombstone that goes before all of them have it, or that waits for ever (U-70..U-77)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

RULE = "cleanerd/policy/replicas.py"
FACTS = "cleanerd/segments/cluster_metadata.py"
BOUND = "tests/policy/test_replicas.py::test_the_bound"
HISTORIES = "tests/policy/test_replicas.py::test_histories"
FULL = "tests/segments/test_replica_history.py::test_the_last_full_isr"
WAITS = "tests/cleaner/test_replicas.py::test_old_formats"

NAMED = "tests/cli/test_long_away.py::test_named_before_the_broker_starts"
NEEDED = "tests/cli/test_long_away.py::test_a_replica_that_may_be_needed"
MOVED = "tests/cli/test_long_away.py::test_moved_aside"

REPLICAS = (
    Mutant(
        "a-stopped-replica-was-never-away",
        "U-76",
        RULE,
        "return facts.newest_ms if broker in replicas.last_isr else facts.as_of_ms",
        "return None",
        (NAMED,),
    ),
    Mutant(
        "a-replica-that-has-just-returned-missed-nothing",
        "U-76",
        RULE,
        "if broker in replicas.isr:",
        "if broker in replicas.last_isr:",
        (NAMED,),
    ),
    Mutant(
        "a-lost-end-is-overlooked",
        "U-76",
        "cleanerd/resolution/long_away.py",
        "since_ms = min(since_ms, _last_write_ms(log))",
        "since_ms = max(since_ms, _last_write_ms(log))",
        ("tests/cli/test_long_away.py::test_a_log_that_lost_its_end",),
    ),
    Mutant(
        "the-committed-part-says-who-is-needed",
        "U-77",
        RULE,
        "        if broker in replicas.last_isr:\n",
        "        if broker in replicas.isr:\n",
        (MOVED, NEEDED),
    ),
    Mutant(
        "nobody-in-the-isr-is-needed",
        "U-77",
        RULE,
        'return "" if replicas.last_isr else "the metadata log shows an empty ISR"',
        'return ""',
        (NEEDED,),
    ),
    Mutant(
        "the-leader-is-not-needed",
        "U-77",
        "cleanerd/admin/cluster.py",
        "if self.leader == broker:",
        "if self.leader == broker and broker in self.isr:",
        ("tests/cli/test_long_away.py::test_what_the_cluster_says",),
    ),
    Mutant(
        "checkpoints-keep-what-was-moved",
        "U-77",
        "cleanerd/swap/move_aside.py",
        "            remove_from_checkpoints(log_dir, name)\n",
        "",
        (MOVED,),
    ),
    Mutant(
        "a-young-partition-of-one-replica-waits",
        "U-71",
        "cleanerd/segments/cluster_metadata.py",
        "if before is None and len(assigned) == 1:",
        "if before is None and not assigned:",
        ("tests/segments/test_replica_history.py::test_one_replica_in_the_last_minutes",),
    ),
    Mutant(
        "a-second-replica-of-the-last-minutes-is-overlooked",
        "U-71",
        "cleanerd/segments/cluster_metadata.py",
        "before.is_alone and assigned - before.assigned:",
        "before.is_alone and not assigned:",
        ("tests/segments/test_replica_history.py::test_one_replica_in_the_last_minutes",),
    ),
    Mutant(
        "tombstones-wait-for-no-replica",
        "U-70",
        RULE,
        "return now_ms if self.at_ms is None else min(now_ms, self.at_ms)",
        "return now_ms",
        (HISTORIES,),
    ),
    Mutant(
        "a-short-isr-is-full",
        "U-70",
        RULE,
        "return bool(self.isr) and not self.missing - ignored",
        "return bool(self.isr)",
        (HISTORIES,),
    ),
    Mutant(
        "an-empty-isr-is-full",
        "U-70",
        RULE,
        "return bool(self.isr) and not self.missing - ignored",
        "return not self.isr or not self.missing - ignored",
        (BOUND,),
    ),
    Mutant("clocks-are-alike", "U-70", RULE, "at_ms = full_ms - margin_ms", "at_ms = full_ms", (BOUND,)),
    Mutant(
        "a-full-isr-is-full-now",
        "U-70",
        RULE,
        "return max(self.as_of_ms, replicas.full_until_ms) if",
        "return max(self.newest_ms, replicas.full_until_ms) if",
        (FULL,),
    ),
    Mutant(
        "one-replica-waits-for-itself",
        "U-70",
        RULE,
        "return len(self.assigned) == 1",
        "return len(self.assigned) == len(self.isr) == 1",
        (BOUND,),
    ),
    Mutant(
        "old-formats-wait-for-no-replica",
        "U-70",
        "cleanerd/policy/legacy.py",
        "return horizon if bound_ms is None else",
        "return horizon if bound_ms is not None else",
        (WAITS,),
    ),
    Mutant(
        "the-ahead-clock-of-a-controller-counts",
        "U-70",
        RULE,
        "if facts.newest_ms > now_ms + margin_ms:",
        "if facts.newest_ms > now_ms + 100 * margin_ms:",
        ("tests/policy/test_replicas.py::test_a_controllers_clock_that_is_ahead",),
    ),
    Mutant(
        "replicas-that-are-added-do-not-count",
        "U-71",
        FACTS,
        "assigned |= frozenset(record.adding_replicas)",
        "assigned -= frozenset(record.adding_replicas)",
        (FULL,),
    ),
    Mutant("the-end-of-the-log-is-committed", "U-71", FACTS, ".newest_ms - margin_ms", ".newest_ms", (FULL,)),
    Mutant(
        "a-time-that-went-back-counts",
        "U-71",
        FACTS,
        "if at_ms < self.as_of_ms:",
        "if at_ms < 0:",
        ("tests/segments/test_replica_history.py::test_a_clock_that_goes_back",),
    ),
    Mutant(
        "the-last-full-isr-shrinks",
        "U-72",
        "cleanerd/state/full_isr.py",
        "times = {each: max(ours",
        "times = {each: min(ours",
        ("tests/segments/test_replica_history.py::test_it_only_grows",),
    ),
    Mutant(
        "held-tombstones-are-purged-in-vain",
        "U-73",
        "cleanerd/daemon/registry/due.py",
        "look.expiry.expiry_ms(now_ms)",
        "now_ms",
        ("tests/daemon/test_held_purge.py::test_it_waits",),
    ),
    Mutant(
        "held-tombstones-are-forgotten",
        "U-73",
        "cleanerd/daemon/directory_snapshot.py",
        "return self.purge_ms is not None and self.expiry.expiry_ms(now_ms) <",
        "return self.purge_ms is None and self.expiry.expiry_ms(now_ms) <",
        ("tests/daemon/test_held_purge.py::test_it_is_looked_at_when_the_log_is_past_it",),
    ),
)
