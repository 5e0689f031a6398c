"""THE decision (C-38..C-41, C-45..C-48, C-51, U-13), by hand and compared with a plain loop."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleanerd._kernel import (
    ACTION_COPY,
    ACTION_DROP,
    ACTION_EMPTY,
    ACTION_REBUILD,
    ACTION_SET_HORIZON,
    ACTION_TIME_ZERO,
    ACTION_TIMELESS,
)
from cleanerd.policy.retain import (
    BATCH_ABORTED,
    BATCH_CONTROL,
    BATCH_ENDS_NOTHING,
    BATCH_EXPIRED,
    BATCH_HAS_HORIZON,
    BATCH_PROTECTED,
    LastBatchAction,
    RecordEvidence,
    Retention,
    bits_from,
    closing,
    end_of_group,
    expired_winners,
    retain,
)

HORIZON = ACTION_REBUILD | ACTION_SET_HORIZON
CLOSING = ACTION_EMPTY | ACTION_TIMELESS
CLOSING_ALONE = ACTION_EMPTY | ACTION_TIME_ZERO
GONE = BATCH_HAS_HORIZON | BATCH_EXPIRED
FREE = BATCH_CONTROL | BATCH_ENDS_NOTHING


def bitmap(bits: list[bool]) -> np.ndarray:
    words = np.zeros((len(bits) + 63) // 64, dtype=np.uint64)
    for row, bit in enumerate(bits):
        if bit:
            words[row // 64] |= np.uint64(1) << np.uint64(row % 64)
    return words


def bits(words: np.ndarray, count: int) -> list[bool]:
    return [bool(words[row // 64] >> np.uint64(row % 64) & np.uint64(1)) for row in range(count)]


def evidence_of(text: str, *, cleaned: int | None = None, unjudged: int = 0, guarded: str = "") -> RecordEvidence:
    """One letter per record.

    ``v`` newest, ``o`` superseded, ``t`` newest and a tombstone, ``s`` a superseded tombstone, ``k`` without a key,
    ``n`` without a key and a value. ``guarded``: one digit per record, 1 if it may not be removed.
    """
    return RecordEvidence(
        keyed=bitmap([letter not in "kn" for letter in text]),
        tombstone=bitmap([letter in "tsn" for letter in text]),
        newest=bitmap([letter in "vtkn" for letter in text]),
        cleaned_records=len(text) if cleaned is None else cleaned,
        unjudged_records=unjudged,
        guarded=bitmap([digit == "1" for digit in guarded]) if guarded else None,
    )


def firsts(batches: list[str]) -> np.ndarray:
    return np.cumsum([0, *map(len, batches)], dtype=np.uint32)


def decide(batches: list[str], flags: list[int] | None = None, **facts: object) -> Retention:
    """The decision as one word per batch."""
    evidence = evidence_of("".join(batches), **facts)  # type: ignore[arg-type]  # by name
    return retain(evidence, firsts(batches), np.array(flags or [0] * len(batches), dtype=np.uint8))


def dropped(found: Retention) -> int:
    return found.superseded + found.keyless + found.expired_tombstones + found.aborted + found.markers


@pytest.mark.parametrize(
    ("batch", "flags", "keep", "action"),
    [
        pytest.param("v", 0, "1", ACTION_COPY, id="C-46: equality keeps; C-51: verbatim"),
        pytest.param("o", 0, "0", ACTION_DROP, id="C-45.3"),
        pytest.param("k", 0, "0", ACTION_DROP, id="C-45.2: whatever 'newest' says of a keyless record"),
        pytest.param("vo", 0, "10", ACTION_REBUILD, id="C-51"),
        pytest.param("vk", 0, "10", ACTION_REBUILD, id="C-45.2 next to another"),
        pytest.param("t", 0, "1", HORIZON, id="C-48: a kept tombstone starts the horizon, all records survive or not"),
        pytest.param("to", 0, "10", HORIZON, id="C-48"),
        pytest.param("so", 0, "00", ACTION_DROP, id="a superseded tombstone starts nothing"),
        pytest.param("vs", 0, "10", ACTION_REBUILD, id="nor next to one that stays"),
        pytest.param("t", BATCH_HAS_HORIZON, "1", ACTION_COPY, id="C-49: once set it is never moved"),
        pytest.param("to", BATCH_HAS_HORIZON, "10", ACTION_REBUILD, id="C-49: and survives a rebuild"),
        pytest.param("t", GONE, "0", ACTION_DROP, id="C-45.5: expired"),
        pytest.param("tv", GONE, "01", ACTION_REBUILD, id="C-45.5: values stay"),
        pytest.param("o", BATCH_PROTECTED, "0", ACTION_EMPTY, id="C-39.1, C-41: emptied"),
        pytest.param("k", BATCH_PROTECTED, "0", ACTION_EMPTY, id="C-41: whatever emptied it"),
        pytest.param("t", GONE | BATCH_PROTECTED, "0", ACTION_EMPTY, id="C-41: an expired tombstone too"),
        pytest.param("", BATCH_PROTECTED, "", ACTION_COPY, id="F-2.5: one that is empty already stays as it is"),
        pytest.param("", 0, "", ACTION_DROP, id="C-43: empty and without a producer: it is removed"),
        pytest.param("v", BATCH_PROTECTED, "1", ACTION_COPY, id="C-42: protected with survivors is ordinary"),
        pytest.param("vo", BATCH_PROTECTED, "10", ACTION_REBUILD, id="C-42"),
        pytest.param("vtk", BATCH_ABORTED, "000", ACTION_DROP, id="C-38: aborted data is removed, newest or not"),
        pytest.param("vt", BATCH_ABORTED | BATCH_PROTECTED, "00", ACTION_EMPTY, id="C-39.1: emptied, no horizon"),
        pytest.param("", BATCH_ABORTED | BATCH_PROTECTED, "", ACTION_COPY, id="F-2.5: empty already"),
        pytest.param("", BATCH_ABORTED, "", ACTION_DROP, id="C-43: an empty aborted batch without a producer"),
        pytest.param("o", BATCH_CONTROL, "1", ACTION_COPY, id="C-40: a marker is not in the map (KAFKA-14055)"),
        pytest.param("k", BATCH_CONTROL, "1", ACTION_COPY, id="C-40: nor is it keyless"),
        pytest.param("t", BATCH_CONTROL | BATCH_HAS_HORIZON, "1", ACTION_COPY, id="C-40: nor a tombstone"),
        pytest.param("o", BATCH_CONTROL | GONE, "1", ACTION_COPY, id="C-38: its horizon has passed, but it ends data"),
        pytest.param("o", FREE, "1", HORIZON, id="C-48: it ends nothing any more: the horizon starts"),
        pytest.param("o", FREE | BATCH_HAS_HORIZON, "1", ACTION_COPY, id="C-49: it waits"),
        pytest.param("o", FREE | BATCH_EXPIRED, "0", ACTION_DROP, id="C-38: expired means that the horizon has passed"),
        pytest.param("o", FREE | GONE, "0", ACTION_DROP, id="C-38: spent"),
        pytest.param("o", FREE | GONE | BATCH_PROTECTED, "0", ACTION_EMPTY, id="C-39.1: the epoch hangs on it"),
        pytest.param("o", FREE | BATCH_PROTECTED, "1", HORIZON, id="C-42: protected, and its horizon starts"),
        pytest.param("", FREE, "", ACTION_DROP, id="C-43: an emptied marker without a producer"),
        pytest.param("", FREE | GONE, "", ACTION_DROP, id="C-43"),
        pytest.param("", FREE | BATCH_PROTECTED, "", ACTION_COPY, id="C-39.1, F-2.5: no horizon without a record"),
    ],
)
def test_one_batch(batch: str, flags: int, keep: str, action: int) -> None:
    """C-38..C-41, C-45..C-51."""
    found = decide([batch], [flags])
    assert "".join(str(int(bit)) for bit in bits(found.keep, len(batch))) == keep
    assert found.actions.tolist() == [action]
    assert found.kept_by_batch.tolist() == [keep.count("1")]


def test_reasons() -> None:
    """Every removed record has exactly one reason; superseded comes before expired."""
    found = decide(["voks", "tsn", "tt"], [0, GONE, GONE])
    assert (found.superseded, found.keyless, found.expired_tombstones) == (3, 2, 3)
    assert (found.aborted, found.markers) == (0, 0)


def test_reasons_in_transactions() -> None:
    """An aborted record has only that reason, however old its key; a marker counts as a marker."""
    found = decide(
        ["voks", "tsn", "vo", "k", "o", "t"],
        [BATCH_ABORTED, BATCH_ABORTED | GONE, 0, FREE | GONE, BATCH_CONTROL | GONE, FREE | GONE],
    )
    assert (found.superseded, found.keyless, found.expired_tombstones) == (1, 0, 0)
    assert (found.aborted, found.markers) == (7, 2)


@pytest.mark.parametrize(
    ("batches", "flags", "cleaned", "keep", "actions"),
    [
        pytest.param(["oo", "oo"], [0, 0], 2, "0011", [ACTION_DROP, ACTION_COPY], id="C-45.1: between batches"),
        pytest.param(["ooo"], [0], 1, "011", [ACTION_REBUILD], id="C-45.1: in the middle of one"),
        pytest.param(["kkk"], [0], 2, "001", [ACTION_REBUILD], id="C-45.1: keyless ones too"),
        pytest.param(["tt"], [GONE], 1, "01", [ACTION_REBUILD], id="C-45.1: expired ones too"),
        pytest.param(["os"], [0], 1, "01", [HORIZON], id="C-48: a tombstone past the end starts its horizon early"),
        pytest.param(["on"], [0], 1, "01", [HORIZON], id="C-48: any null value does, with a key or without"),
        pytest.param(["oo"], [0], 0, "11", [ACTION_COPY], id="nothing cleaned"),
        pytest.param(
            ["v", "vv", "v"], [0, BATCH_ABORTED, 0], 1, "1001", [ACTION_COPY, ACTION_DROP, ACTION_COPY],
            id="C-38, T-04: aborted data is removed beyond the end, too",
        ),
        pytest.param(["v", "o"], [0, FREE | GONE], 1, "10", [ACTION_COPY, ACTION_DROP], id="C-38: and spent markers"),
        pytest.param(["v", "o"], [0, FREE], 1, "11", [ACTION_COPY, HORIZON], id="C-48: and horizons of markers"),
    ],
)  # fmt: skip
def test_end_of_range(batches: list[str], flags: list[int], cleaned: int, keep: str, actions: list[int]) -> None:
    """C-45.1."""
    found = decide(batches, flags, cleaned=cleaned)
    assert "".join(str(int(bit)) for bit in bits(found.keep, len(keep))) == keep
    assert found.actions.tolist() == actions
    assert dropped(found) == keep.count("0")


@pytest.mark.parametrize(
    ("batch", "flags", "unjudged", "keep", "counts"),
    [
        pytest.param("okv", 0, 2, "111", (0, 0, 0), id="U-2: superseded and keyless ones stay"),
        pytest.param("tt", GONE, 1, "10", (0, 0, 1), id="U-2: an expired tombstone, too"),
        pytest.param("vo", BATCH_ABORTED, 2, "00", (0, 0, 0), id="C-38: aborted data is removed wherever it is"),
        pytest.param("oo", 0, 0, "00", (2, 0, 0), id="and none of them under offset"),
    ],
)
def test_below_the_log_start(batch: str, flags: int, unjudged: int, keep: str, counts: tuple[int, int, int]) -> None:
    """U-2: a record below the log start is not a candidate and stays as it is."""
    found = decide([batch], [flags], unjudged=unjudged)
    assert "".join(str(int(bit)) for bit in bits(found.keep, len(batch))) == keep
    assert (found.superseded, found.keyless, found.expired_tombstones) == counts


@pytest.mark.parametrize(
    ("batch", "flags", "guarded", "keep", "counts"),
    [
        pytest.param("tt", GONE, "10", "10", (1, 1), id="U-1: one waits, the other is removed"),
        pytest.param("tt", GONE, "00", "00", (2, 0), id="both are free to go"),
        pytest.param("ts", GONE, "11", "10", (0, 1), id="a superseded one is removed, guarded or not"),
        pytest.param("tv", BATCH_HAS_HORIZON, "11", "11", (0, 0), id="no record waits before the horizon"),
    ],
)
def test_guarded(batch: str, flags: int, guarded: str, keep: str, counts: tuple[int, int]) -> None:
    """U-1, U-4."""
    found = decide([batch], [flags], guarded=guarded)
    assert "".join(str(int(bit)) for bit in bits(found.keep, len(batch))) == keep
    assert (found.expired_tombstones, found.waiting) == counts


def test_expired_retained_records() -> None:
    """U-1: the same tombstones that ``retain`` removes without a guard, for any input."""
    batches = ["tsvk", "tn", "t", "tt", "tt"]
    flags = [GONE, GONE, BATCH_HAS_HORIZON, GONE | BATCH_ABORTED, GONE]
    text = "".join(batches)
    column = np.array(flags, dtype=np.uint8)
    evidence = evidence_of(text, cleaned=10, guarded="1" * len(text))
    found = expired_winners(evidence, firsts(batches), column)
    assert [row for row, bit in enumerate(bits(found, len(text))) if bit] == [0, 4, 9]
    assert decide(batches, flags, cleaned=10).expired_tombstones == 3
    later = expired_winners(evidence_of(text, unjudged=5), firsts(batches), column)
    assert [row for row, bit in enumerate(bits(later, len(text))) if bit] == [9, 10]


@pytest.mark.parametrize(
    ("actions", "expected"),
    [
        pytest.param([ACTION_COPY, ACTION_DROP], CLOSING, id="U-13: closed"),
        pytest.param([ACTION_DROP, ACTION_COPY], ACTION_COPY, id="stays anyway"),
        pytest.param([ACTION_DROP, ACTION_EMPTY], ACTION_EMPTY, id="protected anyway"),
        pytest.param([ACTION_DROP, HORIZON], HORIZON, id="rebuilt anyway"),
    ],
)
def test_end_of_group(actions: list[int], expected: int) -> None:
    """U-13, S-09: only the last batch, and the decision itself is unchanged."""
    before = np.array(actions, dtype=np.uint8)
    found = end_of_group(before, CLOSING)
    assert found.tolist() == [*actions[:-1], expected]
    assert before.tolist() == actions


@pytest.mark.parametrize(
    ("records", "max_timestamp_ms", "at_bound", "next_to_others", "alone"),
    [
        pytest.param(3, 500, False, CLOSING, CLOSING_ALONE, id="U-13: emptied, without its time"),
        pytest.param(3, 0, False, CLOSING, CLOSING_ALONE, id="emptied, whatever its time"),
        pytest.param(3, -1, False, CLOSING, CLOSING_ALONE, id="emptied, of records without a time"),
        pytest.param(3, 500, True, ACTION_EMPTY, ACTION_EMPTY, id="C-39.2: at the bound as Kafka leaves it"),
        pytest.param(3, 0, True, ACTION_EMPTY, ACTION_EMPTY, id="C-39.2: also of records of 1970"),
        pytest.param(0, 500, False, CLOSING, CLOSING_ALONE, id="emptied before, its time is removed now"),
        pytest.param(0, -1, False, ACTION_COPY, CLOSING_ALONE, id="closed before, next to others"),
        pytest.param(0, 0, False, CLOSING, ACTION_COPY, id="closed before alone, or by an earlier release"),
        pytest.param(0, 500, True, ACTION_COPY, ACTION_COPY, id="C-39.2: emptied before"),
        pytest.param(0, -1, True, ACTION_COPY, ACTION_COPY, id="C-39.2: emptied before, without a time"),
        pytest.param(0, 0, True, CLOSING, ACTION_COPY, id="closed by an earlier release, the bound came to it since"),
    ],
)
def test_closing(records: int, max_timestamp_ms: int, at_bound: bool, next_to_others: int, alone: int) -> None:
    """U-13: next to others, a closing batch does not set its segment's time, and no search by time alone finds it.

    Kafka's own at the bound keeps its time.
    """
    assert closing(records, max_timestamp_ms, at_bound=at_bound) == LastBatchAction(next_to_others, alone)


@pytest.mark.parametrize("total", [0, 1, 63, 64, 65, 128, 130])
def test_bits_from(total: int) -> None:
    """Word edges."""
    for first in range(total + 2):
        words = bits_from(first, total)
        assert len(words) == (total + 63) // 64
        assert words.tolist() == bitmap([row >= first for row in range(total)]).tolist()


@settings(max_examples=300, deadline=None)
@given(
    batches=st.lists(st.text("votskn", max_size=90), max_size=6),
    flags=st.lists(
        st.builds(
            lambda horizon, protected, kind: horizon | protected | kind,
            st.sampled_from((0, 0, BATCH_HAS_HORIZON, GONE)),
            st.sampled_from((0, BATCH_PROTECTED)),
            st.sampled_from((0, 0, 0, BATCH_ABORTED, BATCH_CONTROL, FREE)),
        ),
        min_size=6,
        max_size=6,
    ),
    data=st.data(),
)
def test_retained_records_equal_a_loop(batches: list[str], flags: list[int], data: st.DataObject) -> None:
    """C-38..C-51, record by record: edges of words and batches do not matter."""
    total = sum(map(len, batches))
    cleaned = data.draw(st.integers(0, total))
    found = decide(batches, flags[: len(batches)], cleaned=cleaned)
    keep, actions, row = [], [], 0
    for batch, flag in zip(batches, flags, strict=False):
        here = []
        for letter in batch:
            stays = letter in "v" or (letter == "t" and not flag & BATCH_EXPIRED)
            if flag & BATCH_ABORTED:
                here.append(False)
            elif flag & BATCH_CONTROL:
                here.append(not (flag & BATCH_ENDS_NOTHING and flag & BATCH_EXPIRED))
            else:
                here.append(stays or row >= cleaned)
            row += 1
        keep += here
        null = any(stays and letter in "tsn" for stays, letter in zip(here, batch, strict=True))
        if not any(here):
            actions.append((ACTION_EMPTY if batch else ACTION_COPY) if flag & BATCH_PROTECTED else ACTION_DROP)
        elif (null or flag & BATCH_ENDS_NOTHING) and not flag & BATCH_HAS_HORIZON:
            actions.append(HORIZON)
        else:
            actions.append(ACTION_COPY if all(here) else ACTION_REBUILD)
    assert bits(found.keep, total) == keep
    assert not total % 64 or not len(found.keep) or int(found.keep[-1]) >> total % 64 == 0
    assert found.actions.tolist() == actions
    assert dropped(found) == keep.count(False)
