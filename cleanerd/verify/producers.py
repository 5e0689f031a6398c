"""Compares producer snapshots with the batches themselves (F-10, R192-1)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from cleanerd.errors import CorruptionError
from cleanerd.format.batch import CONTROL, TRANSACTIONAL
from cleanerd.format.control import ControlType
from cleanerd.format.names import SNAPSHOT_SUFFIX, file_name
from cleanerd.format.snapshot import SNAPSHOT_ENTRY, read_snapshot
from cleanerd.verify.kinds import FindingKind
from cleanerd.verify.listing import bytes_of, changed_ms
from cleanerd.verify.records import NO_HORIZON, horizons

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from cleanerd import _kernel
    from cleanerd.verify.finding import Findings

_NONE: Final = -1
_MAX_INT32: Final = 2**31 - 1
_FIRST_ENTRY_AT: Final = 10


@dataclass(frozen=True, slots=True)
class ProducerFacts:
    """The state of one producer, from the log.

    ``last_offset``: that of its last data batch, -1 if only markers are left. ``epoch``: of its last batch of any kind.
    ``data_epoch``: of its last data batch. ``marker_offset`` and ``marker_horizon_ms``: of its last marker, -1 if there
    is none.
    """

    epoch: int
    data_epoch: int
    last_offset: int
    last_sequence: int
    offset_delta: int
    timestamp_ms: int
    open_from: int
    marker_offset: int = _NONE
    marker_horizon_ms: int = NO_HORIZON

    def newest_offset(self) -> int:
        """The offset of its last batch of any kind."""
        return max(self.last_offset, self.marker_offset)


class Producers:
    """The producers of a log, after the batches added so far."""

    def __init__(self) -> None:
        self.state: dict[int, ProducerFacts] = {}

    def add(self, batches: _kernel.Batches, rows: slice = slice(None)) -> None:
        """Add the batches of a chunk, or ``rows`` of them.

        Only a producer's last batches and its open transaction matter.
        """
        ids = batches.producer_id[rows]
        mine = np.flatnonzero((ids >= 0) & (batches.magic[rows] == 2)) + (rows.start or 0)
        control = (batches.attributes & CONTROL) != 0
        is_marker = (batches.control_type == ControlType.ABORT) | (batches.control_type == ControlType.COMMIT)
        mine = mine[~control[mine] | is_marker[mine]]  # an emptied marker has no effect (F-10)
        for row in _that_matter(batches, mine, is_marker):
            key = int(batches.producer_id[row])
            if is_marker[row]:
                self.state[key] = self._after_marker(batches, row, self.state.get(key))
            else:
                self.state[key] = self._after_data(batches, row, self.state.get(key))

    @staticmethod
    def _after_marker(batches: _kernel.Batches, row: int, known: ProducerFacts | None) -> ProducerFacts:
        epoch, timestamp = int(batches.producer_epoch[row]), int(batches.max_timestamp[row])
        known = ProducerFacts(epoch, _NONE, _NONE, _NONE, 0, timestamp, _NONE) if known is None else known
        return replace(
            known,
            epoch=epoch,
            timestamp_ms=timestamp,
            open_from=_NONE,
            marker_offset=int(batches.base_offset[row]),
            marker_horizon_ms=int(horizons(batches)[row]),
        )

    @staticmethod
    def _after_data(batches: _kernel.Batches, row: int, known: ProducerFacts | None) -> ProducerFacts:
        epoch = int(batches.producer_epoch[row])
        base, last = int(batches.base_offset[row]), int(batches.last_offset[row])
        sequence = int(batches.base_sequence[row])
        opened = _NONE if known is None else known.open_from
        if opened == _NONE and batches.attributes[row] & TRANSACTIONAL:
            opened = base
        return ProducerFacts(
            epoch=epoch,
            data_epoch=epoch,
            last_offset=last,
            last_sequence=_NONE if sequence < 0 else (sequence + last - base) & _MAX_INT32,
            offset_delta=last - base,
            timestamp_ms=int(batches.max_timestamp[row]),
            open_from=opened,
            marker_offset=_NONE if known is None else known.marker_offset,
            marker_horizon_ms=NO_HORIZON if known is None else known.marker_horizon_ms,
        )


def _that_matter(batches: _kernel.Batches, rows: NDArray[np.intp], is_marker: NDArray[np.bool_]) -> list[int]:
    """The ``rows`` that change the state in a way that later rows do not, ascending.

    A producer's last batch, its last data batch, its last marker, and the first transactional batch after that.
    """
    if len(rows) < 64:
        return [int(row) for row in rows]
    order = rows[np.argsort(batches.producer_id[rows], kind="stable")]
    edges = np.flatnonzero(np.diff(batches.producer_id[order])) + 1
    chosen: list[int] = []
    for mine in np.split(order, edges):
        data, markers = mine[~is_marker[mine]], mine[is_marker[mine]]
        keep = {int(part[-1]) for part in (data, markers) if len(part)}
        after = data[data > markers[-1]] if len(markers) else data
        opening = after[(batches.attributes[after] & TRANSACTIONAL) != 0]
        keep |= {int(opening[0])} if len(opening) else set()
        chosen += keep
    return sorted(chosen)


@dataclass(frozen=True, slots=True)
class ProducerExpiry:
    """Decides whether a broker still knows a producer (C-43)."""

    now_ms: int
    expiration_ms: int

    def is_active(self, timestamp_ms: int) -> bool:
        """Whether a producer that last wrote at ``timestamp_ms`` has not expired."""
        return self.now_ms - timestamp_ms < self.expiration_ms


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A readable snapshot file.

    ``offset``: where it is valid, exclusive; ``written_ms``: the latest time of its writing.
    """

    path: Path
    offset: int
    entries: NDArray[np.void]
    written_ms: int


def read_snapshots(directory: Path, offsets: tuple[int, ...], findings: Findings) -> list[Snapshot]:
    """The readable snapshots; the others become findings. A broker uses an older snapshot in place of a damaged one.

    Raises:
        CleanerdError: a file cannot be read.
    """
    found = []
    for offset in offsets:
        path = directory / file_name(offset, SNAPSHOT_SUFFIX)
        data = bytes_of(path)
        if data is None:
            continue
        try:
            found.append(Snapshot(path, offset, read_snapshot(data, str(path)), changed_ms(path)))
        except CorruptionError as error:
            findings.error(FindingKind.PRODUCER_SNAPSHOT_WRONG, str(path), error.message, position=error.position)
    return found


def compare_snapshot(
    snapshot: Snapshot, replayed: dict[int, ProducerFacts], log_start: int, clock: ProducerExpiry, findings: Findings
) -> None:
    """Check that a snapshot knows no less than the log, which cleaning and retention have shortened, and nothing else.

    ``replayed``: the state of the log at the snapshot's offset.
    """
    name = str(snapshot.path)
    missing = dict(replayed)
    for row, entry in enumerate(snapshot.entries):
        key = int(entry["producer_id"])
        facts = missing.pop(key, None)
        problem = None if facts is None else _difference(entry, facts, log_start)
        if problem is not None:
            position = _FIRST_ENTRY_AT + row * SNAPSHOT_ENTRY.itemsize
            findings.error(
                FindingKind.PRODUCER_SNAPSHOT_WRONG,
                name,
                f"producer {key}: {problem}",
                position=position,
                offset=int(entry["last_offset"]),
            )
    # A copy may be newer than its source. Producers expired by then may have expired before it was written.
    then = replace(clock, now_ms=min(clock.now_ms, snapshot.written_ms))
    for key, facts in missing.items():
        last = facts.newest_offset()
        if last >= log_start and then.is_active(facts.timestamp_ms):
            what = f"producer {key} is missing, its last batch ends at offset {last}"
            findings.error(FindingKind.PRODUCER_SNAPSHOT_WRONG, name, what, offset=last)


def _difference(entry: np.void, facts: ProducerFacts, log_start: int) -> str | None:
    epoch, last = int(entry["producer_epoch"]), int(entry["last_offset"])
    if epoch < facts.epoch:
        return f"epoch {epoch}, the log has {facts.epoch}"
    if facts.last_offset < log_start:
        return None
    if last < facts.last_offset and (epoch == facts.data_epoch or last >= 0):
        return f"last offset {last}, the log has a batch that ends at {facts.last_offset}"
    if last == facts.last_offset >= 0:
        sequence, delta = int(entry["last_sequence"]), int(entry["offset_delta"])
        if (sequence, delta) != (facts.last_sequence, facts.offset_delta):
            return (
                f"last sequence {sequence} and offset delta {delta}, the batch at that offset has "
                f"{facts.last_sequence} and {facts.offset_delta}"
            )
    return _transaction_difference(int(entry["current_txn_first_offset"]), facts)


def _transaction_difference(opened: int, facts: ProducerFacts) -> str | None:
    if facts.open_from != _NONE and (opened == _NONE or opened > facts.open_from):
        return f"open transaction from {opened}, the log has one from {facts.open_from}"
    if _NONE < opened <= facts.marker_offset and facts.open_from == _NONE:
        return f"open transaction from {opened}, the log has a marker at {facts.marker_offset} that ends it"
    return None


def check_last_batches(
    newest: Snapshot,
    state: dict[int, ProducerFacts],
    log_start: int,
    clock: ProducerExpiry,
    findings: Findings,
    damaged: Sequence[tuple[int, int]],
) -> None:
    """R192-1: check that the log has the last batch of every active producer. ``state``: at the end of the log.

    ``damaged``: ranges of offsets in which a batch can be among the damaged bytes, so nothing is reported.
    """
    for row, entry in enumerate(newest.entries):
        key, last = int(entry["producer_id"]), int(entry["last_offset"])
        facts = state.get(key)
        there = _NONE if facts is None else facts.last_offset
        if last < log_start or there >= last or not clock.is_active(int(entry["timestamp"])):
            continue
        if facts is not None and facts.epoch > int(entry["producer_epoch"]):
            continue
        if any(base <= last < end for base, end in damaged):
            continue
        what = f"the last batch of producer {key}, ending at offset {last}, is missing: its next append will be refused"
        position = _FIRST_ENTRY_AT + row * SNAPSHOT_ENTRY.itemsize
        findings.error(FindingKind.PRODUCER_BATCH_MISSING, str(newest.path), what, position=position, offset=last)
