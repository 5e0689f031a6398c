"""Which of the jobs that run a reload has overtaken: their topic, mode or rules are no longer what they were.

Whoever takes a topic out, or mends the rules by which it is cleaned, means the cleaning that goes on as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cleanerd.config.fingerprint import fingerprint
from cleanerd.errors import CleanerdError
from cleanerd.resolution.selection import why_excluded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cleanerd.config import Settings
    from cleanerd.daemon.work.job import CleaningJob

_WORK: Final[Mapping[str, frozenset[str]]] = {
    "observe": frozenset(),
    "live": frozenset({"live"}),
    "on-start": frozenset({"stage"}),
    "auto": frozenset({"live", "stage"}),
}
"""What of a cleaning each mode allows."""


def is_overtaken(job: CleaningJob, before: Settings, after: Settings) -> bool:
    """Whether the job would not be begun any more, or not so, by the settings of ``after``."""
    daemon, topic = after.daemon, job.name.topic
    if why_excluded(topic, daemon.cleanerd_topics_include, daemon.cleanerd_topics_exclude):
        return True
    if job.kind not in {"live", "stage"}:
        return False
    return job.kind not in _WORK[daemon.cleanerd_mode] or _rules(before, topic) != _rules(after, topic)


def _rules(settings: Settings, topic: str) -> tuple[object, ...]:
    """What of the settings decides which records of the topic stay; how much is done at once, and when, is not in it.

    The topic's own configuration is not known here, so a default may count that it hides: then a cleaning is begun
    once more for nothing.
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
