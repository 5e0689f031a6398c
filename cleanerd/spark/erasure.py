"""Searches whole directories for keys and parts of values: every partition and every file with records.

The search is that of ``cleanerd audit``, with one file as a piece of work.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from cleanerd.errors import CleanerdError
from cleanerd.format.names import parse_topic_partition_dir
from cleanerd.humanize import counted
from cleanerd.segments.log_dir import LOG_START_CHECKPOINT
from cleanerd.spark.audit_inputs import AuditedFile, files_below
from cleanerd.spark.header_walk import walk_headers
from cleanerd.spark.task_runner import ignore_progress, queries, result_row, results
from cleanerd.verify.audit import LIVE, Occurrence, RecordSearch, Term
from cleanerd.verify.finding import Findings
from cleanerd.verify.listing import list_partition, size_of
from cleanerd.verify.log_dir import read_surroundings
from cleanerd.verify.transactions import InvisibleRanges

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from cleanerd.verify.rules import KeyRules


@dataclass(frozen=True, slots=True)
class Erasure:
    """The matches. ``found``: the number of all records; ``occurrences``: the first ``limit`` of each term per file.

    ``unread``: bytes that could not be decoded, which may contain a match.
    """

    occurrences: tuple[Occurrence, ...]
    found: int
    unread: tuple[str, ...]
    files: int
    size_bytes: int


def search_records(
    session: SparkSession | None,
    directories: Sequence[Path],
    terms: Sequence[Term],
    rules_of: Callable[[str], KeyRules],
    *,
    limit: int,
    advance: Callable[[int], None] = ignore_progress,
) -> Erasure:
    """Search ``terms`` in every file below ``directories``; ``rules_of`` a topic interpret its records.

    By the tasks of ``session`` or, without one, by this process.

    Raises:
        OSError: a directory cannot be listed.
    """
    files = list({each.path.resolve(): each for place in directories for each in files_below(place)}.values())
    with queries(
        session,
        f"audit: {counted(len(files), 'file')}",
        sum(_size(file.path) for file in files),
        advance,
        steps=1,
    ):
        first = _search(session, files, terms, rules_of, {}, limit, advance)
        # Visibility to consumers matters only for files with matches.
        hit = [file for file, found in first if found["found"] and file.state == LIVE]
        partitions = list(dict.fromkeys(file.partition for file in hit))
        walks = walk_headers(session, [list_partition(path).segments for path in partitions]) if partitions else []
        hidden = {path: walked.hidden for path, walked in zip(partitions, walks, strict=True)}
        again = {file.path: found for file, found in _search(session, hit, terms, rules_of, hidden, limit)}
    answers = [again.get(file.path, found) for file, found in first]
    return Erasure(
        occurrences=tuple(each for found in answers for each in found["occurrences"]),
        found=sum(found["found"] for found in answers),
        unread=tuple(text for found in answers for text in found["unread"]),
        files=len(files),
        size_bytes=sum(found["bytes"] for found in answers),
    )


def _search(
    session: SparkSession | None,
    files: Sequence[AuditedFile],
    terms: Sequence[Term],
    rules_of: Callable[[str], KeyRules],
    hidden: dict[Path, list[list[int]]],
    limit: int,
    advance: Callable[[int], None] = ignore_progress,
) -> list[tuple[AuditedFile, dict[str, Any]]]:
    starts: dict[Path, int] = {}
    items = []
    for number, file in enumerate(files):
        name = parse_topic_partition_dir(file.partition.name)
        if file.partition not in starts:
            around = read_surroundings(file.partition.parent, Findings())
            starts[file.partition] = 0 if name is None else around.of(LOG_START_CHECKPOINT, name) or 0
        items.append((
            _size(file.path),
            {
                "file": number,
                "path": file.path,
                "state": file.state,
                "hidden": hidden.get(file.partition, []),
                "log_start": starts[file.partition],
                "rules": rules_of("" if name is None else name.topic),
            },
        ))  # fmt: skip
    worker = partial(search_one, tuple(terms), limit)
    found = dict(results(session, items, worker, advance))
    return [(file, found[number]) for number, file in enumerate(files)]


def _size(path: Path) -> int:
    try:
        return size_of(path)
    except CleanerdError:
        return 0  # deleted meanwhile; reading it reports that


def search_one(terms: tuple[Term, ...], limit: int, item: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
    """The search in one file, with its number."""
    invisible = InvisibleRanges(np.array(item["hidden"], np.int64).reshape(-1, 3))
    search = RecordSearch(terms, invisible, item["log_start"], item["rules"])
    try:
        search.file(item["path"], item["state"], lambda _bytes: None)
    except CleanerdError as error:
        search.result.unread.append(str(error))
    result = search.result
    found = {
        "found": len(result.occurrences),
        "occurrences": list(_first(result.occurrences, limit)),
        "unread": result.unread,
        "bytes": result.size_bytes,
    }
    yield result_row((item["file"], found))


def _first(occurrences: Sequence[Occurrence], limit: int) -> Iterator[Occurrence]:
    """The first ``limit`` of each term, so that no found term seems absent."""
    shown: Counter[int] = Counter()
    for each in occurrences:
        if any(shown[term] < limit for term in each.terms):
            shown.update(each.terms)
            yield each
