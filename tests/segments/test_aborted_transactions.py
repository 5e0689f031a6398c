"""The transaction indexes of a partition (F-8, U-12)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from cleanerd.errors import CorruptionError
from cleanerd.format.names import parse_topic_partition_dir
from cleanerd.segments.aborted_transactions import read_aborted
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.segments.partition import read_partition
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import keyed_batch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cleanerd.policy.transaction import AbortedTransactions

Entries = dict[int, "Sequence[tuple[int, int, int, int]]"]
SEGMENTS = {base: keyed_batch(base, [("k", "v")] * 50) for base in (0, 50, 100)}


def read(path: Path, entries: Entries, bound: int) -> list[tuple[int, ...]]:
    make_log_dir(path / "logs", {"orders-0": Partition(SEGMENTS, aborted=entries)})
    return [tuple(entry.tolist())[2:] for entry in reread(path, bound).entries]


def reread(path: Path, bound: int) -> AbortedTransactions:
    name = parse_topic_partition_dir("orders-0")
    assert name is not None
    return read_aborted(read_partition(read_log_dir(path / "logs"), name), bound)


@pytest.mark.parametrize(
    ("entries", "bound", "expected"),
    [
        pytest.param({0: [(1, 10, 20, 10)]}, 100, [(1, 10, 20, 10)], id="of a segment"),
        pytest.param(
            {0: [(1, 10, 20, 10)], 50: [(2, 15, 60, 15)], 100: [(3, 90, 120, 90)]},
            100,
            [(1, 10, 20, 10), (2, 15, 60, 15), (3, 90, 120, 90)],
            id="of all, the active one too",
        ),
        pytest.param(
            {100: [(1, 10, 100, 60)]}, 50, [(1, 10, 100, 60)],
            id="U-12: data at 10, another open from 60, marker at 100: the bound is 50 and the entry lies at 100",
        ),
        pytest.param(
            {50: [(2, 5, 60, 70), (1, 10, 80, 70)]}, 50, [(2, 5, 60, 70), (1, 10, 80, 70)],
            id="U-12: Kafka's early stop (last stable offset >= bound) would miss the second",
        ),
        pytest.param({50: [(1, 49, 60, 49), (2, 50, 70, 50)]}, 50, [(1, 49, 60, 49)], id="began below the bound"),
        pytest.param({}, 100, [], id="none"),
    ],
)  # fmt: skip
def test_which_transactions_are_aborted(
    tmp_path: Path, entries: Entries, bound: int, expected: list[tuple[int, ...]]
) -> None:
    """U-12."""
    assert read(tmp_path, entries, bound) == expected


def test_partial_last_entry(tmp_path: Path) -> None:
    """F-8: an incomplete last entry is ignored; the file is append-only."""
    read(tmp_path, {0: [(1, 10, 20, 10)]}, 100)
    path = tmp_path / "logs" / "orders-0" / f"{0:020d}.txnindex"
    path.write_bytes(path.read_bytes() + b"\0" * 33)
    assert len(reread(tmp_path, 100)) == 1


def test_damaged(tmp_path: Path) -> None:
    """F-8, U-44: another version is refused, with the file name and the way out."""
    read(tmp_path, {50: [(1, 10, 60, 10)]}, 100)
    path = tmp_path / "logs" / "orders-0" / f"{50:020d}.txnindex"
    path.write_bytes(b"\1" + path.read_bytes()[1:])
    with pytest.raises(CorruptionError, match="version") as raised:
        reread(tmp_path, 100)
    assert raised.value.where == str(path)
    assert f"delete {50:020d}.index" in raised.value.hint
    path.unlink()
    path.mkdir()
    with pytest.raises(CorruptionError, match="not a plain file") as raised:
        reread(tmp_path, 100)
    assert raised.value.where == str(path)


def test_bytes(tmp_path: Path) -> None:
    """C-69: big-endian, unchanged from input to output."""
    read(tmp_path, {0: [(1, 10, 20, 10)], 50: [(2, 30, 60, 30)]}, 100)
    files = sorted((tmp_path / "logs" / "orders-0").glob("*.txnindex"))
    found = reread(tmp_path, 100).ended_by(np.array([20, 60], dtype=np.int64))
    assert found.tobytes() == b"".join(path.read_bytes() for path in files)
