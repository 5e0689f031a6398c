"""The cut of ``topics.NAME.KEY``, globs, and advice for unknown keys."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleanerd.config.keys import TOPIC_FIELDS
from cleanerd.config.names import (
    cut_topic_name,
    daemon_key_advice,
    dotted_topic_advice,
    topic_key_advice,
)
from cleanerd.config.topic_patterns import bad_topic_name, matches, strength


@pytest.mark.parametrize(
    ("name", "cut"),
    [
        ("orders.cleanup.policy", ("orders", "cleanup.policy")),
        ("a.b.cleanup.policy", ("a.b", "cleanup.policy")),
        # the longest key: not retention.ms of orders.delete
        ("orders.delete.retention.ms", ("orders", "delete.retention.ms")),
        ("orders.retention.ms", ("orders", "retention.ms")),
        # a name is never empty
        ("delete.retention.ms", ("delete", "retention.ms")),
        # a topic that is called like a key
        ("segment.bytes.segment.bytes", ("segment.bytes", "segment.bytes")),
        ("*-changelog.segment.bytes", ("*-changelog", "segment.bytes")),
        ("retention.ms", None),
        (".cleanup.policy", None),
        ("orders", None),
        ("ordersretention.ms", None),
        ("orders.retention.ms.x", None),
    ],
)
def test_the_longest_known_key_is_cut_from_the_end(name: str, cut: tuple[str, str] | None) -> None:
    """A topic's name may have dots, so the key is recognised from its end."""
    assert cut_topic_name(name) == cut


@given(st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True), st.sampled_from(sorted(TOPIC_FIELDS)))
def test_topic_and_key_give_the_original_name(topic: str, key: str) -> None:
    """For any topic's name: nothing is lost, and the key is at least as long as the intended one."""
    cut = cut_topic_name(f"{topic}.{key}")
    assert cut is not None
    assert f"{cut[0]}.{cut[1]}" == f"{topic}.{key}"
    assert len(cut[1]) >= len(key)


@pytest.mark.parametrize(
    ("pattern", "topic", "yes"),
    [
        ("orders", "orders", True),
        ("orders", "orders.v1", False),
        ("orders*", "orders.v1", True),
        ("*-changelog", "app-changelog", True),
        ("order?", "orders", True),
        ("order?", "order", False),
        ("a.b", "axb", False),  # a dot is a dot
        ("Orders*", "orders", False),  # topics are case-sensitive
        ("[ab]*", "b1", True),
        ("[!ab]*", "b1", False),
    ],
)
def test_globs(pattern: str, topic: str, yes: bool) -> None:
    assert matches(pattern, topic) is yes


def test_strength_counts_literal_characters_and_the_own_name_is_strongest() -> None:
    """The longest literal match wins; wildcards and sets count nothing."""
    patterns = ["orders", "o*s", "orders*", "[abcdefgh]*"]
    assert sorted(patterns, key=strength) == ["[abcdefgh]*", "o*s", "orders*", "orders"]
    assert strength("[abcdefgh]*") == strength("*")


@pytest.mark.parametrize("topic", ["a" * 249, "a.b-c_d", "*", "__consumer_offsets", "[ab]*"])
def test_legal_table_names(topic: str) -> None:
    assert bad_topic_name(topic) is None


@pytest.mark.parametrize("topic", ["", ".", "..", "a" * 250, "a b", "a/b", "ordérs", "a*/b"])
def test_invalid_topic_names(topic: str) -> None:
    assert "cannot be a topic" in str(bad_topic_name(topic))


@pytest.mark.parametrize(
    ("key", "advice"),
    [
        ("log.segment.byte", "did you mean log.segment.bytes?"),
        ("log.cleaner.dedupe.bufer.size", "did you mean log.cleaner.dedupe.buffer.size?"),
        ("cleanerd.state.directory", "did you mean cleanerd.state.dir?"),
        ("min.cleanable.dirty.ratio", "topics.NAME.min.cleanable.dirty.ratio, or log.cleaner.min.cleanable.ratio"),
        ("quota.of.every.user", "no such key; nearest: "),
    ],
)
def test_advice_for_broker_level_keys(key: str, advice: str) -> None:
    assert advice in daemon_key_advice(key)


@pytest.mark.parametrize(
    ("key", "advice"),
    [
        ("cleanup.polici", "did you mean cleanup.policy?"),
        ("log.segment.bytes", "did you mean segment.bytes?"),
        ("message.max.bytes", "did you mean max.message.bytes?"),
        ("v1.cleanup.policy", 'in quotes: [topics."orders.v1"]'),
    ],
)
def test_advice_for_topic_keys(key: str, advice: str) -> None:
    assert advice in topic_key_advice(key)


def test_advice_for_dotted_topic_names() -> None:
    assert dotted_topic_advice("a.b.cleanup.polici") == "did you mean topics.a.b.cleanup.policy?"
    assert dotted_topic_advice("nothing").startswith("topic keys: cleanup.policy, ")
