"""The map of the reference kernel: a dict."""

from __future__ import annotations

MAX_ORDINAL = (1 << 39) - 2


class OffsetMap:
    """Reference of ``OffsetMap``: a dict with a capacity, from key to (has version, version, ordinal)."""

    def __init__(self, memory_bytes: int, *, load: float = 0.85, versions: bool = False) -> None:
        line_bytes = 96 if versions else 64
        self.versions = versions
        self.memory_bytes = memory_bytes // line_bytes * line_bytes
        if self.memory_bytes < 768 * line_bytes or not 0 < load <= 1:
            raise ValueError(memory_bytes)
        self.capacity = max(1, int(self.memory_bytes // line_bytes * 4 * load))
        self.entries: dict[tuple[int, int], tuple[bool, int, int]] = {}

    @staticmethod
    def _rows(key_hash: list[int], mask: list[bool], shard: int, shards: int) -> list[tuple[int, tuple[int, int]]]:
        if len(key_hash) != 2 * len(mask) or not 0 <= shard < shards:
            raise ValueError(shard)
        keys = zip(key_hash[::2], key_hash[1::2], strict=True)
        return [(row, key) for row, key in enumerate(keys) if mask[row] and (key[0] >> 32) * shards >> 32 == shard]

    def _ranks(
        self, first_ordinal: int, mask: list[bool], version: list[int] | None, has_version: list[bool] | None
    ) -> list[tuple[bool, int, int]]:
        if first_ordinal < 0 or first_ordinal + len(mask) > MAX_ORDINAL + 1 - self.versions:
            raise ValueError(first_ordinal)
        if self.versions in (version is None, has_version is None):
            raise ValueError(version)
        has = [False] * len(mask) if has_version is None else has_version
        numbers = [0] * len(mask) if version is None else version
        rows = enumerate(zip(mask, numbers, has, strict=True))
        return [(has, number if has else 0, first_ordinal + row) for row, (_, number, has) in rows]

    def put_max(
        self, key_hash: list[int], first_ordinal: int, mask: list[bool], *,
        version: list[int] | None = None, has_version: list[bool] | None = None, shard: int = 0, shards: int = 1,
    ) -> int:  # fmt: skip
        """Reference of ``put_max``."""
        ranks = self._ranks(first_ordinal, mask, version, has_version)
        for row, key in self._rows(key_hash, mask, shard, shards):
            if key not in self.entries and len(self.entries) == self.capacity:
                return row
            self.entries[key] = max(self.entries.get(key, ranks[row]), ranks[row])
        return len(mask)

    def update_existing(
        self, key_hash: list[int], first_ordinal: int, mask: list[bool], *,
        version: list[int], has_version: list[bool], shard: int = 0, shards: int = 1,
    ) -> list[bool]:  # fmt: skip
        """Reference of ``update_existing``."""
        ranks = self._ranks(first_ordinal, mask, version, has_version)
        found = [False] * len(mask)
        for row, key in self._rows(key_hash, mask, shard, shards):
            if key in self.entries:
                found[row] = True
                self.entries[key] = max(self.entries[key], ranks[row])
        return found

    def contains(self, key_hash: list[int], mask: list[bool], shard: int = 0, shards: int = 1) -> list[bool]:
        """Reference of ``contains``."""
        found = [False] * len(mask)
        for row, key in self._rows(key_hash, mask, shard, shards):
            found[row] = key in self.entries
        return found

    def winners(self, first_ordinal: int, count: int) -> list[bool]:
        """Bits of ``winners``, one by one."""
        won = {ordinal for _, _, ordinal in self.entries.values()}
        return [first_ordinal + index in won for index in range(count)]
