"""Which log directories the daemon looks after."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.errors import ConfigError
from cleanerd.scope.log_dirs import log_dirs_of
from cleanerd.settings import load_settings

if TYPE_CHECKING:
    from pathlib import Path


def settings(tmp_path: Path, *more: str) -> Any:
    return load_settings([], [f"cleanerd.state.dir={tmp_path / 'state'}", *more], {})


@pytest.mark.parametrize("key", ["log.dirs", "log.dir"])
def test_log_directories_of_the_broker(tmp_path: Path, key: str) -> None:
    """Ours, else the broker's; each once; never with the state directory inside."""
    properties = tmp_path / "server.properties"
    properties.write_text(f"{key}={tmp_path}/a, {tmp_path}/b,{tmp_path}/a\n")
    told = f"cleanerd.broker.properties={properties}"
    assert log_dirs_of(settings(tmp_path, told)) == (tmp_path / "a", tmp_path / "b")
    assert log_dirs_of(settings(tmp_path, told, f"cleanerd.log.dirs={tmp_path}/c")) == (tmp_path / "c",)
    with pytest.raises(ConfigError, match="lies in the log directory"):
        log_dirs_of(settings(tmp_path, f"cleanerd.log.dirs={tmp_path}"))
    with pytest.raises(ConfigError, match="no log directory is named"):
        log_dirs_of(settings(tmp_path))
    properties.unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        log_dirs_of(settings(tmp_path, told))
