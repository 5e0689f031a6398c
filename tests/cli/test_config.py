"""``cleanerd config``: show with origins, check with every mistake, generate."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from cleanerd.cli.main import run
from cleanerd.config.generate import generate
from cleanerd.config.keys import DAEMON_FIELDS

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "cleanerd.toml"
    path.write_text('"log.segment.bytes" = "64MiB"\n[topics."*-log"]\n"cleanup.policy" = ["compact", "delete"]\n')
    return path


def test_show_has_every_key_with_its_origin(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "show", "--config", str(file), "--set", "log.retention.hours=2d"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["KEY", "VALUE", "ORIGIN"]
    assert [line[0] for line in lines[1:]] == [*DAEMON_FIELDS, 'topics."*-log".cleanup.policy']
    assert ["log.segment.bytes", "64MiB", "file", str(file)] in lines
    assert ["log.retention.hours", "2d", "--set"] in lines
    assert ["cleanerd.disk.reserve", "auto", "default"] in lines
    assert ["log.retention.ms", "default"] in lines  # without a value
    assert ['topics."*-log".cleanup.policy', "compact,delete", "file", str(file)] in lines


def test_show_json_has_plain_values_in_kafkas_units(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "show", "--json", "--config", str(file), "--set", "log.retention.hours=2d"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == 1
    settings = {row["key"]: (row["value"], row["origin"]) for row in document["settings"]}
    assert settings["log.segment.bytes"] == (67108864, f"file {file}")
    assert settings["log.retention.hours"] == (48, "--set")
    assert settings["log.cleaner.min.cleanable.ratio"] == (0.5, "default")
    assert settings["log.retention.ms"] == (None, "default")
    assert settings["log.cleanup.policy"] == ("delete", "default")
    assert document["topics"] == [
        {"topic": "*-log", "key": "cleanup.policy", "value": "compact,delete", "origin": f"file {file}"}
    ]


def test_show_for_one_topic(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "show", "--config", str(file), "--topic", "audit-log", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "schema": 1,
        "topic": "audit-log",
        "settings": [
            {"key": "cleanup.policy", "value": "compact,delete", "origin": f'file {file} topics."*-log"'},
        ],
    }
    assert run(["config", "show", "--config", str(file), "--topic", "orders"]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "nothing is set for orders" in captured.err


def test_show_with_a_mistake_is_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "show", "--set", "log.segment.byte=1"]) == 3
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        "cleanerd: --set log.segment.byte: unknown key log.segment.byte (did you mean log.segment.bytes?)\n"
    )


def test_check_lists_every_mistake(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "check", "--config", str(file)]) == 0
    assert capsys.readouterr().out == "ok: 2 settings, the rest are defaults\n"
    mistakes = ["--set", "x=1", "--set", "log.segment.bytes=1"]
    assert run(["config", "check", "--config", str(file), *mistakes]) == 3
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert run(["config", "check", "--json", *mistakes]) == 3
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["ok"], len(document["problems"])) == (1, False, 2)
    assert document["problems"][0]["where"] == "--set x"


def test_check_finds_paths_that_are_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "server.properties"
    assert run(["config", "check", "--set", f"cleanerd.broker.properties={missing}"]) == 3
    assert capsys.readouterr().out == f"--set: cleanerd.broker.properties: {missing} does not exist\n"
    missing.write_text("")
    assert run(["config", "check", "--set", f"cleanerd.broker.properties={missing}"]) == 0


def checked(capsys: pytest.CaptureFixture[str], *assignments: str) -> tuple[int, list[str], list[str]]:
    """Exit code, problems and warnings of ``config check``."""
    capsys.readouterr()
    code = run(["config", "check", "--json", *(word for text in assignments for word in ("--set", text))])
    document = json.loads(capsys.readouterr().out)
    return code, [problem["message"] for problem in document["problems"]], document["warnings"]


def test_check_warns_of_strategies(capsys: pytest.CaptureFixture[str]) -> None:
    """R280-7, R280-13, U-25: surprising effects are reported, and are not errors."""
    assert checked(capsys, "topics.orders.compaction.strategy=offset") == (0, [], [])
    code, problems, (late,) = checked(capsys, "topics.orders.compaction.strategy=timestamp")
    assert (code, problems) == (0, [])
    assert "delete.retention.ms of orders is 1 d (Kafka default), shorter than segment.ms 7 d" in late
    assert late.endswith("; what the topic sets in the cluster is not known here: cleanerd doctor and explain use it")
    strategy = "topics.orders.compaction.strategy=timestamp"
    assert checked(capsys, strategy, "topics.orders.delete.retention.ms=8d") == (0, [], [])
    lag = checked(capsys, strategy, "topics.orders.delete.retention.ms=8d", "topics.orders.max.compaction.lag.ms=9d")
    assert "max.compaction.lag.ms 9 d (--set)" in lag[2][0]
    _, _, (blank,) = checked(capsys, "topics.app-*.compaction.strategy=header")
    assert "topics.app-*.compaction.strategy.header=NAME" in blank
    _, _, (blank,) = checked(capsys, "log.cleaner.compaction.strategy=header")
    assert "log.cleaner.compaction.strategy.header is blank" in blank
    assert run(["config", "check", "--set", strategy]) == 0
    assert "warning: delete.retention.ms" in capsys.readouterr().err


def test_check_finds_contradictions(capsys: pytest.CaptureFixture[str]) -> None:
    """R87-4: a tombstone header without a name; also contradicting lags of one topic."""
    code, (problem,), _ = checked(capsys, "topics.orders.tombstone.mode=header")
    assert (code, "tombstone.header is blank" in problem) == (3, True)
    assert checked(capsys, "topics.orders.tombstone.mode=header", "topics.orders.tombstone.header=d")[0] == 0
    lags = ("topics.orders.min.compaction.lag.ms=2d", "topics.orders.max.compaction.lag.ms=1d")
    assert checked(capsys, *lags)[0] == 3


def test_generate_prints_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "generate"]) == 0
    assert capsys.readouterr().out == generate()


def test_generate_works_in_any_environment(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is needed when the settings are wrong."""
    monkeypatch.setenv("CLEANERD_LOG_SEGMENT_BYTES", "nonsense")
    assert run(["config", "generate"]) == 0
    assert run(["config", "show"]) == 3
    assert "environment CLEANERD_LOG_SEGMENT_BYTES" in capsys.readouterr().err


def test_a_stray_variable_stops_nothing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command warns about it, with --quiet or without, and continues."""
    monkeypatch.setenv("CLEANERD_LOG_SEGMENT_BYTE", "1")
    environment = (
        "environment CLEANERD_LOG_SEGMENT_BYTE: unknown key log.segment.byte (did you mean log.segment.bytes?)"
    )
    assert run(["config", "show", "--quiet"]) == 0
    assert capsys.readouterr().err == f"warning: the variable sets nothing: {environment}\n"
    assert run(["config", "check", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["ok"], document["warnings"]) == (True, [f"the variable sets nothing: {environment}"])


def test_settings_of_kafka_are_reported_in_one_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A note, so that --quiet hides it; config check --json has all of them."""
    file = tmp_path / "pasted.toml"
    file.write_text("log.cleaner.enable = true\nnum.io.threads = 8\n")
    for command in ("show", "check"):
        assert run(["config", command, "--config", str(file)]) == 0
        message = "settings of Kafka that mean nothing to cleanerd are ignored: log.cleaner.enable, num.io.threads"
        assert capsys.readouterr().err == f"{message} (file {file})\n"
        assert run(["config", command, "--config", str(file), "--quiet"]) == 0
        assert capsys.readouterr().err == ""
    assert run(["config", "check", "--config", str(file), "--json"]) == 0
    unused = [each["key"] for each in json.loads(capsys.readouterr().out)["unused"]]
    assert unused == ["log.cleaner.enable", "num.io.threads"]
