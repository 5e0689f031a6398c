"""Topics with a strategy for the tests of the command line: their settings, and records with versions."""

from __future__ import annotations

import json
import struct
import uuid
from typing import TYPE_CHECKING

from tests.cli.clean_log_dirs import NOW, Answer, Shell, write_metadata
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import Record, encode_batch

if TYPE_CHECKING:
    from pathlib import Path

FOREVER = str(2**63 - 1)
DELEGATED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1", "max.compaction.lag.ms": FOREVER}
UNDELEGATED = {"cleanup.policy": "compact"}
QUIET = ("--set", "topics.orders.delete.retention.ms=30d")
CLUSTER = "5L6g3nShT-eMCtK--X86sw"
TOPIC_ID, NAMES = uuid.UUID(int=77), ("orders-0", "orders-1")


def set_topic(key: str, value: object) -> tuple[str, str]:
    return "--set", f"topics.orders.{key}={value}"


OFFSET = set_topic("compaction.strategy", "offset")
TIMESTAMP = set_topic("compaction.strategy", "timestamp")
HEADER = (*set_topic("compaction.strategy", "header"), *set_topic("compaction.strategy.header", "v"))


def versioned(offset: int, key: str, version: int | bytes | None, *, timestamp: int = NOW - 1000) -> bytes:
    """A batch of one record with the header ``v``: a long, other bytes, or no header at all."""
    value = struct.pack(">q", version) if isinstance(version, int) else version
    headers = () if value is None else ((b"v", value),)
    record = Record(key=key.encode(), value=b"x", timestamp=timestamp, headers=headers)
    return encode_batch([record], base_offset=offset)


def log_dir_by_version(root: Path) -> Path:
    """A delegated topic; the retained record of key k is at offset 0 by version, at 1 by offset."""
    logs = {
        0: versioned(0, "k", 9) + versioned(1, "k", 1) + versioned(2, "a", 1),
        3: versioned(3, "k", 2) + versioned(4, "a", 2),
        5: versioned(5, "z", 1),
    }
    path = make_log_dir(root / "logs", {name: Partition(logs, topic_id=TOPIC_ID) for name in NAMES})
    write_metadata(path, topics={"orders": DELEGATED})
    return path


def remember_delegation(root: Path) -> None:
    """As ``cleanerd delegate`` does."""
    (root / "state").mkdir(exist_ok=True)
    change = {"before": None, "effective": "0.5", "after": "1"}
    entry = {"cluster_id": CLUSTER, "topic": "orders", "topic_id": "", "delegated_ms": 1}
    document = {"format": 1, "delegations": [{**entry, "changes": {"min.cleanable.dirty.ratio": change}}]}
    (root / "state" / "delegations.json").write_text(json.dumps(document))


def clean_forced(shell: Shell, path: Path, *settings: str, only: str = "orders-0") -> Answer:
    return shell("clean", path, "--yes", "--json", "--force", "--partition", only, "--now-ms", NOW, *QUIET, *settings)
