"""Mistakes of the data source (``spark/source/``): records read twice, not at all, or invisible."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

VISIBLE = "cleanerd/spark/source/visible.py"
STABLE = "cleanerd/spark/source/visible.py"
PLACES = "cleanerd/spark/source/places.py"
OFFSETS = "cleanerd/spark/source/offsets.py"
LATEST = "cleanerd/spark/source/read.py"
READING = "cleanerd/spark/source/reading.py"
STREAM = "cleanerd/spark/source/stream.py"
READ = "tests/spark/test_source_read.py"
STATES = "tests/spark/test_source_states.py"

SPARK_SOURCE = (
    Mutant(
        "spark-results-may-be-functions",
        "SP-6",
        "cleanerd/spark/task_runner.py",
        "        if isinstance(found, type) and (is_dataclass(found) or issubclass(found, tuple | Enum | PurePath)):\n",
        "        if found is not None:\n",
        ("tests/spark/test_clean_pieces.py::test_results_are_values",),
    ),
    Mutant(
        "source-does-not-read-on-for-markers",
        "U-12",
        VISIBLE,
        "                self._ahead = self._read_on(segment, stop)\n",
        "                self._ahead = iter(())\n",
        (f"{READ}::test_transactions_that_reach_out_of_a_split",),
    ),
    Mutant(
        "source-reads-a-segment-and-its-sources",
        "D-06",
        READING,
        "        wrong: NDArray[np.bool_] = beyond | (batches.base_offset <= before)\n",
        "        wrong: NDArray[np.bool_] = batches.base_offset <= before\n",
        (f"{STATES}::test_a_new_segment_next_to_one_that_it_replaces",),
    ),
    Mutant(
        "source-accepts-any-first-offset",
        "D-06",
        READING,
        "        wrong: NDArray[np.bool_] = beyond | (batches.base_offset <= before)\n",
        "        wrong = beyond\n",
        (f"{STATES}::test_an_offset_that_was_hit",),
    ),
    Mutant(
        "source-uses-a-snapshot-beyond-the-end",
        "U-12",
        STABLE,
        "        if snapshot.offset <= end:\n",
        "        if True:\n",
        (f"{READ}::test_snapshots",),
    ),
    Mutant(
        "source-stops-at-the-entry-of-the-end",
        "F-6",
        PLACES,
        "        if passed or (int(batch.base_offset[0]) >= end and not _is_wrapper(batch)):\n",
        "        if True:\n",
        (f"{READ}::test_every_split_size_reads_each_batch_once",),
    ),
    Mutant(
        "source-treats-a-wrappers-offset-as-its-first",
        "F-3.1",
        PLACES,
        " and not _is_wrapper(batch)):\n",
        "):\n",
        (f"{READ}::test_wrappers_wherever_they_are_cut",),
    ),
    Mutant(
        "source-trusts-every-index-entry",
        "F-6",
        PLACES,
        "    return batch is not None and least <= int(batch.base_offset[0]) <= most\n",
        "    return batch is not None\n",
        (f"{READ}::test_a_false_index",),
    ),
    Mutant(
        "source-time-of-the-active-segment-by-its-index",
        "F-7",
        PLACES,
        "return entries, segment.sealed and len(entries) > 0",
        "return entries, len(entries) > 0",
        (f"{READ}::test_times",),
    ),
    Mutant(
        "source-time-index-with-room-is-whole",
        "F-7",
        PLACES,
        " and len(data) == entries.nbytes",
        "",
        (f"{STATES}::test_a_time_index_that_was_not_finished",),
    ),
    Mutant(
        "source-marker-behind-damage",
        "U-12",
        VISIBLE,
        "return damage_handler(segment, skip=self._skip_damage)",
        "return damage_handler(segment, skip=True)",
        (f"{STATES}::test_a_lost_marker",),
    ),
    Mutant(
        "source-swap-half-done",
        "S-36",
        "cleanerd/spark/listed.py",
        "        if not _is_between(listing):",
        "        if listing.segments:",
        (f"{STATES}::test_an_interrupted_swap", f"{STATES}::test_a_swap_in_progress"),
    ),
    Mutant(
        "source-latest-forgets-other-shards",
        "U-20",
        LATEST,
        "            bits = found if shard == 0 else bits | found\n",
        "            bits = found\n",
        ("tests/spark/test_source_spark.py::test_latest_of_many_keys",),
    ),
    Mutant(
        "source-stream-reads-the-active-segment",
        "S-06",
        STREAM,
        "min(reach.end, log.segments[-1].base)",
        "min(reach.end, log.segments[-1].end)",
        ("tests/spark/test_source_stream.py::test_closed_segments",),
    ),
    Mutant(
        "source-stream-skips-a-recreated-topic",
        "S-51",
        STREAM,
        "                if offset > end:\n",
        "                if offset > end and offset < 0:\n",
        ("tests/spark/test_source_stream.py::test_a_topic_that_was_created_again",),
    ),
    Mutant(
        "retries-without-end",
        "D-06",
        "cleanerd/spark/retries.py",
        "    if not 0 < found < 1e6:\n",
        "    if found < 0:\n",
        ("tests/spark/test_retries.py::test_a_variable_that_is_not_a_positive_number_is_refused",),
    ),
    Mutant(
        "store-treats-a-position-as-an-answer",
        "D-06",
        "cleanerd/spark/store_tries.py",
        r"Read out of bounds|status code: 416",
        r"Read out of bounds|416",
        ("tests/spark/test_stores_that_err.py::test_a_position_that_resembles_an_answer",),
    ),
    Mutant(
        "store-accepts-a-whole-object-for-a-part",
        "D-06",
        "cleanerd/spark/stores.py",
        "!= head[1:]:",
        "== b'':",
        ("tests/spark/test_stores_that_err.py::test_a_whole_object_instead_of_a_part",),
    ),
    Mutant(
        "source-reads-internal-topics-unrequested",
        "SP-1",
        "cleanerd/spark/source/options.py",
        "        if name.topic in INTERNAL_TOPICS and not self.internal:\n",
        "        if name.topic in INTERNAL_TOPICS and self.pattern is None and not self.internal:\n",
        (f"{READ}::test_internal_topics",),
    ),
    Mutant(
        "source-reads-on-without-a-topic-that-was-named",
        "SP-2",
        "cleanerd/spark/logs.py",
        "    if missing:\n",
        "    if missing and not found:\n",
        (f"{READ}::test_which_partitions_are_read",),
    ),
    Mutant(
        "source-forgets-the-options-of-a-table",
        "SP-3",
        "cleanerd/spark/source/data_source.py",
        "        if kept is None:\n",
        "        if True:\n",
        (f"{READ}::test_a_table_of_the_catalog",),
    ),
    Mutant(
        "source-offers-a-retry-of-a-kept-plan",
        "SP-4",
        "cleanerd/spark/source/partition.py",
        "        if isinstance(error.__cause__, FileNotFoundError):\n",
        "        if error is None:\n",
        (f"{READ}::test_a_file_deleted_since_the_plan",),
    ),
    Mutant(
        "workers-are-the-python-of-path",
        "SP-5",
        "cleanerd/spark/session.py",
        "        context.pythonExec = sys.executable\n",
        "        pass\n",
        ("tests/spark/test_other_python.py::test_the_python_of_workers",),
    ),
)
