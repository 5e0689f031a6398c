"""Mistakes beside a running broker: what is asked of its agent, what an answer means (``apply/put_by_agent.py``)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

LIVE = "cleanerd/apply/put_by_agent.py"
SWAP = "cleanerd/apply/agent_swap.py"
LOG = "cleanerd/broker/live_log.py"
TESTS = "tests/apply/test_live.py"
ANSWERS = "tests/apply/test_live_answers.py"

BESIDE_BROKERS = (
    Mutant(
        "witnesses-of-the-sources-only",
        "U-3",
        SWAP,
        "self._evidence[base].to_json() for base in sorted(self._evidence)]",
        "self._evidence[base].to_json() for base in staged.sources]",
        (f"{TESTS}::test_every_request_has_witnesses_of_everything",),
    ),
    Mutant(
        "outputs-are-no-evidence",
        "U-3",
        SWAP,
        "        self._evidence[staged.base] = output\n",
        "",
        (f"{TESTS}::test_every_request_has_witnesses_of_everything",),
    ),
    Mutant(
        "log-start-not-sent",
        "U-2",
        SWAP,
        "plan.log_start_offset if plan.rules.versioned else None",
        "None",
        (f"{TESTS}::test_the_log_start_is_compared_under_a_versioned_strategy",),
    ),
    Mutant(
        "a-lost-answer-is-a-refusal",
        "A-25",
        SWAP,
        "if doubtful and self._is_swapped(staged, output):",
        "if self._is_swapped(staged, output) and False:",
        (f"{ANSWERS}::test_a_lost_answer",),
    ),
    Mutant(
        "believes-an-answer",
        "A-25",
        SWAP,
        "if doubtful and not self._is_swapped(staged, output):\n            raise",
        "if False:\n            raise",
        (f"{ANSWERS}::test_an_answer_that_lies",),
    ),
    Mutant(
        "replaced-twice-at-once",
        "D-04",
        LIVE,
        "        swapper.wait_for_deletions(found.config.file_delete_delay_ms)\n",
        "",
        (f"{TESTS}::test_replaced_a_moment_ago",),
    ),
    Mutant(
        "checkpoint-told-once",
        "A-20",
        LIVE,
        "if wait is None or error.code not in LATER:",
        "if wait is None or error.code in LATER:",
        (f"{ANSWERS}::test_the_checkpoint_is_told_again",),
    ),
    Mutant(
        "quarantined-when-moved",
        "A-13",
        "cleanerd/apply/remember.py",
        "if _is_gone(log_dir.path / str(name)):",
        "if _is_gone(log_dir.path):",
        (f"{ANSWERS}::test_it_left_its_log_directory",),
    ),
    Mutant(
        "old-formats-live",
        "U-18",
        "cleanerd/cleaner/refusals.py",
        "    if legacy:\n",
        "    if False:\n",
        (f"{TESTS}::test_old_message_formats_are_refused",),
    ),
    Mutant(
        "plan-promises-what-is-in-use",
        "U-16",
        "cleanerd/cli/plan.py",
        "                refuse_obstacles(reading, self.resources)\n",
        "                pass\n",
        ("tests/cli/test_refusals.py::test_plan_promises_nothing_that_is_refused",),
    ),
    Mutant(
        "plan-promises-what-still-goes",
        "D-04",
        "cleanerd/cli/plan.py",
        "            refuse_long_deletions(found, cleaning)\n",
        "            pass\n",
        ("tests/cli/test_refusals.py::test_plan_promises_nothing_that_is_refused",),
    ),
    Mutant(
        "plan-promises-a-held-directory",
        "U-39",
        "cleanerd/scope/obstacles.py",
        "        if worker is not None:\n",
        "        if False:\n",
        ("tests/cli/test_refusals.py::test_plan_promises_nothing_that_is_refused",),
    ),
    Mutant(
        "what-is-too-young-counts",
        "U-23",
        "cleanerd/log/cluster_metadata.py",
        "copy.deepcopy(image).finish()",
        "image.finish()",
        ("tests/log/test_cluster_metadata.py::test_what_is_too_young_beside_what_counts",),
    ),
    Mutant(
        "plan-promises-what-is-moved",
        "A-13",
        "cleanerd/scope/partitions.py",
        "        _refuse_unfit(name, said)\n",
        "",
        ("tests/cli/test_refusals.py::test_plan_promises_nothing_that_is_refused",),
    ),
    Mutant(
        "a-log-that-became-shorter-is-believed",
        "S-03",
        "cleanerd/scope/settled.py",
        "or end < self.ends[name]",
        "or end > self.ends[name]",
        ("tests/scope/test_settled.py::test_the_lower_one",),
    ),
    Mutant(
        "aborted-transactions-not-told",
        "U-32",
        SWAP,
        "if self._facts.compares_aborted:",
        "if not self._facts.compares_aborted:",
        (
            f"{TESTS}::test_a_transaction_index_that_was_empty_for_a_moment",
            f"{TESTS}::test_an_agent_of_an_earlier_release",
        ),
    ),
    Mutant(
        "producers-of-the-broker-forgotten",
        "R192-1",
        LIVE,
        "        return replace(plan, last_records=_with_brokers(plan.last_records, self._told()))\n",
        "        return plan\n",
        (f"{TESTS}::test_an_active_producers_last_batch",),
    ),
    Mutant(
        "last-stable-offset-of-the-disk",
        "U-23",
        LOG,
        "        last_stable_offset=facts.lso,\n",
        "",
        (f"{TESTS}::test_the_brokers_offsets_count",),
    ),
    Mutant(
        "segments-not-compared",
        "D-06",
        LOG,
        "listed != facts.segments[:-1] or ",
        "",
        (f"{TESTS}::test_segments_that_the_broker_does_not_have",),
    ),
)
