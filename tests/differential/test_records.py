"""Contents of records and batch headers besides keys and values, and their state in a rebuilt batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.differential.cell import Cell, parameters
from tests.differential.cells.records import CELLS, CODECS
from tests.differential.history import History, batch, log

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.judge import Judge
    from tests.kafka.log_spec import Codec

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("cell", parameters(CELLS))
def test_record(judge_43: Judge, work: Path, cell: Cell) -> None:
    """C-20, C-45, C-51, C-52, F-2: only the removed records are missing."""
    cell.check(judge_43, work)


@pytest.mark.long
@pytest.mark.parametrize("codec", CODECS)
def test_many_keys(judge_43: Judge, work: Path, codec: Codec) -> None:
    """OP-2, U-20: more keys than cleanerd's map has room for, in many chunks.

    All shards decide as Kafka's one map does.
    """
    words = [f"k{row * 7919 % 6000}={row}" for row in range(9000)]
    batches = [batch(base, " ".join(words[base : base + 100]), codec=codec) for base in range(0, 9000, 100)]
    history = History(log(batches[:40], batches[40:70], batches[70:]), map_bytes=1, chunk_bytes=1 << 12)
    cell = Cell(
        f"many keys, {codec}",
        history,
        lambda rounds: len(rounds[0].dropped()) == 3000 and rounds[0].ours.passes > 1,
    )
    cell.check(judge_43, work)
