"""``cleanerd verify``: proves that a segment, a partition or a log directory is consistent. Reads only."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from cleanerd.broker.lock_file import broker_runs
from cleanerd.cli.clean_end import CleanEnds
from cleanerd.cli.output import Column, Output
from cleanerd.cli.scope import key_rules, select_in
from cleanerd.config.topic_config import resolve_producer_id_expiration_ms
from cleanerd.errors import CleanerdError, CorruptionError, MachineError, as_cleanerd_error, worst_exit_code
from cleanerd.format.names import SNAPSHOT_SUFFIX, parse_file_name, parse_topic_partition_dir
from cleanerd.fsio.safe_open import HostileNameError
from cleanerd.humanize import counted, human_bytes, human_count
from cleanerd.resolution.broker_facts import broker_facts
from cleanerd.segments.kernel_errors import translated_kernel_errors
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.verify.finding import Findings
from cleanerd.verify.kinds import FindingKind
from cleanerd.verify.listing import NO_END, SegmentFile, list_partition, size_of
from cleanerd.verify.log_dir import (
    is_log_dir,
    partitions_in,
    read_surroundings,
    verify_in_surroundings,
    verify_small_file,
)
from cleanerd.verify.partition import (
    VerifyRequest,
    VerifyResult,
    report_deleted,
    verify_partition,
    verify_segment,
)
from cleanerd.verify.producers import read_snapshots
from cleanerd.verify.rules import KAFKAS_RULES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from cleanerd.cli.options import Common
    from cleanerd.config.load import Settings
    from cleanerd.resolution.selection import PartitionSelection
    from cleanerd.verify.log_dir import Surroundings


def verify(
    common: Common,
    paths: tuple[Path, ...],
    *,
    partitions: tuple[str, ...],
    clean_below: int | None,
    against: Path | None,
    many_cleanings: bool,
    limit: int,
    now_ms: int | None,
) -> int:
    """Run ``cleanerd verify``; its options are in ``reading_commands.py``."""
    paths = common.log_dirs(paths)
    if many_cleanings and against is None:
        raise click.UsageError("--many-cleanings needs --against")
    if partitions and not all(is_log_dir(path) for path in paths):
        raise click.UsageError("--partition needs log directories")
    settings = common.load_settings()
    wanted = select_in(partitions, paths)
    question = VerifyRequest(
        now_ms=time.time_ns() // 1_000_000 if now_ms is None else now_ms,
        clean_below=clean_below,
        against=against,
        many_cleanings=many_cleanings,
        memory_bytes=settings.daemon.log_cleaner_dedupe_buffer_size,
        limit=limit or None,
    )
    ends = CleanEnds(settings)
    verdicts: list[VerifyResult] = []
    unread: list[CleanerdError] = []
    without_expiration: list[MachineError] = []
    with common.output.progress("verify", total=_work(paths, wanted, passes=2 if against is None else 5)) as advance:
        for path in paths:
            expiration_ms = _producer_expiration_ms(path, paths, settings, common.output, without_expiration)
            request = replace(question, advance=advance, producer_expiration_ms=expiration_ms)
            verdicts += _verify(path, request, settings, ends, wanted, unread)
    if against is not None:
        verdicts += _only_in(against, paths, wanted, limit or None)
    _show(common.output, verdicts, compared=against is not None)
    # If a disk does not answer, its bytes are not damaged.
    found = sum(verdict.findings.errors for verdict in verdicts) - len(unread)
    return worst_exit_code(
        {error.exit_code for error in (*unread, *without_expiration)}
        | ({CorruptionError.exit_code} if found else set())
    )


def _producer_expiration_ms(
    path: Path, paths: Sequence[Path], settings: Settings, output: Output, without_expiration: list[MachineError]
) -> int:
    """The setting of the broker whose log directory ``path`` is or contains (R192-2); else that of the settings.

    ``without_expiration`` gets the machine's error because of which it is unknown.

    Raises:
        ConfigError: they are invalid in Kafka.
    """
    place = next((each for each in (path, *path.absolute().parents[:2]) if is_log_dir(each)), None)
    try:
        if place is not None:
            others = [other for other in paths if other != place and is_log_dir(other)]
            return broker_facts(settings, read_log_dir(place), others).producer_id_expiration_ms()
    except (CleanerdError, OSError) as caught:
        error = as_cleanerd_error(caught, str(place))
        output.note(f"the broker's producer.id.expiration.ms is not known, that of the settings is used: {error}")
        if isinstance(error, MachineError):
            without_expiration.append(error)
    return resolve_producer_id_expiration_ms(settings_defaults=settings.broker_defaults())[0]


def _ruled(
    question: VerifyRequest, partition: Path, settings: Settings, ends: CleanEnds, around: Surroundings | None = None
) -> VerifyRequest:
    """The request with the rules of the topic that the directory is named after; for other names, Kafka's rules.

    ``around``: of the partition's log directory. Its checkpoint is used as in a cleaning (U-10), but not for a topic
    with other rules.
    """
    place = partition.resolve()
    name = parse_topic_partition_dir(place.name)
    if name is None:
        return question
    rules = key_rules(settings, name.topic)
    clean_below = question.clean_below
    if clean_below is None and (around is not None or rules != KAFKAS_RULES):
        clean_below = ends.clean_end(around, place.parent, name, rules)
    unproven_below = ends.unproven_below(place.parent, name) if question.clean_below is None else 0
    return replace(
        question, rules=rules, clean_below=clean_below, checkpoint_counts=False, unproven_below=unproven_below
    )


def _verify(
    path: Path,
    question: VerifyRequest,
    settings: Settings,
    ends: CleanEnds,
    wanted: PartitionSelection,
    unread: list[CleanerdError],
) -> Iterator[VerifyResult]:
    """Verify ``path``; ``unread`` gets what the system refused to read of a partition, which is a finding too."""
    if path.is_file():
        yield _verify_file(path, _ruled(question, path.parent, settings, ends))
    elif is_log_dir(path):
        if question.clean_below is not None:
            raise click.UsageError("--clean-below is for a partition, not for a log directory")
        findings = Findings(question.limit)
        around = read_surroundings(path, findings, unread, broker_runs=broker_runs(path))
        yield VerifyResult(str(path), findings)
        deleted: list[Path] = []
        for partition in _chosen(path, wanted):
            if partition.is_symlink():
                findings.error(
                    FindingKind.NOT_VERIFIED,
                    str(partition),
                    "is a symbolic link and not followed; the broker would follow it",
                )
                continue
            copy = None if question.against is None else question.against / partition.name
            if copy is not None and not copy.is_dir():
                findings.warning(
                    FindingKind.NOT_COMPARED,
                    str(partition),
                    f"{copy} does not exist: the partition is compared with nothing",
                )
                copy = None
            try:
                request = _ruled(replace(question, against=copy), partition, settings, ends, around)
                with translated_kernel_errors(str(partition)):
                    verdict = verify_in_surroundings(partition, around, request)
            except (CleanerdError, OSError) as caught:
                # An unreadable partition does not stop the others.
                error = as_cleanerd_error(caught, str(partition))
                findings.error(FindingKind.NOT_VERIFIED, str(partition), f"cannot be verified: {error}")
                if _is_of_machine(caught):
                    unread.append(error.without_frames())
                continue
            deleted += verdict.deleted
            yield verdict
        report_deleted(path, deleted, findings)
    else:
        verdict = _verify_partition(path, question, settings, ends)
        report_deleted(path, verdict.deleted, verdict.findings)
        yield verdict


def _is_of_machine(caught: CleanerdError | OSError) -> bool:
    """Whether the disk or a lack of memory, and not the data, prevented a verification."""
    if isinstance(caught, OSError | MachineError):
        return True
    return isinstance(caught.__cause__, OSError) and not isinstance(caught.__cause__, HostileNameError)


def _chosen(log_dir: Path, wanted: PartitionSelection) -> list[Path]:
    return [path for path in partitions_in(log_dir) if not wanted or parse_topic_partition_dir(path.name) in wanted]


def _only_in(copy: Path, paths: Sequence[Path], wanted: PartitionSelection, limit: int | None) -> list[VerifyResult]:
    """Partitions in a log directory's copy that none of the log directories has."""
    places = [path for path in paths if is_log_dir(path)]
    if not places or not is_log_dir(copy):
        return []
    here = {partition.name for path in places for partition in partitions_in(path)}
    findings = Findings(limit)
    for partition in _chosen(copy, wanted):
        if partition.name not in here:
            what = f"is not in {', '.join(map(str, places))}: it was deleted or moved away, or is lost"
            findings.warning(FindingKind.NOT_COMPARED, str(partition), what)
    return [VerifyResult(str(copy), findings)] if findings.kept else []


def _verify_partition(path: Path, question: VerifyRequest, settings: Settings, ends: CleanEnds) -> VerifyResult:
    if not list_partition(path).segments:
        raise click.UsageError(f"{str(path)!r} has neither segments nor a meta.properties")
    if question.against is not None and (question.against / path.name).is_dir():
        question = replace(question, against=question.against / path.name)
    parent = path.resolve().parent
    if not is_log_dir(parent):
        return verify_partition(path, _ruled(question, path, settings, ends))
    # Faults of the directory's own files are reported on request.
    around = read_surroundings(parent, Findings(), broker_runs=broker_runs(parent))
    return verify_in_surroundings(path, around, _ruled(question, path, settings, ends, around))


def _verify_file(path: Path, question: VerifyRequest) -> VerifyResult:
    if question.against is not None:
        raise click.UsageError("--against is for directories")
    parsed = parse_file_name(path.name)
    if parsed is None:
        verdict = verify_small_file(path, question)
        if verdict is None:
            raise click.UsageError(f"{path.name!r} is not the name of a file that can be verified")
        return verdict
    base, suffix = parsed
    if suffix == SNAPSHOT_SUFFIX:
        findings = Findings(question.limit)
        read_snapshots(path.parent, (base,), findings)
        return VerifyResult(str(path), findings, size_bytes=size_of(path))
    segments = list_partition(path.parent).segments
    found = next((file for file in segments if file.base == base), None)
    if suffix in {".index", ".timeindex", ".txnindex"}:
        if found is None:
            raise click.UsageError(f"{path.name!r} has no segment beside it")
        return verify_segment(found, question)
    if found is None or found.path.name != path.name:
        if not suffix.startswith(".log"):
            raise click.UsageError(f"{path.name!r}: of files that are staged or replaced only segments are verified")
        found = SegmentFile(path, base, NO_END, size_of(path), sealed=False)
    return verify_segment(found, question)


def _work(paths: Sequence[Path], wanted: PartitionSelection, passes: int) -> int:
    """About how many bytes will be read, for the progress bar."""
    total = 0
    for path in paths:
        directories = _chosen(path, wanted) if path.is_dir() and is_log_dir(path) else [path] if path.is_dir() else []
        for each in directories:
            with contextlib.suppress(CleanerdError):  # reported later
                total += sum(file.size_bytes for file in list_partition(each).segments)
        total += size_of(path) if path.is_file() else 0
    return total * passes


def _show(output: Output, verdicts: list[VerifyResult], *, compared: bool) -> None:
    """``compared``: with a copy."""
    errors = sum(verdict.findings.errors for verdict in verdicts)
    warnings = sum(verdict.findings.warnings for verdict in verdicts)
    if output.as_json:
        output.json({"errors": errors, "warnings": warnings, "verified": [verdict.to_json() for verdict in verdicts]})
        return
    _table(output, verdicts, _place)
    omitted = sum(verdict.findings.omitted for verdict in verdicts)
    if omitted:
        output.line(f"... and {human_count(omitted)} more; --limit shows more of them, 0 all")
    segments, batches, records, size = (
        sum(getattr(verdict, name) for verdict in verdicts) for name in ("segments", "batches", "records", "size_bytes")
    )
    output.line(
        f"{counted(segments, 'segment')}, {counted(batches, 'batch')}, {counted(records, 'record')}, "
        f"{human_bytes(size)}: {counted(errors, 'error')}, {counted(warnings, 'warning')}"
    )
    unknown = [verdict for verdict in verdicts if verdict.segments and verdict.clean_below is None]
    _print_unknown(output, unknown, "all of it is treated as cleaned" if compared else "keys were not compared")


def _print_unknown(output: Output, verdicts: list[VerifyResult], consequence: str) -> None:
    """Print the consequence of unknown configurations in one line: most topics of a broker may not be compacted."""
    if len(verdicts) == 1:
        output.note(
            f"{verdicts[0].path}: no checkpoint says how far it is clean, so {consequence} (--clean-below gives it)"
        )
    elif verdicts:
        names = ", ".join(str(verdict.path) for verdict in verdicts[:3]) + (", ..." if len(verdicts) > 3 else "")
        output.note(
            f"{len(verdicts)} partitions: no checkpoint says how far they are clean, or their topics are not "
            f"compacted, so {consequence} (--clean-below gives it): {names}"
        )


def _place(value: int) -> str:
    return "-" if value < 0 else str(value)


def _table(output: Output, verdicts: list[VerifyResult], place: Callable[[int], str]) -> None:
    rows = [
        [found.severity.value, found.kind.text, found.file, place(found.position), place(found.offset), found.what]
        for verdict in verdicts
        for found in verdict.findings.in_order()
    ]
    if rows:
        columns = [Column("severity"), Column("rule"), Column("file"), Column("byte", right=True)]
        output.table([*columns, Column("offset", right=True), Column("what")], rows)
