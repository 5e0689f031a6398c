"""A whole log directory: its checkpoint files and all of its partitions (F-11)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from cleanerd.errors import CleanerdError, CorruptionError
from cleanerd.format.checkpoint import read_epoch_checkpoint, read_offset_checkpoint
from cleanerd.format.meta import read_meta_properties
from cleanerd.format.names import TopicPartition, parse_topic_partition_dir
from cleanerd.segments.log_dir import (
    CHECKPOINTS,
    CLEAN_SHUTDOWN,
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
)
from cleanerd.segments.partition import LEADER_EPOCHS
from cleanerd.verify.finding import Findings
from cleanerd.verify.kinds import FindingKind
from cleanerd.verify.listing import bytes_of, dirs_in, is_there
from cleanerd.verify.partition import VerifyRequest, VerifyResult, verify_partition


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The facts about a partition's log directory.

    ``offsets``: the checkpoints by file name, without damaged ones. ``broker_runs``: a broker holds the directory's
    lock.
    """

    path: Path
    offsets: Mapping[str, Mapping[TopicPartition, int]]
    clean_shutdown: bool
    broker_runs: bool = False

    def of(self, checkpoint: str, name: TopicPartition) -> int | None:
        """A partition's offset in a checkpoint, None without an entry."""
        return self.offsets.get(checkpoint, {}).get(name)


def is_log_dir(path: Path) -> bool:
    return (path / META_PROPERTIES).is_file()


def read_surroundings(
    path: Path, findings: Findings, unread: list[CleanerdError] | None = None, *, broker_runs: bool = False
) -> Surroundings:
    """The small files of a log directory; damaged ones become findings.

    ``unread`` receives why one cannot be read, which is a finding then, and its entries are ignored.

    Raises:
        CleanerdError: one cannot be read, and ``unread`` is None.
    """
    meta = path / META_PROPERTIES
    try:
        content = bytes_of(meta)
        if content is not None:
            read_meta_properties(content, str(meta))
    except CorruptionError as error:
        findings.error(FindingKind.META_PROPERTIES_DAMAGED, str(meta), error.message, position=error.position)
    offsets = {}
    for name in CHECKPOINTS:
        file = path / name
        try:
            offsets[name] = read_offset_checkpoint(bytes_of(file) or b"", str(file))
        except CorruptionError as error:
            what = f"{error.message}; a broker takes the whole log directory offline for this"
            findings.error(FindingKind.CHECKPOINT_DAMAGED, str(file), what, position=error.position)
        except CleanerdError as error:
            if unread is None:
                raise
            findings.error(FindingKind.NOT_VERIFIED, str(file), f"{error.message}; nothing was compared with it")
            unread.append(error.without_frames())
    return Surroundings(path, offsets, is_there(path / CLEAN_SHUTDOWN), broker_runs)


def partitions_in(path: Path) -> list[Path]:
    """The partition directories of a log directory, without those being moved or deleted, and the metadata log.

    Raises:
        CleanerdError: it cannot be listed.
    """
    found = [parse_topic_partition_dir(each.name) for each in dirs_in(path)]
    return [path / str(name) for name in sorted(name for name in found if name is not None)]


def verify_in_surroundings(path: Path, around: Surroundings, question: VerifyRequest) -> VerifyResult:
    """Verify a partition of a log directory, with its entries in the directory's checkpoints.

    A ``clean_below`` or ``log_start`` in the question overrides the checkpoint.

    Raises:
        CleanerdError, OSError: see ``verify_partition``.
    """
    name = parse_topic_partition_dir(path.name)
    if name is None:
        return verify_partition(path, question)
    clean_below = question.clean_below
    if clean_below is None and question.checkpoint_counts:
        clean_below = around.of(CLEANER_CHECKPOINT, name)
    verdict = verify_partition(
        path,
        replace(
            question,
            clean_below=clean_below,
            log_start=max(question.log_start, around.of(LOG_START_CHECKPOINT, name) or 0),
            clean_shutdown=None if around.broker_runs else around.clean_shutdown,
            broker_runs=around.broker_runs,
            recovery_point=around.of(RECOVERY_POINT_CHECKPOINT, name) or 0,
        ),
    )
    _check_checkpoints(name, around, verdict)
    return verdict


def _check_checkpoints(name: TopicPartition, around: Surroundings, verdict: VerifyResult) -> None:
    if verdict.end_offset is None:
        return
    for checkpoint in CHECKPOINTS:
        offset = around.of(checkpoint, name)
        if offset is None:
            continue
        file = str(around.path / checkpoint)
        if offset > verdict.end_offset or offset < 0:
            what = f"{name} {offset} is outside the log, which ends at {verdict.end_offset}"
            # The high watermark is not flushed with the data: after a crash it may be ahead.
            tolerated = checkpoint == HIGH_WATERMARK_CHECKPOINT and not around.clean_shutdown
            report = verdict.findings.warning if tolerated else verdict.findings.error
            report(FindingKind.CHECKPOINT_OUTSIDE_LOG, file, what, offset=offset)
        elif checkpoint == CLEANER_CHECKPOINT and offset < verdict.log_start:
            what = f"{name} {offset} is below the log start {verdict.log_start}; cleaning begins there instead"
            verdict.findings.warning(FindingKind.CHECKPOINT_BELOW_LOG_START, file, what, offset=offset)


def verify_small_file(path: Path, question: VerifyRequest) -> VerifyResult | None:
    """Verify a single checkpoint or ``meta.properties``; None if the name is of another file.

    Raises:
        CleanerdError: it cannot be read.
    """
    findings = Findings(question.limit)
    kind = FindingKind.META_PROPERTIES_DAMAGED if path.name == META_PROPERTIES else FindingKind.CHECKPOINT_DAMAGED
    data = bytes_of(path) or b""
    try:
        if path.name == LEADER_EPOCHS:
            read_epoch_checkpoint(data, str(path))
        elif path.name in CHECKPOINTS:
            read_offset_checkpoint(data, str(path))
        elif path.name == META_PROPERTIES:
            read_meta_properties(data, str(path))
        else:
            return None
    except CorruptionError as error:
        findings.error(kind, str(path), error.message, position=error.position)
    return VerifyResult(str(path), findings, size_bytes=len(data))
