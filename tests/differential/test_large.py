"""One segment larger than any of the kernel's steps: it stops between batches and continues, invisibly."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from cleanerd.state.cleaner_checkpoint import StateStore
from tests.differential.duel import NAME, clean_ours, prepare, put_checkpoint
from tests.differential.history import NOW, T0, History, Turn, batch, log
from tests.kafka.judge import Round
from tests.kafka.log_spec import Segment
from tests.support.logs import Record, encode_batch

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.judge import Judge

pytestmark = [pytest.mark.kafka, pytest.mark.long]

BATCHES = 1100
RECORDS = 1000
VALUE = bytes(range(64))
END = BATCHES * RECORDS


def _write(partition: Path) -> None:
    """More than 2^20 records and 64 MiB. No checksum covers the base offset, so one batch serves for all."""
    records = [Record(b"k%d" % row, VALUE if row % 9 else None, T0 + row) for row in range(RECORDS)]
    made = encode_batch(records)[8:]
    with (partition / f"{0:020d}.log").open("wb") as file:
        for number in range(BATCHES):
            file.write((number * RECORDS).to_bytes(8, "big") + made)


@pytest.mark.parametrize(
    ("first_dirty", "kept"),
    [(0, RECORDS), (END - 7, END + 1 - 7 * (BATCHES - 1) - BATCHES), (END, END + 1 - BATCHES)],
    ids=["all dirty", "few dirty", "head clean"],
)
def test_large_segment(judge_43: Judge, tmp_path: Path, first_dirty: int, kept: int) -> None:
    """Everything superseded, or every batch rebuilt without one record and with a horizon; read in one large chunk."""
    segments = (Segment(0), *log([batch(END, "k5=new")]))
    full, theirs, ours = (tmp_path / side / str(NAME) for side in ("full", "theirs", "ours"))
    judge_43.make(full, segments, now_ms=NOW)
    _write(full)
    ours.parent.mkdir()
    shutil.copytree(full, ours)
    (cleaned,) = judge_43.clean(theirs, [Round(NOW, first_dirty)], source=full)
    assert cleaned.messages_read == END + 1
    assert cleaned.messages_written == kept
    prepare(ours.parent)
    put_checkpoint(ours.parent, "cleaner-offset-checkpoint", first_dirty)
    history = History(segments, chunk_bytes=256 << 20)
    result = clean_ours(ours.parent, StateStore(tmp_path / "state"), history, Turn(NOW))
    assert result.error is None
    assert (result.records_read, result.records_kept) == (cleaned.messages_read, cleaned.messages_written)
    assert judge_43.compare(theirs, ours, source=full).differences == ()
    assert judge_43.lookups(ours).problems == ()
