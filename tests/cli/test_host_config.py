"""/etc/cleanerd/cleanerd.toml: read if no other file is named, and never skipped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cleanerd.cli.default_config import ANOTHER_PLACE
from tests.cli.strategy_topics import QUIET, log_dir_by_version
from tests.support.log_dirs import tree

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.clean_log_dirs import Answer, Shell

BY_VERSION = '[topics.orders]\n"compaction.strategy" = "header"\n"compaction.strategy.header" = "v"\n'


@pytest.fixture
def host_file(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that replaces /etc/cleanerd/cleanerd.toml."""
    monkeypatch.setenv(ANOTHER_PLACE, str(root / "etc.toml"))
    return root / "etc.toml"


def test_the_file_of_the_host_is_read(root: Path, shell: Shell, host_file: Path) -> None:
    """It is read and reported without --config; --config names other files instead; --no-config reads none."""
    path = log_dir_by_version(root)
    assert one_of(shell("plan", path, "--json", *QUIET))["strategy"] == "offset", "the file does not exist"
    host_file.write_text(BY_VERSION)
    reported = shell("plan", path, "--json", *QUIET)
    assert one_of(reported)["strategy"] == "header"
    assert f"settings are read from {host_file} (--no-config ignores it)" in reported.err
    assert one_of(shell("plan", path, "--json", "--no-config", *QUIET))["strategy"] == "offset"
    other = root / "other.toml"
    other.write_text("")
    reported = shell("plan", path, "--json", "--config", str(other), *QUIET)
    assert one_of(reported)["strategy"] == "offset"
    assert str(host_file) not in reported.err
    assert shell("plan", path, "--no-config", "--config", str(other)).code == 2


def one_of(answer: Answer) -> dict[str, object]:
    found: dict[str, object] = answer.json["partitions"][0]
    return found


def test_config_show_and_check_read_it(root: Path, shell: Shell, host_file: Path) -> None:
    host_file.write_text('"log.segment.bytes" = 77\n')
    shown = shell("config", "show", "--json")
    assert shown.json["files"] == [str(host_file)]
    assert {"key": "log.segment.bytes", "value": 77, "origin": f"file {host_file}"} in shown.json["settings"]
    assert shell("config", "show", "--json", "--no-config").json["files"] == []
    host_file.write_text('"log.segment.byte" = 77\n')
    assert shell("config", "check").code == 3
    assert shell("config", "check", "--no-config").code == 0


@pytest.mark.parametrize("wrong", ["a directory that is a file", "no TOML", "unknown key", "a link to nowhere"])
def test_a_bad_file_of_the_host_is_never_skipped(root: Path, shell: Shell, host_file: Path, wrong: str) -> None:
    """Without it, a command would clean with other settings than the daemon."""
    path = log_dir_by_version(root)
    before = tree(path, without=())
    if wrong == "a link to nowhere":
        host_file.symlink_to(root / "nowhere")
    else:
        host_file.write_text({"no TOML": "=", "unknown key": '"log.segment.byte" = 1\n'}.get(wrong, "\0"))
    for command in ("plan", "clean"):
        answer = shell(command, path, *(["--yes"] if command == "clean" else []), *QUIET)
        assert answer.code == 3, command
        assert str(host_file) in answer.err
        assert "this file is read by default; --no-config ignores it" in answer.err
    assert tree(path, without=()) == before
    assert shell("plan", path, "--no-config", *QUIET).code == 0
