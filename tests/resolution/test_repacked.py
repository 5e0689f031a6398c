"""Logs that become larger when their batches are compressed again (OP-23)."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from cleanerd.cli.main import run
from cleanerd.resolution.repacked import SAMPLE_BYTES, Repacked, repacked_beginning, repacked_sample
from tests.cleaner.driver import NAME
from tests.cleaner.well_packed import NOW, packed_better, well_packed_log
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import keyed_batch

if TYPE_CHECKING:
    from pathlib import Path

GROWS = "larger when a cleaning compresses them again"
OPTIONS = ("--now-ms", NOW, "--set", "topics.orders.cleanup.policy=compact")


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))


def _printed(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    code = run(list(map(str, arguments)))
    out = capsys.readouterr()
    return code, out.out + out.err


@pytest.mark.parametrize("grows", [True, False])
def test_every_report_names_it(capsys: pytest.CaptureFixture[str], tmp_path: Path, grows: bool) -> None:
    """OP-23: ``plan``, ``explain`` and ``spark profile``; a log that compresses as well as before is not named."""
    logs = well_packed_log(3)
    if not grows:
        value = random.Random(4).randbytes(9000).hex().encode()
        logs[0] = b"".join(packed_better(2 * row, [(b"k", b""), (b"u", value)], level=1) for row in range(3))
    path = make_log_dir(tmp_path / "logs", {NAME: Partition(logs)})
    for arguments in (("plan", path, *OPTIONS), ("explain", NAME, path, *OPTIONS), ("spark", "profile", path)):
        _, message = _printed(capsys, *arguments)
        assert (GROWS in message) == grows, message


def test_an_exact_plan_refuses_like_the_cleaning(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """U-54: a cleaning that only makes the log larger; unless it is forced."""
    path = make_log_dir(tmp_path / "logs", {NAME: Partition(well_packed_log())})
    refused, message = _printed(capsys, "plan", "--exact", path, *OPTIONS)
    assert refused == 4
    assert "a cleaning would make the log" in message
    assert _printed(capsys, "clean", "--yes", path, *OPTIONS)[0] == 4
    assert _printed(capsys, "plan", "--exact", "--force", path, *OPTIONS)[0] == 0


def test_logs_without_a_result(tmp_path: Path) -> None:
    """Batches without compression, a damaged segment, none at all, and one batch larger than the sample."""
    file = tmp_path / "a.log"
    packed = packed_better(0, [(b"k", b"v" * 90)])
    for data in (keyed_batch(0, [("k", "v")]), packed[:-1] + b"?", b"", packed[:40]):
        file.write_bytes(data)
        assert repacked_beginning(file, len(data)) == Repacked()
    assert repacked_beginning(tmp_path / "gone.log", 9) == Repacked()
    assert repacked_sample([]) == Repacked()
    file.write_bytes(packed)
    assert repacked_sample([(file, len(packed))] * 30).before_bytes == 8 * len(packed)
    assert len(packed) < SAMPLE_BYTES


def test_the_note() -> None:
    """Above one percent."""
    assert Repacked(100, 101).note == ""
    assert Repacked(100, 125).note.startswith("batches become 25% larger")
    assert (Repacked(1, 2) + Repacked(3, 4)) == Repacked(4, 6)
