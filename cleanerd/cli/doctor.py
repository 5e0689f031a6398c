"""``cleanerd doctor``: finds problems of this host that affect cleanerd, with their fixes. Changes nothing."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from cleanerd.doctor.check import check_host
from cleanerd.doctor.findings import LEVELS, CheckResult, exit_code
from cleanerd.humanize import counted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cleanerd.cli.options import Common


def doctor(common: Common, log_dirs: tuple[Path, ...]) -> int:
    """Run ``cleanerd doctor``; its options are in ``reading_commands.py``."""
    findings = check_host(log_dirs, common.config_paths, common.assignments)
    _print_findings(common, findings)
    return exit_code(findings)


def _print_findings(common: Common, findings: Sequence[CheckResult]) -> None:
    output = common.output
    counts = Counter(finding.level for finding in findings)
    if output.as_json:
        output.json({
            "ok": not counts["problem"],
            "counts": {level: counts[level] for level in LEVELS},
            "findings": [finding.to_json() for finding in findings],
        })  # fmt: skip
        return
    # The worst come first; good results are only counted.
    found = sorted((f for f in findings if f.level != "ok"), key=lambda f: -LEVELS.index(f.level))
    width = max((len(_label(finding)) for finding in found), default=0)
    for finding in found:
        place = f" ({finding.where})" if finding.where else ""
        output.item(_label(finding).ljust(width), f"{finding.check}: {finding.what}{place}")
        if finding.fix:
            output.item(" " * width, f"-> {finding.fix}")
    if found:
        output.line()
    if common.verbose:
        for finding in findings:
            if finding.level == "ok":
                output.item("ok", f"{finding.check}: {finding.what} ({finding.where})")
        output.line()
    counted_levels = [counted(counts[level], level) for level in ("problem", "warning", "note") if counts[level]]
    passed = f"{counted(counts['ok'], 'check')} passed"
    output.line(f"{', '.join([passed, *counted_levels])}{'' if common.verbose else '; -v lists all'}")


def _label(finding: CheckResult) -> str:
    return finding.level.upper() if finding.level == "problem" else finding.level
