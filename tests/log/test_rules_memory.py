"""cleanerd.log.rules_memory: what the state files of a topic's partitions tell, and how often a directory is listed."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.log.rules_memory import PARTITIONS, RulesMemory

if TYPE_CHECKING:
    from pathlib import Path

DIRECTORY = "disk"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where the state files of one log directory are."""
    found = tmp_path / PARTITIONS / DIRECTORY
    found.mkdir(parents=True)
    return found


def remember(place: Path, stem: str, rules: str | None) -> None:
    (place / f"{stem}.json").write_text(json.dumps({"clean_point": None, "rules": rules}))


def settle(place: Path) -> None:
    """Nothing in it changed for a while: only then its time tells that nothing did."""
    os.utime(place, ns=(10**18, 10**18))


def test_a_topic_is_not_one_whose_name_begins_alike(tmp_path: Path, place: Path) -> None:
    """U-6: names have dashes and dots."""
    for stem, rules in {
        "name-a-0": "of a",
        "name-a-b-0": "of a-b",
        "name-a.b-0": "of a.b",
        "name-ab-0": "of ab",
        "name-a-b-c-1": None,
    }.items():
        remember(place, stem, rules)
    memory = RulesMemory(tmp_path)
    told = {topic: memory.of_topic(DIRECTORY, f"name-{topic}") for topic in ("a", "a-b", "a.b", "ab", "a-b-c", "x")}
    assert told == {"a": "of a", "a-b": "of a-b", "a.b": "of a.b", "ab": "of ab", "a-b-c": None, "x": None}
    assert memory.of_name("a-b", "id") == ["of a-b"]


def test_a_directory_is_listed_once_for_all_topics(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start asks of each topic that was never cleaned; a change is seen all the same."""
    for number in range(50):
        remember(place, f"name-t{number}-0", "some")
    settle(place)
    listings: list[Any] = []
    listdir = os.listdir

    def counted(path: Any) -> list[str]:
        listings.append(path)
        return listdir(path)

    monkeypatch.setattr(os, "listdir", counted)
    memory = RulesMemory(tmp_path)
    for number in range(100):
        assert memory.of_topic(DIRECTORY, f"name-t{number}") == ("some" if number < 50 else None)
    assert len(listings) == 1
    remember(place, "name-t99-0", "more")
    assert memory.of_topic(DIRECTORY, "name-t99") == "more"
