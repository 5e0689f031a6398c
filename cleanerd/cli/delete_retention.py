"""How long a topic's tombstones stay, for verbs that read directories of whatever broker."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from cleanerd.config.topic_config import resolve_topic_config
from cleanerd.errors import CleanerdError
from cleanerd.resolution.broker_facts import broker_facts
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.segments.remote import RemotePath

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from cleanerd.config.load import Settings
    from cleanerd.resolution.broker_facts import BrokerFacts


_KEY: Final = "delete.retention.ms"
_OF_BROKER: Final = "log.cleaner.delete.retention.ms"


def delete_retention(settings: Settings, log_dirs: Sequence[Path], note: Callable[[str], None]) -> Callable[[str], int]:
    """Each topic's ``delete.retention.ms``: from the settings, else the metadata in ``log_dirs``, else the default.

    If directories differ, the least is used. Without any source, that is noted, once.
    """
    noted: list[str] = []
    known: list[BrokerFacts] = []
    here = [path for path in log_dirs if not isinstance(path, RemotePath)]
    for path in here:
        with contextlib.suppress(CleanerdError, OSError):  # a copy of some partitions has no more
            facts = broker_facts(settings, read_log_dir(path), [other for other in here if other != path])
            if facts.metadata is not None or facts.zk_topics:
                known.append(facts)

    def of_topic(topic: str) -> int:
        if known:
            return min(facts.topic_config(topic).delete_retention_ms for facts in known)
        overrides, defaults = settings.topic_overrides(topic), settings.broker_defaults()
        found = resolve_topic_config(
            topic, overrides=overrides, topic_configs=None, settings_defaults=defaults
        ).delete_retention_ms
        if _KEY not in overrides and _OF_BROKER not in defaults and not noted:
            noted.append(topic)
            note(
                f"{_KEY} of {topic} is not known here, and treated as {found} ms: where it is lower, deleted keys can "
                f"stay (--set topics.{topic}.{_KEY}=...)"
            )
        return found

    return of_topic
