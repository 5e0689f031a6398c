"""What the daemon makes of open erasure requests: it cleans what they wait for, and shows how far they are (U-88)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.cli.output import Output
from cleanerd.cli.status import attention, print_erasures
from cleanerd.daemon.erasures import Erasures, Found
from cleanerd.daemon.view import ErasureView
from cleanerd.format.names import uuid_to_base64
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.state.erasure_requests import ErasureRequest, ErasureRequests, KeyHash
from tests.cli.erasing import ABSENT, KEY, PRESENT, SALT, TOPIC_ID
from tests.daemon.fleets import CLEAN, NOW, done, fleet_with, look, result, tracked, triggers
from tests.daemon.views import NOW_MS, view
from tests.support.log_dirs import Partition, make_log_dir

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.daemon.registry.partition_registry import PartitionRegistry

QUIET = {"eligible": False, "reason": "ratio", "topic_id": TOPIC_ID}


def asked(offset: int = 15, **facts: Any) -> ErasureRequest:
    usual = {"topic": "orders", "tombstones": {0: offset}, "topic_id": uuid_to_base64(TOPIC_ID)}
    return ErasureRequest(
        id="0123456789abcdef",
        cluster_id="c",
        key=KeyHash.of(KEY.encode(), SALT),
        requested_ms=NOW,
        deadline_ms=NOW + 1,
        **{**usual, **facts},
    )


def following(tmp_path: Path, fleet: PartitionRegistry, *requests: ErasureRequest) -> Erasures:
    erasures = Erasures(tmp_path, fleet)
    erasures.apply(Found(requests, frozenset()))
    return erasures


def stage(erasures: Erasures) -> str:
    ((found, _),) = erasures.views()[0].stages.values()
    return found


def test_the_tombstone_is_cleaned_next(tmp_path: Path) -> None:
    """Whatever the dirty ratio is, and no sooner than a cleaning covers it."""
    fleet = fleet_with(look(**QUIET))
    assert triggers(fleet) == []
    erasures = following(tmp_path, fleet, asked(15))
    assert (triggers(fleet), stage(erasures)) == (["erasure"], "dirty")
    erasures.apply(Found((asked(20),), frozenset()))
    assert (triggers(fleet), stage(erasures)) == ([], "blocked")
    erasures.apply(Found((asked(9),), frozenset()))
    assert (triggers(fleet), stage(erasures)) == ([], "tombstone")
    erasures.apply(Found((), frozenset()))
    assert (triggers(fleet), erasures.views()) == ([], ())


def test_it_is_not_cleaned_again_for_nothing(tmp_path: Path) -> None:
    """A cleaning that fails waits as any other; one that covers the tombstone ends it."""
    fleet = fleet_with(look(**QUIET))
    following(tmp_path, fleet, asked(15))
    done(fleet, failed="broken", result=result("quarantined"))
    assert triggers(fleet) == []
    cleaned = fleet_with(look(**{**QUIET, **CLEAN}, clean_offset=20))
    following(tmp_path, cleaned, asked(15))
    assert triggers(cleaned) == []


@pytest.mark.parametrize(
    "other", [{"topic": "others"}, {"tombstones": {1: 15}}, {"topic_id": "A" * 22}], ids=["topic", "partition", "id"]
)
def test_partitions_that_it_is_not_about(tmp_path: Path, other: dict[str, Any]) -> None:
    """A topic that was created again under the same name is another one."""
    fleet = fleet_with(look(**QUIET))
    erasures = following(tmp_path, fleet, asked(**other))
    assert triggers(fleet) == []
    assert erasures.views()[0].stages == {}


def test_a_refused_partition_is_not_forced(tmp_path: Path) -> None:
    fleet = fleet_with(look(**QUIET, forceable=False, refused=True))
    following(tmp_path, fleet, asked(15))
    assert triggers(fleet) == []


def test_the_log_shows_when_the_tombstone_is_gone(tmp_path: Path) -> None:
    """Read in another thread; a record of another key at its offset is not it, and damage proves nothing."""
    ErasureRequests(tmp_path / "state").save(asked(2))
    for segments, expected in ((PRESENT, "tombstone"), (ABSENT, "certify"), ({3: b""}, "certify")):
        logs = make_log_dir(tmp_path / str(len(list(tmp_path.iterdir()))), {"orders-0": Partition(segments)})
        fleet = fleet_with(look(**{**QUIET, **CLEAN}, log_dir=read_log_dir(logs), clean_offset=3))
        erasures = Erasures(tmp_path / "state", fleet)
        for _ in range(2):  # the first reading finds the requests, the second one reads their logs
            erasures.apply(erasures.reading()())
        assert stage(erasures) == expected
        file = logs / "orders-0" / f"{2:020d}.log"
        if file.exists():
            file.write_bytes(b"\x00" * 70)
            erasures.apply(erasures.reading()())
            assert stage(erasures) == "tombstone"


def test_certified_requests_and_damaged_files(tmp_path: Path) -> None:
    requests = ErasureRequests(tmp_path)
    requests.save(asked())
    requests.certified("0123456789abcdef", NOW)
    fleet = fleet_with(look(**QUIET))
    erasures = Erasures(tmp_path, fleet)
    erasures.apply(erasures.reading()())
    assert erasures.views() == ()
    assert not tracked(fleet).asked
    requests.path.write_text("{")
    (warning,) = erasures.reading()().warnings
    assert "ignored" in warning
    requests.save(asked())
    assert [each.id for each in requests.load()] == ["0123456789abcdef"]
    assert requests.path.with_suffix(".damaged").exists()
    assert requests.forget("0123456789abcdef")
    assert not requests.forget("0123456789abcdef")


OPEN = ErasureView("aa", "orders", NOW_MS - 9, NOW_MS + 600_000, {"orders-0": ("certify", "run it")})
LATE = replace(OPEN, id="bb", deadline_ms=NOW_MS - 1, stages={})


def test_status(capsys: pytest.CaptureFixture[str]) -> None:
    document = view(erasures=(OPEN, LATE)).to_json()
    (line,) = (each for each in attention(document, NOW_MS) if "deadline" in each)
    assert "1 erasure requests past their deadline: orders (bb)" in line
    print_erasures(Output(), document["erasures"])
    printed = capsys.readouterr().out
    assert "orders-0" in printed
    assert "no partition of this host has its tombstone" in printed
