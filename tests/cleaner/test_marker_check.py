"""U-44: the markers in the log decide what was aborted, whatever the transaction index says, or nothing is cleaned."""

from __future__ import annotations

import random
import re
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from cleanerd.cleaner.cleaner import Cleaning
from cleanerd.cleaner.planning import make_plan
from cleanerd.cleaner.refusals import refuse_live
from cleanerd.cleaner.survey import CleaningOptions, survey
from cleanerd.errors import RefusedError
from cleanerd.format.index import read_txn_index
from cleanerd.format.names import parse_topic_partition_dir
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.segments.pool import ReaderPool
from cleanerd.state.cleaner_checkpoint import StateStore
from cleanerd.swap.apply_staged import apply_partition
from cleanerd.swap.lock import LogDirLock
from cleanerd.swap.round import stage_partition
from cleanerd.swap.session import LockedDir
from tests.cleaner.driver import NAME, Silent, clean, clean_all, config, resources, scratch
from tests.support.log_dirs import Partition, Producer, make_log_dir, read_segments
from tests.support.logs import BASE_TIMESTAMP_MS, Record, encode_batch, encode_marker, keyed_batch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from cleanerd.cleaner.result import CleaningResult

NOW = BASE_TIMESTAMP_MS + 1000
Entry = tuple[int, int, int, int]


@pytest.fixture
def root() -> Iterator[Path]:
    with scratch() as path:
        yield path / "logs"


def data(base: int, *values: str | None, producer: int = 7, epoch: int = 0) -> bytes:
    """Records of key ``k`` inside a transaction."""
    texts = [None if value is None else value.encode() for value in values]
    return encode_batch(
        [
            Record(key=b"k", value=value, timestamp=BASE_TIMESTAMP_MS, offset_delta=row)
            for row, value in enumerate(texts)
        ],
        base_offset=base,
        transactional=True,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=base,
    )


def end(base: int, *, commit: bool = False, producer: int = 7, epoch: int = 0) -> bytes:
    return encode_marker(base, commit=commit, producer_id=producer, producer_epoch=epoch)


def plain(base: int, key: str, value: str) -> bytes:
    return keyed_batch(base, [(key, value)])


def entry(first: int, last: int, producer: int = 7) -> Entry:
    return producer, first, last, first


@dataclass(frozen=True)
class State:
    """A log, its transaction index, and the outcome: the retained offsets of ``k``, or the text of the refusal."""

    segments: Mapping[int, bytes]
    index: Mapping[int, list[Entry]]
    stays: list[int] | None
    refused: str = ""
    noted: str = ""
    facts: Mapping[str, object] = field(default_factory=dict)

    def partition(self) -> Partition:
        return Partition(self.segments, aborted=self.index, **self.facts)  # type: ignore[arg-type]


K = plain(0, "k", "old")
ABORTED = K + data(1, "new") + end(2)
COMMITTED = K + data(1, "new") + end(2, commit=True)
TWO = K + data(1, "a") + end(2) + data(3, "b", producer=8) + end(4, producer=8)
TAIL = {5: plain(5, "tail", "t")}
SNAPSHOT = {3: [Producer(7, 1, NOW)]}

STATES = {
    "right": State({0: ABORTED, **TAIL}, {0: [entry(1, 2)]}, [0]),
    "no entry": State({0: ABORTED, **TAIL}, {}, [0], noted="offset 1 to an ABORT marker at offset 2"),
    "no entry for a tombstone": State({0: K + data(1, None) + end(2), **TAIL}, {}, [0], noted="ABORT"),
    "one entry short": State({0: TWO, **TAIL}, {0: [entry(1, 2)]}, [0], noted="producer 8"),
    "the first of two is missing": State({0: TWO, **TAIL}, {0: [entry(3, 4, 8)]}, [0], noted="producer 7"),
    "of another producer": State({0: ABORTED, **TAIL}, {0: [entry(1, 2, 8)]}, [0], noted="producer 7"),
    "of another producer, which committed": State(
        {0: K + data(1, "new") + data(2, "8", producer=8) + end(3) + end(4, commit=True, producer=8), **TAIL},
        {0: [entry(1, 3, 8)]},
        [2],
        noted="2 corrections",
    ),
    "of a commit": State({0: COMMITTED, **TAIL}, {0: [entry(1, 2)]}, [1], noted="a COMMIT marker at offset 2"),
    "begins in the transaction before": State(
        {0: K + data(1, "new") + end(2, commit=True) + data(3, "no") + end(4), **TAIL},
        {0: [entry(1, 4)]},
        [1],
        noted="producer 7",
    ),
    "begins late": State({0: ABORTED, **TAIL}, {0: [entry(2, 2)]}, None, refused="it begins at offset 2"),
    "marker in a later segment": State({0: K + data(1, "new"), 2: end(2) + plain(3, "z", "z"), **TAIL}, {}, [0]),
    "marker in the active segment": State({0: K + data(1, "new"), 2: end(2)}, {}, [0], noted="marker at offset 2"),
    "commit in the active segment": State(
        {0: K + data(1, "new"), 2: end(2, commit=True)}, {2: [entry(1, 2)]}, [1], noted="marker at offset 2"
    ),
    "entry without its marker": State(
        {0: K + data(1, "new") + data(3, "more") + end(4, commit=True), **TAIL},
        {0: [entry(1, 2)]},
        None,
        refused="aborted at offset 2, where its producer has no marker",
    ),
    "entry without a marker, none follows": State(
        {0: K + data(1, "new"), 3: plain(3, "z", "z"), **TAIL},
        {0: [entry(1, 2)]},
        None,
        refused="without a marker, but the index says that it was aborted",
        facts={"snapshots": SNAPSHOT},
    ),
    "open, and the snapshot lacks it": State(
        {0: K + data(1, "new"), 3: plain(3, "z", "z"), **TAIL},
        {},
        None,
        refused="without a marker, but the index says that it was not aborted",
        facts={"snapshots": SNAPSHOT},
    ),
    "out of order": State({0: TWO, **TAIL}, {0: [entry(3, 4, 8), entry(1, 2)]}, [0], noted="entries out of order"),
    "out of order, and one short": State(
        {0: TWO + data(5, "c", producer=9) + end(6, producer=9), 7: plain(7, "tail", "t")},
        {0: [entry(5, 6, 9), entry(1, 2)]},
        [0],
        noted="entries out of order, twice, or of another segment, and the markers in the log decide (1 correction)",
    ),
    "twice": State({0: ABORTED, **TAIL}, {0: [entry(1, 2), entry(1, 2)]}, [0], noted="twice"),
    "twice, once of another producer": State(
        {0: K + data(1, "new") + end(2), **TAIL},
        {0: [entry(1, 2), entry(1, 2, 8)]},
        [0],
        noted="twice",
    ),
    "twice, beginning late first": State({0: ABORTED, **TAIL}, {0: [entry(2, 2), entry(1, 2)]}, [0], noted="twice"),
    "twice, of a commit": State({0: COMMITTED, **TAIL}, {0: [entry(1, 2), entry(1, 2)]}, [1], noted="COMMIT"),
    "in the index of the segment before": State(
        {0: K + data(1, "new"), 2: end(2) + plain(3, "z", "z"), **TAIL},
        {0: [entry(1, 2)]},
        [0],
        noted="of another segment",
    ),
    "over two segments, each in the other's index": State(
        {0: ABORTED, 3: data(3, "b", producer=8) + end(4, producer=8), **TAIL},
        {0: [entry(3, 4, 8)], 3: [entry(1, 2)]},
        [0],
        noted="of another segment",
    ),
    "entry of a commit that reaches over a marker that is gone": State(
        {0: COMMITTED, **TAIL}, {0: [entry(1, 3)]}, None, refused="aborted at offset 3"
    ),
}


def outcome(root: Path, state: State) -> CleaningResult:
    make_log_dir(root, {NAME: state.partition()})
    return clean(root, CleaningOptions(now_ms=NOW, force=True, from_start=True))


def offsets_of(root: Path) -> list[int]:
    """Offsets of the records of ``k``."""
    batches = [batch for segment in read_segments(root / NAME).values() for batch in segment]
    return [
        record.offset
        for batch in batches
        if not batch.header.is_control
        for record in batch.records
        if record.key == b"k"
    ]


@pytest.mark.parametrize("name", STATES)
def test_state(root: Path, name: str) -> None:
    """U-44: cleaned by the markers, with a note; or refused, untouched, with producer, offsets and the way out."""
    state = STATES[name]
    before = dict(state.segments)
    result = outcome(root, state)
    if state.stays is None:
        assert result.outcome == "quarantined"
        assert "producer 7 has a transaction from offset 1" in result.reason
        assert state.refused in result.reason
        assert re.search(
            r"delete \d{20}\.index|kafka-transactions.sh .* abort --topic orders --partition 0 --producer-id 7",
            result.reason,
        )
        for base, log in before.items():
            assert (root / NAME / f"{base:020d}.log").read_bytes() == log
        return
    assert result.error is None, result.reason
    assert offsets_of(root) == state.stays
    notes = "; ".join(result.notes)
    assert ("the markers in the log decide" in notes) == (name != "right"), notes
    assert state.noted in notes


EMPTY = encode_batch(
    [],
    base_offset=1,
    transactional=True,
    producer_id=7,
    producer_epoch=0,
    base_sequence=1,
    last_offset_delta=0,
    max_timestamp=BASE_TIMESTAMP_MS,
)
Z = plain(3, "z", "z")

SOUND = {
    "a marker whose data is gone, with its entry": State({0: K + end(2) + Z, **TAIL}, {0: [entry(1, 2)]}, [0]),
    "a marker whose data is gone, without": State({0: K + end(2) + Z, **TAIL}, {}, [0]),
    "the first data is gone": State({1: data(1, "x") + end(2) + Z, **TAIL}, {1: [entry(0, 2)]}, []),
    "a marker of the next epoch": State({0: K + data(1, "new") + end(2, epoch=1), **TAIL}, {0: [entry(1, 2)]}, [0]),
    "a commit of the next epoch": State({0: K + data(1, "new") + end(2, commit=True, epoch=1), **TAIL}, {}, [1]),
    "over three segments": State(
        {0: K + data(1, "a"), 2: data(2, "b"), 3: end(3) + plain(4, "z", "z"), **TAIL}, {3: [entry(1, 3)]}, [0]
    ),
    "the marker in the active segment": State({0: K + data(1, "new"), 5: end(5)}, {5: [entry(1, 5)]}, [0]),
    "an empty batch without a marker": State(
        {0: K + EMPTY, **TAIL}, {}, [0], facts={"snapshots": {5: [Producer(7, 1, NOW)]}}
    ),
    "a deleted beginning whose marker is gone": State(
        {0: data(0, "deleted") + plain(1, "k", "a") + plain(2, "k", "b"), **TAIL},
        {},
        [2],
        facts={"snapshots": SNAPSHOT, "log_start_offset": 1},
    ),
    "an open transaction that limits the cleaning": State(
        {0: K + plain(1, "k", "new"), 2: data(2, "open"), **TAIL}, {}, [1, 2]
    ),
}


@pytest.mark.parametrize("name", SOUND)
def test_sound_but_unusual(root: Path, name: str) -> None:
    """U-44: results of cleanings, retention and transaction version 2 are cleaned without a note."""
    state = SOUND[name]
    result = outcome(root, state)
    assert result.error is None, result.reason
    assert "the markers in the log decide" not in "; ".join(result.notes)
    assert offsets_of(root) == state.stays


@pytest.mark.parametrize("name", [name for name, state in STATES.items() if state.refused])
def test_the_way_out(root: Path, name: str) -> None:
    """U-44: after the advice of the refusal, the log is cleaned by its markers."""
    state = STATES[name]
    reason = outcome(root, state).reason
    if deletions := re.findall(r"\d{20}\.(?:index|snapshot)", reason.partition("delete ")[2]):
        for file in deletions:
            (root / NAME / file).unlink()
    else:  # the broker writes the marker; it knows of no transaction, so its index gets no entry
        log = root / NAME / f"{5:020d}.log"
        log.write_bytes(log.read_bytes() + end(6))
        for file in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
            (root / file).write_text("0\n1\norders 0 7\n")
    result = clean_all(root, NOW)
    assert result.outcome == "cleaned"


CORRECTED = {
    "of a commit": [],
    "of another producer": [(7, 1, 2)],
    "begins in the transaction before": [(7, 3, 4)],
    "out of order": [(7, 1, 2), (8, 3, 4)],
    "twice": [(7, 1, 2)],
    "twice, once of another producer": [(7, 1, 2)],
    "in the index of the segment before": [(7, 1, 2)],
    "over two segments, each in the other's index": [(7, 1, 2), (8, 3, 4)],
}


@pytest.mark.parametrize("name", CORRECTED)
def test_the_index_is_corrected_too(root: Path, name: str) -> None:
    """U-44, C-69: readers use the index, so the cleaned one agrees with the markers; the next cleaning agrees too."""
    state = STATES[name]
    make_log_dir(root, {NAME: Partition({**state.segments, 5: plain(5, "z", "1"), 6: b""}, aborted=state.index)})
    clean_all(root, NOW)
    found = sorted((root / NAME).glob("*.txnindex"))
    entries = [each for index in found for each in read_txn_index(index.read_bytes(), "")]
    assert [(int(e["producer_id"]), int(e["first_offset"]), int(e["last_offset"])) for e in entries] == CORRECTED[name]
    assert "the markers in the log decide" not in "; ".join(clean_all(root, NOW).notes)


def test_an_index_of_an_otherwise_unchanged_segment(root: Path) -> None:
    """U-44: committed data that the index hides from readers is visible again, also if no record is removed."""
    make_log_dir(root, {NAME: Partition({1: data(1, "new") + end(2, commit=True), **TAIL}, aborted={1: [entry(1, 2)]})})
    clean_all(root, NOW)
    assert offsets_of(root) == [1]
    assert not (root / NAME / f"{1:020d}.txnindex").exists()


def test_at_the_next_start(root: Path) -> None:
    """U-44: a staged cleaning with corrected entries is applied; the wrong index is unchanged since."""
    make_log_dir(root, {NAME: STATES["no entry"].partition()})
    name, options = parse_topic_partition_dir(NAME), CleaningOptions(now_ms=NOW, force=True, from_start=True)
    assert name is not None
    store = StateStore(root.parent / "state")
    staged = stage_partition(read_log_dir(root), store, resources(), name, config(), options, Silent())
    assert staged.outcome == "staged"
    with LogDirLock.acquire(root, settle_seconds=0) as lock:
        applied = apply_partition(LockedDir(read_log_dir(root), lock, store, resources()), name, config(), options)
    assert applied.outcome == "cleaned", applied.reason
    assert offsets_of(root) == [0]


@pytest.mark.parametrize("name", ["right", "of a commit"])
def test_an_older_agent(root: Path, name: str) -> None:
    """A-40: it would refuse a corrected index, so live cleaning is refused first, with a way out."""
    path = make_log_dir(root, {NAME: STATES[name].partition()})
    partition, options = parse_topic_partition_dir(NAME), CleaningOptions(now_ms=NOW, force=True, from_start=True)
    assert partition is not None
    log_dir = read_log_dir(path)
    found = survey(log_dir, partition, config(), StateStore(root.parent / "state"), options)
    with ReaderPool(str(found.log.path), workers=1, chunk_bytes=1 << 20) as pool:
        cleaning = Cleaning(make_plan(log_dir, found, resources(), options, pool.reader), pool, Silent())
        cleaning.decide()
        refuse_live(cleaning)
        if name == "right":
            refuse_live(cleaning, proves_by_markers=False)
            return
        with pytest.raises(RefusedError, match="a COMMIT marker at offset 2") as caught:
            refuse_live(cleaning, proves_by_markers=False)
    assert "agent attach, or clean it with cleanerd stage or offline" in str(caught.value)


def test_an_index_that_stays_wrong(root: Path) -> None:
    """U-44: the marker is in a segment that is not cleaned, so that index is not written, and a note reports it."""
    segments = {0: K + data(1, "new"), 2: data(2, "open", producer=9), 4: end(4) + plain(5, "z", "z"), 6: b""}
    result = outcome(root, State(segments, {}, [0]))
    assert offsets_of(root) == [0, 2]
    (note,) = [note for note in result.notes if "the markers in the log decide" in note]
    assert note.endswith(f"{4:020d}.txnindex stays wrong until its segment is cleaned")


def random_log(pick: random.Random) -> tuple[dict[int, bytes], dict[int, list[Entry]]]:
    """Segments of transactions of three producers, all ended, and the right index."""
    segments: dict[int, bytes] = {}
    index: dict[int, list[Entry]] = {}
    opened: dict[int, int] = {}
    offset = 0
    for number in range(5):
        base, log = offset, b""
        for _ in range(pick.randint(1, 6)):
            producer = pick.choice((7, 8, 9))
            if producer in opened and pick.random() < 0.5:
                commit = pick.random() < 0.5
                if not commit:
                    index.setdefault(base, []).append(entry(opened[producer], offset, producer))
                log += end(offset, commit=commit, producer=producer)
                del opened[producer]
                offset += 1
                continue
            opened.setdefault(producer, offset)
            values = [f"{producer}-{offset}"] * pick.randint(1, 2)
            log += data(offset, *values, producer=producer)
            offset += len(values)
        if number == 4:
            for producer in list(opened):
                log += end(offset, commit=True, producer=producer)
                offset += 1
        segments[base] = log
    return segments, index


def spoiled(
    pick: random.Random, index: Mapping[int, list[Entry]], segments: Mapping[int, bytes]
) -> dict[int, list[Entry]]:
    """The index with a few entries removed, changed or invented; it can still be read."""
    last = max(segments)
    wrong: dict[int, list[Entry]] = {}
    for base, entries in index.items():
        for producer, first, marker, stable in entries:
            kind = pick.random()
            if kind < 0.3:
                continue
            if kind < 0.45:
                producer = pick.choice((7, 8, 9))  # noqa: PLW2901
            if kind > 0.85:
                first = max(0, first + pick.choice((-3, -1, 1, 2)))  # noqa: PLW2901
            wrong.setdefault(base, []).append((producer, min(first, marker), marker, stable))
    for base in segments:
        if base not in wrong and pick.random() < 0.2 and base != last:
            wrong[base] = [entry(max(0, base - 1), base + 1, pick.choice((7, 8, 9)))]
    return wrong


@pytest.mark.parametrize("seed", range(12))
def test_spoiled_index(root: Path, seed: int) -> None:
    """U-44: with any index the same records stay as with the right one, or nothing is changed."""
    pick = random.Random(seed)
    refused = cleaned = 0
    for _ in range(8):
        segments, index = random_log(pick)
        make_log_dir(root, {NAME: Partition(segments, aborted=index)})
        result = clean_all(root, NOW)
        assert "the markers in the log decide" not in "; ".join(result.notes), "the right index"
        right = offsets_of(root)
        shutil.rmtree(root)
        result = outcome(root, State(segments, spoiled(pick, index, segments), None))
        if result.error is None:
            assert offsets_of(root) == right
            cleaned += 1
        else:
            assert result.outcome == "quarantined"
            assert "producer" in result.reason
            refused += 1
        shutil.rmtree(root)
        shutil.rmtree(root.parent / "state", ignore_errors=True)
    assert cleaned > refused


def disordered(
    pick: random.Random, index: Mapping[int, list[Entry]], segments: Mapping[int, bytes]
) -> dict[int, list[Entry]]:
    """The index with the same entries: some twice, out of order, or in the index of an earlier segment."""
    wrong = {base: [] for base in segments}
    for base, entries in index.items():
        for each in entries:
            file = base if pick.random() < 0.8 else pick.choice([earlier for earlier in segments if earlier <= base])
            wrong[file] += [each] * pick.choice((1, 1, 2))
    for entries in wrong.values():
        pick.shuffle(entries)
    return {base: entries for base, entries in wrong.items() if entries}


@pytest.mark.parametrize("seed", range(12))
def test_disordered_index(root: Path, seed: int) -> None:
    """U-44: with the right entries in any order the same records stay, and the same index, as with the right index."""
    pick = random.Random(seed)
    for _ in range(8):
        segments, index = random_log(pick)
        found = []
        for each in (index, disordered(pick, index, segments)):
            make_log_dir(root, {NAME: Partition(segments, aborted=each)})
            result = clean_all(root, NOW)
            assert result.error is None, result.reason
            sealed = sorted((root / NAME).glob("*.txnindex"))[: None if max(segments) not in each else -1]
            found.append((offsets_of(root), [path.read_bytes() for path in sealed]))
            shutil.rmtree(root)
            shutil.rmtree(root.parent / "state", ignore_errors=True)
        assert found[0] == found[1]
