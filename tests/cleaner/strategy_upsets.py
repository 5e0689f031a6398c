"""Changes of a log and of its stored state without cleanerd."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import numpy as np

from cleanerd.format.index import TXN_ENTRY
from tests.support.log_dirs import (
    CLEANER_CHECKPOINT,
    frames,
    read_checkpoint,
    write_aborted,
    write_checkpoint,
    write_segment,
)

if TYPE_CHECKING:
    from pathlib import Path

Aborted = tuple[int, int, int, int]
STATE_LOSSES = ("gone", "damaged", "newer", "older")
_YOUNGER_FIELDS = ("retry", "next_purge_ms", "removal_known_below", "rules")


def truncate(partition: Path, offset: int) -> tuple[int, bytes, list[Aborted]]:
    """Truncate as a broker that follows a new leader: all offsets from ``offset`` on, which no batch may cross.

    Returns base, bytes and aborted transactions of the active segment then.
    """
    bases = sorted(int(log.stem) for log in partition.glob("*.log"))
    active = max(base for base in bases if base <= offset)
    for base in bases[bases.index(active) + 1 :]:
        for file in partition.glob(f"{base:020d}.*"):
            file.unlink()
    log, index = partition / f"{active:020d}.log", partition / f"{active:020d}.txnindex"
    data = log.read_bytes()
    cut = sum(size for last_offset, _, size in frames(data) if last_offset < offset)
    if cut < len(data):
        write_segment(partition, active, data[:cut], interval_bytes=100)
    found = np.frombuffer(index.read_bytes() if index.exists() else b"", dtype=TXN_ENTRY)
    rows = [(int(row[2]), int(row[3]), int(row[4]), int(row[5])) for row in found if row[4] < offset]
    if rows:
        write_aborted(partition, active, rows)
    else:
        index.unlink(missing_ok=True)
    return active, data[:cut], rows


def lower_checkpoint(log_dir: Path, name: str, offset: int) -> None:
    """Lower the cleaner's checkpoint as a broker does after a truncation, as long as that cleaner is on."""
    path = log_dir / CLEANER_CHECKPOINT
    if path.exists():
        known = read_checkpoint(path)
        write_checkpoint(path, known | ({name: min(known[name], offset)} if name in known else {}))


def lose_state(state: Path, how: str) -> None:
    """Apply one of :data:`STATE_LOSSES`; ``older``: the file has the form of the first release, which is enough."""
    if how == "gone":
        shutil.rmtree(state, ignore_errors=True)
    for path in sorted((state / "partitions").rglob("*.json")):
        document = json.loads(path.read_text())
        if how == "newer":
            document["format"] = 99
        elif how == "older":
            for field in _YOUNGER_FIELDS:
                document.pop(field, None)
            if document["cleanerd_checkpoint"] is not None:
                document["cleanerd_checkpoint"].pop("last_output", None)
        text = json.dumps(document)
        path.write_text(text[: len(text) // 2] if how == "damaged" else text)
