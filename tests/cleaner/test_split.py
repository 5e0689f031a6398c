"""C-67, KAFKA-6264: a segment whose offsets no index can hold is split, then cleaned as any other."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cleanerd.cleaner import split
from cleanerd.errors import CorruptionError
from cleanerd.format.index import read_offset_index, read_txn_index
from cleanerd.swap import round as one_round
from cleanerd.swap.files import PartitionFiles
from cleanerd.swap.recover import recover
from tests.cleaner.driver import DAY_MS, NAME, clean, clean_all, resources, scratch
from tests.cleaner.model import Rules, check_cleaned
from tests.cleaner.splitting import enough, force, only_split
from tests.support.failing_files import Injector, Killed
from tests.support.log_dirs import Partition, batches_of, make_log_dir, read_segments, tree
from tests.support.logs import encode_legacy, encode_wrapper
from tests.support.overflow import END, NOW_MS, PIECES, SPAN, keyed, overflowed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cleanerd.segments.pool import PartReader
    from cleanerd.segments.segment import Segment


@pytest.fixture
def root() -> Iterator[Path]:
    with scratch() as path:
        yield path / "logs"


def test_the_pieces(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unchanged batches, filled up to exactly 2^31 - 1, with indexes of their own.

    Index entries go to the segment of their marker; owner, mode and time are those of the old file. Neighbours stay,
    and the snapshot of its base.
    """
    make_log_dir(root, {NAME: overflowed()})
    place = root / NAME
    (place / f"{0:020d}.snapshot").write_bytes(b"x")
    old = (place / f"{0:020d}.log").read_bytes()
    before, status = tree(place), (place / f"{0:020d}.log").stat()
    only_split(root, monkeypatch)
    logs = {base: (place / f"{base:020d}.log") for base in PIECES}
    assert sorted(read_segments(place)) == [*PIECES, 3 * SPAN, END]
    assert b"".join(log.read_bytes() for log in logs.values()) == old
    assert [batches_of(log.read_bytes())[-1].header.last_offset for log in logs.values()] == [
        SPAN - 1,
        SPAN + 101,
        2 * SPAN + 51,
    ]
    for log in logs.values():
        now = log.stat()
        assert (now.st_uid, now.st_gid, now.st_mode) == (status.st_uid, status.st_gid, status.st_mode)
        assert now.st_mtime_ns == status.st_mtime_ns
    entries = read_offset_index((place / f"{SPAN:020d}.index").read_bytes())
    assert entries.tolist() == [
        (batch.header.last_offset - SPAN, batch.position) for batch in read_segments(place)[SPAN][1:]
    ]
    assert len(entries) == 3
    found = [path for base in PIECES if (path := place / f"{base:020d}.txnindex").exists()]
    assert [read_txn_index(path.read_bytes())["last_offset"].tolist() for path in found] == [[111], [SPAN + 9]]
    untouched = {name for name in before if not name.startswith(f"{0:020d}.") or name.endswith(".snapshot")}
    assert {name: tree(place)[name] for name in untouched} == {name: before[name] for name in untouched}
    assert not (place / ".kstage").exists()


def test_split_and_cleaned(root: Path) -> None:
    """One cleaning does both, reports it, and the next one finds nothing to do."""
    make_log_dir(root, {NAME: overflowed()})
    result = clean_all(root, NOW_MS)
    assert (result.outcome, result.segments_before, result.segments_after) == ("cleaned", 2, 3)
    assert "segment 0 held offsets" in result.notes[0]
    assert "split into 3" in result.notes[0]
    left = [record.offset for stored in read_segments(root / NAME).values() for b in stored for record in b.records]
    assert left == [111, SPAN - 1, SPAN, SPAN + 9, SPAN + 101, 2 * SPAN + 51, 3 * SPAN, 3 * SPAN + 1, 3 * SPAN + 2, END]
    assert not any("split" in note for note in clean_all(root, NOW_MS).notes)


def test_cleaned_as_the_pieces_are(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model's result for them; without anything to keep for transactions the second cleaning has nothing to do."""
    log = keyed(5, ("a", "1"), ("k", "1")) + keyed(SPAN + 9, ("b", "1"), ("a", "2")) + keyed(2 * SPAN + 20, ("b", None))
    make_log_dir(root, {NAME: Partition({0: log, 3 * SPAN: b""})})
    only_split(root, monkeypatch)
    before = read_segments(root / NAME)
    clean_all(root, NOW_MS)
    check_cleaned(before, read_segments(root / NAME), Rules(0, 3 * SPAN, 3 * SPAN, NOW_MS, DAY_MS, ()))
    assert clean_all(root, NOW_MS).outcome == "unchanged"


def test_a_batch_over_the_border(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last offset decides: a batch that begins below the border and ends above goes to the next piece."""
    log = keyed(0, ("a", "1")) + keyed(SPAN - 1, ("b", "1"), ("c", "1"))
    make_log_dir(root, {NAME: Partition({0: log, 2 * SPAN: keyed(2 * SPAN, ("a", "2")), END: b""})})
    only_split(root, monkeypatch)
    assert sorted(read_segments(root / NAME)) == [0, SPAN - 1, 2 * SPAN, END]


def test_no_batch_fits_the_first_piece(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The base stays, even as an empty segment: a loader that finishes the swap searches the old file from there."""
    log = keyed(SPAN + 5, ("a", "1")) + keyed(SPAN + 7, ("a", "2"))
    make_log_dir(root, {NAME: Partition({0: log, END: b""})})
    only_split(root, monkeypatch)
    assert {base: len(batches) for base, batches in read_segments(root / NAME).items()} == {0: 0, SPAN + 5: 2, END: 0}
    clean_all(root, NOW_MS)
    left = {base: [b.header.base_offset for b in found] for base, found in read_segments(root / NAME).items()}
    assert left == {0: [], SPAN + 5: [SPAN + 7], END: []}


@pytest.mark.parametrize("convert", [False, True])
def test_wrappers(root: Path, monkeypatch: pytest.MonkeyPatch, convert: bool) -> None:
    """F-3.1: logs with such segments are old ones. A wrapper's frame has its last offset; its first one counts."""
    inner = b"".join(encode_legacy(n, b"k%d" % n, b"v", timestamp=NOW_MS - 1000) for n in range(3))
    wrappers = [encode_wrapper(last, inner, timestamp=NOW_MS - 1000) for last in (2, SPAN + 2, SPAN + 12)]
    make_log_dir(root, {NAME: Partition({0: b"".join(wrappers), END: b""})})
    only_split(root, monkeypatch)
    place = root / NAME
    assert {int(log.stem): log.read_bytes() for log in place.glob("*.log")} == {
        0: wrappers[0],
        SPAN: wrappers[1] + wrappers[2],
        END: b"",
    }
    result = clean(root, force(), with_resources=replace(resources(), convert_legacy=convert))
    assert (result.error, result.records_kept) == (None, 3)


def test_an_unchanged_segment_is_not_split(root: Path) -> None:
    """A segment that needs no rewrite is left as it is."""
    make_log_dir(root, {NAME: Partition({0: keyed(0, ("a", "1")) + keyed(SPAN, ("b", "1")), END: b""})})
    before = tree(root / NAME)
    assert clean_all(root, NOW_MS).outcome == "unchanged"
    assert tree(root / NAME) == before


def test_damage_is_not_split(root: Path) -> None:
    """C-56: no byte of a segment with a damaged batch is moved."""
    log = bytearray(keyed(0, ("a", "1")) + keyed(SPAN, ("a", "2")))
    log[-1] ^= 1
    make_log_dir(root, {NAME: Partition({0: bytes(log), END: b""})})
    before = tree(root / NAME)
    assert isinstance(clean(root, force()).error, CorruptionError)
    assert tree(root / NAME) == before


def contents(root: Path) -> list[tuple[int, bytes]]:
    """Base offset and bytes of every batch, whatever segment it is in."""
    return [(batch.header.base_offset, batch.data) for found in read_segments(root / NAME).values() for batch in found]


@pytest.mark.long
@pytest.mark.parametrize("kills", [False, True])
def test_every_step(injector: Injector, monkeypatch: pytest.MonkeyPatch, kills: bool) -> None:
    """OP-10: whichever step of the split the system refuses, all batches exist, once; after a kill, after recovery.

    The next cleaning ends as one without an interruption.
    """
    with scratch() as path:
        make_log_dir(path / "logs", {NAME: overflowed()})
        old = contents(path / "logs")
        clean_all(path / "logs", NOW_MS)
        new = contents(path / "logs")
    segments = set()
    for step in range(200):
        with scratch() as path:
            root = make_log_dir(path / "logs", {NAME: overflowed()})
            injector.arm(step, kills=kills)
            with monkeypatch.context() as patch, suppress(Killed):
                patch.setattr(one_round, "_execute", enough)
                reason = clean(root, force()).reason
                assert ("Input/output error" if injector.happened else "enough") in reason
            injector.disarm()
            if kills:
                with PartitionFiles(root / NAME) as files:
                    assert recover(files).foreign == ()
            assert contents(root) == old, f"step {step}"
            segments.add(len(read_segments(root / NAME)))
            clean_all(root, NOW_MS)
            assert contents(root) == new
            assert not (root / NAME / ".kstage").exists()
            if not injector.happened:
                break
    assert 30 < step < 199
    assert segments == {3, 5}


def test_pieces_that_read_back_wrong(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is swapped in that differs on the disk."""
    make_log_dir(root, {NAME: overflowed()})
    before = tree(root)
    real = split.verify_staged

    def damaged(reader: PartReader, staged: Segment, *others: object, **facts: int) -> None:
        with open(f"{reader.path}/{staged.base:020d}.log", "r+b") as file:
            file.seek(65)
            file.write(b"\x5a")
        real(reader, staged, *others, **facts)  # type: ignore[arg-type]

    monkeypatch.setattr(split, "verify_staged", damaged)  # between the write and its check
    assert isinstance(clean(root, force()).error, CorruptionError)
    assert tree(root) == before
