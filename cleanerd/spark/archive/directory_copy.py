"""The driver's copy of a log directory, without the segments.

The files that show which topics are compacted and by which rules (identity, checkpoints, the controllers' metadata log,
topic ids) are fetched into a local log directory with empty partition directories. The code that judges a log directory
uses this copy, wherever the original is.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from cleanerd.cleaner.result import CleaningResult
from cleanerd.cleaner.verdict import NOT_STOPPED_CLEANLY
from cleanerd.errors import CleanerdError, ConfigError, RefusedError, as_cleanerd_error
from cleanerd.format.names import TopicPartition, parse_future_dir, parse_topic_partition_dir
from cleanerd.fsio.plain_file import LOG_DIR_FILES
from cleanerd.resolution.broker_facts import BrokerFacts, broker_facts
from cleanerd.resolution.partitions import OfflinePartitions
from cleanerd.resolution.targets import topic_id_of
from cleanerd.segments.log_dir import CLEAN_SHUTDOWN, META_PROPERTIES, METADATA_TOPIC, LogDir, read_log_dir
from cleanerd.segments.partition import PARTITION_METADATA, PartitionLog
from cleanerd.segments.remote import RemotePath
from cleanerd.segments.same_file import changed
from cleanerd.spark.archive.partition import ArchiveLogDir, Work
from cleanerd.spark.archive.source import contents_of, fetch, require_space
from cleanerd.state.cleaner_checkpoint import StateStore
from cleanerd.state.other_places import rules_of
from cleanerd.verify.listing import bytes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from cleanerd.cleaner.survey import CleaningOptions
    from cleanerd.config.load import Settings
    from cleanerd.config.topic_config import TopicConfig
    from cleanerd.fsio.state_files import UnreadableState
    from cleanerd.resolution.selection import PartitionSelection

T = TypeVar("T")
R = TypeVar("R")

AT_ONCE: Final = 8
"""Limit of partitions in simultaneous requests to a store."""

_FILES: Final = tuple(sorted(LOG_DIR_FILES - {".lock"}))


@dataclass(frozen=True, slots=True)
class CopiedDirectory:
    """The result of :func:`copied` for a log directory: ``log_dir`` here, ``files`` of it by name."""

    place: Path
    log_dir: LogDir
    files: dict[str, bytes]
    doubled: frozenset[str]


@dataclass(frozen=True, slots=True)
class ArchivePlan:
    """A log directory that can be cleaned: the facts for tasks, their work, and partitions left out, with the reason.

    ``refused``: includes partitions whose directory is a link. ``not_compacted``: those of topics not known to be
    compacted.
    """

    copy: CopiedDirectory
    source: ArchiveLogDir
    facts: BrokerFacts
    work: tuple[Work, ...]
    refused: tuple[CleaningResult, ...]
    not_compacted: tuple[TopicPartition, ...]
    configs: tuple[TopicConfig, ...]

    def require_unchanged(self) -> None:
        """Check that the directory's own files have not changed since they were fetched.

        Raises:
            SegmentChangedError: they have: the partitions may be newer than the checkpoints.
            CleanerdError: they cannot be read.
        """
        now = _files_of(self.copy.place)
        for name in sorted(now.keys() | self.copy.files.keys()):
            if self.copy.files.get(name) != now.get(name):
                what = "it is another file now" if name in now else "it is gone"
                raise changed(what, str(self.copy.place / name))


def copied(place: Path, into: Path) -> CopiedDirectory:
    """Copy the log directory at ``place`` to ``into``, without the segments.

    Raises:
        ConfigError: it is not a log directory.
        CleanerdError: it cannot be listed or read.
    """
    directories, files = _entries(place)
    into.mkdir()
    own = _files_of(place)
    for name, data in own.items():
        (into / name).write_bytes(data)
    metadata = f"{METADATA_TOPIC}-0"
    for name in directories:
        if name == metadata:
            contents = contents_of(place / name)
            require_space(into, contents.size_bytes)
            fetch(contents, into / name)
        elif parse_topic_partition_dir(name) is not None or parse_future_dir(name) is not None:
            (into / name).mkdir()
    try:
        log_dir = read_log_dir(into)
    except CleanerdError as error:
        raise with_source_name(error, into, place) from error
    linked = _linked(place)
    return CopiedDirectory(place, replace(log_dir, linked=linked), own, frozenset(directories).intersection(files))


def plan_directory(
    copy: CopiedDirectory,
    others: Sequence[Path],
    settings: Settings,
    wanted: PartitionSelection,
    options: CleaningOptions,
    *,
    number: int,
    name: str,
) -> ArchivePlan:
    """The plan for a directory, ``number`` of the run and called ``name`` in the archive.

    ``others``: the copies of the other directories, which may be the same broker's.

    Raises: RefusedError: it is unknown up to where its logs are complete.
        CleanerdError: its broker's configuration cannot be read.
    """
    log_dir, place = copy.log_dir, copy.place
    if not log_dir.clean_shutdown and not options.unclean:
        raise RefusedError(NOT_STOPPED_CLEANLY.capitalize(), where=str(place), hint=f"{CLEAN_SHUTDOWN} is missing")
    try:
        facts = broker_facts(settings, log_dir, others)
        partitions = OfflinePartitions(log_dir, facts)
        first = partitions.targets(wanted)
        _fetch_ids(copy, [target.name for target in first])
        targets = OfflinePartitions(log_dir, facts).admitted(wanted)
        resources = replace(facts.resources(), workers=settings.daemon.log_cleaner_threads)
    except CleanerdError as error:
        raise with_source_name(error, log_dir.path, place) from error
    store = StateStore(settings.daemon.cleanerd_state_dir, keeps_damaged=True)
    configs: dict[str, TopicConfig] = {}
    refused = []
    admitted = []
    for target in targets:
        if target.config is None or str(target.name) in copy.doubled:
            why = target.error or ConfigError("a file has its name too", where=str(place / str(target.name)))
            refused.append(CleaningResult.of_error(target.name, str(place), with_source_name(why, log_dir.path, place)))
        else:
            # Objects that only show origins cannot be sent to a task unchanged.
            configs[target.name.topic] = replace(target.config, origins=dict(target.config.origins))
            admitted.append(target.name)
    listed = at_once(place, partial(_work, copy, store, number), admitted)
    known = {target.name for target in targets}
    meant = [each for each in log_dir.partitions if not wanted or each in wanted]
    return ArchivePlan(
        copy=copy,
        source=ArchiveLogDir(
            place, name, copy.files[META_PROPERTIES], copy.files.get(CLEAN_SHUTDOWN), resources, configs
        ),
        facts=facts,
        work=tuple(each for each in listed if isinstance(each, Work)),
        refused=(*refused, *_links(copy, wanted), *(each for each in listed if isinstance(each, CleaningResult))),
        not_compacted=tuple(each for each in meant if each not in known),
        configs=tuple(configs.values()),
    )


def _links(copy: CopiedDirectory, wanted: PartitionSelection) -> list[CleaningResult]:
    """Results for partitions behind links, which a broker would follow: they are missing in the archive."""
    place = copy.place
    error = "is a symbolic link and not followed"
    return [
        CleaningResult.of_error(name, str(place), RefusedError(error, where=str(place / str(name))))
        for name in copy.log_dir.linked
        if not wanted or name in wanted
    ]


def _work(copy: CopiedDirectory, store: StateStore, number: int, name: TopicPartition) -> Work | CleaningResult:
    """A task's work on a partition; or the result if it cannot be listed."""
    path = copy.place / str(name)
    try:
        contents = contents_of(path)
    except (CleanerdError, OSError) as caught:
        return CleaningResult.of_error(name, str(copy.place), as_cleanerd_error(caught, str(path)))
    return Work.of(number, name, contents, copy.log_dir, _rules(store, copy.log_dir, name))


def with_source_name(error: CleanerdError, here: Path, there: Path) -> CleanerdError:
    """``error`` with the source's name instead of the copy's, which users do not know."""
    old, new = str(here), str(there)
    error.message = error.message.replace(old, new)
    error.where = None if error.where is None else error.where.replace(old, new)
    error.hint = None if error.hint is None else error.hint.replace(old, new)
    return error


def at_once(place: Path, call: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """``call`` for each item in order; several at once if they wait for a store."""
    if not isinstance(place, RemotePath):
        return [call(item) for item in items]
    with ThreadPoolExecutor(AT_ONCE, "cleanerd-copy") as pool:
        return list(pool.map(call, items))


def _fetch_ids(copy: CopiedDirectory, names: Sequence[TopicPartition]) -> None:
    """Fetch the files with the topic ids of partitions; reading the partition reports damage."""

    def fetched(name: TopicPartition) -> tuple[TopicPartition, bytes | None]:
        try:
            return name, bytes_of(copy.place / str(name) / PARTITION_METADATA)
        except (CleanerdError, OSError):
            return name, None

    for name, data in at_once(copy.place, fetched, names):
        if data is not None:
            (copy.log_dir.path / str(name) / PARTITION_METADATA).write_bytes(data)


def _rules(store: StateStore, log_dir: LogDir, name: TopicPartition) -> str | UnreadableState | None:
    """The rules of the topic's last cleaning, from the state directory of this machine."""
    log = PartitionLog(
        name=name, path=log_dir.path / str(name), topic_id=topic_id_of(log_dir, name), segments=(), snapshots=(),
        leader_epochs=(), unfinished=(), log_start_offset=0, recovery_point=0, high_watermark=0, cleaner_offset=None,
    )  # fmt: skip
    return rules_of(store, log_dir, log, store.load(log_dir, log))


def _files_of(place: Path) -> dict[str, bytes]:
    found = {name: bytes_of(place / name) for name in _FILES}
    return {name: data for name, data in found.items() if data is not None}


def _entries(place: Path) -> tuple[list[str], list[str]]:
    """The names of directories and of files in a log directory, without links."""
    if isinstance(place, RemotePath):
        children = [each for each in place.children() if each.listed is not None]
        directories = [each.name for each in children if each.listed is not None and each.listed.is_dir]
        return directories, [each.name for each in children if each.listed is not None and not each.listed.is_dir]
    try:
        with os.scandir(place) as entries:
            found = list(entries)
    except OSError as error:
        raise as_cleanerd_error(error, str(place)) from error
    directories = [each.name for each in found if each.is_dir(follow_symlinks=False)]
    return directories, [each.name for each in found if each.is_file(follow_symlinks=False)]


def _linked(place: Path) -> tuple[TopicPartition, ...]:
    if isinstance(place, RemotePath):
        return ()
    with os.scandir(place) as entries:
        names = [parse_topic_partition_dir(each.name) for each in entries if each.is_symlink()]
    return tuple(sorted(name for name in names if name is not None))
