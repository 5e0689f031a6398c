"""The statuses of a cluster's daemons, side by side: differences, and faults. Pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cleanerd.admin.peers import digests_in
from cleanerd.humanize import human_bytes
from cleanerd.policy.state_digest import first_difference

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cleanerd.policy.state_digest import ReplicaDigests

SIZES_DIFFER_RATIO: Final = 1.5
SIZES_DIFFER_BYTES: Final = 16 * 1024 * 1024
"""Replicas are cleaned at different times, so their sizes always differ; from here on it is worth a check."""

NO_ANSWER, UNWELL = 4, 1


@dataclass(frozen=True, slots=True)
class DaemonAnswer:
    """One daemon's ``/status``, or the ``error``."""

    target: str
    status: Mapping[str, Any] | None
    error: str = ""


@dataclass(frozen=True, slots=True)
class DaemonRow:
    """One daemon's row. ``cleanerd``, its release, is empty when it does not answer."""

    target: str
    healthy: bool
    remarks: str
    host: str = ""
    node_ids: tuple[int, ...] = ()
    kafka: tuple[str, ...] = ()
    cleanerd: str = ""
    mode: str = ""
    partitions: int = 0
    reclaimed_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference in one topic or partition; ``by_target``: each daemon's value."""

    what: str
    by_target: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ClusterComparison:
    """All of it. ``drift``, ``undelegated``, ``quarantined`` and ``states`` are wrong; the rest may pass by itself.

    ``drift``: topics that are cleaned by different rules. ``clean_points``, ``sizes``: replicas that differ.
    ``states``: replicas with different latest states (U-90).
    """

    rows: tuple[DaemonRow, ...]
    drift: tuple[Difference, ...]
    undelegated: tuple[Difference, ...]
    quarantined: tuple[Difference, ...]
    clean_points: tuple[Difference, ...]
    sizes: tuple[Difference, ...]
    states: tuple[Difference, ...]
    versions: tuple[str, ...]
    bytes_before: int
    bytes_after: int

    @property
    def exit_code(self) -> int:
        """0 when all is well; 4 when a daemon does not answer; 1 when one is unwell, or something is wrong."""
        if any(not row.cleanerd for row in self.rows):
            return NO_ANSWER
        differ = self.drift or self.undelegated or self.quarantined or self.states
        wrong = differ or any(not row.healthy for row in self.rows)
        return UNWELL if wrong else 0

    def to_json(self) -> dict[str, Any]:
        """The result of ``--json``."""
        return {"ok": self.exit_code == 0, **asdict(self)}


class _Replica(NamedTuple):
    target: str
    entry: Mapping[str, Any]


def compare(answers: Sequence[DaemonAnswer]) -> ClusterComparison:
    """Put them side by side, in the order of the command line."""
    statuses = {answer.target: answer.status for answer in answers if answer.status is not None}
    by_partition: dict[tuple[str, int], list[_Replica]] = defaultdict(list)
    for target, status in statuses.items():
        for entry in status["partitions"]:
            by_partition[(str(entry["topic"]), int(entry["partition"]))].append(_Replica(target, entry))
    ordered = [by_partition[key] for key in sorted(by_partition)]
    totals = [status["totals"] for status in statuses.values()]
    return ClusterComparison(
        rows=tuple(_row(answer) for answer in answers),
        drift=tuple(_drift(ordered)),
        undelegated=_undelegated(ordered),
        quarantined=tuple(_quarantined(ordered)),
        clean_points=tuple(_clean_points(ordered)),
        sizes=tuple(_sizes(ordered)),
        states=tuple(_states(statuses)),
        versions=tuple(sorted({str(status["version"]) for status in statuses.values()})),
        bytes_before=sum(int(each["bytes_before"]) for each in totals),
        bytes_after=sum(int(each["bytes_after"]) for each in totals),
    )


def _row(answer: DaemonAnswer) -> DaemonRow:
    status = answer.status
    if status is None:
        return DaemonRow(target=answer.target, healthy=False, remarks=answer.error)
    dirs, totals = status["log_dirs"], status["totals"]
    kafka = {str(each["agent"]["version"]) for each in dirs if each.get("agent") and each["agent"].get("version")}
    remarks = [
        "" if status["healthy"] else str(status["unhealthy_reason"]),
        "" if status["ready"] else "not ready",
        "paused" if status["paused"] else "",
        *(f"{each['path']} offline" for each in dirs if not each["online"]),
    ]
    return DaemonRow(
        target=answer.target,
        host=str(status.get("host", "")),
        node_ids=tuple(sorted({int(each["node_id"]) for each in dirs if each.get("node_id") is not None})),
        kafka=tuple(sorted(kafka)),
        cleanerd=str(status["version"]),
        mode=str(status["mode"]),
        partitions=len(status["partitions"]),
        reclaimed_bytes=int(totals["bytes_before"]) - int(totals["bytes_after"]),
        healthy=bool(status["healthy"]),
        remarks=", ".join(word for word in remarks if word),
    )


def _name(replica: _Replica) -> str:
    return f"{replica.entry['topic']}-{replica.entry['partition']}"


def _drift(ordered: Sequence[Sequence[_Replica]]) -> Iterator[Difference]:
    """U-6: topics whose fingerprints differ; a partition without a scan has none."""
    rules: dict[str, dict[str, dict[str, str]]] = defaultdict(dict)
    for replicas in ordered:
        for target, entry in replicas:
            if entry["fingerprint"]:
                topic, known = str(entry["topic"]), rules[str(entry["topic"])]
                rules[topic][target] = {**known.get(target, {}), str(entry["fingerprint"]): str(entry["strategy"])}
    for topic, by_target in rules.items():
        if len({mark for marks in by_target.values() for mark in marks}) > 1:
            said = {
                target: " and ".join(f"{strategy} ({mark[:8]})" for mark, strategy in marks.items())
                for target, marks in by_target.items()
            }
            yield Difference(topic, said)


def _undelegated(ordered: Sequence[Sequence[_Replica]]) -> tuple[Difference, ...]:
    """U-8: topics that the broker's own cleaner would clean by other rules, and the daemons that report them."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for replicas in ordered:
        for target, entry in replicas:
            if entry["delegated"] is False:
                found[str(entry["topic"])][target] = "not delegated"
    return tuple(Difference(topic, by_target) for topic, by_target in found.items())


def _quarantined(ordered: Sequence[Sequence[_Replica]]) -> Iterator[Difference]:
    for replicas in ordered:
        held = {each.target: str(each.entry["quarantine"]["reason"]) for each in replicas if each.entry["quarantine"]}
        if held:
            yield Difference(_name(replicas[0]), held)


def _clean_points(ordered: Sequence[Sequence[_Replica]]) -> Iterator[Difference]:
    for replicas in ordered:
        points = {
            each.target: each.entry["clean_offset"] for each in replicas if each.entry["clean_offset"] is not None
        }
        if len(set(points.values())) > 1:
            yield Difference(_name(replicas[0]), {target: str(offset) for target, offset in points.items()})


def _sizes(ordered: Sequence[Sequence[_Replica]]) -> Iterator[Difference]:
    for replicas in ordered:
        sizes = {e.target: int(e.entry["size_bytes"]) for e in replicas if e.entry["size_bytes"] is not None}
        if not sizes:
            continue
        least, most = min(sizes.values()), max(sizes.values())
        if most - least >= SIZES_DIFFER_BYTES and most >= SIZES_DIFFER_RATIO * least:
            yield Difference(_name(replicas[0]), {target: human_bytes(size) for target, size in sizes.items()})


def _states(statuses: Mapping[str, Mapping[str, Any]]) -> Iterator[Difference]:
    """U-90: replicas whose digests differ at the highest offset that both have."""
    replicas: dict[str, dict[str, ReplicaDigests]] = defaultdict(dict)
    for target, status in statuses.items():
        for name, known in digests_in(status).items():
            replicas[name][target] = known
    for name, by_target in sorted(replicas.items()):
        found = first_difference(by_target)
        if found is not None:
            texts = {target: f"{each.digest[:8]} ({each.keys:,} keys)" for target, each in found.by_replica.items()}
            yield Difference(f"{name} below offset {found.end_offset}", texts)
