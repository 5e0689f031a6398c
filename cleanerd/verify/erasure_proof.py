"""Whether the certificates of all replicas prove that a key was removed from a topic (U-87). Pure.

It is complete only if the newest trusted statement about each assigned replica says so, is newer than the request, and
has searched past the tombstone. Offsets decide before clocks: a replica that was searched up to an offset below the
tombstone did not have it yet, whatever the times say.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cleanerd.state.erasure_requests import KeyHash
    from cleanerd.verify.certificate import Certificate, ReplicaStatement, Statement

CLOCKS_MS: Final = 5 * 60_000
"""Tolerance between the clocks of two hosts."""


@dataclass(frozen=True, slots=True)
class AssignedReplicas:
    """A topic in the cluster: the brokers assigned to each partition. ``topic_id`` as Kafka writes it."""

    cluster_id: str | None
    topic: str
    topic_id: str | None
    partitions: Mapping[int, frozenset[int]]


@dataclass(frozen=True, slots=True)
class Expected:
    """What the certificates have to cover. ``key_hash``: from the request; ``key``: the key itself; one is enough.

    ``tombstones``: the offset of the tombstone by partition. ``since_ms``: earlier searches are ignored.
    """

    topic: str
    since_ms: int
    key_hash: KeyHash | None = None
    key: bytes | None = None
    request: str | None = None
    topic_id: str | None = None
    cluster_id: str | None = None
    tombstones: Mapping[int, int] | None = None


@dataclass(frozen=True, slots=True)
class ProvenReplica:
    """One assigned replica. ``failures``: why nothing is proven about it; empty: it does not have the key any more."""

    partition: int
    broker: int
    certificate: Certificate | None
    failures: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Proof:
    """The judgement. ``failures``: certificates that are ignored, and why; ``notes`` do not affect it."""

    replicas: tuple[ProvenReplica, ...]
    failures: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def is_complete(self) -> bool:
        """Whether the key was removed from every assigned replica."""
        return bool(self.replicas) and not any(each.failures for each in self.replicas) and not self.failures


def judge(
    certificates: Sequence[Certificate],
    cluster: AssignedReplicas,
    expected: Expected,
    trusted: Mapping[str, int | None],
    now_ms: int,
) -> Proof:
    """Combine the certificates. ``trusted``: public keys, and the one broker that each may sign for (None: any)."""
    failures: list[str] = list(_mismatches(cluster, expected))
    notes: list[str] = []
    newest: dict[tuple[int, int], tuple[Certificate, list[ReplicaStatement]]] = {}
    for each in sorted(certificates, key=_worst_last):
        why = list(_why_foreign(each, cluster, expected, trusted))
        if why:
            failures += [f"{each.path}: {reason}" for reason in why]
            continue
        broker = each.statement.broker
        for replica in each.statement.replicas:
            assigned = cluster.partitions.get(replica.partition)
            if broker is None or assigned is None or broker not in assigned:
                name = f"{cluster.topic}-{replica.partition}"
                notes.append(f"{each.path}: broker {broker} is not assigned to {name}: this replica is not needed")
            else:
                known = newest.get((replica.partition, broker))
                others = known[1] if known is not None and known[0] is each else []
                newest[replica.partition, broker] = each, [*others, replica]
    replicas = [
        _proven(partition, broker, newest.get((partition, broker)), cluster, expected, now_ms)
        for partition, brokers in sorted(cluster.partitions.items())
        for broker in sorted(brokers)
    ]
    return Proof(tuple(replicas), tuple(dict.fromkeys(failures)), tuple(dict.fromkeys(notes)))


def _worst_last(each: Certificate) -> tuple[int, int, int]:
    """The order in which a later certificate replaces an earlier one: of the same time, the worse one counts."""
    return each.statement.ended_ms, each.statement.found, len(each.statement.unsearched)


def _mismatches(cluster: AssignedReplicas, expected: Expected) -> Iterator[str]:
    if expected.cluster_id is not None and cluster.cluster_id not in {None, expected.cluster_id}:
        yield f"the request is about cluster {expected.cluster_id}, the metadata is of cluster {cluster.cluster_id}"
    if expected.topic_id is not None and cluster.topic_id not in {None, expected.topic_id}:
        yield f"topic {cluster.topic} was created again since the request: its id is {cluster.topic_id}"


def _why_foreign(
    each: Certificate, cluster: AssignedReplicas, expected: Expected, trusted: Mapping[str, int | None]
) -> Iterator[str]:
    """Why a certificate does not belong to this erasure."""
    statement = each.statement
    if each.public_key not in trusted:
        yield f"signed by {each.public_key}, which is not trusted (--trust)"
        return
    speaks_for = trusted[each.public_key]
    if speaks_for is not None and statement.broker != speaks_for:
        yield f"is about broker {statement.broker}, and its key is trusted for broker {speaks_for} only"
    if cluster.cluster_id is not None and statement.cluster_id != cluster.cluster_id:
        yield f"is about cluster {statement.cluster_id}, not {cluster.cluster_id}"
    if statement.topic != expected.topic:
        yield f"is about topic {statement.topic}, not {expected.topic}"
    if not _is_about_key(statement, expected):
        yield "is about another key, or has another salt than the request"
    if expected.request is not None and statement.request not in {None, expected.request}:
        yield f"is about request {statement.request}, not {expected.request}"


def _is_about_key(statement: Statement, expected: Expected) -> bool:
    if expected.key is not None:
        return statement.key.is_of(expected.key)
    return statement.key == expected.key_hash


def _proven(
    partition: int,
    broker: int,
    found: tuple[Certificate, list[ReplicaStatement]] | None,
    cluster: AssignedReplicas,
    expected: Expected,
    now_ms: int,
) -> ProvenReplica:
    if found is None:
        return ProvenReplica(partition, broker, None, ("a certificate is missing",))
    certificate, replicas = found
    failures = [*_why_too_old(certificate.statement, replicas, expected, now_ms)]
    strange = [each.topic_id for each in replicas if cluster.topic_id not in {None, each.topic_id}]
    failures += [f"has another topic id ({each}, not {cluster.topic_id})" for each in strange]
    if certificate.statement.found:
        failures.append(f"the key was found there ({certificate.statement.found} records)")
    failures += [f"not searched: {what}" for what in certificate.statement.unsearched]
    return ProvenReplica(partition, broker, certificate, tuple(failures))


def _why_too_old(
    statement: Statement, replicas: Sequence[ReplicaStatement], expected: Expected, now_ms: int
) -> Iterator[str]:
    """Check the times of a statement, and the offsets that it searched."""
    tombstones = expected.tombstones or {}
    ends = {replica.partition: replica.to_offset for replica in replicas}
    behind = [(end, tombstones[number]) for number, end in ends.items() if end <= tombstones.get(number, -1)]
    for end, tombstone in behind:
        yield f"was searched up to offset {end}, and the tombstone is at offset {tombstone}: certify again"
    if statement.began_ms > statement.ended_ms:
        yield f"the search ended before it began: the clock of {statement.host} was set back"
    if statement.ended_ms > now_ms + CLOCKS_MS:
        made = _utc(statement.ended_ms)
        yield f"was made at {made}, later than now: compare the clock of {statement.host} with this one"
    elif now_ms > statement.expires_ms:
        yield f"expired at {_utc(statement.expires_ms)}: certify again"
    if statement.began_ms < expected.since_ms:
        has_it = bool(ends.keys() & tombstones.keys()) and not behind
        why = (
            f"compare the clock of {statement.host} with the requester's, and certify again"
            if has_it
            else "certify again"
        )
        yield f"was searched at {_utc(statement.began_ms)}, before the request of {_utc(expected.since_ms)}: {why}"


def _utc(at_ms: int) -> str:
    try:
        return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (OverflowError, OSError, ValueError):
        return f"{at_ms} ms"
