"""All checks of one partition directory, or of one segment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cleanerd.errors import CleanerdError, CorruptionError
from cleanerd.format.meta import read_partition_metadata
from cleanerd.format.names import CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX
from cleanerd.segments.partition import PARTITION_METADATA
from cleanerd.verify.against import CleaningComparison, Expiry, check_ends, check_producers, old_view
from cleanerd.verify.finding import Findings
from cleanerd.verify.key_table import KeyTable
from cleanerd.verify.keys import KeyedRecords, Range
from cleanerd.verify.kinds import FindingKind
from cleanerd.verify.listing import NO_END, STAGING, Listing, SegmentFile, bytes_of, list_partition
from cleanerd.verify.partition_log import HeaderWalk, LogSummary
from cleanerd.verify.producers import ProducerExpiry, Snapshot, check_last_batches, read_snapshots
from cleanerd.verify.records import new_hash_key
from cleanerd.verify.rules import KAFKAS_RULES, KeyRules
from cleanerd.verify.walk import READ_LIMITS, ReadLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from cleanerd.verify.segment import SegmentFacts

DEFAULT_MEMORY_BYTES: Final = 128 * 1024 * 1024
_MOST_DELETED_NAMED: Final = 3
_BY_WHOM: Final = ": a broker does it after file.delete.delay.ms, or when it starts"


def _ignore_progress(_bytes: int) -> None:
    """Ignore all progress reports."""


@dataclass(frozen=True, slots=True)
class VerifyRequest:
    """Facts about a partition besides its files. ``clean_below``: below it the log has been cleaned; None: unknown.

    ``checkpoint_counts``: if ``clean_below`` is unknown, use Kafka's checkpoint in the log directory.
    ``clean_shutdown`` is None without a log directory, or where the broker runs (``broker_runs``) and cuts nothing off
    any more. ``recovery_point``: from the log directory. ``unproven_below``: below this offset cleanerd did not clean
    the log itself, and two records of a key are a warning.
    """

    now_ms: int
    producer_expiration_ms: int = 86_400_000
    log_start: int = 0
    clean_below: int | None = None
    checkpoint_counts: bool = True
    clean_shutdown: bool | None = None
    recovery_point: int = 0
    broker_runs: bool = False
    unproven_below: int = 0
    against: Path | None = None
    many_cleanings: bool = False
    memory_bytes: int = DEFAULT_MEMORY_BYTES
    rules: KeyRules = KAFKAS_RULES
    limit: int | None = None
    read_limits: ReadLimits = READ_LIMITS
    advance: Callable[[int], None] = _ignore_progress

    @property
    def clock(self) -> ProducerExpiry:
        """Decides which producers are active."""
        return ProducerExpiry(self.now_ms, self.producer_expiration_ms)


@dataclass(slots=True)
class VerifyResult:
    """The result for one partition, segment or file.

    ``deleted``: files that wait to be deleted, for :func:`report_deleted`.
    """

    path: str
    findings: Findings
    segments: int = 0
    batches: int = 0
    records: int = 0
    size_bytes: int = 0
    clean_below: int | None = None
    log_start: int = 0
    end_offset: int | None = None
    deleted: tuple[Path, ...] = ()

    def to_json(self) -> dict[str, object]:
        """The object of ``--json``."""
        return {
            "path": self.path,
            "segments": self.segments,
            "batches": self.batches,
            "records": self.records,
            "bytes": self.size_bytes,
            "log_start_offset": self.log_start,
            "end_offset": self.end_offset,
            "clean_below": self.clean_below,
            "errors": self.findings.errors,
            "warnings": self.findings.warnings,
            "findings": [finding.to_json() for finding in self.findings.in_order()],
            "findings_omitted": self.findings.omitted,
        }


def verify_partition(path: Path, question: VerifyRequest) -> VerifyResult:
    """Verify a partition directory.

    Raises:
        CleanerdError: a file cannot be read, or ``against`` is not a copy of a partition.
        OSError: the temporary file system has no space for the keys.
    """
    findings = Findings(question.limit)
    listing = list_partition(path)
    _check_files(listing, findings)
    deleted = tuple(path for path in listing.leftovers if path.name.endswith(DELETED_SUFFIX))
    snapshots = read_snapshots(path, listing.snapshots, findings)
    log_start = max(question.log_start, listing.segments[0].base if listing.segments else 0)
    verdict = VerifyResult(str(path), findings, clean_below=question.clean_below, log_start=log_start, deleted=deleted)
    if not listing.segments:
        findings.error(FindingKind.NO_SEGMENT, str(path), "has no segment")
        return verdict
    walk = HeaderWalk(
        findings,
        question.clock,
        question.advance,
        log_start=log_start,
        tail_may_be_cut=question.clean_shutdown is False,
        recovered_from=question.recovery_point if question.clean_shutdown is False else None,
        broker_runs=question.broker_runs,
        snapshots=[each for each in snapshots if each.offset >= log_start],
        epochs_of=path,
        read_limits=question.read_limits,
    )
    log = walk.walk(listing.segments)
    _check_snapshots(snapshots, log, log_start, question.clock, findings)
    _count(verdict, log)
    _compare_records(log, log_start, question, findings)
    return verdict


def verify_segment(file: SegmentFile, question: VerifyRequest) -> VerifyResult:
    """Verify one segment with its indexes.

    Raises:
        CleanerdError: a file cannot be read.
    """
    findings = Findings(question.limit)
    log = HeaderWalk(findings, question.clock, question.advance, read_limits=question.read_limits).walk([file])
    verdict = VerifyResult(str(file.path), findings, log_start=file.base)
    _count(verdict, log)
    _compare_records(log, file.base, question, findings)
    return verdict


def _count(verdict: VerifyResult, log: LogSummary) -> None:
    verdict.segments, verdict.batches, verdict.records = len(log.segments), log.batches, log.records
    verdict.size_bytes, verdict.end_offset = log.size_bytes, log.end_offset


def report_deleted(place: Path, paths: Sequence[Path], findings: Findings) -> None:
    """Report the files below ``place``, a partition or a log directory, that wait to be deleted.

    After a live cleaning there are hundreds for a minute: more than a few become one line.
    """
    if len(paths) > _MOST_DELETED_NAMED:
        waiting = f"{len(paths)} files will be deleted, such as {paths[0].relative_to(place)}"
        what = f"{waiting}{_BY_WHOM}; their records can still be read"
        findings.warning(FindingKind.DELETED_FILE_LEFT, str(place), what)
        return
    for path in paths:
        what = f"waits to be deleted{_BY_WHOM}; its records can still be read"
        findings.warning(FindingKind.DELETED_FILE_LEFT, str(path), what)


def _check_files(listing: Listing, findings: Findings) -> None:
    for path in listing.leftovers:
        if path.name.endswith(SWAP_SUFFIX):
            what = "a swap was interrupted: a broker would change these segments before it loads them"
            findings.error(FindingKind.UNFINISHED_SWAP, str(path), what)
        elif path.name.endswith(CLEANED_SUFFIX):
            what = "a file of an abandoned swap; a broker removes it when it starts"
            findings.warning(FindingKind.UNFINISHED_SWAP, str(path), what)
        elif path.name == STAGING:
            what = "staged segments of a cleaning that is running, waits for cleanerd apply, or was interrupted"
            findings.warning(FindingKind.STAGED_FILES_LEFT, str(path), what)
    for path in listing.orphans:
        what = "belongs to no segment; a broker removes it when it starts"
        findings.warning(FindingKind.INDEX_WITHOUT_SEGMENT, str(path), what)
    metadata = listing.path / PARTITION_METADATA
    try:
        data = bytes_of(metadata)
        if data is not None:
            read_partition_metadata(data, str(metadata))
    except CorruptionError as error:
        findings.error(FindingKind.PARTITION_METADATA_DAMAGED, str(metadata), error.message, position=error.position)


def _check_snapshots(
    snapshots: Sequence[Snapshot], log: LogSummary, log_start: int, clock: ProducerExpiry, findings: Findings
) -> None:
    """Compare the newest snapshot with the end of the log.

    One that is not at a segment's base is not reported again: it is from a stop before the last roll, and the pass
    compares it like the others.
    """
    for snapshot in snapshots:
        if snapshot.offset > log.end_offset:
            what = f"is beyond the end of the log at {log.end_offset}; a broker removes it when it starts"
            findings.warning(FindingKind.PRODUCER_SNAPSHOT_WRONG, str(snapshot.path), what)
    usable = [snapshot for snapshot in snapshots if snapshot.offset <= log.end_offset]
    if usable:
        damaged = [(each.file.base, each.file.end) for each in log.segments if not each.whole]
        check_last_batches(usable[-1], log.producers, log_start, clock, findings, damaged)


def _compare_records(log: LogSummary, log_start: int, question: VerifyRequest, findings: Findings) -> None:
    """Decode every record; compare keys with each other and with the copy."""
    clean_below = NO_END if question.clean_below is None else question.clean_below
    where = Range(
        log_start,
        clean_below,
        clean=question.clean_below is not None,
        now_ms=question.now_ms,
        many_cleanings=question.many_cleanings,
        unproven_below=question.unproven_below,
    )
    against = None if question.against is None else _Against(question, log, findings)
    if against is not None:
        against.compare(log, log_start, clean_below)
    rows = log.records + (0 if against is None else against.log.records + log.records)
    with KeyTable(question.memory_bytes, rows) as table:
        if not where.clean and against is None:
            where = Range(0, 0, clean=False, now_ms=question.now_ms)
        keyed = KeyedRecords(table, where, findings, new_hash_key(), question.rules, question.read_limits)
        old_end = None if against is None else against.copy_end
        for facts in log.segments:
            keyed.add_segment(facts, log.invisible, question.advance, old_end=old_end)
        if against is not None:
            for facts in against.log.segments:
                keyed.add_segment(facts, against.log.invisible, question.advance, is_old=True)
        for part in table.parts():
            keyed.check(part, against=against is not None)


class _Against:
    """The log before the cleaning.

    ``shared``: its segments that also belong to the log; ``copy_end``: the copy's end.
    """

    def __init__(self, question: VerifyRequest, log: LogSummary, findings: Findings) -> None:
        if question.against is None:
            raise ValueError("there is nothing to compare with")
        self._findings = findings
        self._question = question
        copy = list_partition(question.against, deleted_too=True).segments
        if not copy:
            raise CleanerdError("has no segment to compare with", where=str(question.against))
        files = old_view([facts.file for facts in log.segments], copy)
        self.shared = {facts.file.path for facts in log.segments} & {file.path for file in files}
        collected = Findings(question.limit)
        walk = HeaderWalk(collected, question.clock, question.advance, indexes=False, read_limits=question.read_limits)
        self.log = walk.walk(files)
        copied = [facts for facts in self.log.segments if facts.file.path not in self.shared]
        if not copied:
            raise CleanerdError("is the log itself, and no copy to compare it with", where=str(question.against))
        self.copy_end = max(facts.end_offset for facts in copied)
        for finding in collected.kept:
            if finding.file.startswith(str(question.against)):
                findings.error(finding.kind, finding.file, f"in the copy: {finding.what}", position=finding.position)
        self._report_missing(findings)

    def _report_missing(self, findings: Findings) -> None:
        """Report a segment that overlaps one of the copy: it replaced that one, but the copy lacks its beginning."""
        for facts in self.log.segments:
            if facts.file.path in self.shared and facts.end_offset > facts.file.end:
                what = f"{self._question.against} lacks segments that this one replaced: it is compared with a part"
                findings.warning(FindingKind.NOT_COMPARED, str(facts.file.path), what)

    def compare(self, log: LogSummary, log_start: int, clean_below: int) -> None:
        """Compare batches, segments' ends and producers with the copy's."""
        compared = [facts for facts in log.segments if not self._untouched(facts)]
        expiry = Expiry(self._question.now_ms, self._question.many_cleanings)
        comparison = CleaningComparison(
            self._findings,
            log_start=log_start,
            clean_below=clean_below,
            old_end=self.copy_end,
            aborted=self.log.invisible,
            expiry=expiry,
            rules=self._question.rules,
        )
        old = [facts.file for facts in self.log.segments if facts.file.path not in self.shared]
        comparison.run([facts.file for facts in compared], old, self._question.advance)
        self._check_start(log_start)
        check_ends(log, self.log, log_start, self._findings)
        check_producers(log, self.log, log_start, self._question.clock, expiry, self._findings)

    def _check_start(self, log_start: int) -> None:
        """Check the log's start: a cleaning does not remove it; only a checkpoint may show that it was deleted."""
        files = [facts.file for facts in self.log.segments if facts.batches and facts.file.path not in self.shared]
        if files and files[0].base < log_start and log_start > self._question.log_start:
            what = (
                f"the log begins at offset {log_start}, the copy at {files[0].base}: the records between were deleted "
            )
            what += "by retention or on request, or are lost; they were compared with nothing"
            self._findings.warning(FindingKind.NOT_COMPARED, str(files[0].path), what, offset=files[0].base)

    def _untouched(self, facts: SegmentFacts) -> bool:
        """Whether a segment is neither in the copy nor within one of its segments: it was not replaced."""
        return facts.file.path in self.shared and not any(
            each.file.base <= facts.file.base < each.end_offset
            for each in self.log.segments
            if each.file.path not in self.shared
        )
