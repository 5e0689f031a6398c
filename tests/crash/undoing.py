"""The undo of the recorded swap: everything is staged again, and restored group by group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleanerd.cleaner.manifest import KINDS, RESTORE, staged_name, staging_path
from cleanerd.swap.group_swap import final_name, finish_plan
from cleanerd.swap.journal import Journal
from cleanerd.swap.restore import RestoredSegment, RestoreGroup, RestorePlan, restore_group
from tests.crash.scenario import GROUPS, PLAN, NoLock, Scenario, fact
from tests.crash.volume import State

if TYPE_CHECKING:
    from cleanerd.swap.files import PartitionFiles


def restore_plan(scenario: Scenario) -> RestorePlan:
    """All groups, the last one first."""
    groups = [
        RestoreGroup(
            base,
            end,
            tuple(
                RestoredSegment(
                    source,
                    {
                        kind: fact(scenario.old.files[name])
                        for kind in KINDS
                        if (name := final_name(source, kind)) in scenario.old.files
                    },
                )
                for source in sources
            ),
        )
        for base, (end, sources) in GROUPS.items()
    ]
    return RestorePlan(PLAN, tuple(reversed(groups)))


def staged_for_undo(scenario: Scenario) -> State:
    """Everything is cleaned, and the old files are in the staging directory."""
    plan = restore_plan(scenario)
    files = dict(scenario.directory(tuple(GROUPS)))
    for group in plan.groups:
        for segment in group.segments:
            for kind in segment.kinds():
                files[staged_name(PLAN, segment.base, kind)] = scenario.old.files[final_name(segment.base, kind)]
    files[f"{staging_path(PLAN)}/{RESTORE}"] = plan.to_json()
    return State(files, frozenset({".kstage", staging_path(PLAN)}))


def undo_all(files: PartitionFiles, scenario: Scenario) -> None:
    """Group by group, then remove the leftovers."""
    journal = Journal(files, PLAN)
    for group in restore_plan(scenario).groups:
        restore_group(files, PLAN, group, journal, NoLock())
    finish_plan(files, PLAN)
