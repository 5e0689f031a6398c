"""Keys that have a value in several partitions of a topic, as far as a sample shows them (OP-27).

A cleaning compares the records of one partition, so both values stay. It happens when partitions were added, or with
another partitioner.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Final

import numpy as np

from cleanerd.errors import CleanerdError
from cleanerd.format.names import SEGMENT_SUFFIX, TopicPartition
from cleanerd.humanize import counted
from cleanerd.segments.log_dir import partition_names
from cleanerd.verify.records import new_hash_key, read_rows
from cleanerd.verify.rules import KeyRules

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from cleanerd.config.topic_config import TopicConfig

SAMPLE_BYTES: Final = 256 << 10
SEGMENTS: Final = 4
"""How much of a segment is read, and of how many segments."""
MOST_KEYS: Final = 4096
"""Kept of a partition: those with the lowest hashes, so that samples of partitions with the same keys meet."""
MOST_OF_TOPIC: Final = 16
MOST_OF_ALL: Final = 1024
"""How many partitions are sampled: further ones are not compared."""
_SHOWN: Final = 3


class SharedKeys:
    """Samples of partitions, and what they have in common."""

    def __init__(self) -> None:
        self._hash_key = new_hash_key()
        self._keys: dict[str, dict[int, NDArray[np.uint64]]] = {}

    def add(self, name: TopicPartition, path: Path, config: TopicConfig) -> None:
        """Sample the partition in ``path``, unless enough of its topic or of all topics are sampled."""
        of_topic = self._keys.setdefault(name.topic, {})
        full = len(of_topic) >= MOST_OF_TOPIC or sum(map(len, self._keys.values())) >= MOST_OF_ALL
        if name.partition not in of_topic and not full:
            of_topic[name.partition] = _sampled_keys(path, KeyRules.of(config), self._hash_key)

    def add_topic(self, name: TopicPartition, path: Path, config: TopicConfig, log_dirs: Sequence[Path]) -> None:
        """Sample the partition in ``path``, and, when its topic is new, further partitions of it in ``log_dirs``."""
        is_new = name.topic not in self._keys
        self.add(name, path, config)
        for log_dir in log_dirs if is_new else ():
            with contextlib.suppress(CleanerdError):
                for other in partition_names(log_dir):
                    if other.topic == name.topic:
                        self.add(other, log_dir / str(other), config)

    def notes(self, name: TopicPartition) -> tuple[str, ...]:
        """A note if sampled keys of this partition also have a value in another sampled one."""
        others = dict(self._keys.get(name.topic, {}))
        own = others.pop(name.partition, None)
        if own is None:
            return ()
        shared = {number: found for number, keys in others.items() if (found := np.isin(own, keys)).any()}
        if not shared:
            return ()
        count = int(np.logical_or.reduce(list(shared.values())).sum())
        where = ", ".join(map(str, sorted(shared)[:_SHOWN])) + (", ..." if len(shared) > _SHOWN else "")
        text = (
            f"at least {counted(count, 'key')} of {len(own):,} sampled also have a value in another partition of the "
            f"topic ({where}; compared with {len(others)}), and compaction keeps both: partitions were added, or a "
            "producer uses another partitioner. cleanerd spark profile counts them; write a tombstone to the partition "
            "where a key no longer belongs"
        )
        return (text,)


def _sampled_keys(path: Path, rules: KeyRules, hash_key: bytes) -> NDArray[np.uint64]:
    """[n], ascending: hashes of keys whose last record in the sample is a value.

    Damage and files that cannot be read end the sample: other checks report them.
    """
    hashes, values = [np.zeros(0, np.uint64)], [np.zeros(0, np.bool_)]
    with contextlib.suppress(CleanerdError, OSError):
        for file, size_bytes in _beginnings(path):
            for _, rows in read_rows(file, size_bytes, hash_key, lambda _: None, rules=rules):
                hashes.append(rows.key_hash[rows.has_key, 0])
                values.append(~rows.is_tombstone[rows.has_key])
    latest_first, is_value = np.concatenate(hashes)[::-1], np.concatenate(values)[::-1]
    keys, latest = np.unique(latest_first, return_index=True)
    found: NDArray[np.uint64] = keys[is_value[latest]][:MOST_KEYS]
    return found


def _beginnings(path: Path) -> Iterator[tuple[Path, int]]:
    """Segment files, evenly chosen, and how much of each is read. Raises OSError."""
    with os.scandir(path) as entries:
        files: Sequence[os.DirEntry[str]] = sorted(
            (each for each in entries if each.name.endswith(SEGMENT_SUFFIX)), key=lambda each: each.name
        )
    for row in sorted({round(row) for row in np.linspace(0, len(files) - 1, SEGMENTS)} if files else ()):
        yield path / files[row].name, min(files[row].stat(follow_symlinks=False).st_size, SAMPLE_BYTES)
