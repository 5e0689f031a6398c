"""``/status`` of a cluster's daemons; first dirty offsets (U-79), log ends and digests (U-90) in them. Read only."""

from __future__ import annotations

import http.client
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from cleanerd.errors import CleanerdError
from cleanerd.policy.state_digest import ReplicaDigests, StateDigest

ANSWER_SECONDS: Final = 5.0
"""A daemon that takes longer for the whole answer counts as silent; a scan waits this long."""

MOST_BYTES: Final = 64 * 1024 * 1024
AGAIN_SECONDS: Final = 60.0
_CHUNK_BYTES: Final = 1 << 16
_MOST_OFFSET: Final = 2**63 - 1
_MOST_PARTITION: Final = 2**31 - 1

NOT_A_STATUS: Final = "responded, but is not a supported cleanerd version"

K = TypeVar("K", bound="Hashable")

PeerOffsets = dict[int, dict[str, dict[int, int]]]
"""By broker, topic and partition."""

PeerPoints = dict[int, "dict[str, dict[int, int]] | str"]
"""By broker: the clean offsets by topic and partition, or why they are unknown."""

PeerDigests = dict[int, dict[str, ReplicaDigests]]
"""By broker: what its daemon reports of each partition, by its name (TOPIC-N)."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Redirects are refused: an answer has to come from the configured address."""

    def redirect_request(self, *_: Any) -> None:
        """Leave the redirect to the caller, as an error."""


# A cluster's own daemons are reached without the environment's web proxy.
_OPENER: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect)


_Answer = tuple[dict[str, dict[int, int]], dict[str, ReplicaDigests], dict[str, dict[int, int]]] | str
"""A daemon's first dirty offsets, digests and log ends, or why they are unknown."""


@dataclass(frozen=True, slots=True)
class NoStatus:
    """A daemon without a status, and the reason, for example "does not answer"."""

    reason: str


@dataclass(frozen=True, slots=True)
class FoundDaemons:
    """Where the daemons of a cluster are, by broker id; ``down``: brokers with replicas that do not run."""

    addresses: tuple[tuple[int, str], ...]
    cluster_id: str | None = None
    down: tuple[int, ...] = ()


def find_daemons(port: int, servers: str | None, command_config: Path | None, *, with_down: bool) -> FoundDaemons:
    """The daemons at ``port`` of the host of each broker. ``with_down`` also lists all topics.

    Raises:
        ConfigError: neither ``servers`` nor the client's file ``command_config`` names brokers.
        CleanerdError: the cluster does not answer.
    """
    from cleanerd.admin.client_config import read_client_config  # noqa: PLC0415
    from cleanerd.admin.cluster import Cluster, require_bootstrap  # noqa: PLC0415 - the Kafka client takes a while

    client = read_client_config(command_config)
    with Cluster(require_bootstrap(servers, client), client) as cluster:
        brokers = cluster.brokers()
        down = cluster.assigned_brokers() - brokers.keys() if with_down else set()
        cluster_id = cluster.cluster_id()
    hosts = {broker: f"[{host}]" if ":" in host else host for broker, host in sorted(brokers.items())}
    return FoundDaemons(
        tuple((broker, f"{host}:{port}") for broker, host in hosts.items()), cluster_id, tuple(sorted(down))
    )


class Peers:
    """Queries daemons, and caches their first dirty offsets for ``again_seconds``; thread-safe.

    ``answered`` gets each round of answers, by address.
    """

    def __init__(
        self,
        *,
        answer_seconds: float = ANSWER_SECONDS,
        most_bytes: int = MOST_BYTES,
        again_seconds: float = AGAIN_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        answered: Callable[[Mapping[str, Any]], None] = lambda _answers: None,
    ) -> None:
        self._answer_seconds = answer_seconds
        self._most_bytes = most_bytes
        self._again_seconds = again_seconds
        self._clock = clock
        self._answered = answered
        self.warning = ""
        self._lock = threading.Lock()
        self._addresses: tuple[object, ...] = ()
        self._answered_at = 0.0
        self._points: PeerPoints = {}
        self.digests: PeerDigests = {}
        self.log_ends: PeerOffsets = {}
        """As of the last answers; replaced when they differ, never changed."""
        self._found: dict[int, str] = {}

    def points(
        self,
        addresses: Sequence[tuple[int, str]] | Callable[[], FoundDaemons],
        cluster_id: str | None,
        own_id: int | None,
    ) -> PeerPoints | None:
        """The reports of the daemons at ``addresses`` (broker id, host:port); None: there are no addresses.

        A callable finds the addresses; a broker that it found once is queried from then on. The broker ``own_id`` is
        left out, because all hosts may have the same settings. The same object is returned while nothing changes.
        """
        if not addresses:
            return None
        key = ("found" if callable(addresses) else tuple(addresses), cluster_id, own_id)
        with self._lock:
            if key != self._addresses or self._clock() >= self._answered_at + self._again_seconds:
                known = self._find(addresses, cluster_id) if callable(addresses) else dict(addresses)
                others = {broker: address for broker, address in known.items() if broker != own_id}
                answers = self._query(others, cluster_id)
                found: PeerPoints = {
                    broker: answer if isinstance(answer, str) else answer[0] for broker, answer in answers.items()
                }
                self._points = self._points if found == self._points else found
                answered = {broker: answer for broker, answer in answers.items() if not isinstance(answer, str)}
                self.digests = {broker: answer[1] for broker, answer in answered.items()}
                ends = {broker: answer[2] for broker, answer in answered.items()}
                self.log_ends = self.log_ends if ends == self.log_ends else ends
                self._addresses, self._answered_at = key, self._clock()
            return self._points

    def _find(self, find: Callable[[], FoundDaemons], cluster_id: str | None) -> dict[int, str]:
        """The addresses; if the cluster does not answer or is another one, those known before."""
        try:
            found = find()
        except CleanerdError as error:
            self.warning = f"cleanerd.cluster.peers: {error}"
            return self._found
        if found.cluster_id != cluster_id:
            self.warning = f"cleanerd.cluster.peers: bootstrap.servers lead to the cluster {found.cluster_id}"
            return self._found
        self.warning = ""
        self._found |= dict(found.addresses)
        return self._found

    def _query(self, addresses: Mapping[int, str], cluster_id: str | None) -> dict[int, _Answer]:
        urls = {broker: f"http://{address}/status" for broker, address in addresses.items()}
        answers = read_statuses(urls, answer_seconds=self._answer_seconds, most_bytes=self._most_bytes)
        self._answered({addresses[broker]: answer for broker, answer in answers.items()})
        return {broker: _answer_of(answer, broker, cluster_id) for broker, answer in answers.items()}


def _answer_of(answer: Any, broker: int, cluster_id: str | None) -> _Answer:
    if isinstance(answer, NoStatus):
        return f"its daemon {answer.reason}"
    try:
        points = first_dirty_offsets(answer, broker, cluster_id)
        return points if isinstance(points, str) else (points, digests_in(answer, broker), _log_ends(answer, broker))
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"its daemon {NOT_A_STATUS}"


def read_statuses(
    urls: Mapping[K, str], *, answer_seconds: float = ANSWER_SECONDS, most_bytes: int = MOST_BYTES
) -> dict[K, Any]:
    """The JSON document at each of ``urls``, or :class:`NoStatus`.

    All are queried at once, with ``answer_seconds`` in total; later answers are ignored.
    """
    found: dict[K, Any] = {}

    def query(key: K, url: str) -> None:
        found[key] = _status_at(url, answer_seconds, most_bytes)

    threads = [threading.Thread(target=query, args=each, daemon=True) for each in urls.items()]
    deadline = time.monotonic() + answer_seconds
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    answered, silent = dict(found), NoStatus(f"does not answer within {answer_seconds:g} s")
    return {key: answered.get(key, silent) for key in urls}


def _status_at(url: str, answer_seconds: float, most_bytes: int) -> Any:
    try:
        body = _read(url, answer_seconds, most_bytes)
    except urllib.error.HTTPError as error:
        return NoStatus(f"answers {error.code} ({error.reason}): see cleanerd.http.hosts")
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        return NoStatus(f"does not answer: {getattr(reason, 'strerror', None) or reason}")
    if body is None:
        return NoStatus(f"answers more than {most_bytes:,} bytes, or too slowly")
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return NoStatus(NOT_A_STATUS)


def _read(url: str, answer_seconds: float, most_bytes: int) -> bytes | None:
    """The body; None: it is too long or too slow."""
    deadline = time.monotonic() + answer_seconds
    body = bytearray()
    with _OPENER.open(url, timeout=answer_seconds) as answer:
        while chunk := answer.read1(_CHUNK_BYTES):
            body += chunk
            if len(body) > most_bytes or time.monotonic() > deadline:
                return None
    return bytes(body)


def digests_in(status: Any, broker: int | None = None) -> dict[str, ReplicaDigests]:
    """The digests in a daemon's status, by partition; ``broker``: only from its log directories (U-90).

    Earlier releases have none. Partitions with a malformed entry are left out.
    """
    own = {each["path"] for each in status["log_dirs"] if broker is None or each["node_id"] == broker}
    found: dict[str, ReplicaDigests] = {}
    for each in status["partitions"]:
        first_dirty_offset = each["first_dirty_offset"]
        if each["log_dir"] in own and (first_dirty_offset is None or type(first_dirty_offset) is int):
            with suppress(KeyError, TypeError, ValueError):
                digests = tuple(StateDigest.from_json(document) for document in each.get("digests", ()))
                name = f"{each['topic']}-{each['partition']}"
                found[name] = ReplicaDigests(first_dirty_offset, str(each["fingerprint"]), digests)
    return found


def _log_ends(status: Any, broker: int) -> dict[str, dict[int, int]]:
    """The ends of the logs of ``broker`` in a daemon's status; an earlier release reports none."""
    own = {each["path"] for each in status["log_dirs"] if each["node_id"] == broker}
    found: dict[str, dict[int, int]] = {}
    for each in status["partitions"]:
        end = each.get("log_end_offset")
        if each["log_dir"] in own and type(end) is int and 0 <= end <= _MOST_OFFSET:
            found.setdefault(str(each["topic"]), {})[each["partition"]] = end
    return found


def first_dirty_offsets(status: Any, broker: int, cluster_id: str | None) -> dict[str, dict[int, int]] | str:
    """The clean offsets in a daemon's status, for the log directories of ``broker``; a text: why there are none.

    A partition in two of its log directories has the lower offset of both.

    Raises:
        KeyError, TypeError, AttributeError, ValueError: the document is not such a status.
    """
    own = {each["path"]: each["cluster_id"] for each in status["log_dirs"] if each["node_id"] == broker}
    if not own:
        return f"its daemon reports no log directory of broker {broker}"
    if cluster_id is None or set(own.values()) != {cluster_id}:
        return f"its daemon reports the cluster {', '.join(map(str, own.values()))}, not {cluster_id}"
    found: dict[str, dict[int, int]] = {}
    unknown: set[tuple[str, int]] = set()
    for each in status["partitions"]:
        if each["log_dir"] not in own:
            continue
        topic, number, offset = str(each["topic"]), each["partition"], each["first_dirty_offset"]
        if offset is None:
            unknown.add((topic, number))
            continue
        if type(offset) is not int or type(number) is not int:
            raise TypeError
        if not (0 <= offset <= _MOST_OFFSET and 0 <= number <= _MOST_PARTITION):
            raise ValueError
        partitions = found.setdefault(topic, {})
        partitions[number] = min(offset, partitions.get(number, offset))
    for topic, number in unknown:
        found.get(topic, {}).pop(number, None)
    return found
