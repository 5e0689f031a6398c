"""Verification of a staged segment: every fact that it compares can fail (S-29, S-60, U-13, F-6)."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.cleaner import cleaner
from cleanerd.cleaner.verify import verify_staged
from cleanerd.errors import CleanerdError, CorruptionError
from tests.cleaner.driver import NAME, clean_all, config, scratch
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import BASE_TIMESTAMP_MS, keyed_batch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cleanerd.cleaner.rewrite import WrittenSegment
    from cleanerd.segments.pool import PartReader
    from cleanerd.segments.segment import Segment

NOW = BASE_TIMESTAMP_MS + 1_000_000
Arguments = tuple["PartReader", "Segment", "WrittenSegment", "dict[str, int]"]


def log() -> Partition:
    """Thirty batches of rising timestamps and a superseded record, so that there are index entries."""
    batches = [
        keyed_batch(2 * row, [(f"k{row}", "x" * 50), ("same", "y")], timestamp=NOW - 1000 + row) for row in range(30)
    ]
    return Partition({0: b"".join(batches[:15]), 30: b"".join(batches[15:]), 60: b""})


def staged(change: Callable[[Arguments, Path], Arguments]) -> CleanerdError | None:
    """The verdict of verification after ``change`` of its inputs."""
    found: list[CleanerdError | None] = []

    def verify(reader: PartReader, segment: Segment, written: WrittenSegment, **decided: int) -> None:
        file = f"{reader.path}/{segment.base:020d}.log"
        *arguments, facts = change((reader, segment, written, decided), file)  # type: ignore[arg-type]
        try:
            verify_staged(*arguments, **facts)  # type: ignore[arg-type]
        except CleanerdError as error:
            found.append(error)
            raise
        found.append(None)

    with scratch() as root, pytest.MonkeyPatch.context() as patch:
        patch.setattr(cleaner, "verify_staged", verify)
        path = make_log_dir(root / "logs", {NAME: log()})
        try:
            clean_all(path, NOW, config(index_interval_bytes=200))
        except AssertionError:
            assert found[-1] is not None
    return found[0]


def written(**facts: Any) -> Callable[[Arguments, Path], Arguments]:
    """Change the rewrite's report about its output; a function gets the value."""

    def change(arguments: Arguments, _file: Path) -> Arguments:
        reader, segment, was, known = arguments
        new = {name: fact(getattr(was, name)) for name, fact in facts.items()}
        return reader, segment, replace(was, **new), known

    return change


def decided(**facts: Callable[[int], int]) -> Callable[[Arguments, Path], Arguments]:
    """Change the decision about the group."""

    def change(arguments: Arguments, _file: Path) -> Arguments:
        *others, was = arguments
        return *others, {name: facts.get(name, int)(fact) for name, fact in was.items()}  # type: ignore[return-value]

    return change


def on_disk(edit: Callable[[bytes], bytes]) -> Callable[[Arguments, Path], Arguments]:
    """Change the file."""

    def change(arguments: Arguments, file: Path) -> Arguments:
        with open(file, "rb") as old:
            data = edit(old.read())
        with open(file, "wb") as new:
            new.write(data)
        reader, segment, was, known = arguments
        return reader, replace(segment, size_bytes=len(data)), was, known

    return change


def first_batch_bytes(data: bytes) -> int:
    return 12 + int(struct.unpack_from(">i", data, 8)[0])


def entry(layout: str, number: int, **change: Callable[[int], int]) -> Callable[[bytes], bytes]:
    """Change a field (``first`` or ``second``) of an index entry."""

    def edit(index: bytes) -> bytes:
        size = struct.calcsize(layout)
        first, second = struct.unpack_from(layout, index, number * size)
        new = struct.pack(layout, change.get("first", int)(first), change.get("second", int)(second))
        return index[: number * size] + new + index[(number + 1) * size :]

    return edit


OFFSETS, TIMES = ">ii", ">qi"


def test_nothing_changed() -> None:
    """The cases below fail only for their own reason."""
    assert staged(lambda arguments, _file: arguments) is None


@pytest.mark.parametrize(
    ("change", "claim"),
    [
        pytest.param(written(log_bytes=lambda n: n + 1), "bytes", id="size"),
        pytest.param(written(log_crc32c=lambda crc: crc ^ 1), "CRC-32C of the file", id="checksum"),
        pytest.param(decided(records=lambda n: n + 1), "records", id="a record is missing"),
        pytest.param(decided(records=lambda n: n - 1), "records", id="a record too many"),
        pytest.param(decided(last_offset=lambda n: n + 1), "last offset", id="U-13: the end"),
        pytest.param(on_disk(lambda data: data[: -first_batch_bytes(data)]), "", id="cut"),
        pytest.param(on_disk(lambda data: data[first_batch_bytes(data) :]), "bytes", id="the first batch is missing"),
        pytest.param(on_disk(lambda data: data + data[: first_batch_bytes(data)]), "ascend", id="a batch twice"),
        pytest.param(on_disk(lambda data: data[:-1] + bytes([data[-1] ^ 1])), "CRC", id="a flipped bit in a batch"),
        pytest.param(on_disk(lambda data: data[:20] + b"\x00" + data[21:]), "CRC", id="a flipped CRC"),
        pytest.param(
            written(offset_index=entry(OFFSETS, 1, second=lambda p: p + 1)), "offset index", id="position in a batch"
        ),
        pytest.param(
            written(offset_index=entry(OFFSETS, 1, first=lambda o: o + 2)), "offset index", id="another batch"
        ),
        pytest.param(written(offset_index=entry(OFFSETS, 1, first=lambda o: o + 1000)), "offset index", id="beyond"),
        pytest.param(written(time_index=entry(TIMES, 1, first=lambda t: t + 1)), "time index", id="another time"),
        pytest.param(written(time_index=entry(TIMES, 1, second=lambda o: o + 4)), "time index", id="another place"),
        pytest.param(written(time_index=lambda index: index[:-12]), "lacks the largest", id="no closing entry"),
        pytest.param(written(time_index=lambda _index: b""), "lacks the largest", id="no time index"),
    ],
)
def test_every_fact(change: Callable[[Arguments, Path], Arguments], claim: str) -> None:
    """S-58: with any difference, indexes included, nothing of the group is used."""
    error = staged(change)
    assert error is not None
    assert claim in str(error)
    assert ".kstage" in str(error.where)
    assert isinstance(error, CorruptionError) or "staged segment is wrong" in str(error)


def test_full_time_index() -> None:
    """T-36: a full time index may lack its closing entry."""

    def change(arguments: Arguments, _file: Path) -> Arguments:
        reader, segment, was, known = arguments
        short = was.time_index[:-12]
        return reader, segment, replace(was, time_index=short, time_entries_max=len(short) // 12), known

    assert staged(change) is None
