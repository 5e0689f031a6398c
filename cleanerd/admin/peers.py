"""Clean points (U-79) and digests (U-90) at other brokers, from ``/status`` of their daemons. Read only."""

from __future__ import annotations

import http.client
import json
import threading
import time
import urllib.error
import urllib.request
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from cleanerd.policy.state_digest import ReplicaDigests, StateDigest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

ANSWER_SECONDS: Final = 5.0
"""A daemon that takes longer for the whole answer counts as silent; a scan waits for that."""

MOST_BYTES: Final = 64 * 1024 * 1024
AGAIN_SECONDS: Final = 60.0
_CHUNK_BYTES: Final = 1 << 16
_MOST_OFFSET: Final = 2**63 - 1
_MOST_PARTITION: Final = 2**31 - 1

PeerPoints = dict[int, "dict[str, dict[int, int]] | str"]
"""By broker: the clean offsets by topic and partition, or why they are unknown."""

PeerDigests = dict[int, dict[str, ReplicaDigests]]
"""By broker: what its daemon reports of each partition, by its name (TOPIC-N)."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """An answer comes from the address in the settings, or not at all."""

    def redirect_request(self, *_: Any) -> None:
        """Leave the redirect to the caller, as an error."""


# A cluster's own daemons, without the proxy that the environment names for the web.
_OPENER: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect)


_Answer = tuple[dict[str, dict[int, int]], dict[str, ReplicaDigests]] | str
"""A daemon's clean points and digests, or why they are unknown."""


class Peers:
    """Asks daemons, and keeps their answers for ``again_seconds``. Threads may share it."""

    def __init__(
        self,
        *,
        answer_seconds: float = ANSWER_SECONDS,
        most_bytes: int = MOST_BYTES,
        again_seconds: float = AGAIN_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._answer_seconds = answer_seconds
        self._most_bytes = most_bytes
        self._again_seconds = again_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._asked: tuple[object, ...] = ()
        self._asked_at = 0.0
        self._points: PeerPoints = {}
        self.digests: PeerDigests = {}
        """As of the last answers; replaced, never changed."""

    def points(
        self, addresses: Sequence[tuple[int, str]], cluster_id: str | None, own_id: int | None
    ) -> PeerPoints | None:
        """What the daemons at ``addresses`` (broker id, host:port) report; None: there are no addresses.

        The broker ``own_id`` is left out: all hosts may have the same settings. The same object while nothing changes.
        """
        if not addresses:
            return None
        key = (tuple(addresses), cluster_id, own_id)
        with self._lock:
            if key != self._asked or self._clock() >= self._asked_at + self._again_seconds:
                others = {broker: address for broker, address in addresses if broker != own_id}
                answers = self._ask(others, cluster_id)
                found: PeerPoints = {
                    broker: said if isinstance(said, str) else said[0] for broker, said in answers.items()
                }
                self._points = self._points if found == self._points else found
                self.digests = {broker: said[1] for broker, said in answers.items() if not isinstance(said, str)}
                self._asked, self._asked_at = key, self._clock()
            return self._points

    def _ask(self, addresses: Mapping[int, str], cluster_id: str | None) -> dict[int, _Answer]:
        """All at once; nothing of an answer that comes too late is used."""
        silent = f"its daemon does not answer within {self._answer_seconds:g} s"
        found: dict[int, _Answer] = {}

        def ask(broker: int, address: str) -> None:
            found[broker] = self._answer_of(broker, address, cluster_id)

        threads = [threading.Thread(target=ask, args=each, daemon=True) for each in addresses.items()]
        deadline = time.monotonic() + self._answer_seconds
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        answered = dict(found)
        return {broker: answered.get(broker, silent) for broker in addresses}

    def _answer_of(self, broker: int, address: str, cluster_id: str | None) -> _Answer:
        try:
            body = self._read(f"http://{address}/status")
        except urllib.error.HTTPError as error:
            return f"its daemon answers {error.code} ({error.reason}): see cleanerd.http.hosts"
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            return f"its daemon does not answer: {getattr(reason, 'strerror', None) or reason}"
        if body is None:
            return f"its daemon answers more than {self._most_bytes:,} bytes, or too slowly"
        try:
            status = json.loads(body)
            points = clean_points(status, broker, cluster_id)
            return points if isinstance(points, str) else (points, digests_in(status, broker))
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
            return f"{address} is not the daemon of a cleanerd release that this one knows"

    def _read(self, url: str) -> bytes | None:
        """The body; None: it is too long or comes too slowly."""
        deadline = time.monotonic() + self._answer_seconds
        body = bytearray()
        with _OPENER.open(url, timeout=self._answer_seconds) as answer:
            while chunk := answer.read1(_CHUNK_BYTES):
                body += chunk
                if len(body) > self._most_bytes or time.monotonic() > deadline:
                    return None
        return bytes(body)


def digests_in(status: Any, broker: int | None = None) -> dict[str, ReplicaDigests]:
    """The digests in a daemon's status, by partition; ``broker``: of its log directories alone (U-90).

    Of an earlier release there are none. Partitions whose entry is not as it should be are left out.
    """
    own = {each["path"] for each in status["log_dirs"] if broker is None or each["node_id"] == broker}
    found: dict[str, ReplicaDigests] = {}
    for each in status["partitions"]:
        clean_offset = each["clean_offset"]
        if each["log_dir"] in own and (clean_offset is None or type(clean_offset) is int):
            with suppress(KeyError, TypeError, ValueError):
                digests = tuple(StateDigest.from_json(document) for document in each.get("digests", ()))
                name = f"{each['topic']}-{each['partition']}"
                found[name] = ReplicaDigests(clean_offset, str(each["fingerprint"]), digests)
    return found


def clean_points(status: Any, broker: int, cluster_id: str | None) -> dict[str, dict[int, int]] | str:
    """The clean offsets in a daemon's status, of the log directories of ``broker``; a text: why there are none.

    A partition in two of its log directories has the lower one of both.

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
        topic, number, offset = str(each["topic"]), each["partition"], each["clean_offset"]
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
