"""C-67, on real Kafka: its cleaner splits an overflowed segment, gives up, and cleans in its next attempt."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.cleaner.driver import NAME, clean_all, config
from tests.cleaner.splitting import only_split
from tests.kafka.judge import JudgeError
from tests.kafka.log_spec import Round, ToLoad
from tests.support.log_dirs import make_log_dir
from tests.support.overflow import END, NOW_MS, PIECES, SPAN, overflowed

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.judge import Judge

pytestmark = pytest.mark.kafka
CONFIG = {"index.interval.bytes": "1"}


@pytest.fixture(params=["4.3", "3.9"])
def judge(request: pytest.FixtureRequest) -> Judge:
    found: Judge = request.getfixturevalue(f"judge_{request.param.replace('.', '')}")
    return found


@pytest.fixture(params=[True, False], ids=["transactions", "plain"])
def sides(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Path, Path]:
    """Two copies of the log: Kafka's partition directory and cleanerd's log directory."""
    ours = make_log_dir(tmp_path / "ours", {NAME: overflowed(transactions=request.param)})
    theirs = tmp_path / "theirs" / NAME
    shutil.copytree(ours / NAME, theirs)
    return theirs, ours


def segment_files(place: Path) -> dict[str, bytes]:
    """Bytes of the closed segments' logs and offset indexes by name."""
    paths = [*place.glob("*.log"), *place.glob("*.index")]
    return {path.name: path.read_bytes() for path in paths if int(path.name.split(".")[0]) < END}


def aborted_by_overflow(judge: Judge, place: Path) -> None:
    """The first attempt of Kafka's cleaner."""
    with pytest.raises(JudgeError, match="LogCleaningAborted"):
        judge.clean(place, [Round(now_ms=NOW_MS)], config=CONFIG)


@pytest.mark.long
def test_the_same_pieces(judge: Judge, sides: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """If the first batch begins with the segment, the files are the same, byte for byte."""
    theirs, ours = sides
    aborted_by_overflow(judge, theirs)
    only_split(ours, monkeypatch)
    assert sorted(int(log.stem) for log in theirs.glob("*.log")) == [*PIECES, 3 * SPAN, END]
    assert segment_files(ours / NAME) == segment_files(theirs)


@pytest.mark.long
def test_the_loader_splits_as_well(judge: Judge, sides: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """F-12 step 6: only if it reads the segment again, after an unclean stop with the recovery point below it."""
    theirs, ours = sides
    before = segment_files(theirs)
    judge.load([ToLoad(str(theirs), recovery_point=END)], now_ms=NOW_MS, config=CONFIG)
    assert segment_files(theirs) == before
    judge.load([ToLoad(str(theirs), clean_shutdown=False, recovery_point=0)], now_ms=NOW_MS, config=CONFIG)
    only_split(ours, monkeypatch)
    assert segment_files(ours / NAME) == segment_files(theirs)


@pytest.mark.long
@pytest.mark.parametrize("sides", [False], indirect=True)
def test_the_same_result(judge: Judge, sides: tuple[Path, Path]) -> None:
    """U-26: the same records are removed, from every piece; cleanerd's indexes are right."""
    theirs, ours = sides
    aborted_by_overflow(judge, theirs)
    before = offsets(judge, theirs)
    judge.clean(theirs, [Round(now_ms=NOW_MS)], config=CONFIG)
    clean_all(ours, NOW_MS, config(index_interval_bytes=1))
    assert before - offsets(judge, theirs) == {0, 1, 100, SPAN + 100, 2 * SPAN + 50}
    assert judge.compare(theirs, ours / NAME).differences == ()
    assert judge.lookups(ours / NAME).problems == ()


@pytest.mark.parametrize("sides", [True], indirect=True)
def test_aborted_records_stay_aborted(judge: Judge, sides: tuple[Path, Path]) -> None:
    """F-8, C-69: Kafka's split writes no transaction index, so an aborted record counts as committed from then on.

    cleanerd keeps the entries: the record is removed, and its marker stays while the index names its transaction.
    """
    theirs, ours = sides
    aborted_by_overflow(judge, theirs)
    assert not list(theirs.glob("*.txnindex"))
    judge.clean(theirs, [Round(now_ms=NOW_MS)], config=CONFIG)
    clean_all(ours, NOW_MS, config(index_interval_bytes=1))
    assert offsets(judge, theirs) - offsets(judge, ours / NAME) == {SPAN + 8}
    (answer,) = judge.load([ToLoad(str(ours / NAME))], now_ms=NOW_MS, config=CONFIG)
    assert (answer.error, answer.log_end_offset) == (None, END + 1)


def offsets(judge: Judge, place: Path) -> set[int]:
    """Of all records but markers."""
    return {record.offset for record in judge.dump(place).records}
