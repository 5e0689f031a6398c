"""U-37, where equal means the same behaviour: conditions on the answers of ``Judge.behave``, one line per violation.

Batches and records are compared elsewhere; this module is about a broker's behaviour. cleanerd's result may differ from
that of Kafka's cleaner in two ways that are files, not records: segment borders (U-17), and empty batches that end
groups (U-13). A broker searches by time, and deletes, by segment. So the conditions are the weakest under which no
consumer misses a record and none is deleted early:

* A time leads to the first record at or after it, or to none. None is Kafka's own answer if the first segment whose
  largest timestamp is not below the time has no such record: superseded data may leave its time in an emptied batch,
  and a segment without any time uses that of its file. The cause must not be cleanerd's alone, except for the closing
  batch of an output without records, whose time is 0: Kafka leaves an empty file there, which hides more.
* Retention deletes a segment of cleanerd's only if all of its content is too old: its records and the batches that
  Kafka leaves there too, or its file if none has a time. With ``delete`` in the policy, a record without a time lives
  as long as its original segment, uncleaned or cleaned alone, minus the span that U-17 permits; unless Kafka's result
  loses it as well.
* It does not keep records that Kafka's result loses, unless the same segment has a younger batch that Kafka has too.

Where segments are the same in both, answers are.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING

from tests.kafka.behaviour import NONE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from tests.kafka.answers import Producer
    from tests.kafka.behaviour import BatchFacts, Behaviour, Behaviours, SegmentFacts, Walk

MODULUS = 1_000_003
"""Part of a walk's digest, as ConsumerWalk.java makes it."""


class Alike:
    """cleanerd's result compared with the original log, and with Kafka's result if there is one.

    ``span_ms``: the time that a segment of cleanerd's may span (U-17), None without ``delete`` in the topic's policy.
    ``ends``: base and last offset of empty batches that count as Kafka's: most releases keep them (C-39.2).
    """

    def __init__(
        self,
        requested: Behaviours,
        *,
        now_ms: int,
        span_ms: int | None,
        producer_expiration_ms: int = 86_400_000,
        ends: Collection[tuple[int, int]] = (),
    ) -> None:
        self.questions = requested.questions
        self.ours = requested.ours
        self.before = requested.before
        self.theirs = requested.theirs
        self.now_ms = now_ms
        self.span_ms = span_ms
        self._oldest_ms = now_ms - producer_expiration_ms
        known = requested.before if requested.theirs is None else requested.theirs
        self._known = {(batch.base, batch.last, batch.max_timestamp_ms) for batch in known.batches}
        self._ends = [each for each in requested.ours.batches if not each.count and (each.base, each.last) in ends]
        self._known |= {(batch.base, batch.last, batch.max_timestamp_ms) for batch in self._ends}

    def breaches(self) -> list[str]:
        """All violations by cleanerd's result."""
        found = [
            *self._indexes(),
            *self._times(),
            *self._reads(),
            *self._by_time(),
            *self._by_size(),
            *self._from_the_start(),
        ]
        if self.theirs is not None:
            found += [*self._same(self.theirs), *self._kept_too_long(self.theirs)]
        return found

    def _visible(self) -> tuple[SegmentFacts, ...]:
        """Segments of cleanerd's result without those below the log start, which are deleted whatever the retention."""
        ours = self.ours
        below = sum(segment.base <= ours.log_start_offset for segment in ours.segments[1:])
        return ours.segments[below:]

    # ---- cleanerd's result alone -----------------------------------------------------------------------------------

    def _indexes(self) -> Iterator[str]:
        """Indexes have the entries that Kafka's own recovery writes."""
        ours = self.ours
        for segment, largest_ms in zip(ours.segments, ours.largest_ms, strict=True):
            right_ms = _largest(segment.batches)
            right_ms = segment.modified_ms if right_ms < 0 else right_ms
            if largest_ms != right_ms:
                yield f"segment {segment.base}: largest timestamp {largest_ms} to a broker, {right_ms} by its batches"
        if ours.recovered_largest_ms != ours.largest_ms:
            yield f"largest timestamps {ours.largest_ms}, after a recovery {ours.recovered_largest_ms}"
        for time_ms, found, again in zip(self.questions.times_ms, ours.found, ours.recovered_found, strict=True):
            if found != again:
                yield f"time {time_ms}: found {found}, after a recovery {again}"

    def _times(self) -> Iterator[str]:
        first_at = _FirstAt(self.ours)
        for time_ms, found in zip(self.questions.times_ms, self.ours.found, strict=True):
            right = first_at(time_ms)
            if found.offset == right:
                continue
            if found != NONE:
                yield f"time {time_ms}: found {found}, the first record at or after it is at {right}"
            elif (cause := self._hides(time_ms)) is not None:
                yield f"time {time_ms}: nothing found, though there is the record at {right}: {cause}"
        largest_ms = _largest(self.ours.batches)
        found = self.ours.max_timestamp
        if found != NONE and found.timestamp_ms != largest_ms:
            yield f"largest timestamp: found {found}, but it is {largest_ms}"

    def _hides(self, time_ms: int) -> str | None:
        """Why a broker searches the time in a segment without such a record, if Kafka has no such case."""
        segments = zip(self.ours.segments, self.ours.largest_ms, strict=True)
        segment = next(segment for segment, largest_ms in segments if largest_ms >= time_ms)
        if any(
            record.found_to_ms >= time_ms and record.offset >= self.ours.log_start_offset for record in segment.records
        ):
            return f"segment {segment.base} has such a record"
        young = [batch for batch in segment.batches if batch.max_timestamp_ms >= time_ms]
        if not young or any(self._is_known(batch) for batch in young):
            return None
        if time_ms == 0 and not segment.records:
            return None
        return f"only ours has the empty batches {young} in segment {segment.base}"

    def _is_known(self, batch: BatchFacts) -> bool:
        return batch.count > 0 or (batch.base, batch.last, batch.max_timestamp_ms) in self._known

    def _reads(self) -> Iterator[str]:
        data = [record.offset for record in self.ours.records if not record.control]
        committed: dict[int, tuple[int, int, int]] = {}
        for walk in self.ours.walks:
            if not walk.committed:
                right = _walked(data[bisect_left(data, walk.from_offset) :])
                if walk.records != right:
                    yield f"a consumer at {walk.from_offset} gets {walk}, but there is {right}"
            elif committed.setdefault(walk.from_offset, walk.records) != walk.records:
                yield f"a consumer gets {walk}, but by fetches of another size {committed[walk.from_offset]}"

    def _by_time(self) -> Iterator[str]:
        ours = self.ours
        sources = _Sources(self.before, [batch for batch in ours.batches if self._is_known(batch)])
        theirs = self.theirs.retained_ms if self.theirs is not None else (None,) * len(ours.retained_ms)
        for retention_ms, left, their in zip(self.questions.retentions_ms, ours.retained_ms, theirs, strict=True):
            for segment in self._visible():
                if segment.base >= left.first_base or not segment.records:
                    continue
                own_ms = _largest([batch for batch in segment.batches if self._is_known(batch)])
                own_ms = segment.modified_ms if own_ms < 0 else own_ms
                if self.now_ms - own_ms <= retention_ms:
                    yield f"retention.ms {retention_ms} deletes segment {segment.base}, which has the time {own_ms}"
                elif self.span_ms is not None:
                    their_start = 0 if their is None else their.log_start_offset
                    yield from self._timeless(segment, sources, retention_ms - self.span_ms, their_start)

    def _timeless(self, segment: SegmentFacts, sources: _Sources, retention_ms: int, their_start: int) -> Iterator[str]:
        """Records without a time that retention deletes with their segment too early."""
        for record in segment.records:
            if (
                record.timestamp_ms >= 0
                or record.control
                or record.offset < max(their_start, self.ours.log_start_offset)
            ):
                continue
            time_ms = sources.time_ms(record.offset)
            if self.now_ms - time_ms <= retention_ms:
                yield f"the record at {record.offset} goes before {retention_ms} ms, its segment had {time_ms}"
                return

    def _by_size(self) -> Iterator[str]:
        for limit, left in zip(self.questions.retention_bytes, self.ours.retained_bytes, strict=True):
            segments = self._visible()
            spare = sum(segment.size for segment in segments) - limit
            right = self.ours.log_end_offset
            for segment in segments:
                if spare < segment.size or (segment is segments[-1] and not segment.size):
                    right = segment.base
                    break
                spare -= segment.size
            if left.first_base != right:
                yield f"retention.bytes {limit} leaves the log from {left.first_base} on, by its sizes from {right}"

    def _from_the_start(self) -> Iterator[str]:
        committed = {walk.from_offset: walk.records for walk in self.ours.walks if walk.committed}
        bases = [segment.base for segment in self.ours.segments]
        for base, walk in self.ours.started:
            right = bases[max(bisect_right(bases, walk.from_offset) - 1, 0)]
            if base != right:
                yield f"with the log start at {walk.from_offset} the first segment is {base}, and not {right}"
            if walk.records != committed[walk.from_offset]:
                yield f"a consumer gets {walk} with the log start there, before that {committed[walk.from_offset]}"

    # ---- both results ----------------------------------------------------------------------------------------------

    def _same(self, theirs: Behaviour) -> Iterator[str]:
        ours = self.ours
        # The largest timestamp of a log without any time is not a time: any record may be named for it.
        times = [log.max_timestamp if log.max_timestamp.timestamp_ms >= 0 else NONE for log in (theirs, ours)]
        ends_ms = _largest(self._ends)
        if times[0] != times[1] and not times[0].timestamp_ms < times[1].timestamp_ms == ends_ms:
            yield f"largest timestamp: theirs {times[0]}, ours {times[1]}"
        for name in ("log_start_offset", "log_end_offset", "last_stable_offset", "earliest"):
            if getattr(theirs, name) != getattr(ours, name):
                yield f"{name}: theirs {getattr(theirs, name)}, ours {getattr(ours, name)}"
        if self._living(theirs) != self._living(ours):
            yield f"producers: theirs {self._living(theirs)}, ours {self._living(ours)}"
        for their, our in zip(theirs.walks, ours.walks, strict=True):
            yield from _same_walk(their, our)
        same_files = self._same_borders(theirs)
        for time_ms, their_found, our_found in zip(self.questions.times_ms, theirs.found, ours.found, strict=True):
            if their_found == our_found or (not same_files and NONE in (their_found, our_found)):
                continue  # wrong results were reported above
            yield f"time {time_ms}: theirs {their_found}, ours {our_found}"
        if same_files and theirs.retained_ms != ours.retained_ms:
            yield f"deleteOldSegments, segments being the same: theirs {theirs.retained_ms}, ours {ours.retained_ms}"

    def _living(self, log: Behaviour) -> list[Producer]:
        """The producers that have not expired: a snapshot forgets the others, a replay after it does not (F-10)."""
        return [each for each in log.producers if each.timestamp > self._oldest_ms or each.txn_first_offset >= 0]

    def _same_borders(self, theirs: Behaviour) -> bool:
        """Whether segments begin at the same places and only common batches exist: then no difference is permitted."""
        return [(s.base, s.batches) for s in theirs.segments] == [(s.base, s.batches) for s in self.ours.segments]

    def _kept_too_long(self, theirs: Behaviour) -> Iterator[str]:
        ours = self.ours
        data = [record.offset for record in ours.records if not record.control]
        by_base = {segment.base: segment for segment in ours.segments}
        for retention_ms, their, our in zip(
            self.questions.retentions_ms, theirs.retained_ms, ours.retained_ms, strict=True
        ):
            at = bisect_left(data, our.log_start_offset)
            segment = by_base.get(our.first_base)
            if segment is None or at == len(data) or data[at] >= their.log_start_offset:
                continue
            own_ms = _largest([batch for batch in segment.batches if self._is_known(batch)])
            if own_ms < 0 and segment.modified_ms in {source.modified_ms for source in self.before.segments}:
                own_ms = segment.modified_ms
            if self.now_ms - own_ms > retention_ms:
                yield f"retention.ms {retention_ms} keeps segment {segment.base} of ours, theirs begins at {their}"


class _FirstAt:
    """The offset of the first record, from the log start on, whose timestamp is not below a time; -1 for none."""

    def __init__(self, log: Behaviour) -> None:
        records = [record for record in log.records if record.offset >= log.log_start_offset]
        self._offsets = [record.offset for record in records]
        self._largest = list(accumulate((record.found_to_ms for record in records), max))

    def __call__(self, time_ms: int) -> int:
        row = bisect_left(self._largest, time_ms)
        return self._offsets[row] if row < len(self._offsets) else -1


class _Sources:
    """The original segments, and the time of every, or its time if it had been cleaned alone."""

    def __init__(self, before: Behaviour, left: list[BatchFacts]) -> None:
        self._bases = [segment.base for segment in before.segments]
        self._times: list[int] = []
        ends = [*self._bases[1:], 2**63 - 1]
        for segment, end in zip(before.segments, ends, strict=True):
            alone_ms = _largest([batch for batch in left if segment.base <= batch.base < end])
            times_ms = (_largest(segment.batches), alone_ms)
            self._times.append(min(segment.modified_ms if time_ms < 0 else time_ms for time_ms in times_ms))

    def time_ms(self, offset: int) -> int:
        """Of the original segment of the record at ``offset``."""
        return self._times[bisect_right(self._bases, offset) - 1]


def _same_walk(their: Walk, our: Walk) -> Iterator[str]:
    if their.records != our.records:
        yield f"a consumer gets of theirs {their}, of ours {our}"
    # Kafka's cleaner may drop the last batches before a segment's end, cleanerd leaves one there (U-13).
    if our.reached < their.reached:
        yield f"a consumer comes to {their.reached} in theirs, to {our.reached} in ours"


def _largest(batches: tuple[BatchFacts, ...] | list[BatchFacts]) -> int:
    return max((batch.max_timestamp_ms for batch in batches), default=-1)


def _walked(offsets: list[int]) -> tuple[int, int, int]:
    digest = 0
    for offset in offsets:
        digest = (digest * MODULUS + offset) % 2**64
    digest -= 2**64 if digest >= 2**63 else 0
    return (len(offsets), offsets[0] if offsets else -1, digest)
