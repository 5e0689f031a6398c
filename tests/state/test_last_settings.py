"""cleanerd.state.last_settings: the settings in a topic's state files, and how often a directory is listed."""

from __future__ import annotations

import json
import os
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.fsio.state_files import UnreadableState
from cleanerd.state.last_settings import PARTITIONS, LastSettings
from tests.support.system_calls import system_call

if TYPE_CHECKING:
    from pathlib import Path

DIRECTORY = "disk"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The directory with the state files of one log directory."""
    found = tmp_path / PARTITIONS / DIRECTORY
    found.mkdir(parents=True)
    return found


def remember(place: Path, stem: str, rules: str | None) -> None:
    (place / f"{stem}.json").write_text(json.dumps({"cleanerd_checkpoint": None, "rules": rules}))


def settle(place: Path) -> None:
    """Nothing in it changed for a while: only then an unchanged time proves that."""
    os.utime(place, ns=(10**18, 10**18))


def test_a_topic_is_not_one_with_a_longer_name(tmp_path: Path, place: Path) -> None:
    """U-6: names have dashes and dots."""
    for stem, rules in {
        "name-a-0": "of a",
        "name-a-b-0": "of a-b",
        "name-a.b-0": "of a.b",
        "name-ab-0": "of ab",
        "name-a-b-c-1": None,
    }.items():
        remember(place, stem, rules)
    memory = LastSettings(tmp_path)
    reported = {topic: memory.of_topic(DIRECTORY, f"name-{topic}") for topic in ("a", "a-b", "a.b", "ab", "a-b-c", "x")}
    assert reported == {"a": "of a", "a-b": "of a-b", "a.b": "of a.b", "ab": "of ab", "a-b-c": None, "x": None}
    assert memory.of_name("a-b", uuid.UUID(int=1)) == ["of a-b"]


def test_a_directory_is_listed_once_for_all_topics(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start needs it for every topic that was never cleaned; a change is seen nevertheless."""
    for number in range(50):
        remember(place, f"name-t{number}-0", "some")
    settle(place)
    listings: list[Any] = []
    listdir = os.listdir

    def counted(path: Any) -> list[str]:
        listings.append(path)
        return listdir(path)

    system_call(monkeypatch, "listdir", counted)
    memory = LastSettings(tmp_path)
    for number in range(100):
        assert memory.of_topic(DIRECTORY, f"name-t{number}") == ("some" if number < 50 else None)
    assert len(listings) == 1
    remember(place, "name-t99-0", "more")
    assert memory.of_topic(DIRECTORY, "name-t99") == "more"


def test_many_short_lived_topics(tmp_path: Path, place: Path) -> None:
    """Each of them was looked up, and nothing was cleaned: the cache does not grow, and answers as before."""
    remember(place, "name-t7-0", "some")
    settle(place)
    memory = LastSettings(tmp_path, most_topics=100)
    reported = [memory.of_topic(DIRECTORY, f"name-t{number % 1000}") for number in range(2008)]
    assert [number for number, rules in enumerate(reported) if rules is not None] == [7, 1007, 2007]
    assert len(memory._rules) <= 100


def test_an_empty_state_directory(tmp_path: Path) -> None:
    """U-6: only if there is nothing at all; an unreadable directory may contain anything."""
    root = tmp_path / "state"
    memory = LastSettings(root)
    assert memory.is_empty()
    root.mkdir()
    assert memory.is_empty()
    (root / PARTITIONS).symlink_to(tmp_path / "nowhere")
    assert not memory.is_empty(), "a link is refused, not ignored"
    assert isinstance(memory.of_topic(DIRECTORY, "name-a"), UnreadableState)
    (root / PARTITIONS).unlink()
    remember_in = root / PARTITIONS / DIRECTORY
    remember_in.mkdir(parents=True)
    remember(remember_in, "name-a-0", "some")
    assert not memory.is_empty(), "another process has stored something since"
    root.rename(tmp_path / "aside")
    root.touch()
    assert not memory.is_empty(), "no directory"
