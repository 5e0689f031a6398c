"""The driver's plan: the logs, with their offsets, cut into splits for the tasks.

The indexes locate segments and blocks outside of the requested offsets, which are not read.
"""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from cleanerd.errors import ConfigError, system_error
from cleanerd.format.names import SEGMENT_SUFFIX, TopicPartition, parse_file_name, parse_topic_partition_dir
from cleanerd.segments.remote import RemotePath
from cleanerd.segments.segment import Segment
from cleanerd.spark.listed import list_complete
from cleanerd.spark.logs import Log, find_logs
from cleanerd.spark.source.offsets import end_of, start_of
from cleanerd.spark.source.options import COMMITTED, LATEST, LOG_END, RAW, Options
from cleanerd.spark.source.places import batch_starts
from cleanerd.spark.source.visible import stable_end
from cleanerd.spark.stores import matching, path_of
from cleanerd.verify.listing import NO_END, Listing, SegmentFile, names_in

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cleanerd.verify.rules import KeyRules


@dataclass(frozen=True, slots=True)
class LogRange:
    """One log for tasks, and its requested offsets: ``begin`` to ``end`` (exclusive).

    ``acknowledged``: up to where markers of transactions count. ``stable``: consumers of committed records see nothing
    from there on.
    """

    name: TopicPartition
    log_start: int
    begin: int
    end: int
    acknowledged: int
    stable: int
    clean_end: int | None
    rules: KeyRules


@dataclass(frozen=True, slots=True)
class SegmentPiece:
    """A part of a segment that begins at a batch: file positions ``start`` to ``stop``.

    ``reach``: the number of its log's range. ``witness``: the file as it was when it was listed.
    """

    reach: int
    segment: SegmentFile
    witness: Segment
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class TaskSplit:
    """The work of one task, in the order of offsets."""

    reaches: tuple[LogRange, ...]
    pieces: tuple[SegmentPiece, ...]


def find_requested(
    options: Options,
    rules_of: Callable[[str], KeyRules] | None = None,
    lister: Callable[[Path], Listing] = list_complete,
) -> list[Log]:
    """The logs that the options name, sorted. ``rules_of`` a topic: None, the options decide; ``lister``: find_logs.

    Raises:
        ConfigError: a path or a topic does not exist, or a partition exists twice.
        CleanerdError: a directory cannot be listed.
    """
    within: dict[Path, set[TopicPartition] | None] = {}
    for path in expanded(options.paths):
        name = parse_topic_partition_dir(path.name)
        if name is not None and any((parse_file_name(each) or (0, ""))[1] == SEGMENT_SUFFIX for each in names_in(path)):
            partly = within.setdefault(path.parent, set())
            if partly is not None:
                partly.add(name)
        else:
            within[path] = None

    def chosen(log_dir: Path, name: TopicPartition) -> bool:
        partly = within[log_dir]
        return (partly is None or name in partly) and options.includes(name)

    rules = rules_of or options.strategies.rules
    return find_logs(list(within), options.partitions or (), rules, chosen, lister, topics=options.topics or ())


def expanded(paths: Sequence[str]) -> list[Path]:
    """The directories of paths and patterns, absolute, without duplicates.

    Raises:
        ConfigError: one is empty, or not a path here.
    """
    found: list[Path] = []
    for text in paths:
        place = path_of(text)
        if isinstance(place, RemotePath):
            matches = matching(place)
        else:
            plain = str(place)
            named = [plain] if os.path.isdir(plain) else sorted(glob.glob(plain))
            matches = [Path(os.path.abspath(each)) for each in named if os.path.isdir(each)]
        if not matches:
            raise ConfigError("no such directory", where=str(place))
        found += matches
    return list(dict.fromkeys(found))


def reach_of(log: Log, options: Options) -> LogRange:
    """The range of ``log`` to read for the view.

    Raises:
        ConfigError: the high watermark is needed but unknown; an offset that the log does not have.
        CorruptionError: the data to read is damaged.
        CleanerdError: a file cannot be read.
    """
    whole = options.bound == LOG_END
    if log.high_watermark is None and not whole:
        raise ConfigError(
            f"the high watermark of {log.name} is not known",
            where=str(log.log_dir),
            hint='option("bound", "end") reads to the end of the log, acknowledged or not',
        )
    needs_stable = options.view in (COMMITTED, LATEST) or "visible" in options.columns
    if needs_stable and log.high_watermark is not None and (not whole or options.view == RAW):
        stable = stable_end(log, skip_damage=options.skip_damage)
    else:
        stable = NO_END
    acknowledged = NO_END if whole or log.high_watermark is None else log.high_watermark
    first = log.segments[0].base if options.view == RAW else max(log.log_start, log.segments[0].base)
    last = min(acknowledged, stable) if options.view in (COMMITTED, LATEST) else acknowledged
    last = max(first, last)  # DeleteRecords passed an open transaction, or a checkpoint is older than the other one
    begin = start_of(log, options.starting, first, last, skip_damage=options.skip_damage)
    end = end_of(log, options.ending, first, last, skip_damage=options.skip_damage)
    return LogRange(
        name=log.name,
        log_start=log.log_start,
        begin=begin,
        end=end,
        acknowledged=acknowledged,
        stable=stable,
        clean_end=log.clean_end,
        rules=log.rules,
    )


def pieces_of(number: int, log: Log, reach: LogRange, split_bytes: int) -> list[SegmentPiece]:
    """Cut the segments of ``log`` into parts of at most about ``split_bytes``, without segments outside of ``reach``.

    Raises:
        CleanerdError: a file does not exist any more.
    """
    found = []
    for segment in log.segments:
        if segment.end <= reach.begin or segment.base >= reach.end or not segment.size_bytes:
            continue
        witness = witness_of(segment)
        positions = batch_starts(segment, reach.begin, reach.end, split_bytes)
        found += [
            SegmentPiece(number, segment, witness, start, stop) for start, stop in pairwise(positions) if start < stop
        ]
    return found


def witness_of(segment: SegmentFile) -> Segment:
    """The current file of ``segment``.

    Raises:
        CleanerdError: it does not exist any more.
    """
    if isinstance(segment.path, RemotePath):
        return segment.path.witness(segment.base, sealed=segment.sealed)
    try:
        found = os.stat(segment.path, follow_symlinks=False)
    except OSError as error:
        raise system_error("cannot be read", str(segment.path), error) from error
    return Segment.from_stat(segment.base, found, frozenset(), is_active=not segment.sealed, sealed=segment.sealed)


def plan_splits(logs: Sequence[Log], options: Options) -> list[TaskSplit]:
    """The splits of the request: each about ``splitBytes``; whole logs if retained records are requested.

    Raises:
        ConfigError, CorruptionError, CleanerdError: as :func:`reach_of`.
    """
    names = {log.name for log in logs}
    for edge in (options.starting, options.ending):
        edge.require_all(names)
    return splits_of(logs, [reach_of(log, options) for log in logs], options)


def splits_of(logs: Sequence[Log], reaches: Sequence[LogRange], options: Options) -> list[TaskSplit]:
    """The same for known ``reaches``."""
    if options.view == LATEST:
        whole = [
            TaskSplit((reach,), tuple(pieces_of(0, log, reach, NO_END)))
            for log, reach in zip(logs, reaches, strict=True)
        ]
        return [split for split in whole if split.pieces]
    split_bytes = options.split_bytes
    if options.min_partitions is not None:
        split_bytes = min(split_bytes, max(_bytes_of(logs, reaches) // options.min_partitions, 1))
    pieces = [
        piece
        for number, (log, reach) in enumerate(zip(logs, reaches, strict=True))
        for piece in pieces_of(number, log, reach, split_bytes)
    ]
    return [_split(reaches, bundle) for bundle in _bundles(pieces, split_bytes)]


def _bytes_of(logs: Sequence[Log], reaches: Sequence[LogRange]) -> int:
    """The bytes of all segments in ``reaches``."""
    return sum(
        segment.size_bytes
        for log, reach in zip(logs, reaches, strict=True)
        for segment in log.segments
        if segment.end > reach.begin and segment.base < reach.end
    )


def _bundles(pieces: Sequence[SegmentPiece], split_bytes: int) -> list[list[SegmentPiece]]:
    """Groups of neighbours up to about ``split_bytes``."""
    found: list[list[SegmentPiece]] = []
    filled = split_bytes
    for piece in pieces:
        size = piece.stop - piece.start
        if filled + size > split_bytes:
            found.append([])
            filled = 0
        found[-1].append(piece)
        filled += size
    return found


def _split(reaches: Sequence[LogRange], pieces: Sequence[SegmentPiece]) -> TaskSplit:
    """A split with the ranges of these pieces only."""
    numbers = sorted({piece.reach for piece in pieces})
    row = {number: at for at, number in enumerate(numbers)}
    renumbered = (SegmentPiece(row[each.reach], each.segment, each.witness, each.start, each.stop) for each in pieces)
    return TaskSplit(tuple(reaches[number] for number in numbers), tuple(renumbered))


def part_of(log: Log, begin: int, end: int) -> Log:
    """``log`` with only the segments that have offsets from ``begin`` to ``end`` (exclusive)."""
    return replace(log, segments=tuple(each for each in log.segments if each.end > begin and each.base < end))


def split_of(log: Log, begin: int, end: int) -> TaskSplit:
    """The offsets ``begin`` to ``end`` (exclusive) of ``log``."""
    reach = LogRange(
        name=log.name,
        log_start=log.log_start,
        begin=begin,
        end=end,
        acknowledged=NO_END,
        stable=NO_END,
        clean_end=None,
        rules=log.rules,
    )
    return TaskSplit((reach,), tuple(pieces_of(0, log, reach, NO_END)))
