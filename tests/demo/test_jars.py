"""The places where a Kafka release is searched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cleanerd.errors import ConfigError
from cleanerd_lab.demo.jars import find_kafka

if TYPE_CHECKING:
    from pathlib import Path


def _release(directory: Path, version: str) -> Path:
    directory.mkdir(parents=True)
    (directory / f"kafka-server-common-{version}.jar").touch()
    (directory / "slf4j-api-9.9.9.jar").touch()
    return directory


def test_the_newest_of_several_by_number_not_by_text(tmp_path: Path) -> None:
    for version in ("3.9.2", "4.10.0", "4.3.1"):
        _release(tmp_path / f"libs-{version}", version)
    found = find_kafka(tmp_path)
    assert found.version == "4.10.0"
    assert found.libs_dir == tmp_path / "libs-4.10.0"


@pytest.mark.parametrize("inside", ["", "libs"])
def test_an_unpacked_release_or_its_jars(tmp_path: Path, inside: str) -> None:
    _release(tmp_path / "kafka" / inside, "4.3.1")
    assert find_kafka(tmp_path / "kafka").libs_dir == tmp_path / "kafka" / inside


def test_the_option_is_stronger_than_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_LIBS", str(_release(tmp_path / "a", "4.3.1")))
    assert find_kafka(None).version == "4.3.1"
    assert find_kafka(_release(tmp_path / "b", "3.9.2")).version == "3.9.2"


def test_without_jars_it_shows_how_to_get_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKA_LIBS", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as raised:
        find_kafka(None)
    assert "make setup" in str(raised.value)
    assert "--kafka-libs" in str(raised.value)
