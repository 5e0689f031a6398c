"""The tombstone of an erasure request: its partitions, and its version (U-88)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.client.erasure import KeyEraser, version_above
from cleanerd.client.latest_state import ReadingStart
from cleanerd.client.record import ConsumedRecord
from cleanerd.client.rules import TopicRules
from cleanerd.errors import RefusedError
from cleanerd.policy.version import MAX_VERSION, encode_version

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

NOW = 1_700_000_000_000
BY_TIME = TopicRules(strategy="timestamp")
BY_HEADER = TopicRules(strategy="header", version_header="v")


@dataclass
class Script:
    """A topic of two partitions; each reading returns the records that were added since."""

    rules: TopicRules
    new: list[ConsumedRecord] = field(default_factory=list)
    again: bool = True

    def add(self, partition: int, offset: int, key: bytes, value: bytes | None, *, at: int = NOW, **facts: Any) -> None:
        self.new.append(ConsumedRecord("t", partition, offset, at, key, value, facts.pop("headers", ()), self.rules))

    def begin(self) -> Mapping[int, ReadingStart]:
        again, self.again = self.again, False
        return {number: ReadingStart(0, again) for number in (0, 1)}

    def records(self, timeout_s: float) -> Iterator[ConsumedRecord]:  # noqa: ARG002
        found, self.new = self.new, []
        yield from found

    def reread(self, partition: int) -> None:  # noqa: ARG002
        raise AssertionError

    def close(self) -> None:
        pass


def eraser(script: Script) -> KeyEraser:
    return KeyEraser("t", b"k", script.rules, confluent={}, kafka_python={}, source=script)


def test_the_partitions_of_the_key() -> None:
    """Whichever partitioner wrote it; if a tombstone is the latest record, none is needed."""
    script = Script(TopicRules())
    script.add(0, 1, b"k", b"1")
    script.add(0, 2, b"other", b"1")
    script.add(1, 1, b"k", b"1")
    script.add(1, 2, b"k", None)
    found = eraser(script)
    found.read()
    assert (found.to_write, sorted(found.winners), found.records) == ([0], [0, 1], 3)
    script.add(0, 9, b"k", None)
    found.read()
    assert (found.to_write, found.winners[0].offset) == ([], 9)
    script.again = True
    found.read()
    assert found.winners == {}, "the log was truncated: it is read again"


def test_by_version_the_largest_of_all_partitions_counts() -> None:
    script = Script(BY_HEADER)
    script.add(0, 1, b"k", b"1", headers=(("v", encode_version(7, "long")),))
    script.add(0, 2, b"k", None, headers=(("v", encode_version(3, "long")),))
    script.add(1, 1, b"k", b"1", headers=(("v", encode_version(9, "long")),))
    script.add(1, 2, b"k", b"1")
    script.add(1, 3, b"other", b"1", headers=(("v", encode_version(99, "long")),))
    found = eraser(script)
    found.read()
    assert (found.to_write, found.largest_version) == ([0, 1], 9)
    assert version_above(BY_HEADER, found.largest_version, NOW) == {"version": 10}


def test_versions() -> None:
    """Above all known ones; a timestamp in the future as well."""
    assert version_above(TopicRules(), None, NOW) == {}
    assert version_above(BY_HEADER, None, NOW) == {"version": 0}
    assert version_above(BY_HEADER, -5, NOW) == {"version": -4}
    assert version_above(BY_TIME, None, NOW) == {"timestamp_ms": NOW}
    assert version_above(BY_TIME, NOW - 9, NOW) == {"timestamp_ms": NOW}
    assert version_above(BY_TIME, NOW, NOW) == {"timestamp_ms": NOW + 1}
    assert version_above(BY_TIME, NOW + 99, NOW) == {"timestamp_ms": NOW + 100}
    with pytest.raises(RefusedError, match="no tombstone can be above it"):
        version_above(BY_HEADER, MAX_VERSION, NOW)
