"""Staged files, each damaged in one way, and the agent's name for that damage."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import numpy as np

from cleanerd._kernel import crc32c
from tests.support.log_dirs import batches_of, index_bytes

if TYPE_CHECKING:
    from cleanerd.cleaner.manifest import ManifestGroup

Files = dict[str, bytes]
Damage = Callable[["ManifestGroup", Files], Files]

INTERVAL_BYTES: Final = 512
ENTRY: Final = {"index": 8, "timeindex": 12, "txnindex": 34}


def crc_fixed(batch: bytes) -> bytes:
    """A v2 batch with a recomputed CRC."""
    crc = crc32c(np.frombuffer(batch[21:], np.uint8))
    return batch[:17] + struct.pack(">I", crc) + batch[21:]


def set_at(data: bytes, position: int, layout: str, value: int) -> bytes:
    """``data`` with one number changed."""
    raw = struct.pack(layout, value)
    return data[:position] + raw + data[position + len(raw) :]


def get_at(data: bytes, position: int, layout: str) -> int:
    """One number of ``data``."""
    value: int = struct.unpack_from(layout, data, position)[0]
    return value


def batches(files: Files) -> list[bytes]:
    """The batches of the log."""
    return [batch.data for batch in batches_of(files["log"])]


def with_log(group: ManifestGroup, files: Files, log: bytes) -> Files:
    """Another log with matching indexes: only the log is wrong."""
    index, timeindex = index_bytes(group.base, log, INTERVAL_BYTES)
    return files | {"log": log, "index": index, "timeindex": timeindex}


def header(number: int, position: int, layout: str, change: Callable[[int], int]) -> Damage:
    """One header field of batch ``number`` changed, with a right CRC."""

    def damage(group: ManifestGroup, files: Files) -> Files:
        found = batches(files)
        batch = found[number]
        found[number] = crc_fixed(set_at(batch, position, layout, change(get_at(batch, position, layout))))
        return with_log(group, files, b"".join(found))

    return damage


def raw(kind: str, change: Callable[[bytes], bytes]) -> Damage:
    """The bytes of one file changed, the others unchanged."""
    return lambda _group, files: files | {kind: change(files[kind])}


def entry(kind: str, number: int, position: int, layout: str, change: Callable[[int], int]) -> Damage:
    """One field of one index entry changed."""

    def damage(_group: ManifestGroup, files: Files) -> Files:
        at = number * ENTRY[kind] if number >= 0 else len(files[kind]) + number * ENTRY[kind]
        return files | {
            kind: set_at(files[kind], at + position, layout, change(get_at(files[kind], at + position, layout)))
        }

    return damage


def without_last_batch(group: ManifestGroup, files: Files) -> Files:
    """S-09 broken, with matching indexes."""
    return with_log(group, files, b"".join(batches(files)[:-1]))


def swapped_batches(group: ManifestGroup, files: Files) -> Files:
    """Two batches in the wrong order."""
    found = batches(files)
    return with_log(group, files, b"".join([found[1], found[0], *found[2:]]))


def doubled_batch(group: ManifestGroup, files: Files) -> Files:
    """The first batch twice."""
    found = batches(files)
    return with_log(group, files, b"".join([found[0], *found]))


def thinned(files: Files) -> int | None:
    """The first batch that covers more offsets than it has records; None if there is none."""
    found = enumerate(batches(files))
    return next((row for row, batch in found if get_at(batch, 57, ">i") <= get_at(batch, 23, ">i") > 0), None)


def shorter(*, base: int) -> Damage:
    """A batch that begins ``base`` offsets later, or ends one earlier: another plan's file could look like this.

    The batch covers several offsets; otherwise the result could be exactly the next batch of the sources.
    """

    def damage(group: ManifestGroup, files: Files) -> Files:
        found = batches(files)
        row = thinned(files)
        assert row is not None
        moved = set_at(found[row], 0, ">q", get_at(found[row], 0, ">q") + base)
        found[row] = crc_fixed(set_at(moved, 23, ">i", get_at(moved, 23, ">i") - 1))
        return with_log(group, files, b"".join(found))

    return damage


def swollen(group: ManifestGroup, files: Files) -> Files:
    """Larger than any cleaning can be: the last batch has data that no source has."""
    found = batches(files)
    last = found[-1] + bytes(400_000)
    last = crc_fixed(set_at(last, 8, ">i", len(last) - 12))
    return with_log(group, files, b"".join([*found[:-1], last]))


def records_out_of_nothing(group: ManifestGroup, files: Files) -> Files:
    """A batch without records, but with bytes."""
    number = next(row for row, batch in enumerate(batches(files)) if len(batch) > 61)
    return header(number, 57, ">i", lambda _: 0)(group, files)


def no_txnindex(_group: ManifestGroup, files: Files) -> Files:
    """Aborted data is left without its entry."""
    return {kind: data for kind, data in files.items() if kind != "txnindex"}


def begins_late(_group: ManifestGroup, files: Files) -> Files:
    """A-40: an entry like a correction, but its transaction begins before it."""
    first = get_at(files["txnindex"], 10, ">q") + 1
    return files | {"txnindex": set_at(set_at(files["txnindex"], 10, ">q", first), 26, ">q", first)}


def txn_entries(files: Files) -> list[tuple[int, int, int]]:
    """Producer, first and last offset of each entry."""
    return [(row[1], row[2], row[3]) for row in struct.iter_unpack(">hqqqq", files.get("txnindex", b""))]


def with_correction(files: Files, producer: int, first: int, last: int) -> Files:
    """A-40: an entry like a correction, instead of one with the same end."""
    raw = files.get("txnindex", b"")
    entries = {get_at(raw, at + 18, ">q"): raw[at : at + 34] for at in range(0, len(raw), 34)}
    entries[last] = struct.pack(">hqqqq", 0, producer, first, last, first)
    return files | {"txnindex": b"".join(entries[end] for end in sorted(entries))}


def reversed_entries(kind: str) -> Damage:
    """The entries of an index in reverse order."""

    def change(data: bytes) -> bytes:
        size = ENTRY[kind]
        return b"".join(data[at : at + size] for at in range(len(data) - size, -1, -size))

    return raw(kind, change)


LOG: Final[dict[str, Damage]] = {
    "cut": raw("log", lambda data: data[:-5]),
    "zeros": raw("log", lambda data: bytes(len(data))),
    "random": raw("log", lambda data: bytes((7 * i + 3) & 0xFF for i in range(len(data)))),
    "flipped": raw("log", lambda data: data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]),
    "empty": raw("log", lambda _: b""),
    "trailing bytes": raw("log", lambda data: data + b"\0" * 20),
    "a few bytes only": raw("log", lambda data: data[:9]),
    "magic 1": raw("log", lambda data: data[:16] + b"\1" + data[17:]),
    "magic 3": raw("log", lambda data: data[:16] + b"\3" + data[17:]),
    "size beyond the end": raw("log", lambda data: set_at(data, 8, ">i", 2**31 - 1)),
    "size below a header": raw("log", lambda data: set_at(data, 8, ">i", 48)),
    "negative size": raw("log", lambda data: set_at(data, 8, ">i", -12)),
    "first offset below the base": raw("log", lambda data: set_at(data, 0, ">q", -1)),
    "last offset beyond the group": header(-1, 23, ">i", lambda delta: delta + 100_000),
    "ends before it begins": header(0, 23, ">i", lambda _: -2),
    "out of order": swapped_batches,
    "twice": doubled_batch,
    "too many records": header(1, 57, ">i", lambda _: 1_000_000),
    "negative records": header(1, 57, ">i", lambda _: -1),
    "records of nothing": records_out_of_nothing,
    "codec": header(0, 21, ">h", lambda attributes: attributes | 7),
    "swollen": swollen,
}
FOREIGN: Final[dict[str, Damage]] = {
    "base offset": shorter(base=1),
    "last offset": shorter(base=0),
    "leader epoch": header(0, 12, ">i", lambda epoch: epoch + 1),
    "producer id": header(0, 43, ">q", lambda producer: producer + 1),
    "producer epoch": header(0, 51, ">h", lambda epoch: epoch + 1),
    "transactional": header(0, 21, ">h", lambda attributes: attributes ^ 0x10),
    "control": header(0, 21, ">h", lambda attributes: attributes ^ 0x20),
}
INDEX: Final[dict[str, Damage]] = {
    "position": entry("index", 0, 4, ">i", lambda position: position + 1),
    "position beyond the end": entry("index", -1, 4, ">i", lambda position: position + 10**7),
    "negative position": entry("index", 0, 4, ">i", lambda _: -5),
    "offset of the batch before": entry("index", 0, 0, ">i", lambda _: 0),
    "negative offset": entry("index", 0, 0, ">i", lambda _: -1),
    "offset beyond the end": entry("index", -1, 0, ">i", lambda offset: offset + 10_000),
    "cut": raw("index", lambda data: data[:-3]),
    "zeros": raw("index", lambda data: bytes(len(data))),
    "padded": raw("index", lambda data: data + bytes(8)),
    "empty": raw("index", lambda _: b""),
    "reversed": reversed_entries("index"),
}
TIMEINDEX: Final[dict[str, Damage]] = {
    "last too high": entry("timeindex", -1, 0, ">q", lambda time: time + 1),
    "last too low": entry("timeindex", -1, 0, ">q", lambda time: time - 1),
    "first too low": entry("timeindex", 0, 0, ">q", lambda time: time - 10_000),
    "offset beyond the end": entry("timeindex", -1, 8, ">i", lambda offset: offset + 10_000),
    "negative offset": entry("timeindex", 0, 8, ">i", lambda _: -1),
    "cut": raw("timeindex", lambda data: data[:-3]),
    "padded": raw("timeindex", lambda data: data + bytes(12)),
    "empty": raw("timeindex", lambda _: b""),
    "reversed": reversed_entries("timeindex"),
}
TXNINDEX: Final[dict[str, Damage]] = {
    "gone": no_txnindex,
    "empty": raw("txnindex", lambda _: b""),
    "cut": raw("txnindex", lambda data: data[:-1]),
    "version": entry("txnindex", 0, 0, ">h", lambda _: 1),
    "producer": entry("txnindex", 0, 2, ">q", lambda producer: producer + 1),
    "first offset": entry("txnindex", 0, 10, ">q", lambda offset: offset + 1),
    "last offset": entry("txnindex", -1, 18, ">q", lambda offset: offset + 1),
    "outside of the group": entry("txnindex", -1, 18, ">q", lambda offset: offset + 10**6),
    "stable offset": entry("txnindex", 0, 26, ">q", lambda offset: offset + 1),
    "reversed": reversed_entries("txnindex"),
    "twice": raw("txnindex", lambda data: data + data),
    "begins late": begins_late,
}
