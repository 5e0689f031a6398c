"""The results of a cleaning, partition by partition, for ``clean``, ``stage`` and ``apply``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cleanerd.cli.options import FEW_PARTITIONS
from cleanerd.cli.output import NONE_COMPACTED, Column, Output
from cleanerd.humanize import counted, human_bytes, human_change, human_count, human_ms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cleanerd.cleaner.result import CleaningResult, RemovedRecords
    from cleanerd.errors import CleanerdError

_COLUMNS: Final = (
    Column("partition"),
    Column("outcome"),
    Column("before", right=True),
    Column("after", right=True),
    Column("kept", right=True),
    Column("superseded", right=True),
    Column("tombstones", right=True),
    Column("no key", right=True, spare=2),
    Column("time", right=True, spare=1),
)
_REASON_COLUMNS: Final = (Column("partition"), Column("outcome"), Column("why"))


def print_notes(output: Output, result: CleaningResult) -> None:
    """Print the notes about one partition when it is done; errors are warnings."""
    for note in result.notes:
        output.note(f"{result.name}: {note}")
    if result.error is not None:
        output.warning(f"{result.name}: {result.reason}")


def print_results(
    output: Output,
    results: Sequence[CleaningResult],
    failures: Sequence[CleanerdError] = (),
    *,
    more: Mapping[str, object] | None = None,
) -> None:
    """Print results as JSON or as a table.

    ``failures``: unusable log directories, already printed as warnings. ``more``: additional fields of the JSON.
    """
    if output.as_json:
        answers = [result.to_json() for result in results]
        output.json({"partitions": answers, "errors": [error.to_json() for error in failures], **(more or {})})
        return
    if not results:
        if not failures:  # an unreadable directory may have partitions
            output.line(NONE_COMPACTED)
        return
    idle = [result for result in results if _is_idle(result)] if len(results) > FEW_PARTITIONS else []
    shown = [result for result in results if not (idle and _is_idle(result))]
    # If nothing was cleaned there are no counts: the table shows the reasons.
    counts = any(result.is_done for result in shown)
    columns = _COLUMNS if counts else _REASON_COLUMNS
    rows = [_row(result) if counts else _reason_row(result) for result in shown]
    if len({result.log_dir for result in results}) > 1:  # with a single directory its name is not needed
        columns = (columns[0], Column("log directory"), *columns[1:])
        rows = [[name, result.log_dir, *cells] for result, (name, *cells) in zip(shown, rows, strict=True)]
    show = output.table if counts else output.table_of_used
    if shown:
        show(columns, rows)
    if idle:
        output.line(
            f"{counted(len(idle), 'partition')} skipped, such as {idle[0].name}: {idle[0].reason}; "
            "cleanerd plan --by partition shows each"
        )
    cleaned = [result for result in results if result.outcome == "cleaned"]
    before, after = (sum(sizes) for sizes in zip(*map(_sizes, cleaned), strict=True)) if cleaned else (0, 0)
    if cleaned:
        removed = sum((result.removed.total for result in cleaned), 0)
        output.line()
        output.line(
            f"{len(cleaned)} of {len(results)} partitions cleaned: {human_change(before, after)}, "
            f"{counted(removed, 'record')} removed."
        )
    for result in shown:
        if counts and _shows_reason(result):
            output.note(f"{result.name}: {result.reason}")


def _sizes(result: CleaningResult) -> tuple[int, int]:
    """The sizes of the whole log before and after: ``plan``'s size and after."""
    return result.bytes_before + result.active_bytes, result.bytes_after + result.active_bytes


def _is_idle(result: CleaningResult) -> bool:
    """There was nothing to do."""
    return result.outcome == "skipped" and result.error is None


def _shows_reason(result: CleaningResult) -> bool:
    """The reason of an error was already printed, as a warning."""
    return result.outcome in {"skipped", "refused"} and result.error is None


def _reason_row(result: CleaningResult) -> list[str]:
    return [str(result.name), result.outcome, result.reason if _shows_reason(result) else ""]


def _row(result: CleaningResult) -> list[str]:
    if not result.is_done:
        return [str(result.name), result.outcome, *[""] * (len(_COLUMNS) - 2)]
    removed: RemovedRecords = result.removed
    before, after = _sizes(result)
    return [
        str(result.name),
        result.outcome,
        human_bytes(before),
        human_bytes(after),
        human_count(result.records_kept),
        human_count(removed.superseded),
        human_count(removed.tombstone),
        human_count(removed.no_key),
        human_ms(1000 * sum(result.seconds.values())),
    ]
