"""U-32: the cases of the issue, compared with Kafka's own recovery.

The committed ``good`` of key k must never be lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import pytest

from tests.kafka.log_spec import Batch, Marker, Record, Segment
from tests.torn import ways
from tests.torn.power_cut import Cut
from tests.torn.random_log import NOW_MS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.judge import Judge

pytestmark = pytest.mark.kafka

GOOD = "good"
RECOVERY_POINT = 20


def _data(offset: int, key: str, value: str, producer_id: int = -1) -> Batch:
    known = {"producer_epoch": 0, "base_sequence": 0, "transactional": True} if producer_id >= 0 else {}
    record = Record(offset, NOW_MS, key.encode(), value.encode())
    return Batch((record,), producer_id=producer_id, **known)  # type: ignore[arg-type]


def _end(offset: int, how: Literal["commit", "abort"]) -> Batch:
    return Batch(base=offset, marker=Marker(how, NOW_MS), producer_id=7, producer_epoch=0)


def _filler(base: int, count: int) -> list[Batch]:
    return [_data(offset, f"other{offset}", "x") for offset in range(base, base + count)]


def _log(marker: int, *, active: int = 30) -> list[Segment]:
    """``good`` at 0, ``bad`` in a transaction from 10, which is aborted at ``marker``. The recovery point is 20."""
    bases = [0, 10, 20, *([active] if active > 20 else [])]
    batches = {0: _data(0, "k", GOOD), 10: _data(10, "k", "bad", 7), marker: _end(marker, "abort")}
    ends = [*bases[1:], 40]
    return [
        Segment(base, tuple(batches.get(offset, _data(offset, f"o{offset}", "x")) for offset in range(base, end)))
        for base, end in zip(bases, ends, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Torn:
    """A log directory after the power cut, and its state after Kafka's recovery without cleanerd."""

    judge: Judge
    root: Path
    cut: Cut

    def recovered(self, name: str, *, stop: bool = False, again: bool = False) -> dict[str, list[list[str]]]:
        log = {
            "dir": str(self.root / name / str(ways.NAME)),
            "clean_shutdown": again,
            "recovery_point": self.cut.recovery_point,
            "shut_down": stop,
        }
        (answer,) = self.judge.recover([log], now_ms=NOW_MS, producer_expiration_ms=2**31 - 1)
        assert "error" not in answer, answer
        return answer

    def copy(self, name: str) -> Path:
        ways.copy_log_dir(self.root / "torn", self.root / name)
        return self.root / name

    def good_survives(self, path: Path, *, again: bool = False) -> None:
        """``ended``: the view of readers after open transactions were aborted, too."""
        kafka, cleaned = self.recovered("kafka"), self.recovered(path.name, again=again)
        for view in ("committed", "ended"):
            assert _values(kafka[view]) == _values(cleaned[view]), view
        assert _values(cleaned["ended"])["k"] == GOOD


def _values(records: list[list[str]]) -> dict[str, str]:
    return {bytes.fromhex(key).decode(): bytes.fromhex(value).decode() for _, key, value, _ in records}


def _torn(judge: Judge, root: Path, segments: list[Segment], recovery_point: int = RECOVERY_POINT) -> Torn:
    path = root / "torn" / str(ways.NAME)
    judge.crash([(path, segments)], now_ms=NOW_MS)
    cut = Cut(recovery_point, 40, 0, recovering=False)
    ways.write_log_dir(path.parent, cut)
    return Torn(judge, root, cut)


def _file(torn: Torn, base: int, suffix: str) -> Path:
    return torn.root / "torn" / str(ways.NAME) / f"{base:020d}{suffix}"


@pytest.fixture(params=["the entry is lost", "a closed segment is damaged", "killed while it recovered"])
def torn(request: pytest.FixtureRequest, judge_43: Judge, work: Path) -> Torn:
    """A lost entry, a damaged closed segment, and the index of the recovery point's segment, emptied by a recovery."""
    if request.param == "the entry is lost":
        made = _torn(judge_43, work, _log(30))
        _file(made, 30, ".txnindex").write_bytes(b"")
    elif request.param == "a closed segment is damaged":
        # The transaction is committed at 30, and the snapshot at 32 shows that; but the log ends at 25.
        end = Segment(30, (_end(30, "commit"), *_filler(31, 1)))
        segments = [*_log(30)[:3], end, Segment(32, tuple(_filler(32, 8)))]
        made = _torn(judge_43, work, segments)
        log = _file(made, 20, ".log")
        data = bytearray(log.read_bytes())
        data[len(data) // 2 :] = bytes(len(data) - len(data) // 2)
        log.write_bytes(data)
    else:
        made = _torn(judge_43, work, _log(21, active=20), recovery_point=25)
        assert _file(made, 20, ".txnindex").stat().st_size
        _file(made, 20, ".txnindex").write_bytes(b"")
    made.copy("kafka")
    return made


def test_clean(torn: Torn) -> None:
    """U-32: ``clean --unclean``."""
    path = torn.copy("cleaned")
    result = ways.clean(path, ways.config_of("offset"), NOW_MS)
    assert result.error is None
    torn.good_survives(path)


@pytest.mark.parametrize("daemon", [False, True], ids=["stage --unclean", "the daemon, unasked"])
def test_staged(torn: Torn, daemon: bool) -> None:
    """U-32: a plan from before the recovery, applied after it and a clean stop."""
    path = torn.copy("staged")
    ways.stage(path, ways.config_of("offset"), NOW_MS, daemon=daemon)
    end = torn.recovered("staged", stop=True)["log_end_offset"]
    ways.was_stopped(path, int(str(end)))
    ways.apply(path, ways.config_of("offset"), NOW_MS)
    torn.good_survives(path, again=True)


def test_an_index_that_is_rebuilt_meanwhile(judge_43: Judge, work: Path) -> None:
    """U-32: a plan staged while a recovery had just emptied an index below the recovery point is not applied.

    The recovery does that for a segment without its offset index: the broker rebuilds all of its indexes.
    """
    made = _torn(judge_43, work, _log(21), recovery_point=30)
    index = _file(made, 20, ".txnindex")
    entries = index.read_bytes()
    assert entries
    made.copy("kafka")
    path = made.copy("staged")
    index = path / str(ways.NAME) / index.name
    index.write_bytes(b"")
    staged = ways.stage(path, ways.config_of("offset"), NOW_MS, daemon=False)
    assert staged is not None
    assert staged.outcome == "staged"
    assert staged.removed.aborted, "the markers show that bad was aborted, whatever the index says (U-44)"
    index.write_bytes(entries)
    end = made.recovered("staged", stop=True)["log_end_offset"]
    ways.was_stopped(path, int(str(end)))
    applied = ways.apply(path, ways.config_of("offset"), NOW_MS)
    assert ways.is_stale(applied), applied
    assert "transaction indexes" in applied.reason
    made.good_survives(path, again=True)


@pytest.mark.parametrize("stopped", [True, False], ids=["stopped cleanly", "killed"])
@pytest.mark.parametrize("how", ["all indexes are deleted", "all but the transaction index, which is empty", "zeros"])
def test_indexes_that_the_broker_rebuilds(judge_43: Judge, work: Path, how: str, stopped: bool) -> None:
    """F-8, U-12: an operator who deletes indexes expects the broker to rebuild them, also that of aborted transactions.

    The same for an index whose entries cannot belong to its segment. A cleaning before that must not use them.
    """
    made = _torn(judge_43, work, _log(21), recovery_point=40 if stopped else 30)
    path = made.root / "torn" / str(ways.NAME)
    index = _file(made, 20, ".txnindex")
    assert index.stat().st_size
    if stopped:
        ways.was_stopped(path.parent, 40)
    if how == "zeros":
        index.write_bytes(bytes(index.stat().st_size))
    else:
        for file in path.glob("*index"):
            file.unlink()
    if how.startswith("all but"):
        index.write_bytes(b"")
    made.copy("kafka")
    result = ways.clean(made.copy("cleaned"), ways.config_of("offset"), NOW_MS)
    assert result.outcome == "cleaned", result
    kafka, cleaned = (made.recovered(name, again=stopped) for name in ("kafka", "cleaned"))
    assert _values(kafka["committed"]) == _values(cleaned["committed"])
    assert _values(cleaned["committed"])["k"] == GOOD
