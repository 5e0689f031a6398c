"""The race of the demonstration: its traffic has the promised properties, and its model is right."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cleanerd.client.rules import TopicRules
from cleanerd.config.load import load_settings
from cleanerd_lab.demo.race import RaceFacts, RaceResult, RaceUpdate, facts, late_updates, updates
from cleanerd_lab.demo.strategies import CONFIG, STRATEGY, TOPIC

if TYPE_CHECKING:
    from pathlib import Path


def _raced(*entries: tuple[bytes, int | None, bytes | None]) -> RaceResult:
    return RaceResult({offset: RaceUpdate(*entry) for offset, entry in enumerate(entries)})


@pytest.mark.parametrize(
    ("entries", "winner"),
    [
        ([(b"k", 7, b"new"), (b"k", 3, b"old")], 0),
        ([(b"k", 7, b"one"), (b"k", 7, b"two")], 1),
        ([(b"k", 7, b"it"), (b"k", None, b"none")], 0),
        ([(b"k", None, b"none"), (b"k", -5, b"it")], 1),
        ([(b"k", None, b"one"), (b"k", None, b"two")], 1),
        ([(b"k", 7, None), (b"k", 3, b"old")], 0),
    ],
    ids=["late", "equal", "without after", "below zero beats without", "both without", "delete by version"],
)
def test_the_model_keeps_the_highest_version(
    entries: list[tuple[bytes, int | None, bytes | None]], winner: int
) -> None:
    """R280-4..R280-6: the version first, a missing one is below all, equal ones are decided by the offset."""
    raced = _raced(*entries)
    assert raced.winners() == {b"k": winner}
    assert raced.expected() == {b"k": entries[winner][2]}
    assert raced.last_values() == {b"k": entries[-1][2]}


def test_the_model_uses_offsets_not_delivery_reports() -> None:
    raced = RaceResult({5: RaceUpdate(b"k", 1, b"second"), 2: RaceUpdate(b"k", 1, b"first")})
    assert raced.winners() == {b"k": 5}
    assert raced.last_values() == {b"k": b"second"}


def test_contents_of_a_race_are_counted_in_the_order_of_the_log() -> None:
    raced = _raced(
        (b"a", 2, b"x"), (b"a", 1, b"x"), (b"a", 2, b"x"), (b"a", None, b"x"), (b"b", 9, None), (b"b", 4, b"x")
    )
    assert facts(raced) == RaceFacts(
        records=6, keys=2, out_of_order=2, equal=1, without_version=1, deletes=1, deleted_keys=1
    )


def test_the_traffic_has_all_promised_properties() -> None:
    """Late writes, equal versions, records without the header, deletes; and the order of arrival decides wrongly."""
    batch = updates(12_000, seed=1)
    assert batch == updates(12_000, seed=1)
    assert batch != updates(12_000, seed=2)
    raced = RaceResult(dict(enumerate(batch)))
    counts = facts(raced)
    assert counts.records == 12_000
    assert counts.keys > 900
    for share in (counts.out_of_order / 12_000, counts.equal / 12_000, counts.without_version / 12_000):
        assert 0.005 < share < 0.3
    assert counts.deletes > counts.deleted_keys > 10
    expected, last = raced.expected(), raced.last_values()
    assert sum(expected[key] != last[key] for key in expected) > 50
    # Values identify records, or a wrong one could look right.
    values = [update.value for update in batch if update.value is not None]
    assert len(values) == len(set(values))


def test_late_writes_lose_and_reach_deleted_keys_too() -> None:
    raced = RaceResult(dict(enumerate(updates(12_000, seed=1))))
    late = late_updates(raced, seed=1)
    before, expected = raced.winners(), raced.expected()
    assert any(expected[update.key] is None for update in late)
    raced.records.update(enumerate(late, start=len(raced.records)))
    assert len(late) > 50
    assert raced.winners() == before


def test_cleaner_and_clients_get_the_same_settings(tmp_path: Path) -> None:
    """The settings in cleanerd.toml are those of the producers and of LatestState."""
    path = tmp_path / "cleanerd.toml"
    path.write_text(CONFIG)
    overrides = load_settings((path,), ()).topic_overrides(TOPIC)
    assert {key: value for key, (value, _) in overrides.items()} == STRATEGY
    rules = TopicRules.of_config(STRATEGY)
    assert (rules.strategy, rules.version_header, rules.version_encoding) == ("header", "version", "long")
