"""The log directories that the daemon manages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.config.load import load_settings
from cleanerd.errors import ConfigError
from cleanerd.resolution.log_dirs import log_dirs_of

if TYPE_CHECKING:
    from pathlib import Path


def settings(tmp_path: Path, *more: str) -> Any:
    return load_settings([], [f"cleanerd.state.dir={tmp_path / 'state'}", *more], {})


@pytest.mark.parametrize("key", ["log.dirs", "log.dir"])
def test_log_directories_of_the_broker(tmp_path: Path, key: str) -> None:
    """Ours, otherwise the broker's; each once; never with the state directory inside."""
    properties = tmp_path / "server.properties"
    properties.write_text(f"{key}={tmp_path}/a, {tmp_path}/b,{tmp_path}/a\n")
    reported = f"cleanerd.broker.properties={properties}"
    assert log_dirs_of(settings(tmp_path, reported)) == (tmp_path / "a", tmp_path / "b")
    assert log_dirs_of(settings(tmp_path, reported, f"cleanerd.log.dirs={tmp_path}/c")) == (tmp_path / "c",)
    with pytest.raises(ConfigError, match="is in the log directory"):
        log_dirs_of(settings(tmp_path, f"cleanerd.log.dirs={tmp_path}"))
    with pytest.raises(ConfigError, match="no log directory is named"):
        log_dirs_of(settings(tmp_path))
    properties.unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        log_dirs_of(settings(tmp_path, reported))


@pytest.mark.parametrize("named", ["data", "./data,{0}/b", "{0}/b, data"])
def test_log_directories_relative_to_the_brokers_start_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    """Whatever has the same name here: cleanerd is started elsewhere."""
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    properties = tmp_path / "server.properties"
    properties.write_text(f"log.dirs={named.format(tmp_path)}\n")
    reported = f"cleanerd.broker.properties={properties}"
    with pytest.raises(ConfigError, match=r"log\.dirs names data, which is relative to the broker"):
        log_dirs_of(settings(tmp_path, reported))
    assert log_dirs_of(settings(tmp_path, reported, f"cleanerd.log.dirs={tmp_path}/c")) == (tmp_path / "c",)


def test_a_directory_with_two_names(tmp_path: Path) -> None:
    """By the first one: the daemon refused to start, because "cleanerd run" - itself - already had the directory."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "link").symlink_to("a")
    named = ",".join(f"{tmp_path}/{name}" for name in ("link", "b", "a", "b/../a", "none", "none/."))
    first, second, third = (tmp_path / name for name in ("link", "b", "none"))
    found = settings(tmp_path, f"cleanerd.log.dirs={named}")
    assert log_dirs_of(found) == (first, second, third)
    assert log_dirs_of(found, known=(tmp_path / "a",)) == (first, second, third), "a reload that adds the link"


def test_a_broken_file_of_the_broker(tmp_path: Path) -> None:
    """It was reported as damage, exit code 5, as of a log."""
    properties = tmp_path / "server.properties"
    properties.write_text("# ours\nlog.dirs=\\uZZZZ\n")
    with pytest.raises(ConfigError) as raised:
        log_dirs_of(settings(tmp_path, f"cleanerd.broker.properties={properties}"))
    assert str(raised.value).startswith(f"{properties}: line 2: \\u needs four hexadecimal digits (")
