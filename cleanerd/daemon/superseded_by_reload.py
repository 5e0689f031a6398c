"""The running jobs that a reload supersedes: their topic, mode or rules have changed.

An operator who excludes a topic, or corrects its rules, means the running cleaning as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cleanerd.config.fingerprint import fingerprint
from cleanerd.errors import CleanerdError
from cleanerd.resolution.selection import why_excluded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cleanerd.config.load import Settings
    from cleanerd.daemon.work.job import CleaningJob

_WORK: Final[Mapping[str, frozenset[str]]] = {
    "observe": frozenset(),
    "live": frozenset({"live"}),
    "on-start": frozenset({"stage"}),
    "auto": frozenset({"live", "stage"}),
}
"""The steps of a cleaning that each mode allows."""


def is_superseded(job: CleaningJob, before: Settings, after: Settings) -> bool:
    """Whether the job would not begin, or differ, under the settings of ``after``."""
    daemon, topic = after.daemon, job.name.topic
    if why_excluded(topic, daemon.cleanerd_topics_include, daemon.cleanerd_topics_exclude):
        return True
    if job.kind not in {"live", "stage"}:
        return False
    return job.kind not in _WORK[daemon.cleanerd_mode] or _rules(before, topic) != _rules(after, topic)


def _rules(settings: Settings, topic: str) -> tuple[object, ...]:
    """The settings that decide which records of the topic are retained; without limits and times.

    The topic's own configuration is unknown here, so a default that it overrides may count: then a cleaning is repeated
    without need.
    """
    try:
        config = settings.topic_config(topic)
    except CleanerdError as error:
        return (str(error),)
    return (
        fingerprint(config),
        config.tombstone_guard,
        config.compaction_winner_retention,
        config.cleanup_policy,
        config.min_compaction_lag_ms,
        config.delete_retention_ms,
        settings.daemon.producer_id_expiration_ms,
        settings.daemon.cleanerd_delegation,
    )
