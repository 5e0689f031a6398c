"""Whether a log is the result of a correct cleaning of an earlier log, by any cleaner.

The executors read, hash, digest and judge every record of both sides (``audit_rules``). The driver gets counts, digests
and a few offsets per partition, and reads those records for the messages. Without a session this process does all of
it.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from cleanerd.spark.audit_inputs import AuditInputs, without_outputs
from cleanerd.spark.audit_rules import JUDGE
from cleanerd.spark.example import Example, find_examples
from cleanerd.spark.header_walk import HeaderSummary, walk_headers
from cleanerd.spark.judging import LIMITS, MemoryLimits, judged
from cleanerd.spark.logs import describe_names
from cleanerd.spark.record_pairs import PairFindings
from cleanerd.spark.record_scan import RecordFact, SegmentWork, hidden_in, place_of, reason_at
from cleanerd.spark.task_runner import ROWS_AN_ARROW_BATCH, ignore_progress, queries
from cleanerd.verify.records import HASH_KEY_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from cleanerd.format.names import TopicPartition
    from cleanerd.verify.listing import SegmentFile
    from cleanerd.verify.rules import KeyRules

KINDS: Final[Mapping[str, str]] = {
    "lost": "the newest record of a key is gone, and no other record of it is left in the cleaned part; or a record "
    "above the cleaned part is gone",
    "stale": "the newest record of a key is missing, and an older one is read instead",
    "resurrected": "a deleted key is back, or a record of an aborted transaction is read",
    "duplicated": "a superseded record is still there, or a record is there twice",
    "altered": "a record has other content than before",
    "invented": "a record is there that was not there before",
    "no_key": "a record without a key is left in the cleaned part",
    "shortened": "the log ends earlier than before",
    "damaged": "bytes cannot be read; their records count as missing",
}
"""The kinds of faults, in the order of the output."""


@dataclass(frozen=True, slots=True)
class AuditQuestion:
    """The facts about one partition besides its files; ``clean_end`` None: unknown.

    ``is_hint``: it is from a checkpoint or state instead of the operator. Above the ends of both logs it is ignored.
    ``cleaned_before``: up to where another checkpoint or state says that the log was once clean; else 0.
    """

    rules: KeyRules
    clean_end: int | None
    first_dirty: int = 0
    log_start: int = 0
    many_cleanings: bool = False
    is_hint: bool = False
    cleaned_before: int = 0


@dataclass(frozen=True, slots=True)
class AuditSide:
    """One side of a partition. ``begin``: base of its first segment. ``digest``: of all its records, in any order."""

    begin: int
    segments: int
    end_offset: int
    records: int
    record_bytes: int
    digest: str


@dataclass(slots=True)
class AuditedPartition:
    """A partition.

    ``findings``: by kind; ``zeroed``: records whose attributes became 0, as Kafka writes them (U-14).
    """

    name: TopicPartition
    question: AuditQuestion
    log_start: int
    before: AuditSide
    after: AuditSide
    kept_records: int
    zeroed: int
    findings: Counter[str] = field(default_factory=Counter)
    examples: list[Example] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)

    @property
    def found(self) -> int:
        """How many findings there are."""
        return sum(self.findings.values())

    @property
    def is_unchecked(self) -> bool:
        """Whether superseded records were not searched, because the clean offset is unknown or was lowered."""
        return self.is_lowered or (self.question.clean_end is None and self.before.digest != self.after.digest)

    @property
    def is_lowered(self) -> bool:
        """Whether the log was clean to a higher offset than now. After a truncation that is right."""
        before = min(self.question.cleaned_before, self.after.end_offset)
        return self.question.clean_end is not None and self.question.clean_end < before

    @property
    def is_head_missing(self) -> bool:
        """Whether segments at the beginning are missing: retention removes them, a cleaner never does."""
        return self.after.segments > 0 and max(self.before.begin, self.log_start) < self.after.begin


@dataclass(frozen=True, slots=True)
class _Log:
    """A partition with the header walks of both sides."""

    sides: AuditInputs
    question: AuditQuestion
    before: HeaderSummary
    after: HeaderSummary
    before_end: int

    @property
    def log_start(self) -> int:
        return max(self.sides.log_start, self.question.log_start)


def new_digest_key() -> bytes:
    """A random key, so that no producer can make records with equal digests. Equal keys make digests comparable."""
    return os.urandom(HASH_KEY_BYTES)


def audit_sides(
    session: SparkSession | None,
    compared: Sequence[AuditInputs],
    question: Sequence[AuditQuestion],
    *,
    now_ms: int,
    hash_key: bytes,
    examples: int,
    advance: Callable[[int], None] = ignore_progress,
    limits: MemoryLimits = LIMITS,
) -> list[AuditedPartition]:
    """Judge each of ``compared`` by the rules of ``question``; reads ``examples`` records of each kind.

    Raises:
        CleanerdError: a file cannot be read.
    """
    size_bytes = sum(each.size_bytes for each in compared)
    with queries(
        session,
        f"audit: {describe_names(each.name for each in compared)}",
        size_bytes,
        advance,
        steps=3,
        rows_a_batch=ROWS_AN_ARROW_BATCH,
    ):
        logs = _walk(session, compared, question)
        files: list[SegmentFile] = []
        work = [
            (each.segment.size_bytes, each)
            for part, log in enumerate(logs)
            for each in _work(part, log, files, now_ms, hash_key)
        ]
        found = judged(session, work, JUDGE, examples, advance, limits)
    return [_judge(log, found.get(part, PairFindings()), files, examples) for part, log in enumerate(logs)]


def _walk(
    session: SparkSession | None, compared: Sequence[AuditInputs], question: Sequence[AuditQuestion]
) -> list[_Log]:
    """Walk both sides of all partitions; if only replaced segments were kept, these first, to find their ends."""
    partly = [sides for sides in compared if sides.copied != sides.before]
    copies = dict(zip(map(id, partly), walk_headers(session, [sides.copied for sides in partly]), strict=True))
    clipped = [without_outputs(each, copies[id(each)].ends) if id(each) in copies else each for each in compared]
    walks = walk_headers(session, [files for sides in clipped for files in (sides.before, sides.after)])
    logs = []
    for number, (each, judged_by) in enumerate(zip(compared, question, strict=True)):
        before, after = walks[2 * number], walks[2 * number + 1]
        end = copies[id(each)].end_offset if id(each) in copies else before.end_offset
        is_beyond = judged_by.clean_end is not None and judged_by.clean_end > max(end, after.end_offset)
        rule = replace(judged_by, clean_end=None) if judged_by.is_hint and is_beyond else judged_by
        logs.append(_Log(clipped[number], rule, before, after, end))
    return logs


def _work(part: int, log: _Log, files: list[SegmentFile], now_ms: int, hash_key: bytes) -> Iterator[SegmentWork]:
    """Every segment once. Records written since the copy belong to both sides: they compete, but none is lost."""
    then = {file.path for file in log.sides.before}
    now = {file.path for file in log.sides.after}
    for file in {each.path: each for each in (*log.sides.before, *log.sides.after)}.values():
        was, is_present = file.path in then, file.path in now
        files.append(file)
        yield SegmentWork(
            part=part,
            file=len(files) - 1,
            segment=file,
            sides=(RecordFact.BEFORE if was else 0) | (RecordFact.AFTER if is_present else 0),
            hash_key=hash_key,
            rules=log.question.rules,
            hidden=hidden_in(file, log.after.hidden if is_present else log.before.hidden),
            both_from=log.before_end if is_present else 2**63 - 1,
            log_start=log.log_start,
            clean_end=log.question.clean_end,
            first_dirty=log.question.first_dirty,
            now_ms=now_ms,
            many_cleanings=log.question.many_cleanings,
        )


def _judge(log: _Log, found: PairFindings, files: Sequence[SegmentFile], examples: int) -> AuditedPartition:
    verdict = AuditedPartition(
        name=log.sides.name,
        question=log.question,
        log_start=log.log_start,
        before=_side(log.sides.before, log.before, found, "before"),
        after=_side(log.sides.after, log.after, found, "after"),
        kept_records=found.numbers["kept_records"],
        zeroed=found.numbers["zeroed"],
        findings=Counter(found.findings),
        damaged=[*log.before.damaged, *log.after.damaged],
    )
    if log.after.end_offset < log.before_end:
        verdict.findings["shortened"] += 1
    if verdict.damaged and not verdict.findings["damaged"]:
        verdict.findings["damaged"] += len(verdict.damaged)
    wanted = [(kind, at) for kind in KINDS for at in found.places.get(kind, ())[:examples]]
    bad = [(kind, place) for kind, at in wanted if (place := place_of(at)) is not None]
    verdict.examples = [
        *find_examples(log.sides.before, log.sides.after, [(kind, at) for kind, at in wanted if at >= 0]),
        *(
            Example(kind, -1, str(files[number].path), position, -1, None, reason_at(files[number], position))
            for kind, (number, position) in bad
        ),
    ]
    return verdict


def _side(files: Sequence[SegmentFile], walked: HeaderSummary, found: PairFindings, name: str) -> AuditSide:
    return AuditSide(
        begin=files[0].base if files else 0,
        segments=len(files),
        end_offset=walked.end_offset,
        records=found.numbers[f"{name}_records"],
        record_bytes=found.numbers[f"{name}_bytes"],
        digest="".join(f"{found.digests.get(f'{name}_{half}', 0):016x}" for half in ("high", "low")),
    )
