"""Counts the effect of a change of a topic's rules before it happens: keys with another retained record."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from cleanerd.cleaner.change_cost import count_change
from cleanerd.cleaner.rules_change import rules_change
from cleanerd.cleaner.survey import CleaningOptions, Survey, survey
from cleanerd.errors import CleanerdError
from cleanerd.segments.partition import read_partition
from cleanerd.state.other_places import rules_of

if TYPE_CHECKING:
    from cleanerd.cli.each_dir import CleaningRequest
    from cleanerd.cli.output import Output
    from cleanerd.config.topic_config import TopicConfig
    from cleanerd.format.names import TopicPartition
    from cleanerd.resolution.broker_facts import BrokerFacts
    from cleanerd.segments.log_dir import LogDir
    from cleanerd.state.cleaner_checkpoint import StateStore

NO_COST: Final = "its compaction settings change, but no key gets another retained record"


def print_costs(request: CleaningRequest) -> None:
    """For every partition that was last cleaned by other rules, even if the change is refused.

    Costs a listing of each partition, and two readings of the changed ones. The cleaning itself reports errors.
    """
    output, options = request.output, request.options
    store = request.store.read_only()
    if store.rules.is_empty():
        return  # no cleaning is remembered, so no rules can differ
    for session in request.opened[0]:
        try:
            log_dir, facts = session.log_dir, session.facts
            targets = session.on_disk.admitted(request.wanted)
        except CleanerdError:
            continue
        options_now = replace(options, unclean=options.unclean or session.running)
        for target in targets:
            try:
                if target.config is not None and _differs(store, log_dir, target.name, target.config):
                    found = survey(log_dir, target.name, target.config, store, options_now)
                    cost = cost_of(output, facts, log_dir, found, options_now)
                    if cost:
                        output.warning(f"{target.name}: {cost}")
                    elif found.verdict is None or not found.verdict.is_refusal:
                        output.note(f"{target.name}: {NO_COST}")
            except CleanerdError:
                continue


def cost_of(output: Output, facts: BrokerFacts, log_dir: LogDir, found: Survey, options: CleaningOptions) -> str:
    """How many keys the change of ``found`` concerns, in words; empty for none.

    Raises:
        CleanerdError: the log cannot be read or indexed.
    """
    resources = replace(facts.resources(), workers=facts.settings.daemon.log_cleaner_threads)
    size = 2 * sum(segment.size_bytes for segment in found.log.segments[:-1])
    with (
        resources.readers(str(found.log.path)) as pool,
        output.progress(f"{found.log.name}: index by both rules", size) as advance,
    ):
        return count_change(log_dir, found, resources, options, pool, advance)


def _differs(store: StateStore, log_dir: LogDir, name: TopicPartition, config: TopicConfig) -> bool:
    log = read_partition(log_dir, name)
    change = rules_change(config, rules_of(store, log_dir, log, store.load(log_dir, log)))
    return change is not None and change.differs
