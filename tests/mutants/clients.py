"""Mistakes of readers and writers (``client/``, ``policy/version.py``)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

VERSION = "cleanerd/policy/version.py"
RULES = "cleanerd/client/rules.py"
DELIVERY = "cleanerd/client/delivery.py"
IDEMPOTENCE = "cleanerd/client/idempotence.py"
STATE = "cleanerd/client/latest_state.py"
FILES = "cleanerd/client/log_dir_topic.py"
CODEC = "cleanerd/client/kafka_flag.py"

CLIENTS = (
    Mutant(
        "version-read-unsigned",
        "R280-5",
        VERSION,
        'int.from_bytes(value, "big", signed=True)',
        'int.from_bytes(value, "big")',
        ("tests/policy/test_version.py::test_long",),
    ),
    Mutant(
        "absent-version-is-zero",
        "R280-6",
        VERSION,
        "return (version is not None, version or 0, offset)",
        "return (True, version or 0, offset)",
        ("tests/policy/test_version.py::test_rank",),
    ),
    Mutant(
        "reader-takes-the-first-header",
        "R280-5",
        RULES,
        "        if key == name:\n            found = value\n",
        "        if key == name:\n            return value\n",
        ("tests/client/test_rules.py::test_tombstones", "tests/client/test_rules.py::test_versions_of_read_records"),
    ),
    Mutant(
        "null-deletes-in-flag-mode",
        "R87-3",
        RULES,
        "            return flagged\n",
        "            return flagged or value is None\n",
        ("tests/client/test_rules.py::test_tombstones",),
    ),
    Mutant(
        "flag-of-old-formats",
        "R87-2",
        RULES,
        'if self.tombstone_mode == "flag" and magic >= 2:',
        'if self.tombstone_mode == "flag":',
        ("tests/client/test_rules.py::test_tombstones", "tests/client/test_log_dir_topic.py::test_old_formats"),
    ),
    Mutant(
        "invented-offsets-used",
        "R192-6",
        DELIVERY,
        "self._next_invented.get(where) == offset",
        "False",
        ("tests/client/test_producer.py::test_a_duplicate_sequence_is_success_without_offset",),
    ),
    Mutant(
        "ignored-format-heeded",
        "R192-5",
        IDEMPOTENCE,
        "_release(protocol) < _FORMAT_IGNORED_SINCE",
        "_release(protocol) < (99,)",
        ("tests/client/test_producer.py::test_a_message_format_setting_that_brokers_ignore",),
    ),
    Mutant(
        "superseded-record-forgotten-with-the-retained-one",
        "U-2",
        STATE,
        "                self._source.reread(number)\n",
        "                pass\n",
        ("tests/client/test_latest_state.py::test_a_superseded_record_comes_back_when_the_retained_one_is_deleted",),
    ),
    Mutant(
        "tombstone-not-remembered",
        "R280-13",
        STATE,
        "        self._winners[record.key] = (candidate, record)\n        return True\n",
        "        self._winners[record.key] = (candidate, record)\n        if record.is_tombstone():\n"
        "            del self._winners[record.key]\n        return True\n",
        ("tests/client/test_latest_state.py::test_a_late_older_write_does_not_resurrect",),
    ),
    Mutant(
        "open-transaction-read",
        "U-2",
        FILES,
        "bound = min(bound, open_from)",
        "pass",
        ("tests/client/test_log_dir_topic.py::test_transactions",),
    ),
    Mutant(
        "aborted-data-read",
        "U-12",
        FILES,
        "np.flatnonzero(~control & ~gone)",
        "np.flatnonzero(~control)",
        ("tests/client/test_log_dir_topic.py::test_transactions",),
    ),
    Mutant(
        "above-the-high-watermark-read",
        "R280-14",
        FILES,
        "bound = MAX_OFFSET if self._whole_log else log.high_watermark",
        "bound = MAX_OFFSET",
        ("tests/client/test_log_dir_topic.py::test_the_high_watermark",),
    ),
    Mutant(
        "flags-lost-in-a-split",
        "U-25",
        CODEC,
        "for found in FlagRecords(batch.records.buffer())",
        "for found in MemoryRecords(batch.records.buffer())",
        ("tests/client/test_kafka_flag_codec.py::test_a_batch_that_is_too_large_is_split",),
    ),
)
