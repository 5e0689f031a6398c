"""Mistakes of the agent when a swap stops half-way, and the broker must take the log directory offline."""

from __future__ import annotations

from tests.mutants.agent import SOURCES
from tests.mutants.mutant import Mutant

HALF_SWAPS = (
    Mutant(
        "agent-continues-after-half-a-swap",
        "A-24",
        f"{SOURCES}/Attempt.java",
        "if (sourcesRemain() && log.canBeGivenUp()) {",
        "if (sourcesRemain() && log.canBeGivenUp() && failure == null) {",
        ("tests/agent/test_offline_log_dir.py::test_a_truncation_after_a_half_swap",),
    ),
    Mutant(
        "agent-takes-the-directory-offline-for-a-last-name",
        "A-24",
        f"{SOURCES}/Attempt.java",
        "return output.file().toString().endsWith(CleanedFiles.SWAP);",
        "return files.anyExists();",
        ("tests/agent/test_offline_log_dir.py::test_only_its_last_name_is_missing",),
    ),
    Mutant(
        "agent-takes-offline-a-segment-that-the-broker-lacks",
        "A-24",
        f"{SOURCES}/Attempt.java",
        "            if (!inTheLog()) {\n                return null;\n            }\n",
        "",
        ("tests/agent/test_offline_log_dir.py::test_a_failure_before_the_broker_has_the_segment",),
    ),
    Mutant(
        "agent-takes-the-directory-offline-before-the-segment-has-its-files",
        "A-24",
        f"{SOURCES}/Attempt.java",
        "            files.finish(staging);\n            if (sourcesRemain()",
        "            if (sourcesRemain()",
        ("tests/agent/test_offline_log_dir.py::test_not_before_the_new_segment_has_all_its_files",),
    ),
    Mutant(
        "agent-renames-an-index-that-is-not-there",
        "A-24",
        f"{SOURCES}/CleanedFiles.java",
        '        if (exists(path("txnindex", from))) {',
        "        if (base >= 0) {",
        ("tests/agent/test_offline_log_dir.py::test_a_complete_swap_on_a_file_system_that_became_read_only",),
    ),
    Mutant(
        "agent-repeats-half-a-swap-as-done",
        "A-25",
        f"{SOURCES}/Requests.java",
        " && !outcome.logDirFailed) {",
        ") {",
        ("tests/agent/test_offline_log_dir.py::test_a_repeated_request_is_refused",),
    ),
)
