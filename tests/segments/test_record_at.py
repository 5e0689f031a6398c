"""One record by its offset, with an index, without one, and with a wrong one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cleanerd.errors import CorruptionError
from cleanerd.format.names import TopicPartition
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.segments.partition import read_partition
from cleanerd.segments.record_at import record_at
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import keyed_batch

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.segments.partition import PartitionLog

SEGMENTS = {
    0: b"".join(keyed_batch(base, [(f"k{base}", "v" * 40), (f"k{base + 1}", None)]) for base in range(0, 60, 2)),
    70: keyed_batch(70, [("a", "1")], codec=4) + keyed_batch(75, [("b", "1")]),
    80: b"",
}


def log_of(path: Path, **facts: object) -> PartitionLog:
    make_log_dir(path, {"t-0": Partition(SEGMENTS, index_interval_bytes=200, **facts)})  # type: ignore[arg-type]
    return read_partition(read_log_dir(path), TopicPartition("t", 0))


@pytest.mark.parametrize("indexes", [True, False])
def test_every_offset(tmp_path: Path, indexes: bool) -> None:
    log = log_of(tmp_path / "logs", indexes=indexes)
    keys = {offset: f"k{offset}".encode() for offset in range(60)} | {70: b"a", 75: b"b"}
    for offset in range(100):
        found = record_at(log, offset)
        assert (None if found is None else found.key) == keys.get(offset), offset


def test_an_index_is_a_hint(tmp_path: Path) -> None:
    """An invalid one is not used; one that points into a batch is an error, not an answer."""
    log = log_of(tmp_path / "logs")
    index = log.path / f"{0:020d}.index"
    index.write_bytes(b"\x01" * 7)
    found = record_at(log, 33)
    assert found is not None
    assert found.key == b"k33"
    index.write_bytes((10).to_bytes(4, "big") + (3).to_bytes(4, "big"))
    with pytest.raises(CorruptionError):
        record_at(log, 33)
