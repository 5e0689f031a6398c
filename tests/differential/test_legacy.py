"""Message formats v0 and v1 compared with both kinds of cleaners: 3.9's keeps them, 4.3's writes v2 (U-18)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd import _kernel
from cleanerd.format.legacy import parse_message
from cleanerd.state.cleaner_checkpoint import StateStore
from tests.differential import duel
from tests.differential.cell import Cell, parameters
from tests.differential.cells.legacy import (
    CELLS,
    MAGICS,
    ROUNDS,
    magics,
)
from tests.differential.duel import NAME, clean_ours, prepare
from tests.differential.history import NOW, History, Turn, batch, log
from tests.differential.random_legacy import random_legacy_history, with_old_batches
from tests.differential.random_transactions import random_transactions
from tests.differential.seeds import play_seed
from tests.kafka.judge import JudgeError
from tests.kafka.log_spec import Codec, Round, ToLoad
from tests.support.logs import LZ4

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.kafka.judge import Dump, Judge

pytestmark = pytest.mark.kafka


@pytest.mark.long
@pytest.mark.parametrize("cell", parameters(CELLS))
def test_converted(judge_43: Judge, work: Path, cell: Cell) -> None:
    """C-45.6, C-53, F-3.3: retained v0 and v1 messages become v2 in 4.3, and with cleanerd."""
    outcomes = cell.check(judge_43, work)
    assert magics(outcomes[0].before) & {0, 1}
    assert magics(outcomes[-1].after) == {2}


@pytest.mark.parametrize("cell", parameters(CELLS))
def test_kept(judge_39: Judge, work: Path, cell: Cell) -> None:
    """C-45.6, C-53, F-3.2: in 3.9 they keep their format, and so with cleanerd, down to the bytes in a wrapper."""
    (outcome,) = cell.check(judge_39, work)
    left = _old_offsets(outcome.before) - outcome.dropped()
    assert _old_offsets(outcome.after) == left
    ours, theirs = (_unpacked(work / side / str(NAME)) for side in ("ours", "theirs"))
    assert ours == theirs
    assert bool(theirs) == bool(left)


@pytest.mark.long
@pytest.mark.parametrize("cell", [pytest.param(cell, id=cell.name) for cell in CELLS if "around" in cell.name])
def test_a_mixed_wrapper_is_rebuilt_with_one_magic(judge_39: Judge, work: Path, cell: Cell) -> None:
    """KAFKA-4298: 3.9 rebuilds such a wrapper, with messages of its own magic; and so does cleanerd."""
    (outcome,) = cell.check(judge_39, work)
    for side in ("ours", "theirs"):
        wrappers = [(magic, inner) for magic, _, _, inner in _unpacked(work / side / str(NAME))]
        assert wrappers
        assert all(set(_magics_of(inner)) == {magic} for magic, inner in wrappers), side
    assert outcome.kafka.messages_written


@pytest.mark.parametrize("cell", parameters(ROUNDS))
def test_rounds_converted(judge_43: Judge, work: Path, cell: Cell) -> None:
    """C-48 legacy, C-49: after the first cleaning they are v2 batches like any other."""
    cell.check(judge_43, work)


@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize("profile", ["judge_43", "judge_39"])
def test_last_batch_loses_all(
    request: pytest.FixtureRequest, work: Path, profile: str, magic: int, codec: Codec
) -> None:
    """C-44, U-13: where Kafka's cleaner fails, cleanerd leaves an empty v2 batch that Kafka reads and keeps."""
    judge: Judge = request.getfixturevalue(profile)
    segments = log([batch(0, "a=1 a=2 b=1"), batch(3, "!=1 !=2", magic=magic, codec=codec)], [batch(5, "c=1")])
    history = History(segments, turns=(Turn(NOW),))
    ours, theirs = work / "ours" / str(NAME), work / "theirs" / str(NAME)
    ours.parent.mkdir()
    prepare(ours.parent)
    for directory in (ours, theirs):
        judge.make(directory, segments[:-1], now_ms=NOW)
    with pytest.raises(JudgeError) as refused:
        judge.clean(theirs, [Round(NOW, 0, 5, 5)])
    assert "mpty batches" in str(refused.value) or "IllegalState" in refused.value.kind
    result = clean_ours(
        ours.parent, StateStore(work / "state"), replace(history, segments=segments[:-1]), Turn(NOW),
        convert_legacy=profile == "judge_43",
    )  # fmt: skip
    assert (result.outcome, result.records_kept, result.removed.no_key) == ("cleaned", 2, 2)
    after = judge.dump(ours)
    emptied = next(each for each in after.batches if each.last == 4)
    assert (emptied.magic, emptied.count, emptied.producer_id) == (2, 0, -1)
    assert emptied.base == (3 if codec != "none" else 4)
    (loaded,) = judge.load([ToLoad(str(ours), clean_shutdown=False, log_start_offset=0)], now_ms=NOW)
    assert loaded.error is None
    assert loaded.log_end_offset == 6


def test_the_comparison_notices_the_other_profile(judge_43: Judge, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cleaner that kept the old formats where 4.3 does not would be found."""
    # the planted mistake
    monkeypatch.setattr(duel, "clean_ours", partial(_with_other_profile, duel.clean_ours))
    with pytest.raises(AssertionError, match="magic: theirs 2, ours 0"):
        duel.play(judge_43, work, CELLS[0].history)


def _with_other_profile(clean: Any, *args: Any, convert_legacy: bool, **options: Any) -> Any:
    return clean(*args, convert_legacy=not convert_legacy, **options)


def _play_all(judge: Judge, work: Path, seeds: Sequence[int], *, rounds: int) -> None:
    changed = old = 0
    for seed in seeds:
        history = random_legacy_history(seed, rounds=rounds)
        outcomes = play_seed(judge, work, seed, history, "random legacy history")
        changed += any(outcome.dropped() & _old_offsets(outcome.before) for outcome in outcomes)
        old += bool(_old_offsets(outcomes[0].before))
    assert old >= 0.5 * len(seeds), f"only {old} of {len(seeds)} had old formats"
    assert changed >= 0.4 * len(seeds), f"only in {changed} of {len(seeds)} Kafka dropped something old"


@pytest.mark.long
def test_random_converted(judge_43: Judge, work: Path) -> None:
    """Three cleanings each against 4.3."""
    _play_all(judge_43, work, range(5001, 5013), rounds=3)


@pytest.mark.long
def test_random_kept(judge_39: Judge, work: Path) -> None:
    """One cleaning each against 3.9: later ones may differ in the times of the files (U-18)."""
    _play_all(judge_39, work, range(6001, 6025), rounds=1)


@pytest.mark.long
@pytest.mark.parametrize(("profile", "rounds"), [("judge_43", None), ("judge_39", 1)])
def test_beside_transactions(request: pytest.FixtureRequest, work: Path, profile: str, rounds: int | None) -> None:
    """Random transactions with old batches between them."""
    judge: Judge = request.getfixturevalue(profile)
    old = 0
    for seed in range(1, 13):
        history = with_old_batches(random_transactions(seed), seed)
        first, *_ = duel.play(judge, work / str(seed), replace(history, turns=history.turns[:rounds]))
        old += bool(_old_offsets(first.before))
    assert old >= 6


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_many_random(judge_43: Judge, judge_39: Judge, work: Path) -> None:
    """Hundreds."""
    _play_all(judge_43, work, range(7001, 7151), rounds=3)
    _play_all(judge_39, work, range(8001, 8151), rounds=1)


def _old_offsets(dump: Dump) -> set[int]:
    """Offsets of the records in v0 and v1 batches."""
    return {record.offset for each in dump.batches if each.magic < 2 for record in each.records or ()}


def _unpacked(directory: Path) -> list[tuple[int, int, int, bytes]]:
    """Each v0 or v1 batch: magic, attributes, timestamp, and its messages decompressed."""
    found: list[tuple[int, int, int, bytes]] = []
    for path in sorted(directory.glob("*.log")):
        data, at = path.read_bytes(), 0
        while at < len(data):
            size = int.from_bytes(data[at + 8 : at + 12], "big") + 12
            if data[at + 16] < 2:
                message = parse_message(data[at : at + size])
                inner = data[at : at + size]
                if message.codec:
                    packed = message.value or b""
                    if (message.magic, message.codec) == (0, LZ4):
                        packed = packed[:6] + b"\x82" + packed[7:]
                    inner = _kernel.decompress(message.codec, packed, 1 << 20)
                found.append((message.magic, message.attributes, message.timestamp, inner))
            at += size
    return found


def _magics_of(inner: bytes) -> Iterator[int]:
    at = 0
    while at < len(inner):
        yield inner[at + 16]
        at += int.from_bytes(inner[at + 8 : at + 12], "big") + 12
