"""The output of ``cleanerd plan``: a row per partition, as a table or as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from cleanerd.cleaner.reclaimable import Reclaimable
from cleanerd.cleaner.staged_plan import describe_staged, staged_json
from cleanerd.cli.output import NONE_COMPACTED, Column
from cleanerd.config.fingerprint import describe_settings, fingerprint
from cleanerd.humanize import counted, human_bytes, human_change, human_count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cleanerd.broker.mode import ModeChoice
    from cleanerd.cleaner.record_anomalies import RecordAnomalies
    from cleanerd.cleaner.survey import Survey
    from cleanerd.cli.output import Output
    from cleanerd.config.topic_config import TopicConfig
    from cleanerd.errors import CleanerdError
    from cleanerd.format.names import TopicPartition
    from cleanerd.segments.log_dir import LogDir
    from cleanerd.segments.message_format import Formats


@dataclass(frozen=True, slots=True)
class ExactReclaimable:
    """The result of a cleaning by the decision itself; bytes of rebuilt batches are estimates until written.

    ``bytes_before`` and ``bytes_after`` are those of the log below the active segment, as in ``clean``. ``peak_bytes``
    and ``stage_bytes`` include ``reserve_bytes``, which stays free.
    """

    records: int
    kept: int
    bytes_before: int
    bytes_after: int
    groups: int
    peak_bytes: int
    notes: tuple[str, ...]
    stage_bytes: int
    reserve_bytes: int
    oddities: RecordAnomalies

    @property
    def saved_bytes(self) -> int:
        """Bytes that a clean would give back."""
        return self.bytes_before - self.bytes_after


@dataclass(frozen=True, slots=True)
class SwitchRow:
    """The effect of another strategy (``rules``, in words): for how many keys it retains another record."""

    to: str
    keys: int
    differing: int
    oddities: RecordAnomalies


@dataclass(frozen=True, slots=True)
class PlanRow:
    """One partition in the plan; ``error``: why it would not be cleaned, without the facts when it cannot be read.

    ``daemon``: what a running daemon does with it, None where none answered.
    """

    name: TopicPartition
    log_dir: LogDir
    found: Survey | None
    formats: Formats | None
    saving: ExactReclaimable | None
    switched: SwitchRow | None
    error: CleanerdError | None
    estimate: Reclaimable | None = None
    daemon: Mapping[str, Any] | None = None

    @property
    def reclaimable(self) -> Reclaimable | None:
        """The reclaimable bytes, as far as they are known."""
        if self.saving is None:
            return self.estimate
        saved = max(self.saving.saved_bytes, 0)
        return Reclaimable(saved, saved, saved, "exact")


def print_plan(output: Output, rows: Sequence[PlanRow], modes: Mapping[Path, ModeChoice], *, exact: bool) -> None:
    """Print the plan; ``modes``: how each log directory can be cleaned now."""
    if output.as_json:
        log_dirs = [{"log_dir": str(path), "mode": each.mode, "reason": each.reason} for path, each in modes.items()]
        total = {"total": asdict(Total.of(rows))} if exact else {}
        output.json({"partitions": [_json(row) for row in rows], "log_dirs": log_dirs, **total})
        return
    if not rows:
        output.line(NONE_COMPACTED)
        return
    # A column with "offset" in every row is not worth its width.
    strategies = any(row.found is not None and not row.found.config.is_kafkas for row in rows)
    columns = [
        Column("partition"),
        *([Column("log directory")] if len(modes) > 1 else []),
        *([Column("strategy")] if strategies else []),
        Column("dirty", right=True),
        Column("dirty from", right=True),
        Column("cleanable to", right=True),
        Column("size", right=True),
        Column("cleanable", right=True),
    ]
    estimates = any(row.estimate is not None for row in rows)
    if estimates:
        columns.append(Column("would save", right=True))
    if exact:
        columns += [Column("records", right=True), Column("kept", right=True), Column("after", right=True)]
    daemon = any(row.daemon is not None for row in rows)
    if daemon:
        columns.append(Column("daemon"))
    cells = [
        [
            name,
            *([str(row.log_dir.path)] if len(modes) > 1 else []),
            *others[:-1],
            *_phase(row, shown=daemon),
            others[-1],
        ]
        for row in rows
        for name, *others in [_cells(row, exact=exact, strategies=strategies, estimates=estimates)]
    ]
    output.table([*columns, Column("what would happen")], cells)
    if exact:
        output.line()
        output.line(Total.of(rows).describe())
    for row in rows:
        if row.found is not None and (staged := describe_staged(row.found.log.path)):
            output.note(f"{row.name}: {staged}")
        found, saving = row.found, row.saving
        for note in (*(() if found is None else found.notes), *(() if saving is None else saving.notes)):
            output.note(f"{row.name}: {note}")
    _print_switches(output, rows)
    savings = [row.saving for row in rows if row.saving is not None]
    if savings:
        clean = max(s.peak_bytes - s.reserve_bytes for s in savings)
        stage = max(s.stage_bytes - s.reserve_bytes for s in savings)
        output.note(
            f"the largest partition needs {human_bytes(clean)} free for clean, {human_bytes(stage)} for stage, plus "
            f"the reserve of {human_bytes(max(s.reserve_bytes for s in savings))}"
        )


def _print_switches(output: Output, rows: Sequence[PlanRow]) -> None:
    cells = []
    for row in rows:
        if row.found is not None and (switched := row.switched) is not None:
            share = f"{100 * switched.differing / switched.keys:.2f} %" if switched.keys else "-"
            counts = [human_count(switched.keys), human_count(switched.differing), share]
            without = human_count(switched.oddities.without_version)
            cells.append([str(row.name), describe_settings(row.found.config), switched.to, *counts, without])
    if not cells:
        return
    titles = ("keys", "other winner", "share", "records without version")
    columns = [Column("partition"), Column("strategy"), Column("would be"), *(Column(t, right=True) for t in titles)]
    output.line()
    output.table(columns, cells)


def _cells(row: PlanRow, *, exact: bool, strategies: bool, estimates: bool) -> list[str]:
    if row.found is None:
        return [str(row.name), *[""] * ((8 if exact else 5) + strategies + estimates), f"error: {row.error}"]
    bounds = row.found.bounds
    cells = [
        str(row.name),
        *([describe_settings(row.found.config)] if strategies else []),
        f"{100 * bounds.dirtiness.ratio:.1f} %",
        str(bounds.first_dirty_offset),
        str(row.found.end_offset),
        human_bytes(_size(row.found)),
        human_bytes(bounds.dirtiness.cleanable_bytes),
        *([_estimate(row)] if estimates else []),
    ]
    if exact:
        saving, after = row.saving, _after(row)
        cells += [
            "" if saving is None else human_count(saving.records),
            "" if saving is None else human_count(saving.kept),
            "" if after is None else human_bytes(after),
        ]
    overdue = "overdue by max.compaction.lag.ms; " if bounds.overdue_ms > 0 and bounds.dirtiness.cleanable_bytes else ""
    why = row.found.refusal or "will be cleaned"
    return [*cells, f"error: {row.error}" if row.error is not None else overdue + why]


def _phase(row: PlanRow, *, shown: bool) -> list[str]:
    return [] if not shown else ["" if row.daemon is None else str(row.daemon["phase"])]


def _estimate(row: PlanRow) -> str:
    """The reclaimable bytes; below a thousandth of the log the number is meaningless."""
    if row.estimate is None or row.found is None:
        return ""
    return "< 0.1 %" if 0 < row.estimate.bytes < _size(row.found) // 1000 else row.estimate.describe()


def _size(found: Survey) -> int:
    return sum(segment.size_bytes for segment in found.log.segments)


def _after(row: PlanRow) -> int | None:
    """Bytes that a clean would leave, of the same files as the size: the active segment stays as it is.

    All of them where nothing would be cleaned; None where it could not be worked out.
    """
    if row.found is None or row.error is not None:
        return None
    return _size(row.found) if row.saving is None else _size(row.found) - row.saving.saved_bytes


@dataclass(frozen=True, slots=True)
class Total:
    """The rows of which it is known what a clean would leave, together; ``unknown``: how many others there are."""

    partitions: int
    bytes_before: int
    bytes_after: int
    unknown: int

    @classmethod
    def of(cls, rows: Sequence[PlanRow]) -> Total:
        """The total of ``plan --exact``, from its rows."""
        known = [
            (_size(row.found), after) for row in rows if row.found is not None and (after := _after(row)) is not None
        ]
        return cls(len(known), sum(size for size, _ in known), sum(after for _, after in known), len(rows) - len(known))

    def describe(self) -> str:
        """``3 partitions: 14.8 -> 2.1 MiB (-86 %)``."""
        words = f"{counted(self.partitions, 'partition')}: {human_change(self.bytes_before, self.bytes_after)}"
        return f"{words}; {counted(self.unknown, 'partition')} could not be worked out" if self.unknown else words


def _json(row: PlanRow) -> dict[str, Any]:
    document: dict[str, Any] = {
        "topic": row.name.topic,
        "partition": row.name.partition,
        "log_dir": str(row.log_dir.path),
    }
    if row.daemon is not None:
        document["daemon"] = dict(row.daemon)
    if row.found is None:
        return {**document, "action": "error", "reason": str(row.error)}
    bounds = row.found.bounds
    document |= {
        "action": "error" if row.error is not None else "clean" if row.found.to_clean else "none",
        "reason": row.found.refusal if row.error is None else str(row.error),
        **_rules_json(row.found.config),
        "dirty_ratio": bounds.dirtiness.ratio,
        "first_dirty_offset": bounds.first_dirty_offset,
        "first_dirty_origin": row.found.first_dirty_origin,
        "end_offset": row.found.end_offset,
        "limited_by": bounds.bound.limited_by,
        "limits": dict(bounds.bound.limits),
        "log_start_offset": row.found.log.log_start_offset,
        "high_watermark": row.found.log.high_watermark,
        "max_message_bytes": row.found.config.max_message_bytes,
        "lowest_magic": None if row.formats is None else row.formats.lowest,
        "highest_magic": None if row.formats is None else row.formats.highest,
        "segments": len(row.found.log.segments),
        "bytes": _size(row.found),
        "clean_bytes": bounds.dirtiness.clean_bytes,
        "cleanable_bytes": bounds.dirtiness.cleanable_bytes,
        "overdue_ms": bounds.overdue_ms,
        "staged": staged_json(row.found.log.path),
        "notes": list(row.found.notes),
        "origins": dict(row.found.config.origins),
    }
    document["reclaimable"] = None if row.reclaimable is None else row.reclaimable.to_json()
    if row.saving is not None:
        document["exact"] = {
            "records": row.saving.records,
            "kept": row.saving.kept,
            "bytes_before": row.saving.bytes_before,
            "bytes_after": row.saving.bytes_after,
            "groups": row.saving.groups,
            "peak_bytes": row.saving.peak_bytes,
            "notes": list(row.saving.notes),
            "stage_bytes": row.saving.stage_bytes,
            **_anomalies_json(row.saving.oddities),
        }
    if row.switched is not None:
        document["switch"] = {
            "to": row.switched.to,
            "keys": row.switched.keys,
            "other_winner": row.switched.differing,
            **_anomalies_json(row.switched.oddities),
        }
    return document


def _rules_json(config: TopicConfig) -> dict[str, Any]:
    return {
        "strategy": config.compaction_strategy,
        "strategy_header": config.compaction_strategy_header if config.compaction_strategy == "header" else None,
        "tombstone_mode": config.tombstone_mode,
        "fingerprint": fingerprint(config),
        "delegation": config.delegation.state,
        "warnings": list(config.warnings),
    }


def _anomalies_json(oddities: RecordAnomalies) -> dict[str, int]:
    """The number of records that the strategy read, and of unexpected ones among them."""
    return {
        "dirty_records": oddities.records,
        "without_version": oddities.without_version,
        "malformed_versions": oddities.malformed_versions,
        "nulls_without_flag": oddities.nulls_without_flag,
        "far_future_timestamps": oddities.far_future,
    }
