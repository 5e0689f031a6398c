"""The partitions that an operator's arguments select: one function for all commands and the daemon."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

import pytest

from cleanerd.errors import ConfigError, RefusedError
from cleanerd.format.names import TopicPartition
from cleanerd.resolution.selection import EVERYTHING, PartitionSelection, select

if TYPE_CHECKING:
    from collections.abc import Sequence

KNOWN = [
    TopicPartition(topic, number)
    for topic, number in (("orders", 0), ("orders", 1), ("orders-0", 0), ("orders-eu", 0), ("carts", 0))
]


def chosen(*words: str, partial: bool = False) -> PartitionSelection:
    return select(words, KNOWN, what="no such partition", hint="in /logs", partial=partial)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["carts-0"], ["carts-0"]),
        (["orders"], ["orders-0", "orders-1"]),
        (["orders-0"], ["orders-0"]),  # the partition, not the topic that is called so
        (["orders-0-0"], ["orders-0-0"]),
        (["orders-?"], ["orders-0", "orders-1", "orders-0-0"]),
        (["orders-*"], ["orders-0", "orders-1", "orders-0-0", "orders-eu-0"]),
        (["*-1", "carts"], ["carts-0", "orders-1"]),
        (["orders-1", "orders-1"], ["orders-1"]),
    ],
)
def test_the_forms_of_a_name(words: list[str], expected: list[str]) -> None:
    """A partition, otherwise a topic, otherwise a pattern for either."""
    assert sorted(map(str, chosen(*words))) == sorted(expected)


def test_partitions_of_a_pattern_are_not_explicit() -> None:
    """A pattern selects compacted partitions; a topic's own name selects it, compacted or not."""
    both = chosen("orders-*", "carts")
    assert [str(name) for name in both.named] == ["carts-0"]
    assert TopicPartition("orders-eu", 0) in both


def test_all_or_nothing() -> None:
    """Every unknown name is reported, with similar ones; a known one next to them selects nothing."""
    with pytest.raises(ConfigError) as caught:
        chosen("orders-0", "nope-0", "cart", "x*")
    assert str(caught.value) == "nope-0, cart, x*: no such partition (did you mean carts? in /logs)"


def test_many_unknown_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Similar names are found nevertheless.

    The daemon's loop waits for it: with 13,000 partitions each name took a second, and a list of another host's names
    let systemd's watchdog end the daemon.
    """
    known = [TopicPartition(f"service-{topic}.events", number) for topic in range(1000) for number in range(10)]
    compared: list[str] = []
    nearest = difflib.get_close_matches

    def counting(word: str, names: Sequence[str], **more: int) -> list[str]:
        compared.extend(names)
        return nearest(word, names, **more)

    # The number of comparisons shows nowhere else but in the time.
    monkeypatch.setattr(difflib, "get_close_matches", counting)
    words = ["service-777.event-7", *(f"nope-{number}" for number in range(499))]
    with pytest.raises(ConfigError) as caught:
        select(words, known, what="unknown", hint="")
    reported = str(caught.value)
    assert reported.startswith("service-777.event-7, nope-0, nope-1, ")
    assert " and 480 more: unknown (did you mean service-777.events-7" in reported
    assert len(compared) <= 3 * 500


def test_unknown_names_do_not_select_everything() -> None:
    """The partitions of an unreadable directory are unknown: the other directories are not cleaned instead."""
    nothing = chosen("payments-0", partial=True)
    assert nothing
    assert len(nothing) == 0
    assert not EVERYTHING
    assert not chosen()


@pytest.mark.parametrize("word", ["__cluster_metadata", "__cluster_metadata-0"])
def test_the_metadata_log_cannot_be_selected(word: str) -> None:
    with pytest.raises(RefusedError, match="never cleaned"):
        chosen(word)
