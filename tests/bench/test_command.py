"""``cleanerd bench``: every figure is printed, and no file is left."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from cleanerd.cli.main import run
from cleanerd_lab.bench import whole

if TYPE_CHECKING:
    from pathlib import Path

SMALL = ["bench", "--size", "2MiB", "--repeat", "1"]


@pytest.mark.long
def test_measures_every_stage_of_every_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*SMALL, "--json", "--quiet", "--dir", str(tmp_path)]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["schema"] == 1
    assert result["start_cpu_seconds"] > 0
    assert [log["name"] for log in result["logs"]] == ["a80", "a10", "single", "lz4", "zstd"]
    for log in result["logs"]:
        assert set(log["stages_ns_per_record"]) == {"crc", "scan", "decode", "put", "contains", "rewrite"}
        assert all(value > 0 for value in log["stages_ns_per_record"].values())
        assert 0 < log["bytes_after"] < log["bytes"]
        assert log["floor_cpu_seconds"] > 0
        assert log["copy_wall_seconds"] > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_one_log_as_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole, "STARTS", 1)  # the first test has measured five: no option selects fewer
    assert run([*SMALL, "--log", "lz4", "--dir", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "wall / cp" in text
    assert list(tmp_path.iterdir()) == []
    assert "a80" not in text


@pytest.mark.parametrize("arguments", [["--size", "2MB"], ["--log", "a99"], ["--repeat", "0"]])
def test_wrong_arguments_are_bad_usage(arguments: list[str]) -> None:
    assert run(["bench", *arguments]) == 2
