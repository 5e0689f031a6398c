"""cleanerd.segments.partition: the small files of a partition, and the cached listing."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from cleanerd.errors import CorruptionError
from cleanerd.format.checkpoint import EpochStart
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.segments.partition import LEADER_EPOCHS, number_of, read_partition
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import keyed_batch

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_log_dir(
        tmp_path / "logs", {f"orders-{n}": Partition({0: keyed_batch(0, [("k", "v")])}) for n in (0, 1)}
    )


def epochs(root: Path) -> list[tuple[EpochStart, ...]]:
    found = read_log_dir(root)
    return [read_partition(found, name).leader_epochs for name in found.partitions]


def write(root: Path, number: int, data: bytes) -> Path:
    path = root / f"orders-{number}" / LEADER_EPOCHS
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("entries", [1, 200])
def test_leader_epochs_are_those_of_the_file_as_it_is(root: Path, entries: int) -> None:
    """F-9: a cache for equal bytes is not used for others."""
    same = b"0\n%d\n" % entries + b"".join(b"%d %d\n" % (epoch, 7 * epoch) for epoch in range(entries))
    starts = tuple(EpochStart(epoch, 7 * epoch) for epoch in range(entries))
    write(root, 0, same)
    write(root, 1, same)
    assert epochs(root) == [starts, starts]
    write(root, 1, b"0\n1\n4 9\n")
    assert epochs(root) == [starts, (EpochStart(4, 9),)]


@pytest.mark.parametrize("damage", [b"0\n2\n0 0\n", b"0\n1\n0 0\n" + b"x" * 500])
def test_damaged_leader_epochs_are_reported_for_their_own_file(root: Path, damage: bytes) -> None:
    """OP-10: of two files with the same bytes each is named."""
    for number in (0, 1, 0):
        paths = write(root, number, damage), write(root, 1 - number, b"0\n1\n0 0\n")
        with pytest.raises(CorruptionError) as error:
            epochs(root)
        assert error.value.where == str(paths[0])


def test_the_number_of_a_listing(root: Path) -> None:
    """A further file, or a replaced one, changes the number; order and renamed-away files do not."""
    names = [("a.log", 1), ("b.log", 2)]
    assert number_of(names) == number_of(names[::-1]) == number_of([*names, ("c.log.deleted", 3)])
    assert (
        len({number_of(each) for each in (names, names[:1], [*names, ("c.log", 3)], [("a.log", 1), ("b.log", 3)])}) == 4
    )
    found = read_log_dir(root)
    os.utime(root / "orders-0", (1, 1))  # a change of this moment would have no time yet
    first, again = (read_partition(found, found.partitions[0]) for _ in range(2))
    assert first.listed == again.listed
    (root / "orders-0" / "more").touch()
    more = read_partition(found, found.partitions[0])
    assert first.listed is not None
    assert more.listed is not None
    assert more.listed.number != first.listed.number
    assert more == first, "the log is the same"
