"""What a topic promises its readers: which record of a key is the last one, and which say that it is deleted.

The same sentences that the cleaner goes by, read once more and on their own (U-28).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from cleanerd import _kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cleanerd.log.topic_config import TopicConfig


@dataclass(frozen=True, slots=True)
class Contract:
    """The topic's settings about records and keys; the defaults are a stock broker's."""

    strategy: str = "offset"
    header: str = ""
    encoding: str = "long"
    tombstone_mode: str = "null"
    tombstone_header: str = ""
    tombstone_guard: str = "horizon"

    @classmethod
    def of(cls, config: TopicConfig) -> Contract:
        """That of a topic."""
        return cls(
            config.compaction_strategy,
            config.compaction_strategy_header,
            config.compaction_strategy_header_encoding,
            config.tombstone_mode,
            config.tombstone_header,
            config.tombstone_guard,
        )

    @property
    def by_version(self) -> bool:
        """Whether the last record of a key may lie before another one (R280-4, R280-5)."""
        return self.strategy != "offset"

    @property
    def never_forgets(self) -> bool:
        """Whether no tombstone ever goes (U-4)."""
        return self.by_version and self.tombstone_guard == "forever"

    def decode(self, data: NDArray[np.uint8], position: int, hash_key: bytes, max_unpacked: int) -> _kernel.Chunk:
        """The columns that :meth:`versions` and :meth:`tombstones` need; checksums are not verified.

        Raises:
            CorruptLogError: see ``decode_chunk``.
        """
        return _kernel.decode_chunk(
            data,
            position,
            hash_key=hash_key,
            version_header=self.header.encode() if self.strategy == "header" else None,
            version_encoding=self.encoding,
            tombstone_header=self.tombstone_header.encode() if self.tombstone_mode == "header" else None,
            verify_crc=False,
            max_unpacked=max_unpacked,
        )

    def versions(self, records: _kernel.Records) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """[n] and [n]: the version, and whether there is one; without, the offset alone decides (R280-6)."""
        if self.strategy == "timestamp":
            return records.timestamp, np.ones(len(records), np.bool_)
        if self.strategy == "header":
            return records.version, (records.flags & _kernel.FLAG_HAS_VERSION) != 0
        return np.zeros(len(records), np.int64), np.zeros(len(records), np.bool_)

    def tombstones(self, records: _kernel.Records, magic: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """[n]: the record deletes its key (R87-1..R87-4); ``magic`` [n] is its batch's."""
        null = (records.flags & _kernel.FLAG_HAS_VALUE) == 0
        by_mode = {
            "null": null,
            "flag": np.where(magic < 2, null, (records.flags & _kernel.FLAG_TOMBSTONE) != 0),
            "header": null | ((records.flags & _kernel.FLAG_TOMBSTONE_HEADER) != 0),
        }
        result: NDArray[np.bool_] = by_mode[self.tombstone_mode]
        return result


STOCK: Final = Contract()
"""As every stock broker has it."""
