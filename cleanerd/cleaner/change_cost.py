"""The effect of a change of strategy: how many keys have another retained record than before (U-6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleanerd.cleaner.planning import make_plan
from cleanerd.cleaner.switch import compare, rules_of_fingerprint
from cleanerd.config.fingerprint import describe_fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable

    from cleanerd.cleaner.resources import Resources
    from cleanerd.cleaner.survey import CleaningOptions, Survey
    from cleanerd.segments.log_dir import LogDir
    from cleanerd.segments.pool import ReaderPool


def count_change(
    log_dir: LogDir,
    found: Survey,
    resources: Resources,
    options: CleaningOptions,
    pool: ReaderPool,
    advance: Callable[[int], None],
) -> str:
    """How many keys the change of ``found`` concerns, in words; empty for none. Reads only.

    Raises:
        CleanerdError: the log cannot be read or indexed.
    """
    change = found.change
    if change is None or change.before is None or not change.differs:
        return ""
    plan = make_plan(log_dir, found, resources, options, pool.reader)
    counted = compare(plan, rules_of_fingerprint(change.before), pool, advance)
    if not counted.differing:
        return ""
    now, before = describe_fingerprint(change.now), describe_fingerprint(change.before)
    return (
        f"{counted.differing:,} of {counted.keys:,} keys get another record by {now} than by {before}, the "
        "strategy of the last cleaning"
    )
