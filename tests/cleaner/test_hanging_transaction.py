"""OP-14: which transaction limits the cleaning of a log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cleanerd.cleaner.hanging_transaction import open_transaction
from cleanerd.format.index import OFFSET_ENTRY
from cleanerd.format.names import TopicPartition
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.segments.partition import read_partition
from cleanerd.segments.reading import SegmentReader
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import Record, encode_batch

if TYPE_CHECKING:
    from pathlib import Path

NOW = 1_700_000_000_000


def test_only_the_transaction_that_begins_there_is_named(tmp_path: Path) -> None:
    """Two producers in one segment; a batch without a transaction, and an offset without a batch, name no producer."""
    data = b"".join(
        encode_batch([Record(b"a", b"1", NOW + offset)], base_offset=offset, transactional=producer is not None,
                     producer_id=-1 if producer is None else producer,
                     producer_epoch=-1 if producer is None else 1, base_sequence=-1 if producer is None else 0)
        for offset, producer in ((0, 7), (1, 8), (2, None), (4, 9))
    )  # fmt: skip
    path = make_log_dir(tmp_path / "logs", {"orders-0": Partition({0: data, 5: b""})})
    log = read_partition(read_log_dir(path), TopicPartition("orders", 0))
    with SegmentReader.open(str(log.path), chunk_bytes=4096) as reader:
        found = [open_transaction(log, reader, offset) for offset in range(6)]
    assert [None if each is None else each.producer_id for each in found] == [7, 8, None, None, 9, None]
    assert found[1] is not None
    assert (found[1].first_offset, found[1].since_ms) == (1, NOW + 1)


@pytest.mark.parametrize("entries", [b"", b"\0" * 3, [(0, 1), (1, 2), (2, 3)], [(3, 60), (4, 10**6)]])
def test_a_wrong_index_names_no_other_producer(tmp_path: Path, entries: bytes | list[tuple[int, int]]) -> None:
    """The index is a hint: at worst no producer is named."""
    import numpy as np  # noqa: PLC0415 - only here

    data = encode_batch([Record(b"a", b"1", NOW)], transactional=True, producer_id=7, producer_epoch=1, base_sequence=0)
    path = make_log_dir(tmp_path / "logs", {"orders-0": Partition({0: data, 1: b""})})
    index = entries if isinstance(entries, bytes) else np.array(entries, OFFSET_ENTRY).tobytes()
    (path / "orders-0" / f"{0:020d}.index").write_bytes(index)
    log = read_partition(read_log_dir(path), TopicPartition("orders", 0))
    with SegmentReader.open(str(log.path), chunk_bytes=4096) as reader:
        found = open_transaction(log, reader, 0)
    assert found is None or found.producer_id == 7
