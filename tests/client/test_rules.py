"""A topic's settings decide how records are written and read (R87, R280)."""

from __future__ import annotations

import re
from typing import Any

import pytest

from cleanerd.client.errors import TombstoneError, VersionError
from cleanerd.client.record import ConsumedRecord
from cleanerd.client.rules import RulesByTopic, TopicRules
from cleanerd.errors import ConfigError
from cleanerd.policy.version import encode_version

NULL = TopicRules()
FLAG = TopicRules(tombstone_mode="flag")
HEADER = TopicRules(tombstone_mode="header", tombstone_header="gone")
VERSIONED = TopicRules(strategy="header", version_header="v")


@pytest.mark.parametrize(
    ("rules", "value", "headers", "flagged", "magic", "deletes"),
    [
        (NULL, None, (), False, 2, True),
        (NULL, b"", (), False, 2, False),  # empty is not null
        (NULL, b"x", (), True, 2, False),  # R87-5: the flag acts in flag mode only
        (NULL, b"x", (("gone", b"1"),), False, 2, False),
        (FLAG, b"x", (), True, 2, True),  # R87-2: whatever the value
        (FLAG, None, (), True, 2, True),
        (FLAG, None, (), False, 2, False),  # R87-3: put(key, null) is not remove(key)
        (FLAG, None, (), False, 1, True),  # R87-2: magic 0 and 1 have no flag
        (FLAG, None, (), False, 0, True),
        (FLAG, b"x", (), False, 1, False),
        (HEADER, b"x", (("gone", b"1"),), False, 2, True),
        (HEADER, b"x", (("gone", b"true"),), False, 2, True),
        (HEADER, b"x", (("gone", b"00"),), False, 2, True),
        (HEADER, b"x", (("gone", b""),), False, 2, False),
        (HEADER, b"x", (("gone", b"0"),), False, 2, False),
        (HEADER, b"x", (("gone", b"false"),), False, 2, False),
        (HEADER, b"x", (("gone", None),), False, 2, False),
        (HEADER, b"x", (("Gone", b"1"),), False, 2, False),
        (HEADER, b"x", (("gone", b"1"), ("gone", b"0")), False, 2, False),  # the last one counts
        (HEADER, b"x", (("gone", b"0"), ("gone", b"1"), ("other", b"0")), False, 2, True),
        (HEADER, None, (), False, 2, True),  # as for every stock consumer
        (HEADER, None, (("gone", b"0"),), False, 2, True),
    ],
)
def test_tombstones(
    rules: TopicRules, value: bytes | None, headers: Any, flagged: bool, magic: int, deletes: bool
) -> None:
    """R87-2..4: which records a reader treats as deletes."""
    record = ConsumedRecord("t", 0, 5, 77, b"k", value, headers, rules, flagged, magic)
    assert record.is_tombstone() is deletes


@pytest.mark.parametrize(
    ("rules", "value", "headers", "tombstone", "deletes"),
    [
        (NULL, None, (), None, True),  # default: a null value deletes
        (NULL, None, (), True, True),
        (NULL, b"x", (), None, False),
        (NULL, b"x", (), False, False),
        (HEADER, None, (), None, True),
        (HEADER, b"x", (), True, True),
        (HEADER, b"x", (), None, False),
        (HEADER, b"x", (("gone", b"1"),), None, True),  # set by hand
        (HEADER, b"x", (("gone", b"0"),), False, False),
        (FLAG, None, (), None, True),
        (FLAG, b"x", (), True, True),
        (FLAG, b"", (), None, False),
    ],
)
def test_tombstones_to_write(
    rules: TopicRules, value: bytes | None, headers: Any, tombstone: bool | None, deletes: bool
) -> None:
    """R87-7: ``tombstone=`` decides; without it, the value does."""
    assert rules.resolve_tombstone(value, headers, tombstone) is deletes


@pytest.mark.parametrize("rules", [NULL, FLAG, HEADER])
def test_a_null_value_that_is_not_a_tombstone(rules: TopicRules) -> None:
    """R87-7: an error in flag mode, because KIP-87 forbids to produce it; in other modes a contradiction."""
    with pytest.raises(TombstoneError, match="tombstone=False with a null value"):
        rules.resolve_tombstone(None, (), tombstone=False)


def test_a_value_that_cannot_delete() -> None:
    with pytest.raises(TombstoneError, match="only a null value deletes"):
        NULL.resolve_tombstone(b"x", (), tombstone=True)


def test_a_header_against_the_argument() -> None:
    with pytest.raises(TombstoneError, match="header gone says otherwise"):
        HEADER.resolve_tombstone(b"x", (("gone", b"1"),), tombstone=False)


def test_versions_to_write() -> None:
    """R280-5: behind the caller's own, because the last one counts; 8 bytes or a varlong."""
    assert VERSIONED.resolve_version((("v", b"old"),), -2) == (("v", b"old"), ("v", b"\xff" * 7 + b"\xfe"))
    varlong = TopicRules(strategy="header", version_header="v", version_encoding="varlong")
    assert varlong.resolve_version((), -2) == (("v", b"\3"),)
    by_hand = (("v", encode_version(7, "long")),)
    assert VERSIONED.resolve_version(by_hand, None) == by_hand
    assert NULL.resolve_version((("a", None),), None) == (("a", None),)


@pytest.mark.parametrize(
    ("rules", "headers", "version", "message"),
    [
        (VERSIONED, (), None, "no version"),
        (VERSIONED, (("v", b"7 bytes"),), None, "no version"),
        (VERSIONED, (("v", bytes(8)), ("v", None)), None, "no version"),  # the last one counts, and it is null
        (VERSIONED, (), 2**63, "does not fit"),
        (NULL, (), 7, "strategy is offset"),
        (TopicRules(strategy="timestamp"), (), 7, "give timestamp_ms="),
    ],
)
def test_versions_that_would_lose(rules: TopicRules, headers: Any, version: int | None, message: str) -> None:
    """R280-6: a record without the header is superseded by all that have it, so the producer refuses to write one."""
    with pytest.raises(VersionError, match=re.escape(message)):
        rules.resolve_version(headers, version)


def test_versions_of_read_records() -> None:
    """R280-4..6: timestamp, last header, or none; a malformed one counts as none."""
    long = (("v", bytes(8)), ("v", encode_version(-3, "long")))
    assert VERSIONED.version(77, long) == -3
    assert VERSIONED.version(77, (*long, ("v", b"x"))) is None
    assert VERSIONED.version(77, ()) is None
    assert TopicRules(strategy="timestamp").version(77, long) == 77
    assert NULL.version(77, long) is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"compaction.strategy": "newest"}, "compaction.strategy is 'newest'.*offset, timestamp, header"),
        ({"tombstone.mode": "bit"}, "tombstone.mode is 'bit'.*null, flag, header"),
        ({"compaction.strategy.header.encoding": "int"}, "encoding is 'int'.*long, varlong"),
        ({"tombstone.mode": "header"}, "tombstone.header is blank"),
        ({"tombstone.mode": "header", "tombstone.header": " "}, "tombstone.header is blank"),
    ],
)
def test_bad_settings(settings: dict[str, str], message: str) -> None:
    """R280-2: key, value and choices."""
    with pytest.raises(ConfigError, match=message):
        TopicRules.of_config(settings)


def test_settings_under_cleanerds_names() -> None:
    """R280-2: missing or empty is the default; foreign keys are ignored."""
    assert TopicRules.of_config({"compaction.strategy": "", "cleanup.policy": "compact"}) == TopicRules()
    settings = {
        "compaction.strategy": "header",
        "compaction.strategy.header": "v",
        "compaction.strategy.header.encoding": "varlong",
        "tombstone.mode": "header",
        "tombstone.header": "gone",
    }
    assert TopicRules.of_config(settings) == TopicRules("header", "v", "varlong", "header", "gone")


def test_header_strategy_without_a_name() -> None:
    """R280-7: offset, and a warning."""
    with pytest.warns(UserWarning, match="is blank: the offset decides"):
        rules = TopicRules(strategy="header", version_header=" ")
    assert rules.strategy == "offset"
    assert rules.version(77, ()) is None


def test_rules_by_topic() -> None:
    assert RulesByTopic(HEADER).of("any") is HEADER
    assert RulesByTopic(None).of("any") == NULL
    each = RulesByTopic({"t": HEADER})
    assert each.of("t") is HEADER
    assert each.of("u") == NULL
