"""One partition of an archive: its files are fetched, cleaned like a copy by ``cleanerd clean``, and sent elsewhere.

Runs in a task. Only its yielded results are used. A killed or second attempt writes the same bytes under the same
names, because the source must be unchanged since the driver's listing, and the cleaning uses the driver's time and
settings.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from cleanerd.cleaner.cleaner import NoProgress
from cleanerd.cleaner.resources import Resources, disk_reserve_bytes
from cleanerd.cleaner.result import CleaningResult
from cleanerd.errors import Cause, CleanerdError, ReportedError, as_cleanerd_error
from cleanerd.format.checkpoint import write_offset_checkpoint
from cleanerd.segments.log_dir import CHECKPOINTS, CLEAN_SHUTDOWN, META_PROPERTIES, LogDir, read_log_dir
from cleanerd.spark.archive.scratch import scratch
from cleanerd.spark.archive.source import AT_ONCE, CopiedFile, contents_of, fetch, require_listed, require_space
from cleanerd.spark.archive.target import ArchivedFile, ArchiveTarget, target_of
from cleanerd.spark.task_runner import result_row
from cleanerd.state.cleaner_checkpoint import StateStore
from cleanerd.swap.lock import LogDirLock
from cleanerd.swap.record_outcome import not_cleaned
from cleanerd.swap.round import clean_partition
from cleanerd.swap.session import LockedDir

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import pyarrow as pa

    from cleanerd.cleaner.survey import CleaningOptions
    from cleanerd.config.topic_config import TopicConfig
    from cleanerd.format.names import TopicPartition
    from cleanerd.fsio.state_files import UnreadableState
    from cleanerd.segments.partition import PartitionLog

STAGING: Final = ".kstage"


@dataclass(frozen=True, slots=True)
class Work:
    """A partition of the log directory number ``source``, as the driver listed it.

    ``offsets``: its entries in the four checkpoints. ``remembered``: the rules of the topic's last cleaning.
    """

    source: int
    name: TopicPartition
    digest: str
    size_bytes: int
    offsets: tuple[int | None, ...]
    remembered: str | UnreadableState | None

    @classmethod
    def of(
        cls, source: int, name: TopicPartition, contents: Any, log_dir: LogDir, remembered: str | UnreadableState | None
    ) -> Work:
        """The work, with the checkpoints of ``log_dir``."""
        offsets = (log_dir.cleaner_offsets, log_dir.recovery_points, log_dir.log_start_offsets, log_dir.high_watermarks)
        entries = tuple(each.get(name) for each in offsets)
        return cls(source, name, contents.digest, contents.size_bytes, entries, remembered)


@dataclass(frozen=True, slots=True)
class ArchiveLogDir:
    """The facts about a log directory for tasks. ``name``: its name in the archive; ``configs`` by topic."""

    place: Path
    name: str
    meta: bytes
    shutdown: bytes | None
    resources: Resources
    configs: Mapping[str, TopicConfig]


@dataclass(frozen=True, slots=True)
class ArchiveJob:
    """The inputs of all tasks of a run. ``run``: the run's directory in the archive."""

    target: Path
    run: str
    sources: tuple[ArchiveLogDir, ...]
    options: CleaningOptions


@dataclass(frozen=True, slots=True)
class ArchiveTaskResult:
    """A task's result. ``cleaner_offset``: the partition's entry in Kafka's checkpoint afterwards."""

    work: Work
    result: CleaningResult
    written: tuple[Mapping[str, Any], ...]
    copied: tuple[Mapping[str, Any], ...]
    cleaner_offset: int | None

    @classmethod
    def of(cls, item: Mapping[str, Any]) -> ArchiveTaskResult:
        """The result from the row of :func:`clean_one`."""
        work = item["work"]
        result = CleaningResult.from_json(work.name, item["result"])
        if item["exit_code"] is not None:
            result = replace(result, error=reported_error(result.reason, item["result"]["cause"], item["exit_code"]))
        return cls(work, result, tuple(item["written"]), tuple(item["copied"]), item["cleaner_offset"])


def reported_error(text: str, cause: str, exit_code: int) -> ReportedError:
    """Another process's error. A changed source is a failure, because the partition is missing in the archive."""
    error = ReportedError(text, cause=Cause(cause))
    error.exit_code = exit_code
    error.moved_on = False
    return error


def clean_one(job: ArchiveJob, work: Work) -> Iterator[pa.RecordBatch]:
    """Clean the partition of ``work`` into the archive; returns what :meth:`ArchiveTaskResult.of` reads.

    Raises for bugs only.
    """
    source = job.sources[work.source]
    written: list[ArchivedFile] = []
    copied: list[CopiedFile] = []
    offset = None
    with scratch() as place:
        try:
            log_dir = _prepared(source, work, place / "data", copied)
            result = _cleaned(job, source, work, log_dir, place / "state")
            if result.error is None:
                written = _sent(target_of(job.target), f"{job.run}/{source.name}/{work.name}", log_dir, work)
                offset = read_log_dir(log_dir).cleaner_offsets.get(work.name)
        except (CleanerdError, OSError) as caught:
            error = as_cleanerd_error(caught, str(source.place))
            result = CleaningResult.of_error(work.name, str(source.place), error)
        result = _with_source_name(result, place / "data", source.place)
    yield result_row({
        "work": work,
        "result": result.to_json(),
        "exit_code": None if result.error is None else result.error.exit_code,
        "written": [each.to_json() for each in written],
        "copied": [each.to_json() for each in copied],
        "cleaner_offset": offset,
    })  # fmt: skip


class _Remembering(StateStore):
    """A state store that only has the rules, which the driver read from the configured one."""

    def __init__(self, root: Path, last_settings: str | UnreadableState | None) -> None:
        super().__init__(root)
        self._last_settings = last_settings

    def rules_of(self, log_dir: LogDir, log: PartitionLog, state: Any) -> str | UnreadableState | None:
        del log_dir, log, state
        return self._last_settings


def _prepared(source: ArchiveLogDir, work: Work, path: Path, copied: list[CopiedFile]) -> Path:
    """A log directory with a copy of the partition; ``copied`` receives the copied files.

    Raises:
        CleanerdError: the source was changed since the listing, or cannot be read; no space is left.
    """
    contents = contents_of(source.place / str(work.name))
    require_listed(contents, work.digest)
    path.mkdir()
    reserve = disk_reserve_bytes(source.resources, source.configs[work.name.topic], str(path))
    require_space(path, contents.size_bytes + reserve)
    (path / META_PROPERTIES).write_bytes(source.meta)
    if source.shutdown is not None:
        (path / CLEAN_SHUTDOWN).write_bytes(source.shutdown)
    for name, offset in zip(CHECKPOINTS, work.offsets, strict=True):
        entries = {} if offset is None else {work.name: offset}
        (path / name).write_bytes(write_offset_checkpoint(entries))
    copied += fetch(contents, path / str(work.name))
    return path


def _cleaned(job: ArchiveJob, source: ArchiveLogDir, work: Work, path: Path, state: Path) -> CleaningResult:
    store = _Remembering(state, work.remembered)
    log_dir = read_log_dir(path)
    # No other process knows the copy, so no wait and no lease probe are needed.
    resources = replace(source.resources, lease_required=False)
    config = source.configs[work.name.topic]
    try:
        with LogDirLock.acquire(path, settle_seconds=0) as lock:
            locked = LockedDir(log_dir, lock, store, resources)
            result = clean_partition(locked, work.name, config, job.options, NoProgress())
    except (CleanerdError, OSError) as caught:
        return not_cleaned(store, log_dir, work.name, caught)
    return result


def _sent(target: ArchiveTarget, name: str, path: Path, work: Work) -> list[ArchivedFile]:
    """Send the partition's current files to the archive, as ``name``."""
    files = sorted(each for each in (path / str(work.name)).iterdir() if each.is_file() and each.name != STAGING)
    pool = ThreadPoolExecutor(AT_ONCE, "cleanerd-send")
    try:
        waiting = [pool.submit(target.put_file, f"{name}/{each.name}", each) for each in files]
        written = [future.result() for future in waiting]
    finally:
        pool.shutdown(cancel_futures=True)
    target.flush(name)
    return written


def _with_source_name(result: CleaningResult, here: Path, there: Path) -> CleaningResult:
    """The result with the source's name instead of the copy's, which users do not know."""

    def with_source_name(text: str) -> str:
        return text.replace(str(here), str(there))

    notes = tuple(map(with_source_name, result.notes))
    renamed = replace(result, log_dir=str(there), reason=with_source_name(result.reason), notes=notes)
    if result.error is None:
        return renamed
    return replace(renamed, error=reported_error(renamed.reason, str(result.error.cause), result.error.exit_code))
