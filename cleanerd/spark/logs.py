"""The logs of a profile or a snapshot: segments of many partitions, and the work of reading them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cleanerd.errors import ConfigError
from cleanerd.humanize import counted
from cleanerd.segments.log_dir import CLEANER_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, LOG_START_CHECKPOINT
from cleanerd.spark.audit_inputs import partition_dirs
from cleanerd.spark.listed import list_complete, surroundings_of
from cleanerd.spark.record_scan import RecordFact, SegmentWork, hidden_in
from cleanerd.verify.listing import NO_END, Listing, SegmentFile
from cleanerd.verify.rules import KAFKAS_RULES, KeyRules

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from pathlib import Path

    from cleanerd.format.names import TopicPartition
    from cleanerd.spark.header_walk import HeaderSummary
    from cleanerd.verify.log_dir import Surroundings

_MOST_NAMES: Final = 4
_MOST_TOPICS: Final = 20


@dataclass(frozen=True, slots=True)
class Log:
    """One partition in one log directory.

    ``high_watermark``: None if no checkpoint has it and there are records. ``clean_end``: Kafka's cleaner checkpoint,
    None without an entry. ``snapshots``: the trusted producer snapshots: all of them after a clean shutdown, else those
    of closed segments.
    """

    log_dir: Path
    name: TopicPartition
    segments: tuple[SegmentFile, ...]
    log_start: int
    high_watermark: int | None
    rules: KeyRules
    clean_end: int | None = None
    snapshots: tuple[int, ...] = ()

    @property
    def sealed_bytes(self) -> int:
        """Bytes of all segments but the active one."""
        return sum(file.size_bytes for file in self.segments if file.sealed)


def find_logs(
    log_dirs: Sequence[Path],
    wanted: Collection[TopicPartition],
    rules_of: Callable[[str], KeyRules],
    chosen: Callable[[Path, TopicPartition], bool] = lambda _log_dir, _name: True,
    lister: Callable[[Path], Listing] = list_complete,
    *,
    topics: Collection[str] = (),
) -> list[Log]:
    """The partitions of ``log_dirs``, or those ``wanted``; ``rules_of`` a topic decides between its records.

    Only a directory's ``chosen`` partitions are used. ``lister`` lists the files of each. Each of ``topics`` must have
    a partition.

    Raises:
        ConfigError: there is none, a wanted one is missing, or one is in two directories: a replica, or a move. It
            names the existing topics.
        CorruptionError: where its logs start is not known.
        RefusedError: a partition is between the two names of a swap, and stays so.
        CleanerdError: a directory cannot be listed.
    """
    found: dict[TopicPartition, Log] = {}
    there: set[str] = set()
    for log_dir in log_dirs:
        around = surroundings_of(log_dir)
        for name, path in partition_dirs(log_dir).items():
            there.add(name.topic)
            if (wanted and name not in wanted) or not chosen(log_dir, name):
                continue
            if name in found:
                raise ConfigError(
                    f"is in {found[name].log_dir} too", where=str(path), hint="name the directories of one broker only"
                )
            listing = lister(path)
            if listing.segments:
                last = NO_END if around.clean_shutdown else listing.segments[-1].base
                found[name] = Log(
                    log_dir,
                    name,
                    listing.segments,
                    log_start=around.of(LOG_START_CHECKPOINT, name) or 0,
                    high_watermark=_high_watermark(around, name, listing.segments),
                    rules=rules_of(name.topic),
                    clean_end=around.of(CLEANER_CHECKPOINT, name),
                    snapshots=tuple(offset for offset in listing.snapshots if offset <= last),
                )
    _require_found(found, wanted, topics, there, ", ".join(str(each) for each in log_dirs))
    return [found[name] for name in sorted(found)]


def _require_found(
    found: Collection[TopicPartition],
    wanted: Collection[TopicPartition],
    topics: Collection[str],
    there: Collection[str],
    where: str,
) -> None:
    """SP-2: report named topics that were not ``found``, with the existing ones in ``there``."""
    more = f" and {len(there) - _MOST_TOPICS} more" if len(there) > _MOST_TOPICS else ""
    hint = f"topics there: {', '.join(sorted(there)[:_MOST_TOPICS])}{more}" if there else None
    for name in sorted(wanted):
        if name not in found:
            raise ConfigError("no such partition", where=str(name), hint=f"in {where}{f'; {hint}' if hint else ''}")
    missing = sorted(set(topics) - {name.topic for name in found})
    if missing:
        raise ConfigError(f"no partition of topic {', '.join(missing)}", where=where, hint=hint)
    if not found:
        raise ConfigError("has no partition to read" if there else "has no partition", where=where, hint=hint)


def _high_watermark(around: Surroundings, name: TopicPartition, segments: Sequence[SegmentFile]) -> int | None:
    """The checkpoint's entry; for a new log without records, its beginning."""
    found = around.of(HIGH_WATERMARK_CHECKPOINT, name)
    if found is None and not any(each.size_bytes for each in segments):
        return segments[-1].base
    return found


def known_clean_end(log: Log) -> int | None:
    """Kafka's checkpoint, 0 without one; None for a topic with other rules."""
    return (log.clean_end or 0) if log.rules == KAFKAS_RULES else None


def size_of_all(logs: Sequence[Log]) -> int:
    """Bytes in the segments of ``logs``."""
    return sum(file.size_bytes for log in logs for file in log.segments)


def describe_names(names: Iterable[TopicPartition]) -> str:
    """A few names, the topics, or their number: the name of a job on Spark's pages."""
    partitions = sorted(set(names))
    topics = sorted({name.topic for name in partitions})
    if len(partitions) <= _MOST_NAMES:
        return ", ".join(map(str, partitions))
    described = ", ".join(topics) if len(topics) <= _MOST_NAMES else counted(len(topics), "topic")
    return f"{described} ({counted(len(partitions), 'partition')})"


def work_on(
    logs: Sequence[Log],
    walks: Sequence[HeaderSummary],
    hash_key: bytes,
    *,
    stable: bool = False,
    clean_end_of: Callable[[Log], int | None] = lambda _log: None,
) -> tuple[list[SegmentFile], list[tuple[int, SegmentWork]]]:
    """The segments by number, and the work of scanning each of ``logs``, from its headers.

    ``stable``: only stable data is read, and damaged bytes in it are an error. ``clean_end_of``: up to where a log is
    clean, None if unknown.
    """
    files: list[SegmentFile] = []
    items = []
    for part, (log, walked) in enumerate(zip(logs, walks, strict=True)):
        bound = walked.stable_end if stable else NO_END
        clean_end = clean_end_of(log)
        for segment in log.segments:
            if segment.base >= bound:
                break
            work = SegmentWork(
                part=part,
                file=len(files),
                segment=segment,
                sides=RecordFact.AFTER,
                hash_key=hash_key,
                rules=log.rules,
                hidden=hidden_in(segment, walked.hidden),
                log_start=log.log_start,
                bound=bound,
                clean_end=clean_end,
                strict=stable,
            )
            files.append(segment)
            items.append((segment.size_bytes, work))
    return files, items
