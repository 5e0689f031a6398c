"""The driver of a cleaned archive: looks, has each partition cleaned by a task, and puts the manifest last."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from cleanerd.cleaner.result import exit_code
from cleanerd.errors import CleanerdError, MachineError, RefusedError
from cleanerd.format.checkpoint import read_offset_checkpoint, write_offset_checkpoint
from cleanerd.log.log_dir import (
    CHECKPOINTS,
    CLEANER_CHECKPOINT,
)
from cleanerd.spark.archive.apart import check_apart
from cleanerd.spark.archive.look import Looked, copied, look
from cleanerd.spark.archive.manifest import CleanedDir, manifest_bytes
from cleanerd.spark.archive.partition import COLUMNS, SCHEMA, Done, Job, clean_one
from cleanerd.spark.archive.scratch import scratch
from cleanerd.spark.archive.target import MANIFEST, Target, check_new, new_run, target_of
from cleanerd.spark.spread import nobody, queries, spread
from cleanerd.words import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from cleanerd.cleaner.result import CleaningResult
    from cleanerd.cleaner.survey import CleaningOptions
    from cleanerd.scope.selection import Selection
    from cleanerd.settings import Settings
    from cleanerd.spark.archive.look import Copy
    from cleanerd.spark.spread import Item

CleansOne: TypeAlias = "Callable[[Job, Item], Iterator[pa.RecordBatch]]"

_NOT_FOR_NAMES: Final = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True, slots=True)
class Archive:
    """What came of a run. ``manifest``: where it is; None: nothing was cleaned, and nothing was left behind.

    ``results``: of every partition that was meant; those with an error are not in the archive. ``failures``: source
    directories that could not be used.
    """

    manifest: str | None
    results: tuple[CleaningResult, ...]
    failures: tuple[CleanerdError, ...]

    @property
    def exit_code(self) -> int:
        """As ``cleanerd clean`` has it: 0 only if nothing is missing."""
        return exit_code(self.results, self.failures)


@dataclass(frozen=True, slots=True)
class Told:
    """Who wants to know what: lines worth a word, lines that warn, each directory when it was looked at."""

    note: Callable[[str], None] = lambda _text: None
    warning: Callable[[str], None] = lambda _text: None
    looked: Callable[[Looked], None] = lambda _looked: None


def clean_archive(
    session: SparkSession | None,
    sources: Sequence[Path],
    output: Path,
    settings: Settings,
    wanted: Selection,
    options: CleaningOptions,
    *,
    told: Told | None = None,
    advance: Callable[[int], None] = nobody,
    clean: CleansOne = clean_one,
) -> Archive:
    """Write a cleaned copy of the log directories ``sources`` to the new place ``output``; ``session`` None: alone.

    ``clean`` cleans one partition, in a task or here.

    Raises:
        ConfigError: ``output`` holds something, or lies in or around a source.
        RefusedError: another run was first to write there.
        CleanerdError: ``output`` cannot be written; then nothing of it counts.
    """
    told = told or Told()
    check_apart(output, sources)
    target = target_of(output)
    left = check_new(target)
    if left:
        told.warning(
            f"{output}: {', '.join(left)} is of a run that did not end, or has not yet; if it is over, remove it"
        )
    failures: list[CleanerdError] = []
    with scratch() as place:
        copies = _copies(sources, place, failures, told)
        looked = _looks(copies, settings, wanted, options, failures, told)
        run = new_run()
        job = Job(output, run, tuple(each.source for each in looked), options)
        work = [each for one in looked for each in one.work]
        try:
            done = _all_done(session, job, work, advance, clean)
            results, directories = _finished(target, job, looked, done, failures, told)
        except BaseException:
            _remove(target, run)
            raise
        if not directories:
            _remove(target, run)
            return Archive(None, tuple(results), tuple(failures))
        errors = [error.to_json() for error in failures]
        try:
            target.put_new(MANIFEST, manifest_bytes(run, directories, now_ms=options.now_ms, errors=errors))
        except RefusedError:  # another run's is there
            _remove(target, run)
            raise
        # After any other error it may be there all the same, so what it lists stays.
    return Archive(str(target.place / MANIFEST), tuple(results), tuple(failures))


def _remove(target: Target, run: str) -> None:
    with contextlib.suppress(Exception):
        target.remove(run)


def _copies(sources: Sequence[Path], place: Path, failures: list[CleanerdError], told: Told) -> list[Copy]:
    found = []
    for number, source in enumerate(sources):
        with _collected(failures, told):
            found.append(copied(source, place / f"source-{number}"))
    return found


def _looks(
    copies: Sequence[Copy],
    settings: Settings,
    wanted: Selection,
    options: CleaningOptions,
    failures: list[CleanerdError],
    told: Told,
) -> list[Looked]:
    found: list[Looked] = []
    names = _names([copy.place for copy in copies])
    for copy, name in zip(copies, names, strict=True):
        others = [other.log_dir.path for other in copies if other is not copy]
        with _collected(failures, told):
            found.append(look(copy, others, settings, wanted, options, number=len(found), name=name))
            told.looked(found[-1])
    return found


@contextlib.contextmanager
def _collected(failures: list[CleanerdError], told: Told) -> Iterator[None]:
    try:
        yield
    except CleanerdError as error:
        told.warning(str(error))
        failures.append(error)


def _names(places: Sequence[Path]) -> list[str]:
    """What each directory is called in the archive: its own name; where two have the same, with what is above it."""
    for count in range(1, 1 + max((len(place.parts) for place in places), default=0)):
        names = [_NOT_FOR_NAMES.sub("_", "-".join(place.parts[-count:])).lstrip("._-") or "data" for place in places]
        if len(set(names)) == len(names):
            return names
    return [f"{number}-{name}" for number, name in enumerate(names)] if places else []


def _all_done(
    session: SparkSession | None, job: Job, work: Sequence[Any], advance: Callable[[int], None], clean: CleansOne
) -> list[Done]:
    items = [(each.size_bytes, each.to_item()) for each in work]
    if not items:
        return []
    if session is not None:
        with queries(
            session,
            f"clean --output: {counted(len(items), 'partition')}",
            sum(size for size, _ in items),
            advance,
            steps=1,
        ):
            frame = spread(session, items, partial(clean, job), SCHEMA, COLUMNS)
            return [Done.from_told(row.told) for row in frame.collect()]
    done = []
    for size, item in items:
        (batch,) = clean(job, item)
        done.append(Done.from_told(batch.column(0)[0].as_py()))
        advance(size)
    return done


def _finished(
    target: Target,
    job: Job,
    looked: Sequence[Looked],
    done: Sequence[Done],
    failures: list[CleanerdError],
    told: Told,
) -> tuple[list[CleaningResult], list[CleanedDir]]:
    """The directories' own files, then a look at all that is there; no directories when nothing was cleaned."""
    directories = []
    results: list[CleaningResult] = []
    for number, each in enumerate(looked):
        mine = sorted((one for one in done if one.work.source == number), key=lambda one: one.work.name)
        with _collected(failures, told):
            each.require_unchanged()
            directories.append(_directory(target, job, each, mine))
            results += sorted((*(one.result for one in mine), *each.refused), key=lambda one: one.name)
    if not any(each.done for each in directories):
        return results, []
    _require_there(target, job.run, [each for each in directories if each.done])
    return results, directories


def _directory(target: Target, job: Job, looked: Looked, mine: Sequence[Done]) -> CleanedDir:
    there = [one for one in mine if one.result.error is None]
    missing = [one.result for one in mine if one.result.error is not None]
    path = f"{job.run}/{looked.source.name}"
    files = [target.put_bytes(f"{path}/{name}", data) for name, data in _own_files(looked, there)] if there else []
    if there:
        target.flush(path)
    left = tuple(sorted((*missing, *looked.refused), key=lambda one: one.name))
    return CleanedDir(str(looked.copy.place), path, tuple(files), tuple(there), left, looked.not_compacted)


def _own_files(looked: Looked, there: Sequence[Done]) -> Iterator[tuple[str, bytes]]:
    """The log directory's own files as a cleaning leaves them: without what is said of partitions that are left out."""
    names = {one.work.name for one in there}
    gone = set(looked.copy.log_dir.partitions) - names
    cleaned = {one.work.name: one.cleaner_offset for one in there if one.cleaner_offset is not None}
    for name, data in looked.copy.files.items():
        if name not in CHECKPOINTS:
            yield name, data
            continue
        before = read_offset_checkpoint(data, name)
        after = {each: offset for each, offset in before.items() if each not in gone}
        if name == CLEANER_CHECKPOINT:
            after |= cleaned
        yield name, data if after == before else write_offset_checkpoint(after)
    if CLEANER_CHECKPOINT not in looked.copy.files and cleaned:
        yield CLEANER_CHECKPOINT, write_offset_checkpoint(cleaned)


def _require_there(target: Target, run: str, directories: Sequence[CleanedDir]) -> None:
    """All that the manifest lists is there, and nothing else: an attempt that failed may have left files behind.

    Raises:
        MachineError: something is missing.
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
