"""Mistakes of decoding keys and values (``spark/values/``): a wrong value instead of a reason, an unreported loss."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

AVRO = "cleanerd/spark/values/avro.py"
REGISTRY = "cleanerd/spark/values/registry.py"
MERGE = "cleanerd/spark/tables/merge.py"
UNDECODED = "cleanerd/spark/tables/undecoded.py"
TESTS = "tests/spark/test_values_tables.py"
AVROS_TESTS = "tests/spark/test_values_avro.py"

SPARK_VALUES = (
    Mutant(
        "values-treat-milliseconds-as-microseconds",
        "OP-10",
        AVRO,
        "        _require_same_units(written, self._reader, written.root, self._reader.root, Budget(label))\n",
        "",
        (f"{AVROS_TESTS}::test_records_that_the_newest_schema_cannot_read",),
    ),
    Mutant(
        "values-ignore-remaining-bytes",
        "OP-10",
        AVRO,
        "            if file.tell() != len(data):\n",
        "            if False:\n",
        (f"{AVROS_TESTS}::test_without_framing",),
    ),
    Mutant(
        "values-follow-arrays-of-nothing",
        "U-35",
        AVRO,
        '        if kind == "array" and not _require_finite(schema, node["items"], budget):\n',
        '        if kind == "array" and _require_finite(schema, node["items"], budget) < 0:\n',
        (f"{AVROS_TESTS}::test_records_that_the_newest_schema_cannot_read",),
    ),
    Mutant(
        "values-of-one-message-for-another",
        "OP-10",
        "cleanerd/spark/values/protobuf.py",
        "                if known[where] != full_name:\n",
        "                if False:\n",
        ("tests/spark/test_values_protobuf.py::test_message_indexes",),
    ),
    Mutant(
        "values-of-an-unreachable-registry-are-undecodable",
        "OP-10",
        REGISTRY,
        '        raise self._strange(f"{status} for {path} {message[:200]}".rstrip())\n',
        "        return None\n",
        ("tests/spark/test_values_schemas.py::test_a_lasting_error_of_the_registry_is_reported_at_once",),
    ),
    Mutant(
        "values-counted-by-each-task-alone",
        "OP-10",
        MERGE,
        "        _require_decoded(decoding, written)\n",
        "",
        (f"{TESTS}::test_the_limit_counts_over_all_tasks",),
    ),
    Mutant(
        "values-side-table-is-made-once",
        "OP-10",
        UNDECODED,
        "    if now is None or (side.exists and _is_of(side, now)):\n",
        "    if now is None or side.exists:\n",
        (f"{TESTS}::test_tables",),
    ),
    Mutant(
        "values-default-is-shared",
        "OP-10",
        "cleanerd/spark/values/shapes.py",
        "        changed = dict(value)",
        "        changed = value",
        ("tests/spark/test_values_avro.py::test_defaults",),
    ),
    Mutant(
        "values-default-of-bytes-as-text",
        "OP-10",
        "cleanerd/spark/values/avro.py",
        'default.encode("latin-1")',
        "default.encode()",
        ("tests/spark/test_values_avro.py::test_defaults",),
    ),
    Mutant(
        "values-enum-without-a-name-is-left-out",
        "OP-10",
        "cleanerd/spark/values/protobuf.py",
        "_pool_of(_with_numbers(file) for file in",
        "_pool_of(file for file in",
        ("tests/spark/test_values_protobuf.py::test_enums_without_a_name",),
    ),
)
