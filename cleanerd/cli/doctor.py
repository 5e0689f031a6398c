"""``cleanerd doctor``: what of this host keeps cleanerd from its work, and what to do about it. Changes nothing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cleanerd.cli.options import Common, common_options
from cleanerd.cli.output import Column
from cleanerd.doctor.check import check_host
from cleanerd.doctor.findings import LEVELS, exit_code

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cleanerd.cli.output import Output
    from cleanerd.doctor.findings import Finding


@click.command("doctor")
@common_options
@click.argument("log_dirs", nargs=-1, metavar="[LOG_DIR...]", type=click.Path(path_type=Path))
def doctor(common: Common, log_dirs: tuple[Path, ...]) -> int:
    """Check this host: settings, log directories, owner, lock, free space, leftovers. Each finding with its fix.

    Without LOG_DIR those that the settings name, as for cleanerd run. Changes nothing, and works beside a running
    broker. Exit code 0 unless there is a problem.
    """
    findings = check_host(log_dirs, common.config_paths, common.assignments)
    _tell(common.output, findings)
    return exit_code(findings)


def _tell(output: Output, findings: Sequence[Finding]) -> None:
    counts = Counter(finding.level for finding in findings)
    if output.as_json:
        output.json({
            "ok": not counts["problem"],
            "counts": {level: counts[level] for level in LEVELS},
            "findings": [finding.to_json() for finding in findings],
        })  # fmt: skip
        return
    columns = [Column(""), Column("check"), Column("what"), Column("where")]
    shown = [finding for finding in findings if finding.level != "ok" or not output.quiet]
    if shown:
        output.table(columns, [[_label(f), f.check, f.what, f.where] for f in shown])
    # The worst first: that is what one came for.
    to_do = sorted((f for f in findings if f.fix), key=lambda f: -LEVELS.index(f.level))
    if to_do:
        output.line()
        output.line("What to do:")
        for finding in to_do:
            output.line(f"  {_label(finding)} {finding.check}, {finding.where}: {finding.fix}")
    output.line()
    said = [f"{counts[level]} {level}{'s' if counts[level] != 1 else ''}" for level in ("problem", "warning", "note")]
    output.line(f"{', '.join(said)}; {counts['ok']} checks are fine.")


def _label(finding: Finding) -> str:
    return finding.level.upper() if finding.level == "problem" else finding.level
