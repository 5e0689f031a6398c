"""Records that arrive between ``stage`` and ``apply`` with keys of removed tombstones (U-1).

Such a tombstone is removed because its key has no other record, later records included. That was so when the plan was
made. The broker has written since, and as a follower it may have cut that part and fetched another.

So the hashes of these keys are stored beside the plan, and compared with the whole later log when the plan is applied.
A record with one of them would become the newest of its key, so the plan is stale then.
"""

from __future__ import annotations

from io import BufferedReader
from typing import TYPE_CHECKING, Final

import numpy as np

from cleanerd._kernel import FLAG_HAS_KEY, Chunk, OffsetMap, crc32c, decode_chunk
from cleanerd.cleaner.manifest import FileFact, Manifest, staging_path
from cleanerd.cleaner.map_size import MAP_ENTRY_BYTES, MIN_MAP_BYTES
from cleanerd.cleaner.plan import HASH_KEY_BYTES, Source, uncleanable_sources
from cleanerd.errors import CleanerdError, StalePlanError
from cleanerd.fsio.safe_open import raw_file
from cleanerd.segments.reading import SegmentReader, by_chunk, until_damage
from cleanerd.swap.ready_file import KeysFact
from cleanerd.swap.validate import has_fact

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from cleanerd.broker.lock_file import FileOwner
    from cleanerd.cleaner.cleaner import Cleaning
    from cleanerd.cleaner.resources import Resources
    from cleanerd.segments.partition import PartitionLog
    from cleanerd.swap.files import PartitionFiles

REMOVED_KEYS: Final = "removed_tombstones.keys"
"""The file of removed keys in the plan's directory.

Its hash key has 16 bytes; 16 bytes per key follow: the kernel's hash as two little-endian words.
"""

KEY_BYTES: Final = 16
_PORTION_KEYS: Final = 1 << 16


def stage_removed_keys(files: PartitionFiles, cleaning: Cleaning, owner: FileOwner) -> KeysFact | None:
    """Write :data:`REMOVED_KEYS` into the plan's directory, flushed; None without a removed tombstone.

    Raises:
        CleanerdError: it cannot be written, or a segment cannot be read any more.
    """
    plan = cleaning.plan
    if not plan.rules.versioned:
        return None  # under `offset` a later record supersedes any tombstone
    name = _name(plan.plan_id)
    fact = KeysFact(0, 0)
    for hashes in cleaning.removed_tombstone_keys():
        if not fact.bytes:
            files.write(name, plan.hash_key, owner)
            fact = KeysFact(len(plan.hash_key), crc32c(np.frombuffer(plan.hash_key, np.uint8)))
        data = hashes.astype("<u8").tobytes()
        files.append(name, data)
        fact = KeysFact(fact.bytes + len(data), crc32c(np.frombuffer(data, np.uint8), fact.crc32c))
    if not fact.bytes:
        return None
    files.fsync(name)
    return fact


def refuse_late_records(
    files: PartitionFiles,
    manifest: Manifest,
    keys_fact: KeysFact | None,
    log: PartitionLog,
    resources: Resources,
    *,
    torn_from: int | None,
) -> None:
    """Refuse the plan if a later record has the key of a removed tombstone, whatever its transaction becomes.

    Later segments are those after the witnessed ones. ``torn_from``: from the segment of this offset on, damage ends
    the log.

    Raises:
        StalePlanError: one has, or that is unknown.
        CleanerdError: the file cannot be read.
    """
    if keys_fact is None:
        return
    last = manifest.witnesses[-1].base if manifest.witnesses else -1
    later = [source for source in uncleanable_sources(log, 0) if source.base > last and source.segment.size_bytes > 0]
    try:
        found = _first_late(files, manifest.plan, keys_fact, str(log.path), later, resources, torn_from)
    except StalePlanError:
        raise
    except CleanerdError as error:
        raise _stale(files, f"the end of the log cannot be read ({error})") from error
    if found is not None:
        raise _stale(
            files, f"the record at offset {found}, which came later, has a key whose tombstone the plan removes"
        )


def _first_late(
    files: PartitionFiles,
    plan_id: str,
    keys_fact: KeysFact,
    path: str,
    later: list[Source],
    resources: Resources,
    torn_from: int | None,
) -> int | None:
    hash_key = _checked(files, plan_id, keys_fact)
    keys = (keys_fact.bytes - HASH_KEY_BYTES) // KEY_BYTES
    wanted = int(keys * MAP_ENTRY_BYTES / resources.map_load) + MIN_MAP_BYTES
    offset_map = OffsetMap(max(MIN_MAP_BYTES, min(resources.map_bytes, wanted)), load=resources.map_load)

    def decoded(data: NDArray[np.uint8], position: int) -> Chunk:
        return decode_chunk(data, position, hash_key=hash_key, max_unpacked=resources.max_unpacked_bytes)

    shard, shards = 0, max(1, -(-keys // offset_map.capacity))
    with SegmentReader.open(
        path, chunk_bytes=resources.chunk_bytes, largest_batch_bytes=resources.max_unpacked_bytes
    ) as reader:
        while shard < shards:
            offset_map.clear()
            if not _add_keys(files, plan_id, offset_map, shard, shards):
                shard, shards = 0, 2 * shards  # keys fall into shards unevenly
                continue
            for source in later:
                torn = torn_from is not None and source.end > torn_from
                reading = until_damage(by_chunk(decoded)) if torn else by_chunk(decoded)
                for chunk in reading(reader, source.segment, 0):
                    records = chunk.records
                    mask = (records.flags & FLAG_HAS_KEY) != 0
                    late = offset_map.contains(records.key_hash, mask, shard=shard, shards=shards)
                    if late.any():
                        return int(records.offset[int(np.argmax(late))])
            shard += 1
    return None


def _add_keys(files: PartitionFiles, plan_id: str, offset_map: OffsetMap, shard: int, shards: int) -> bool:
    """Add the keys of the shard to the map; False: they do not fit."""
    for hashes in _portions(files, plan_id):
        everything = np.ones(len(hashes) // 2, dtype=np.bool_)
        if offset_map.put_max(hashes, 0, everything, shard=shard, shards=shards) < len(everything):
            return False
    return True


def _portions(files: PartitionFiles, plan_id: str) -> Iterator[NDArray[np.uint64]]:
    with BufferedReader(raw_file(files.open(_name(plan_id)), "rb")) as file:
        file.seek(HASH_KEY_BYTES)
        while data := file.read(KEY_BYTES * _PORTION_KEYS):
            yield np.frombuffer(data, "<u8").astype(np.uint64)


def _checked(files: PartitionFiles, plan_id: str, keys_fact: KeysFact) -> bytes:
    """The hash key from a file that was checked: it is the written one, and has whole hashes of at least one key."""
    name = _name(plan_id)
    is_whole = keys_fact.bytes > HASH_KEY_BYTES and (keys_fact.bytes - HASH_KEY_BYTES) % KEY_BYTES == 0
    if not is_whole or not has_fact(files, name, FileFact(keys_fact.bytes, keys_fact.crc32c)):
        raise _stale(files, f"{name} is missing or was changed")
    with BufferedReader(raw_file(files.open(name), "rb")) as file:
        return file.read(HASH_KEY_BYTES)


def _name(plan_id: str) -> str:
    return f"{staging_path(plan_id)}/{REMOVED_KEYS}"


def _stale(files: PartitionFiles, reason: str) -> StalePlanError:
    return StalePlanError(f"the plan no longer fits: {reason}", where=str(files.path), hint="stage again")
