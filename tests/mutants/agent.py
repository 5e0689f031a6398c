"""Mistakes in the agent: what it lets a broker swap in, and for whom (``agent/src``). Each is built and loaded."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

SOURCES = "agent/src/cleanerd/agent"
DAMAGE = "tests/agent/test_refusals.py::test_damage_is_named"
PLANS = "tests/agent/test_refused_plans.py::test_plans_that_do_not_fit"

AGENT = (
    Mutant(
        "agent-believes-checksums",
        "A-23",
        f"{SOURCES}/StagedCheck.java",
        "if (sum.ofBatch(frame) != frame.crc()) {",
        "if (sum.ofBatch(frame) != frame.crc() && frame.bytes() < 0) {",
        (DAMAGE,),
    ),
    Mutant(
        "agent-takes-foreign-batches",
        "A-23",
        f"{SOURCES}/SourceMatch.java",
        " || !staged.sameKindAs(source)) {",
        ") {",
        (DAMAGE,),
    ),
    Mutant(
        "agent-takes-logs-without-their-end",
        "S-09",
        f"{SOURCES}/SourceMatch.java",
        "        if (missing != null) {\n",
        "        if (missing != null && missing.bytes() < 0) {\n",
        (DAMAGE,),
    ),
    Mutant(
        "agent-asks-no-txnindex",
        "A-23",
        f"{SOURCES}/StagedCheck.java",
        '        TxnIndexCheck.check(group, log, staging.paths().get("txnindex"), sources);\n',
        "",
        (DAMAGE,),
    ),
    Mutant(
        "agent-compares-sizes-only",
        "U-3",
        f"{SOURCES}/Evidence.java",
        "!facts.equals(wanted)) {",
        "facts.size() != wanted.size()) {",
        (PLANS,),
    ),
    Mutant(
        "agent-asks-for-no-log-start",
        "U-2",
        f"{SOURCES}/Evidence.java",
        "if (request.logStart() != null && log.logStartOffset() != request.logStart()) {",
        "if (request.logStart() != null && request.logStart() < 0) {",
        (PLANS, "tests/agent/test_swap.py::test_the_log_start_moves"),
    ),
    Mutant(
        "agent-looks-once",
        "A-19",
        f"{SOURCES}/Swap.java",
        '                    evidence.check();\n                    Moment.reached("locked");',
        '                    Moment.reached("locked");',
        ("tests/agent/test_races.py::test_the_log_start_moves_meanwhile",),
    ),
    Mutant(
        "agent-keeps-the-cleaner-paused",
        "A-22",
        f"{SOURCES}/Swap.java",
        "            pause.close();\n",
        '            Moment.reached("end");\n',
        ("tests/agent/test_swap.py::test_a_swap_under_a_reader",),
    ),
    Mutant(
        "agent-leaves-what-it-moved-in",
        "A-24",
        f"{SOURCES}/Swap.java",
        "                files.removeCleaned();\n",
        "",
        ("tests/agent/test_races.py::test_a_staged_file_is_changed_after_the_check",),
    ),
    Mutant(
        "agent-serves-anybody",
        "A-29",
        f"{SOURCES}/Server.java",
        "if (!peer.equals(self) && !peer.equals(root)) {",
        "if (peer == null) {",
        ("tests/agent/test_hostile.py::test_another_user",),
    ),
)
