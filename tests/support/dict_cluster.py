"""A cluster of one topic that keeps its settings in a dictionary, for the tests of ``cleanerd delegate``."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, cast

from cleanerd.admin.cluster import Cluster, KeyValue, TopicFacts
from cleanerd.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Mapping

RATIO, LAG, ROLL = "min.cleanable.dirty.ratio", "max.compaction.lag.ms", "segment.ms"
FOREVER = str(2**63 - 1)


class DictCluster:
    """One topic. Answers as brokers do: ``1`` comes back as ``1.0``, unset keys as the inherited value."""

    def __init__(self, own: dict[str, str], **inherited: str) -> None:
        self.own = {"cleanup.policy": "compact", **own}
        self.inherited = {RATIO: "0.5", LAG: FOREVER, ROLL: "604800000", "cleanup.policy": "delete"} | {
            key.replace("_", "."): text for key, text in inherited.items()
        }
        self.topic_id = uuid.UUID(int=1)
        self.there = True
        self.refuses = False
        self.altered: list[dict[str, str | None]] = []

    def cluster_id(self) -> str:
        return "cluster-1"

    def topic(self, topic: str) -> TopicFacts | None:
        if not self.there:
            return None
        values = {
            key: KeyValue(self._shown(key), self._shown(key) or inherited, inherited)
            for key, inherited in self.inherited.items()
        }
        return TopicFacts(topic, self.topic_id, values)

    def _shown(self, key: str) -> str | None:
        text = self.own.get(key)
        return str(float(text)) if key == RATIO and text is not None else text

    def alter(self, topic: str, changes: Mapping[str, str | None], *, dry_run: bool) -> None:
        if self.refuses:
            raise RefusedError("the cluster refuses: no", where=topic)
        if dry_run:
            return
        self.altered.append(dict(changes))
        for key, text in changes.items():
            if text is None:
                del self.own[key]
            else:
                self.own[key] = text

    @property
    def as_cluster(self) -> Cluster:
        return cast("Cluster", self)
