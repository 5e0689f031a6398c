"""Records that an undo would hide: written since, below a restored tombstone of a version strategy (S-52).

Under a version strategy an expired tombstone is removed when its key has no other record. Consumers see a record that
is written after that, whatever its version is. A restored tombstone would supersede it, and the next cleaning would
remove it permanently.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from cleanerd._kernel import Chunk, OffsetMap, decode_chunk
from cleanerd.cleaner.evidence import legacy_rows
from cleanerd.cleaner.map_size import MIN_VERSIONED_MAP_BYTES
from cleanerd.cleaner.plan import new_hash_key
from cleanerd.cleaner.tombstone_guard import visible_rows
from cleanerd.policy.tombstone import tombstones
from cleanerd.segments.reading import Reading, SegmentReader, by_chunk, until_damage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from cleanerd.cleaner.resources import Resources
    from cleanerd.policy.rules import Rules
    from cleanerd.segments.segment import Segment

OF_THE_LOG: Final = 2**38
"""All records in the log have this ordinal; those of restored tombstones are lower."""


@dataclass(frozen=True, slots=True)
class Place:
    """Segments in one directory; ``torn``: the first damage ends them."""

    reader: SegmentReader
    segments: Sequence[Segment]
    torn: bool = False

    def chunks(self, decoded: Reading[Chunk]) -> Iterator[Chunk]:
        reading = until_damage(decoded) if self.torn else decoded
        for segment in self.segments:
            yield from reading(self.reader, segment, 0)


def hidden_writes(
    restored: Place, cleaned: Place, later: Place, rules: Rules, resources: Resources
) -> NDArray[np.int64]:
    """[k]: offsets of the records in ``later`` that a tombstone in ``restored`` would hide, but that are visible now.

    ``cleaned``: the rest of the log, after the cleaning.

    Raises:
        CleanerdError: a segment cannot be read.
    """
    hash_key = new_hash_key()

    def decoded(data: NDArray[np.uint8], position: int) -> Chunk:
        return decode_chunk(
            data,
            position,
            hash_key=hash_key,
            version_header=rules.version_header,
            version_encoding=rules.encoding,
            tombstone_header=rules.flag_header,
            max_unpacked=resources.max_unpacked_bytes,
        )

    map_bytes = max(resources.map_bytes, MIN_VERSIONED_MAP_BYTES)
    offset_map = OffsetMap(map_bytes, load=resources.map_load, versions=True)
    found = [np.zeros(0, dtype=np.int64)]
    shard, shards = 0, 1
    while shard < shards:
        offset_map.clear()
        contest = _Contest(offset_map, rules, shard, shards)
        if not all(contest.put(chunk) for chunk in restored.chunks(by_chunk(decoded))):
            shard, shards, found = 0, 2 * shards, found[:1]
            continue
        if len(offset_map):
            for place in (cleaned, later):
                for chunk in place.chunks(by_chunk(decoded)):
                    contest.compare_with(chunk)
            found += [contest.hidden(chunk) for chunk in later.chunks(by_chunk(decoded))]
        shard += 1
    return np.concatenate(found)


@dataclass(frozen=True, slots=True)
class _Contest:
    """One shard of the keys of restored tombstones."""

    offset_map: OffsetMap
    rules: Rules
    shard: int
    shards: int

    def put(self, chunk: Chunk) -> bool:
        """Add the tombstones of a chunk; False: the map is full."""
        mask = visible_rows(chunk)
        mask &= tombstones(chunk.records.flags, self.rules.tombstone_mode, legacy_rows(chunk.batches))
        version, present = self.rules.ranking.versions(chunk.records)
        done = self.offset_map.put_max(
            chunk.records.key_hash, 0, mask, version=version, has_version=present, shard=self.shard, shards=self.shards
        )
        return done == len(mask)

    def compare_with(self, chunk: Chunk) -> None:
        """Add records of the log: one that ranks no lower than the tombstone of its key wins."""
        version, present = self.rules.ranking.versions(chunk.records)
        self.offset_map.update_existing(
            chunk.records.key_hash,
            OF_THE_LOG,
            visible_rows(chunk),
            version=version,
            has_version=present,
            shard=self.shard,
            shards=self.shards,
        )

    def hidden(self, chunk: Chunk) -> NDArray[np.int64]:
        """[k]: offsets of the records whose key a restored tombstone wins."""
        hashes, mask = chunk.records.key_hash, visible_rows(chunk)
        winners = self.offset_map.ordinals(hashes, mask, shard=self.shard, shards=self.shards)
        offsets: NDArray[np.int64] = chunk.records.offset[(winners >= 0) & (winners < OF_THE_LOG)]
        return offsets
