"""Transfers decisions: the bits as a file in the work directory, the rest in the row for the driver.

The file has all facts about records that a rewrite needs. Content, little-endian: ``CKEP``, format (u16), number of
records and of batches (u64 each), the zstd-compressed keep bits (whole words) and batch actions (a byte each), CRC-32C
of everything before (u32).
"""

from __future__ import annotations

import struct
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cleanerd._kernel import CorruptLogError, compress, crc32c, decompress
from cleanerd.cleaner.chunk_rows import BEGINNING
from cleanerd.cleaner.decide import SegmentDecision
from cleanerd.errors import CorruptionError
from cleanerd.format.index import TXN_ENTRY
from cleanerd.policy.grouping import DecidedSegment
from cleanerd.segments.segment import BatchWitness, Witness
from cleanerd.spark.rows import pack, unpack
from cleanerd.spark.work import read_file, write_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from cleanerd.cleaner.plan import CleaningPlan


MAGIC: Final = b"CKEP"
FORMAT: Final = 1
ZSTD: Final = 4

_HEAD: Final = struct.Struct("<4sHQQ")
_CRC: Final = struct.Struct("<I")


def encode_keep(keep: NDArray[np.uint64], records: int, actions: NDArray[np.uint8]) -> bytes:
    """The file's bytes; ``keep`` has ``ceil(records / 64)`` words, ``actions`` a byte per batch."""
    body = keep.astype("<u8").tobytes() + actions.tobytes()
    data = _HEAD.pack(MAGIC, FORMAT, records, len(actions)) + compress(ZSTD, body)
    return data + _CRC.pack(crc32c(np.frombuffer(data, np.uint8)))


def decode_keep(data: bytes, where: str) -> tuple[NDArray[np.uint64], int, NDArray[np.uint8]]:
    """Keep bits, number of records, batch actions.

    Raises:
        CorruptionError: it is not such a file, or damaged.
    """
    if len(data) < _HEAD.size + _CRC.size or not data.startswith(MAGIC):
        raise CorruptionError("no keep bits", where=where)
    (crc,) = _CRC.unpack(data[-_CRC.size :])
    if crc32c(np.frombuffer(data, np.uint8)[: -_CRC.size]) != crc:
        raise CorruptionError("damaged keep bits: wrong CRC-32C", where=where)
    _, version, records, batches = _HEAD.unpack(data[: _HEAD.size])
    if version != FORMAT:
        raise CorruptionError(f"keep bits of format {version}, only {FORMAT} is known", where=where)
    words = (records + 63) // 64
    try:
        body = decompress(ZSTD, data[_HEAD.size : -_CRC.size], 8 * words + batches)
    except CorruptLogError as error:
        raise CorruptionError(f"damaged keep bits: {error.reason}", where=where) from error
    except OverflowError as error:
        raise CorruptionError(f"keep bits of {records} records and {batches} batches", where=where) from error
    if len(body) != 8 * words + batches:
        raise CorruptionError("keep bits of another length than they say", where=where)
    keep = np.frombuffer(body, "<u8", count=words).astype(np.uint64)
    return keep, records, np.frombuffer(body, np.uint8, offset=8 * words)


_OTHERWISE: Final = (
    "source",
    "witness",
    "rewrite_starts",
    "keep",
    "actions",
    "removed_tombstones",
    "txn_entries",
    "outcome",
)


def store_decision(plan: CleaningPlan, row: int, decision: SegmentDecision, attempt: str) -> dict[str, Any]:
    """Write the decision's bits; returns the driver's part, for :func:`stored_decision`."""
    name = f"{decision.source.base:020d}.{attempt}"
    keep = write_file(plan, f"{name}.keep", encode_keep(decision.keep, decision.records, decision.actions))
    tombstones = None
    if decision.removed_tombstones is not None:
        tombstones = write_file(
            plan, f"{name}.removed", pack({}, {"removed_tombstones": decision.removed_tombstones}, dense=True)
        )
    return {**decision_summary(row, decision), "keep": keep, "removed_tombstones": tombstones}


def decision_summary(row: int, decision: SegmentDecision) -> dict[str, Any]:
    """The driver's part: everything except the bits; ``keep`` and ``removed_tombstones`` are file names."""
    summary = {each.name: getattr(decision, each.name) for each in fields(decision) if each.name not in _OTHERWISE}
    return {
        **summary,
        "segment": row,
        "keep": None,
        "removed_tombstones": None,
        "witness": asdict(decision.witness),
        "outcome": asdict(decision.outcome),
        "txn_entries": decision.txn_entries.tobytes().hex(),
    }


def stored_decision(plan: CleaningPlan, summary: Mapping[str, Any], *, bits: bool) -> SegmentDecision:
    """The decision; without ``bits`` as the driver needs it: without keep bits and actions, only whether tombstones go.

    Raises:
        CorruptionError, CleanerdError: its file cannot be read.
    """
    keep, actions = np.zeros(0, np.uint64), np.zeros(0, np.uint8)
    removed_tombstones = None if summary["removed_tombstones"] is None else np.zeros(0, np.uint64)
    if bits:
        keep, _, actions = decode_keep(read_file(plan, summary["keep"]), summary["keep"])
    counted = {each.name for each in fields(SegmentDecision)} - set(_OTHERWISE)
    return SegmentDecision(
        source=plan.sources[summary["segment"]],
        witness=_witness(summary["witness"]),
        rewrite_starts=(BEGINNING,) if len(actions) else (),
        keep=keep,
        actions=actions,
        removed_tombstones=removed_tombstones,
        txn_entries=np.frombuffer(bytes.fromhex(summary["txn_entries"]), TXN_ENTRY),
        outcome=DecidedSegment(**summary["outcome"]),
        **{name: summary[name] for name in counted},
    )


def removed_bits(plan: CleaningPlan, name: str) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """The bitmap of a segment's removed tombstones."""
    _, columns = unpack(read_file(plan, name), name)
    bits: np.ndarray[tuple[int], np.dtype[np.uint64]] = columns["removed_tombstones"]
    return bits


def _witness(summary: Mapping[str, Any]) -> Witness:
    ends = {
        name: None if summary[name] is None else BatchWitness(**summary[name]) for name in ("first_batch", "last_batch")
    }
    return Witness(**{**summary, **ends})
