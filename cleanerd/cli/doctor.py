"""``cleanerd doctor``: what of this host keeps cleanerd from its work, and what to do about it. Changes nothing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cleanerd.cli.doctor_agent import check_mode
from cleanerd.cli.doctor_host import (
    Process,
    check_file_system,
    check_limits,
    check_settings,
    check_state_directory,
)
from cleanerd.cli.doctor_log_dir import check_broker, check_directory, check_metadata, check_owner
from cleanerd.cli.doctor_partitions import check_leftovers, check_quarantine, check_space, read_partitions
from cleanerd.cli.findings import LEVELS, Findings, exit_code
from cleanerd.cli.options import Common, common_options
from cleanerd.cli.output import Column
from cleanerd.errors import ConfigError
from cleanerd.log.clean_point import StateStore
from cleanerd.scope.log_dirs import log_dirs_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cleanerd.cli.findings import Finding
    from cleanerd.cli.output import Output
    from cleanerd.settings import Settings


@click.command("doctor")
@common_options
@click.argument("log_dirs", nargs=-1, metavar="[LOG_DIR...]", type=click.Path(path_type=Path))
def doctor(common: Common, log_dirs: tuple[Path, ...]) -> int:
    """Check this host: settings, log directories, owner, lock, free space, leftovers. Each finding with its fix.

    Without LOG_DIR those that the settings name, as for cleanerd run. Changes nothing, and works beside a running
    broker. Exit code 0 unless there is a problem.
    """
    findings = Findings()
    settings = check_settings(findings, common.config_paths, common.assignments)
    if settings is None:
        findings.note("log directory", "not looked at: the settings come first", ", ".join(map(str, log_dirs)))
    else:
        check_state_directory(findings, settings.daemon.cleanerd_state_dir)
        check_limits(findings, settings.daemon.log_cleaner_threads)
        store = StateStore(settings.daemon.cleanerd_state_dir, keeps_damaged=True)
        paths = log_dirs or _of_settings(findings, settings)
        for path in paths:
            _check_log_dir(findings, settings, path, paths, store)
    _tell(common.output, findings.all)
    return exit_code(findings.all)


def _of_settings(findings: Findings, settings: Settings) -> tuple[Path, ...]:
    try:
        return log_dirs_of(settings)
    except ConfigError as error:
        findings.failed("log directory", error, error.hint or "give the broker's log directories")
        return ()


def _check_log_dir(
    findings: Findings, settings: Settings, path: Path, paths: Sequence[Path], store: StateStore
) -> None:
    log_dir = check_directory(findings, path)
    if log_dir is None:
        return
    check_file_system(findings, path)
    logs = read_partitions(findings, log_dir)
    running = check_broker(findings, log_dir, logs, settings)
    check_owner(findings, path, logs, Process.current())
    others = [other for other in paths if other != path]
    check_mode(findings, log_dir, others, settings.daemon.cleanerd_agent_socket)
    facts = check_metadata(findings, settings, log_dir, others)
    if facts is not None:
        check_space(findings, facts, log_dir, logs)
    check_leftovers(findings, logs, running=running)
    check_quarantine(findings, log_dir, logs, store)


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
