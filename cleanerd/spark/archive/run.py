"""The driver of a cleaned archive: scans, starts a task per partition, and writes the manifest last.

The manifest is plain JSON. Files that it does not list are not part of the archive.
"""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from cleanerd import __version__
from cleanerd.cleaner.result import CleaningResult, exit_code
from cleanerd.errors import CleanerdError, MachineError, RefusedError
from cleanerd.format.checkpoint import read_offset_checkpoint, write_offset_checkpoint
from cleanerd.humanize import counted
from cleanerd.segments.log_dir import CHECKPOINTS, CLEANER_CHECKPOINT
from cleanerd.spark.archive.directory_copy import ArchivePlan, CopiedDirectory, copied, plan_directory
from cleanerd.spark.archive.partition import ArchiveJob, ArchiveTaskResult, Work, clean_one
from cleanerd.spark.archive.scratch import scratch
from cleanerd.spark.archive.target import (
    MANIFEST,
    ArchivedFile,
    ArchiveTarget,
    check_new,
    new_run,
    require_no_overlap,
    target_of,
)
from cleanerd.spark.task_runner import ignore_progress, queries, results

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from cleanerd.cleaner.survey import CleaningOptions
    from cleanerd.config.load import Settings
    from cleanerd.format.names import TopicPartition
    from cleanerd.resolution.selection import PartitionSelection

FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class CleanedDir:
    """One log directory of the archive. ``files``: its own files; ``left_out``: missing partitions."""

    source: str
    path: str
    files: tuple[ArchivedFile, ...]
    done: tuple[ArchiveTaskResult, ...]
    left_out: tuple[CleaningResult, ...]
    not_compacted: tuple[TopicPartition, ...]

    def to_json(self) -> dict[str, Any]:
        """As in the manifest."""
        return {
            "source": self.source,
            "path": self.path,
            "files": [each.to_json() for each in self.files],
            "partitions": [
                {
                    **each.result.to_json(),
                    "path": f"{self.path}/{each.work.name}",
                    "files": list(each.written),
                    "source_files": list(each.copied),
                }
                for each in self.done
            ],
            "left_out": [
                {
                    "topic": each.name.topic,
                    "partition": each.name.partition,
                    "outcome": each.outcome,
                    "cause": None if each.error is None else str(each.error.cause),
                    "reason": each.reason,
                }
                for each in self.left_out
            ],
            "not_compacted": [{"topic": name.topic, "partition": name.partition} for name in self.not_compacted],
        }


def manifest_bytes(
    run: str, directories: Sequence[CleanedDir], *, now_ms: int, errors: Sequence[Mapping[str, Any]]
) -> bytes:
    """The manifest. ``now_ms``: the time that the cleaning used; ``errors``: sources that could not be used."""
    document = {
        "format": FORMAT,
        "cleanerd": __version__,
        "run": run,
        "now_ms": now_ms,
        "log_dirs": [each.to_json() for each in directories],
        "errors": list(errors),
    }
    return json.dumps(document, indent=1, ensure_ascii=False).encode() + b"\n"


CleansOne: TypeAlias = "Callable[[ArchiveJob, Work], Iterator[pa.RecordBatch]]"

_NOT_FOR_NAMES: Final = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True, slots=True)
class Archive:
    """The result of a run. ``manifest``: its place; None: nothing was cleaned, and nothing was left behind.

    ``results``: of every selected partition; those with an error are not in the archive. ``failures``: source
    directories that could not be used.
    """

    manifest: str | None
    results: tuple[CleaningResult, ...]
    failures: tuple[CleanerdError, ...]

    @property
    def exit_code(self) -> int:
        """The exit code, as of ``cleanerd clean``: 0 only if nothing is missing."""
        return exit_code(self.results, self.failures)


@dataclass(frozen=True, slots=True)
class ArchiveEvents:
    """Callbacks: for information, for warnings, for each scanned directory."""

    note: Callable[[str], None] = lambda _text: None
    warning: Callable[[str], None] = lambda _text: None
    scanned: Callable[[ArchivePlan], None] = lambda _scanned: None


def clean_archive(
    session: SparkSession | None,
    sources: Sequence[Path],
    output: Path,
    settings: Settings,
    wanted: PartitionSelection,
    options: CleaningOptions,
    *,
    events: ArchiveEvents | None = None,
    advance: Callable[[int], None] = ignore_progress,
    clean: CleansOne = clean_one,
) -> Archive:
    """Write a cleaned copy of the log directories ``sources`` to the new place ``output``; ``session`` None: locally.

    ``clean`` cleans one partition, in a task or here.

    Raises:
        ConfigError: ``output`` is not empty, or inside or around a source.
        RefusedError: another run was first to write there.
        CleanerdError: ``output`` cannot be written, and is invalid.
    """
    events = events or ArchiveEvents()
    require_no_overlap(output, sources)
    target = target_of(output)
    left = check_new(target)
    if left:
        events.warning(
            f"{output}: {', '.join(left)} is of a run that did not end, or has not yet; if it is over, remove it"
        )
    failures: list[CleanerdError] = []
    with scratch() as place:
        copies = _copies(sources, place, failures, events)
        planned = _plan_directories(copies, settings, wanted, options, failures, events)
        run = new_run()
        job = ArchiveJob(output, run, tuple(each.source for each in planned), options)
        work = [each for one in planned for each in one.work]
        try:
            done = _all_done(session, job, work, advance, clean)
            results, directories = _finished(target, job, planned, done, failures, events)
        except BaseException:
            _remove(target, run)
            raise
        if not directories:
            _remove(target, run)
            return Archive(None, tuple(results), tuple(failures))
        errors = [error.to_json() for error in failures]
        try:
            target.put_new(MANIFEST, manifest_bytes(run, directories, now_ms=options.now_ms, errors=errors))
        except RefusedError:  # another run's manifest exists
            _remove(target, run)
            raise
        # After any other error it may exist, so its files stay.
    return Archive(str(target.place / MANIFEST), tuple(results), tuple(failures))


def _remove(target: ArchiveTarget, run: str) -> None:
    with contextlib.suppress(Exception):
        target.remove(run)


def _copies(
    sources: Sequence[Path], place: Path, failures: list[CleanerdError], events: ArchiveEvents
) -> list[CopiedDirectory]:
    found = []
    for number, source in enumerate(sources):
        with _collected(failures, events):
            found.append(copied(source, place / f"source-{number}"))
    return found


def _plan_directories(
    copies: Sequence[CopiedDirectory],
    settings: Settings,
    wanted: PartitionSelection,
    options: CleaningOptions,
    failures: list[CleanerdError],
    events: ArchiveEvents,
) -> list[ArchivePlan]:
    found: list[ArchivePlan] = []
    names = _names([copy.place for copy in copies])
    for copy, name in zip(copies, names, strict=True):
        others = [other.log_dir.path for other in copies if other is not copy]
        with _collected(failures, events):
            found.append(plan_directory(copy, others, settings, wanted, options, number=len(found), name=name))
            events.scanned(found[-1])
    return found


@contextlib.contextmanager
def _collected(failures: list[CleanerdError], events: ArchiveEvents) -> Iterator[None]:
    try:
        yield
    except CleanerdError as error:
        events.warning(str(error))
        failures.append(error)


def _names(places: Sequence[Path]) -> list[str]:
    """Each directory's name in the archive: its own, or with its parents if two are equal."""
    for count in range(1, 1 + max((len(place.parts) for place in places), default=0)):
        names = [_NOT_FOR_NAMES.sub("_", "-".join(place.parts[-count:])).lstrip("._-") or "data" for place in places]
        if len(set(names)) == len(names):
            return names
    return [f"{number}-{name}" for number, name in enumerate(names)] if places else []


def _all_done(
    session: SparkSession | None,
    job: ArchiveJob,
    work: Sequence[Work],
    advance: Callable[[int], None],
    clean: CleansOne,
) -> list[ArchiveTaskResult]:
    items = [(each.size_bytes, each) for each in work]
    if not items:
        return []
    what = f"clean --output: {counted(len(items), 'partition')}"
    with queries(session, what, sum(size for size, _ in items), advance, steps=1):
        found = results(session, items, partial(clean, job), advance)
    return list(map(ArchiveTaskResult.of, found))


def _finished(
    target: ArchiveTarget,
    job: ArchiveJob,
    planned: Sequence[ArchivePlan],
    done: Sequence[ArchiveTaskResult],
    failures: list[CleanerdError],
    events: ArchiveEvents,
) -> tuple[list[CleaningResult], list[CleanedDir]]:
    """Write the directories' own files, then check all files; returns no directories if nothing was cleaned."""
    directories = []
    results: list[CleaningResult] = []
    for number, each in enumerate(planned):
        mine = sorted((one for one in done if one.work.source == number), key=lambda one: one.work.name)
        with _collected(failures, events):
            each.require_unchanged()
            directories.append(_directory(target, job, each, mine))
            results += sorted((*(one.result for one in mine), *each.refused), key=lambda one: one.name)
    if not any(each.done for each in directories):
        return results, []
    _require_complete(target, job.run, [each for each in directories if each.done])
    return results, directories


def _directory(
    target: ArchiveTarget, job: ArchiveJob, planned: ArchivePlan, mine: Sequence[ArchiveTaskResult]
) -> CleanedDir:
    there = [one for one in mine if one.result.error is None]
    missing = [one.result for one in mine if one.result.error is not None]
    path = f"{job.run}/{planned.source.name}"
    files = [target.put_bytes(f"{path}/{name}", data) for name, data in _log_dir_files(planned, there)] if there else []
    if there:
        target.flush(path)
    left = tuple(sorted((*missing, *planned.refused), key=lambda one: one.name))
    return CleanedDir(str(planned.copy.place), path, tuple(files), tuple(there), left, planned.not_compacted)


def _log_dir_files(planned: ArchivePlan, there: Sequence[ArchiveTaskResult]) -> Iterator[tuple[str, bytes]]:
    """The log directory's own files after a cleaning, without entries of missing partitions."""
    names = {one.work.name for one in there}
    gone = set(planned.copy.log_dir.partitions) - names
    cleaned = {one.work.name: one.cleaner_offset for one in there if one.cleaner_offset is not None}
    for name, data in planned.copy.files.items():
        if name not in CHECKPOINTS:
            yield name, data
            continue
        before = read_offset_checkpoint(data, name)
        after = {each: offset for each, offset in before.items() if each not in gone}
        if name == CLEANER_CHECKPOINT:
            after |= cleaned
        yield name, data if after == before else write_offset_checkpoint(after)
    if CLEANER_CHECKPOINT not in planned.copy.files and cleaned:
        yield CLEANER_CHECKPOINT, write_offset_checkpoint(cleaned)


def _require_complete(target: ArchiveTarget, run: str, directories: Sequence[CleanedDir]) -> None:
    """Check that the archive has exactly the files in the manifest: a failed attempt may have left others.

    Raises:
        MachineError: a file is missing.
    """
    expected: dict[str, int] = {}
    for each in directories:
        expected |= {f"{each.path}/{file.name}": file.size_bytes for file in each.files}
        for one in each.done:
            expected |= {f"{each.path}/{one.work.name}/{file['name']}": file["size_bytes"] for file in one.written}
    found = {f"{run}/{name}": size for name, size in target.sizes_below(run).items()}
    wrong = [name for name, size in expected.items() if found.get(name) != size]
    if wrong:
        raise MachineError(
            f"{counted(len(wrong), 'file')} that was written is not there any more, or of another size",
            where=str(target.place / wrong[0]),
        )
    for name in found.keys() - expected.keys():
        target.remove(name)
