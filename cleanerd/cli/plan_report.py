"""The output of ``cleanerd plan``: a row per partition, as a table or as JSON."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from cleanerd.cleaner.reclaimable import Reclaimable
from cleanerd.cleaner.staged_plan import describe_staged, staged_json
from cleanerd.cli.options import FEW_PARTITIONS
from cleanerd.cli.output import NONE_COMPACTED, Column, Output
from cleanerd.config.delegation import RATIO
from cleanerd.config.fingerprint import describe_settings, fingerprint
from cleanerd.humanize import counted, describe_reclaimable, human_bytes, human_change, human_count

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from cleanerd.broker.mode import ModeChoice
    from cleanerd.cleaner.record_anomalies import RecordAnomalies
    from cleanerd.cleaner.survey import Survey
    from cleanerd.config.topic_config import TopicConfig
    from cleanerd.errors import CleanerdError
    from cleanerd.format.names import TopicPartition
    from cleanerd.segments.log_dir import LogDir
    from cleanerd.segments.message_format import Formats


@dataclass(frozen=True, slots=True)
class ExactReclaimable:
    """The exact result of a cleaning; bytes of rebuilt batches are estimates until they are written.

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
        """Bytes that a cleaning would free."""
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
    """One partition in the plan.

    ``error``: why it would not be cleaned; if it cannot be read, the facts are None. ``daemon``: what a running daemon
    does with it, None without an answer.
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
        """The reclaimable bytes, if known."""
        if self.saving is None:
            return self.estimate
        saved = max(self.saving.saved_bytes, 0)
        return Reclaimable(saved, saved, saved, "exact")

    def with_notes(self, notes: tuple[str, ...]) -> PlanRow:
        """The row with further notes about its partition."""
        return self if self.found is None else replace(self, found=replace(self.found, notes=self.found.notes + notes))


def print_plan(
    output: Output,
    rows: Sequence[PlanRow],
    modes: Mapping[Path, ModeChoice],
    *,
    exact: bool,
    by: str | None = None,
    top: int | None = None,
    none: str = NONE_COMPACTED,
) -> None:
    """Print the plan; ``modes``: how each log directory can be cleaned now.

    ``by``: a row per ``partition``, or per ``topic`` with work; None: per topic if there are many partitions. ``top``:
    only this many rows, those with the largest savings. ``none``: the text without rows.
    """
    if output.as_json:
        log_dirs = [{"log_dir": str(path), "mode": each.mode, "reason": each.reason} for path, each in modes.items()]
        total = {"total": asdict(Total.of(rows))} if exact else {}
        output.json({"partitions": [_json(row) for row in rows], "log_dirs": log_dirs, **total})
        return
    if not rows:
        output.line(none)
        return
    by = by or ("topic" if len(rows) > FEW_PARTITIONS else "partition")
    groups = [[row] for row in rows] if by == "partition" else _by_topic(rows)
    groups.sort(key=lambda group: (-saved_bytes(group), group[0].name))
    shown = groups if by == "partition" else [group for group in groups if any(map(_needs_row, group))]
    output.line(Total.of(rows).describe() if exact else _summary(rows))
    output.line()
    if shown:
        columns = _columns(by, rows, has_dirs=len(modes) > 1, exact=exact)
        cells = [[make(group) for _, make in columns] for group in shown[:top]]
        output.table_of_used([column for column, _ in columns], cells)
    if top is not None and len(shown) > top:
        output.line(f"and {counted(len(shown) - top, f'more {by}')}; --top sets how many are shown")
    if idle := [row for group in groups if group not in shown for row in group]:
        output.line(_idle(idle))
    _print_notes(output, [row for group in shown[:top] for row in group] if by == "partition" else [])
    _print_switches(output, rows)
    savings = [row.saving for row in rows if row.saving is not None]
    if savings:
        clean = max(s.peak_bytes - s.reserve_bytes for s in savings)
        stage = max(s.stage_bytes - s.reserve_bytes for s in savings)
        output.note(
            f"the largest partition needs {human_bytes(clean)} free for clean, {human_bytes(stage)} for stage, plus "
            f"the reserve of {human_bytes(max(s.reserve_bytes for s in savings))}"
        )


def _by_topic(rows: Sequence[PlanRow]) -> list[list[PlanRow]]:
    topics: dict[str, list[PlanRow]] = {}
    for row in rows:
        topics.setdefault(row.name.topic, []).append(row)
    return list(topics.values())


def _needs_row(row: PlanRow) -> bool:
    """Whether there is something to clean, or something for the operator to do."""
    verdict = None if row.found is None else row.found.verdict
    return row.error is not None or verdict is None or verdict.is_refusal


def saved_bytes(group: Sequence[PlanRow]) -> int:
    """The reclaimable bytes of some rows, to sort them."""
    return sum(row.reclaimable.bytes for row in group if row.reclaimable is not None)


def _summary(rows: Sequence[PlanRow]) -> str:
    """All rows in one line: what would be cleaned, and what only --force cleans."""
    found = [row.found for row in rows if row.found is not None]
    work = [row for row in rows if row.found is not None and row.error is None and row.found.to_clean]
    cleanable = sum(row.found.bounds.dirtiness.cleanable_bytes for row in work if row.found is not None)
    words = [f"{counted(len(rows), 'partition')}, {human_bytes(sum(map(_size, found)))}: {len(work):,} to clean"]
    if work:
        words.append(f"{human_bytes(cleanable)} cleanable")
    if saves := _estimate(work):
        words.append(f"would save {saves}")
    forced = [row for row in rows if row.error is None and _is_below_ratio(row)]
    if saved_bytes(forced):
        words.append(f"{_estimate(forced)} more with --force")
    if errors := sum(row.error is not None for row in rows):
        words.append(counted(errors, "error"))
    return ", ".join(words)


def _is_below_ratio(row: PlanRow) -> bool:
    verdict = None if row.found is None else row.found.verdict
    return verdict is not None and verdict.rule == RATIO


def _idle(rows: Sequence[PlanRow]) -> str:
    rules = Counter(row.found.verdict.rule for row in rows if row.found is not None and row.found.verdict is not None)
    reasons = ", ".join(f"{number:,} by {rule}" for rule, number in rules.most_common())
    return f"{counted(len(rows), 'partition')} not cleaned now: {reasons}; --by partition shows each"


def _print_notes(output: Output, rows: Sequence[PlanRow]) -> None:
    for row in rows:
        if row.found is not None and (staged := describe_staged(row.found.log.path)):
            output.note(f"{row.name}: {staged}")
        found, saving = row.found, row.saving
        for note in (*(() if found is None else found.notes), *(() if saving is None else saving.notes)):
            output.note(f"{row.name}: {note}")


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
    titles = ("keys", "other winner", "share", "no version")
    columns = [Column("partition"), Column("strategy"), Column("would be"), *(Column(t, right=True) for t in titles)]
    output.line()
    output.table(columns, cells)


Group = list[PlanRow]
"""The partitions of one row of the table."""


def _columns(
    by: str, rows: Sequence[PlanRow], *, has_dirs: bool, exact: bool
) -> list[tuple[Column, Callable[[Group], str]]]:
    """The columns with functions for their cells; columns without content are not printed."""
    is_topic = by == "topic"
    # A column with "offset" in every row would waste width.
    strategies = any(row.found is not None and not row.found.config.is_kafkas for row in rows)
    columns: list[tuple[Column, Callable[[Group], str] | None]] = [
        (Column(by), lambda group: group[0].name.topic if is_topic else str(group[0].name)),
        (Column("log directory", spare=1), _log_dir if has_dirs and not is_topic else None),
        (Column("partitions", right=True, spare=2), (lambda group: f"{len(group):,}") if is_topic else None),
        (Column("strategy", spare=4), _strategy if strategies else None),
        (Column("dirty", right=True), _dirty),
        (Column("first dirty", right=True, spare=9), None if is_topic else _first_dirty),
        (Column("cleanable to", right=True, spare=8), None if is_topic else _cleanable_to),
        (Column("size", right=True), _on_found(lambda found: human_bytes(sum(map(_size, found))))),
        (Column("cleanable", right=True, spare=7), _on_found(_cleanable)),
        (Column("would save", right=True), None if exact else _estimate),
        (Column("records", right=True, spare=6), _records if exact else None),
        (Column("kept", right=True, spare=5), _kept if exact else None),
        (Column("after", right=True), _bytes_after if exact else None),
        (Column("daemon", spare=3), None if is_topic else _phase),
        (Column("what would happen"), _outcome),
    ]
    return [(column, make) for column, make in columns if make is not None]


def _on_found(make: Callable[[list[Survey]], str]) -> Callable[[Group], str]:
    """A cell from the facts of a group; empty if none could be read."""

    def cell(group: Group) -> str:
        found = [row.found for row in group if row.found is not None]
        return make(found) if found else ""

    return cell


def _log_dir(group: Group) -> str:
    return str(group[0].log_dir.path)


def _strategy(group: Group) -> str:
    found = next((row.found for row in group if row.found is not None), None)
    return "" if found is None else describe_settings(found.config)


def _dirty(group: Group) -> str:
    dirty = [row.found.bounds.dirtiness for row in group if row.found is not None]
    if not dirty:
        return ""
    cleanable, clean = sum(each.cleanable_bytes for each in dirty), sum(each.clean_bytes for each in dirty)
    return f"{100 * cleanable / (cleanable + clean) if cleanable + clean else 0:.1f} %"


def _first_dirty(group: Group) -> str:
    return "" if group[0].found is None else str(group[0].found.bounds.first_dirty_offset)


def _cleanable_to(group: Group) -> str:
    return "" if group[0].found is None else str(group[0].found.end_offset)


def _cleanable(found: Sequence[Survey]) -> str:
    return human_bytes(sum(each.bounds.dirtiness.cleanable_bytes for each in found))


def _records(group: Group) -> str:
    savings = [row.saving for row in group if row.saving is not None]
    return human_count(sum(each.records for each in savings)) if savings else ""


def _kept(group: Group) -> str:
    savings = [row.saving for row in group if row.saving is not None]
    return human_count(sum(each.kept for each in savings)) if savings else ""


def _bytes_after(group: Group) -> str:
    known = [after for row in group if (after := _after(row)) is not None]
    return human_bytes(sum(known)) if known else ""


def _phase(group: Group) -> str:
    daemon = group[0].daemon
    return "" if daemon is None else str(daemon["phase"])


def _outcome(group: Group) -> str:
    if len(group) == 1:
        return _outcome_of(group[0])
    errors = [row for row in group if row.error is not None]
    refused = [row for row in group if row.error is None and _needs_row(row) and not _to_clean(row)]
    words = [f"{sum(map(_to_clean, group)):,} of {len(group):,} will be cleaned"]
    if refused:
        words.append(f"{len(refused):,} refused, such as {refused[0].name}: {_outcome_of(refused[0])}")
    if errors:
        words.append(f"{counted(len(errors), 'error')}, such as {errors[0].error}")
    return "; ".join(words)


def _to_clean(row: PlanRow) -> bool:
    return row.found is not None and row.error is None and row.found.to_clean


def _outcome_of(row: PlanRow) -> str:
    if row.error is not None or row.found is None:
        return f"error: {row.error}"
    bounds = row.found.bounds
    overdue = "overdue by max.compaction.lag.ms; " if bounds.overdue_ms > 0 and bounds.dirtiness.cleanable_bytes else ""
    return overdue + (row.found.refusal or "will be cleaned")


def _estimate(rows: Sequence[PlanRow]) -> str:
    """The reclaimable bytes; not shown below a thousandth of the log."""
    known = [(row.estimate, _size(row.found)) for row in rows if row.estimate is not None and row.found is not None]
    if not known:
        return ""
    count, low, high = (sum(numbers) for numbers in zip(*((e.bytes, e.low, e.high) for e, _ in known), strict=True))
    if 0 < count < sum(size for _, size in known) // 1000:
        return "< 0.1 %"
    return describe_reclaimable(count, low, high, exact=all(each.method == "exact" for each, _ in known))


def _size(found: Survey) -> int:
    return sum(segment.size_bytes for segment in found.log.segments)


def _after(row: PlanRow) -> int | None:
    """Bytes that a cleaning would leave, of the same files as the size: the active segment is unchanged.

    All bytes if nothing would be cleaned; None if unknown.
    """
    if row.found is None or row.error is not None:
        return None
    return _size(row.found) if row.saving is None else _size(row.found) - row.saving.saved_bytes


@dataclass(frozen=True, slots=True)
class Total:
    """The totals of rows with a known result; ``unknown``: the number of other rows."""

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
        return f"{words}; {counted(self.unknown, 'partition')} could not be computed" if self.unknown else words


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
    """The number of records that the strategy read, and of anomalies among them."""
    return {
        "dirty_records": oddities.records,
        "without_version": oddities.without_version,
        "malformed_versions": oddities.malformed_versions,
        "nulls_without_flag": oddities.nulls_without_flag,
        "far_future_timestamps": oddities.far_future,
    }
