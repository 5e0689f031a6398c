"""One walk over the headers of a whole log, which the other checks use."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from cleanerd.verify.epochs import Epochs, read_epochs
from cleanerd.verify.indexes import check_indexes
from cleanerd.verify.listing import NO_END, SegmentFile
from cleanerd.verify.producers import ProducerExpiry, ProducerFacts, Producers, Snapshot, compare_snapshot
from cleanerd.verify.segment import SegmentFacts, check_segment
from cleanerd.verify.transactions import InvisibleRanges, Transactions, check_txn_index
from cleanerd.verify.walk import READ_LIMITS, ReadLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from cleanerd import _kernel
    from cleanerd.verify.finding import Findings


REBUILT_AT_START: Final = "the broker was not stopped cleanly and rebuilds this index when it starts"


@dataclass(frozen=True, slots=True)
class LogSummary:
    """The facts about a log from its batches.

    ``end_offset``: one past the last offset, at least the last segment's base. ``last_stable_offset``: see
    :meth:`Transactions.last_stable_offset`.
    """

    segments: tuple[SegmentFacts, ...]
    invisible: InvisibleRanges
    last_stable_offset: int
    producers: dict[int, ProducerFacts]
    end_offset: int
    batches: int
    records: int
    size_bytes: int


@dataclass(slots=True)
class HeaderWalk:
    """How to walk a log. ``snapshots`` ascend; each is compared with the state at its offset.

    ``indexes`` False: the log is a copy of which only the batches matter. ``recovered_from``: the recovery point if the
    broker was not stopped cleanly. It will read its segment and all later ones from the log, up to the first damage,
    and rebuild their indexes (U-32). ``broker_runs``: it has already done that, and appends to the active segment.
    ``high_watermark``: where the last stable offset is needed.
    """

    findings: Findings
    clock: ProducerExpiry
    advance: Callable[[int], None]
    log_start: int = 0
    tail_may_be_cut: bool = False
    indexes: bool = True
    recovered_from: int | None = None
    broker_runs: bool = False
    high_watermark: int = NO_END
    snapshots: Sequence[Snapshot] = ()
    epochs_of: Path | None = None
    read_limits: ReadLimits = READ_LIMITS
    _producers: Producers = field(default_factory=Producers)

    def walk(self, files: Sequence[SegmentFile]) -> LogSummary:
        """Walk ``files``, the segments of one log in order.

        Raises:
            CleanerdError: a file cannot be read.
        """
        epochs = None
        if self.epochs_of is not None:
            epochs = Epochs(self.epochs_of, read_epochs(self.epochs_of, self.findings), self.findings)
        transactions = Transactions(self.high_watermark, self.read_limits)
        waiting = list(self.snapshots)
        found = []
        for file, is_recovered in zip(files, self._recovered(files), strict=True):

            def take(batches: _kernel.Batches, name: str = str(file.path)) -> None:
                transactions.add(batches)
                self._replay(batches, waiting)
                if epochs is not None:
                    epochs.add(batches, name)

            facts, columns = check_segment(
                file,
                self.findings,
                take,
                self.advance,
                tail_may_be_cut=self.tail_may_be_cut,
                cut_from=self.recovered_from,
                broker_runs=self.broker_runs,
                read_limits=self.read_limits,
            )
            markers = transactions.markers()
            if self.indexes:
                findings = self.findings.as_warnings(REBUILT_AT_START) if is_recovered else self.findings
                if columns is not None:
                    check_indexes(facts, columns, findings)
                check_txn_index(file, markers, findings, whole=facts.whole, end_offset=facts.end_offset)
            del columns  # those of the next segment need the memory
            found.append(facts)
        end_offset = max([*(facts.end_offset for facts in found), files[-1].base if files else 0])
        for snapshot in waiting:
            if snapshot.offset <= end_offset:
                self._compare(snapshot)
        return LogSummary(
            segments=tuple(found),
            invisible=transactions.invisible(),
            last_stable_offset=transactions.last_stable_offset(),
            producers=self._producers.state,
            end_offset=end_offset,
            batches=sum(facts.batches for facts in found),
            records=sum(facts.records for facts in found),
            size_bytes=sum(file.size_bytes for file in files),
        )

    def _recovered(self, files: Sequence[SegmentFile]) -> list[bool]:
        """[s]: the broker rebuilds the segment's indexes."""
        if self.recovered_from is None:
            return [False] * len(files)
        first = max((row for row, file in enumerate(files) if file.base <= self.recovered_from), default=0)
        return [row >= first for row in range(len(files))]

    def _replay(self, batches: _kernel.Batches, waiting: list[Snapshot]) -> None:
        """Update the producers by the batches; at each snapshot's offset, compare."""
        done = 0
        while waiting and waiting[0].offset <= int(batches.base_offset[-1]):
            until = int(np.searchsorted(batches.base_offset, waiting[0].offset))
            self._producers.add(batches, slice(done, until))
            self._compare(waiting.pop(0))
            done = until
        self._producers.add(batches, slice(done, len(batches)))

    def _compare(self, snapshot: Snapshot) -> None:
        compare_snapshot(snapshot, dict(self._producers.state), self.log_start, self.clock, self.findings)
