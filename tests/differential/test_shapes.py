"""Codecs x batch sizes x key distributions, with timestamps in turn, over three cleanings with an advancing clock."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, get_args

import pytest

from tests.differential.cells.shapes import CELLS, KEYS, KINDS, LARGE, SIZES, shape_of
from tests.kafka.log_spec import Codec

if TYPE_CHECKING:
    from pathlib import Path

    from tests.differential.cell import Cell
    from tests.kafka.judge import Judge

pytestmark = pytest.mark.kafka


def _is_short(codec: Codec, size: str, keys: str) -> bool:
    """One in five, so that each codec gets several sizes and kinds of keys."""
    place = LARGE.index(keys) if size == "1 MiB" else [*SIZES].index(size) + [*KEYS].index(keys)
    return (get_args(Codec).index(codec) + place) % 5 == 0


@pytest.mark.parametrize(
    "cell",
    [
        pytest.param(cell, id=cell.name, marks=[] if _is_short(*kind) else [pytest.mark.long])
        for cell, kind in zip(CELLS, KINDS, strict=True)
    ],
)
def test_shape(judge_43: Judge, work: Path, cell: Cell) -> None:
    """C-20, C-45, C-47..C-52: whatever the records, cleanerd's result equals Kafka's after each of three cleanings."""
    cell.check(judge_43, work)


@pytest.mark.long
@pytest.mark.parametrize("size", SIZES)
def test_on_a_disk(judge_43: Judge, tmp_path: Path, size: str) -> None:
    """The same on a real disk, where flushes have an effect."""
    cell = shape_of("lz4", size, "few keys", "CreateTime")
    replace(cell, history=replace(cell.history, turns=cell.history.turns[:1])).check(judge_43, tmp_path)
