"""The brokers of one cluster, each a log directory on this disk, and commands that prove an erasure there."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from cleanerd.format.names import uuid_to_base64
from cleanerd.state.erasure_requests import ErasureRequest, KeyHash, request_bytes
from cleanerd.verify.certificate import create_key
from tests.cli.clean_log_dirs import COMPACT, batch
from tests.segments.replica_records import partition
from tests.support.format_bytes import metadata_batch
from tests.support.format_bytes import topic as topic_record
from tests.support.log_dirs import CLUSTER_ID, Partition, make_log_dir, with_directory_id

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.clean_log_dirs import Answer, Shell

TOPIC_ID = uuid.UUID(int=42)
SALT = bytes(range(32))
BEFORE_MS = 1_000_000_000_000
"""The request is older than every certificate of the tests."""
KEY = "customer-4711"
ABSENT = {0: batch(0, ("a", "1"), ("b", "1")), 2: batch(2, ("c", None)), 3: b""}
PRESENT = {0: batch(0, ("a", "1"), (KEY, "1")), 2: batch(2, (KEY, None)), 3: b""}


class Cluster:
    """``brokers`` have replicas of all ``partitions`` of topic ``orders``; each partition has a key of its own."""

    def __init__(self, root: Path, shell: Shell, brokers: tuple[int, ...] = (1, 2), partitions: int = 1) -> None:
        self.root, self.shell = root, shell
        self.dirs = {broker: self._make(broker, partitions) for broker in brokers}
        self.keys = {broker: create_key(root / f"{broker}.key").public_key for broker in brokers}
        self.metadata = root / "controller"
        make_log_dir(self.metadata, {})
        self.assign({number: set(brokers) for number in range(partitions)})
        self.trust = root / "trusted"
        self.trust.write_text("".join(f"{key} {broker}\n" for broker, key in self.keys.items()))
        self.request_file = root / "request.json"
        self.request()

    def _make(self, broker: int, partitions: int) -> Path:
        names = {f"orders-{number}": Partition(ABSENT, topic_id=TOPIC_ID) for number in range(partitions)}
        path = with_directory_id(make_log_dir(self.root / str(broker), names), uuid.UUID(int=100 + broker))
        meta = path / "meta.properties"
        meta.write_text(meta.read_text().replace("node.id=1\n", f"node.id={broker}\n"))
        return path

    def assign(self, partitions: dict[int, set[int]]) -> None:
        """Write these replicas to the metadata log."""
        directory = self.metadata / "__cluster_metadata-0"
        directory.mkdir(exist_ok=True)
        values = [topic_record("orders", TOPIC_ID)]
        values += [partition(TOPIC_ID, number, sorted(each), sorted(each)) for number, each in partitions.items()]
        (directory / f"{0:020d}.log").write_bytes(metadata_batch(0, *values))

    def request(self, **facts: Any) -> ErasureRequest:
        """The request, in a file."""
        usual = {"requested_ms": BEFORE_MS, "tombstones": {0: 2}, "topic": "orders", "topic_id": _ID}
        made = ErasureRequest(
            id="0123456789abcdef",
            cluster_id=CLUSTER_ID,
            key=KeyHash.of(KEY.encode(), SALT),
            deadline_ms=BEFORE_MS + 1,
            **{**usual, **facts},
        )
        self.request_file.write_bytes(request_bytes(made))
        return made

    def certificate(self, broker: int) -> Path:
        return self.root / f"{broker}.json"

    def certify(self, broker: int, *options: object, key: str = KEY) -> Answer:
        """The certificate of a broker, for the request."""
        return self.shell(
            "erase", "certify", "orders", self.dirs[broker], "--key", key, "--request", self.request_file,
            "--key-file", self.root / f"{broker}.key", "--output", self.certificate(broker), *COMPACT, *options,
        )  # fmt: skip

    def verify(self, *options: object, brokers: tuple[int, ...] = (1, 2)) -> Answer:
        """All certificates together."""
        paths = [self.certificate(broker) for broker in brokers]
        return self.shell(
            "erase", "verify", *paths, "--request", self.request_file, "--trust", self.trust,
            "--metadata", self.metadata, *options,
        )  # fmt: skip


_ID = uuid_to_base64(TOPIC_ID)
