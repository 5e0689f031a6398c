"""Records of the metadata log that are too young to count yet, and their content (U-23)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cleanerd.errors import CorruptionError
from cleanerd.segments.cluster_metadata import read_cluster_metadata
from tests.segments.metadata_logs import ID1, ID2, ID3, LOG, read
from tests.support.format_bytes import config, metadata_batch, remove_topic, snapshot, topic

if TYPE_CHECKING:
    from pathlib import Path


def test_only_before(directory: Path) -> None:
    """U-23, on-start: the log stops at the first young batch, whatever follows; a snapshot always counts."""
    (directory / "00000000000000000001-0000000001.checkpoint").write_bytes(snapshot(topic("a", ID1), timestamp=99))
    (directory / LOG).write_bytes(
        metadata_batch(0, topic("a", ID1), timestamp=99)
        + metadata_batch(1, topic("b", ID2), timestamp=50)
        + metadata_batch(2, topic("c", ID3), timestamp=70)
        + metadata_batch(3, remove_topic(ID1), timestamp=40)
    )
    found = read_cluster_metadata(directory, only_before_ms=60)
    assert (found.topics, found.as_of) == ({"a": ID1, "b": ID2}, 2)
    assert read_cluster_metadata(directory, only_before_ms=50).topics == {"a": ID1}
    assert read_cluster_metadata(directory, only_before_ms=None).topics == {"b": ID2, "c": ID3}


def test_young_batches_are_distinguished_in_one_reading(directory: Path) -> None:
    """U-23: one reading returns both; the counting part is the same as without the younger one, whatever that is."""
    old = metadata_batch(0, topic("a", ID1), config(2, "a", "cleanup.policy", "delete"), timestamp=10)
    change = config(2, "a", "cleanup.policy", "compact")
    young = metadata_batch(2, change, topic("b", ID2), timestamp=70) + metadata_batch(
        4, remove_topic(ID2), timestamp=40
    )
    (directory / LOG).write_bytes(old + young)
    alone = read_cluster_metadata(directory, only_before_ms=60)
    both = read_cluster_metadata(directory, only_before_ms=60, younger=True)
    assert alone.younger is None
    assert replace(both, younger=None) == alone
    assert both.topic_configs == {"a": {"cleanup.policy": "delete"}}
    assert both.younger == read(directory)
    assert read_cluster_metadata(directory, only_before_ms=99, younger=True).younger is None
    # A broker is about to write it: damage there is not reported yet.
    (directory / LOG).write_bytes(old + young.replace(ID2.bytes, b"\x55" * 16))
    damaged = read_cluster_metadata(directory, only_before_ms=60, younger=True)
    assert replace(damaged, younger=None) == alone
    with pytest.raises(CorruptionError):
        read(directory)
