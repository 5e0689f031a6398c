"""The parts of a Spark cleaning by themselves: their refusals, and what they must not confuse."""

from __future__ import annotations

import pickle
from pathlib import PosixPath
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from cleanerd import errors
from cleanerd._kernel import OffsetMap
from cleanerd.cleaner.cleaner import NoProgress
from cleanerd.errors import CorruptionError, MachineError, RefusedError, UnsupportedLogError
from cleanerd.spark.blocks import KeyRows, NumberSpool, bits_row, combined, set_bits, shard_of
from cleanerd.spark.jobs import Jobs
from cleanerd.spark.record_pairs import PairFindings
from cleanerd.spark.record_scan import RecordFact
from cleanerd.spark.rows import WINNERS, Row, error_of, error_row, pack, unpack, value_in
from cleanerd.spark.task_runner import received

HASHES = arrays.arrays(np.uint64, st.integers(0, 40).map(lambda count: 2 * count))


@pytest.mark.parametrize("harm", [("os", "system"), ("pathlib", "os.system"), ("cleanerd.verify.listing", "size_of")])
def test_results_are_values(harm: tuple[str, str]) -> None:
    """SP-6: a task's result cannot make the driver call anything."""
    value = {"work": PairFindings(), "at": [PosixPath("a"), RecordFact.OPEN, frozenset({1})]}
    assert received(pickle.dumps(value)) == value
    module, name = (f"\x8c{chr(len(each))}{each}".encode("latin-1") for each in harm)
    with pytest.raises(errors.CleanerdError, match="not a value"):
        received(b"\x80\x04" + module + name + b"\x93.")


@pytest.mark.parametrize("dense", [False, True])
def test_columns(dense: bool) -> None:
    columns = {"a": np.arange(3, dtype=np.uint8), "b": np.zeros(0, np.int64), "c": np.array([-1, 1 << 62])}
    data = pack({"n": 7, "none": None}, columns, dense=dense)
    numbers, found = unpack(data)
    assert numbers == {"n": 7, "none": None}
    assert {name: column.tolist() for name, column in found.items()} == {k: v.tolist() for k, v in columns.items()}
    assert all(column.ctypes.data % 8 == 0 or not len(column) for column in found.values())
    for place in range(0, len(data), 7):
        with pytest.raises(CorruptionError):
            unpack(data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :])


@given(HASHES, st.integers(1, 4096))
def test_shards_are_the_kernels(hashes: np.ndarray[tuple[int], np.dtype[np.uint64]], shards: int) -> None:
    """A key goes to the shard of the offset map that would hold it: one map of all shards and ours agree."""
    shard = shard_of(hashes, shards)
    everything = np.ones(len(hashes) // 2, dtype=np.bool_)
    offset_map = OffsetMap(1 << 17)
    offset_map.put_max(hashes, 0, everything)
    for row, number in enumerate(shard.tolist()):
        held = offset_map.contains(hashes, everything, shard=number, shards=shards)
        assert held[row]


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans(), st.integers(-2, 2)), max_size=60))
def test_the_combiner(rows: list[tuple[int, bool, int]]) -> None:
    """R280-4..6: per key the highest (has a version, version, number), with its own number and version."""
    hashes = np.array([(key * 7 + 1, key << 40) for key, _, _ in rows], dtype=np.uint64).reshape(-1)
    numbers = np.arange(len(rows), dtype=np.uint32) * 3
    versions = np.array([version for _, _, version in rows], dtype=np.int64)
    present = np.array([has for _, has, _ in rows], dtype=np.bool_)
    best: dict[int, tuple[bool, int, int]] = {}
    for number, (key, has, version) in enumerate(rows):
        best[key] = max(best.get(key, (False, 0, -1)), (has, version if has else 0, 3 * number))
    found = combined(KeyRows(hashes, numbers, versions, present))
    assert found.numbers.tolist() == sorted(number for _, _, number in best.values())
    again = KeyRows.of_bytes(found.to_bytes())
    assert again.versions is not None
    assert again.versions.tolist() == versions[found.numbers // 3].tolist()
    by_offset = combined(KeyRows(hashes, numbers))
    last = {key: 3 * number for number, (key, _, _) in enumerate(rows)}
    assert by_offset.numbers.tolist() == sorted(last.values())


@given(st.sets(st.integers(0, 3000), min_size=1), st.integers(0, 200))
def test_bits_are_set_in_their_range(numbers: set[int], first: int) -> None:
    """Few or many, a split's records are set from the split's first position in its segment, and nothing else is."""
    row = bits_row(WINNERS, Row(0, 0, 4, 2, 1), np.array(sorted(numbers), dtype=np.uint32))
    assert (row.target, row.segment, row.split) == (4, 4, 2)
    flags = np.zeros(first + max(numbers) + 1, dtype=np.bool_)
    set_bits(flags, first, row.payload)
    assert np.flatnonzero(flags).tolist() == [number + first for number in sorted(numbers)]


def test_a_spool_that_goes_to_disk() -> None:
    """Numbers return with their ordinals, the first of every block a multiple of 64."""
    spool = NumberSpool(1 << 38, hashes=True, spool_bytes=100)
    blocks = [KeyRows(np.arange(2 * n, dtype=np.uint64), np.arange(n, dtype=np.uint32) + 5) for n in (1, 64, 65, 3)]
    ordinals = [spool.add(Row(0, 2, segment), keys) for segment, keys in enumerate(blocks)]
    assert [ordinal - (1 << 38) for ordinal in ordinals] == [0, 64, 128, 256]
    for (row, ordinal, keys), segment in zip(spool.replay(), range(4), strict=True):
        assert (row.segment, ordinal) == (segment, ordinals[segment])
        assert keys.numbers.tolist() == blocks[segment].numbers.tolist()
        assert keys.hashes.tolist() == blocks[segment].hashes.tolist()
    spool.close()


@pytest.mark.parametrize(
    "error",
    [
        CorruptionError("bad", where="f", position=7, hint="h"),
        UnsupportedLogError("new", where="g"),
        RefusedError("no"),
        errors.AgentRefusalError("no", operation="swap", code="x"),
        errors.BatchTooLargeError("large", where="f", position=7),
        errors.LogTooLargeError("long", where="f"),
        errors.StalePlanError("moved on", where="f"),
        errors.KernelError("odd"),
    ],
)
def test_errors_of_tasks_keep_their_class(error: errors.CleanerdError) -> None:
    """A task's error is reported in its words, by its class; two with a built-in hint once ended the whole run."""
    back = error_of(value_in(error_row(error)))
    assert str(back) == str(error)
    expected = errors.CleanerdError if isinstance(error, errors.AgentRefusalError) else type(error)
    assert type(back) is expected


class Gone:
    """A session whose Java has died."""

    def __getattr__(self, _name: str) -> object:
        raise ConnectionRefusedError(111, "Connection refused")


def test_java_has_died() -> None:
    """The log is not at fault, although a socket fails as a file does: its partition was quarantined."""
    jobs = Jobs(cast("Any", Gone()), cast("Any", SimpleNamespace(plan_id="plan", name="orders-0")), NoProgress())
    with pytest.raises(MachineError, match=r"Spark's Java does not answer any more: .*Connection refused"):
        jobs.run("scan", [None], lambda _task: iter(()), work_bytes=1)
    with pytest.raises(MachineError, match="Connection refused"):
        _ = jobs.cores
