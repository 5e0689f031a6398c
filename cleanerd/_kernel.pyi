"""The contract of the compiled kernel: bytes, keys and bits. No policy, no path, no clock, no configuration.

Every array argument is one-dimensional and contiguous; every returned column is read-only. ``n`` is the number of
records, ``b`` the number of batches, ``w`` the number of written batches. Offsets, timestamps and producer ids are
int64 as in the log. Bitmaps are uint64 words, bit ``i`` of word ``i // 64`` counted from the least significant bit.

The caller must not write into an input array during a call: the GIL is released.
"""

from typing import Final, final

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "ACTION_COPY",
    "ACTION_DROP",
    "ACTION_EMPTY",
    "ACTION_REBUILD",
    "ACTION_SET_HORIZON",
    "ACTION_TIMELESS",
    "ACTION_TIME_ZERO",
    "FLAG_BAD_VERSION",
    "FLAG_HAS_KEY",
    "FLAG_HAS_VALUE",
    "FLAG_HAS_VERSION",
    "FLAG_TOMBSTONE",
    "FLAG_TOMBSTONE_HEADER",
    "BatchTooLargeError",
    "Batches",
    "Chunk",
    "ChunkDecoder",
    "ChunkRewriter",
    "Contents",
    "CorruptLogError",
    "Digests",
    "IndexBuilder",
    "InvalidCallError",
    "KernelBugError",
    "KeyRows",
    "OffsetMap",
    "Records",
    "Written",
    "build_info",
    "compress",
    "content_digest",
    "crc32c",
    "crc32c_combine",
    "crc32c_of_batches",
    "decode_chunk",
    "decompress",
    "fill_by_batch",
    "popcount_by_batch",
    "read_contents",
    "rewrite_chunk",
    "scan_headers",
    "store_bits",
]

# Batch actions of rewrite_chunk: one of the four, plus a flag.
ACTION_DROP: Final[int]
ACTION_COPY: Final[int]
ACTION_REBUILD: Final[int]
ACTION_EMPTY: Final[int]
ACTION_SET_HORIZON: Final[int]
"""0x10, only together with ACTION_REBUILD."""
ACTION_TIMELESS: Final[int]
"""0x20, only together with ACTION_EMPTY: the largest timestamp of the emptied batch becomes -1."""
ACTION_TIME_ZERO: Final[int]
"""0x40, only together with ACTION_EMPTY: the largest timestamp of the emptied batch becomes 0."""

# Record flags.
FLAG_HAS_KEY: Final[int]
FLAG_HAS_VALUE: Final[int]
FLAG_TOMBSTONE: Final[int]
"""Bit 5 of the attributes byte of a v2 record (KIP-87), whatever its value; never for magic 0 and 1."""
FLAG_HAS_VERSION: Final[int]
"""The last header named ``version_header`` has a value that is a version (R280-5)."""
FLAG_BAD_VERSION: Final[int]
"""There is such a header, but the last one's value is null or no version: counts as absent (R280-6)."""
FLAG_TOMBSTONE_HEADER: Final[int]
"""The last header named ``tombstone_header`` has a value other than null, empty, ``0`` and ``false`` (R87-4)."""

class CorruptLogError(Exception):
    """Bytes that violate the format. Never raised for wrong arguments."""

    reason: str
    position: int
    """File position of the bad batch (``position`` argument + its place in ``data``)."""
    base_offset: int
    """Base offset of the bad batch, -1 when even that is unknown."""
    record: int
    """Index of the bad record in its batch, -1 when the batch itself is bad."""

class BatchTooLargeError(CorruptLogError):
    """A batch that needs more memory than ``max_unpacked`` allows (U-35); it may be valid otherwise.

    It decompresses to more bytes, or to so many records that their columns would take as much.
    """

class KernelBugError(Exception):
    """A panic inside the kernel. Always a bug of cleanerd."""

class InvalidCallError(ValueError):
    """Arguments contradict each other: keep bits or actions of another segment, arrays of different lengths.

    Where a docstring here says ValueError it is this one, except for numbers that are out of range themselves.
    """

@final
class Batches:
    """The batch table. All columns have ``b`` rows, ``first_record`` has ``b + 1``.

    Legacy batches (``magic`` 0 and 1): ``attributes`` are codec and timestamp type, ``max_timestamp`` is that of the
    message or wrapper, the other columns are -1. ``scan_headers`` unpacks nothing, so there ``base_offset ==
    last_offset`` = the offset in the frame, and there are no records.
    """

    @property
    def position(self) -> NDArray[np.uint32]: ...  # file position
    @property
    def size(self) -> NDArray[np.uint32]: ...  # bytes on disk, the 12 byte frame included
    @property
    def base_offset(self) -> NDArray[np.int64]: ...
    @property
    def last_offset(self) -> NDArray[np.int64]: ...
    @property
    def base_timestamp(self) -> NDArray[np.int64]: ...  # the delete horizon when attribute bit 6 is set
    @property
    def max_timestamp(self) -> NDArray[np.int64]: ...
    @property
    def producer_id(self) -> NDArray[np.int64]: ...
    @property
    def producer_epoch(self) -> NDArray[np.int16]: ...
    @property
    def base_sequence(self) -> NDArray[np.int32]: ...
    @property
    def leader_epoch(self) -> NDArray[np.int32]: ...
    @property
    def attributes(self) -> NDArray[np.int16]: ...
    @property
    def magic(self) -> NDArray[np.uint8]: ...
    @property
    def crc(self) -> NDArray[np.uint32]: ...
    @property
    def control_type(
        self,
    ) -> NDArray[np.int16]: ...  # F-2.7: 0 abort, 1 commit; -1: no control batch, or an emptied one
    @property
    def first_record(
        self,
    ) -> NDArray[np.uint32]: ...  # [b + 1], into the record table; the difference is the record count
    @property
    def mixed_magic(
        self,
    ) -> NDArray[np.uint32]: ...  # [m], rows of wrappers of which a message has not their own magic (KAFKA-4298)
    @property
    def unordered(
        self,
    ) -> NDArray[
        np.uint32
    ]: ...  # [m], rows of batches whose record offsets do not rise, or of v2 ones that lie outside the batch's
    @property
    def consumed(self) -> int: ...
    """Bytes of whole batches read: the next chunk starts at ``position + consumed``."""
    @property
    def needed(self) -> int: ...
    """Bytes that the batch at ``consumed`` takes when it did not fit; 0 when all was read or even its frame is cut."""
    def __len__(self) -> int: ...

@final
class Records:
    """The record table: ``n`` rows, in file order."""

    @property
    def offset(self) -> NDArray[np.int64]: ...
    @property
    def timestamp(self) -> NDArray[np.int64]: ...  # what a consumer sees: append time for LogAppendTime batches
    @property
    def key_hash(self) -> NDArray[np.uint64]: ...  # [2n], low and high word in turn; 0 rows without hash_key
    @property
    def flags(self) -> NDArray[np.uint8]: ...  # FLAG_*
    @property
    def version(self) -> NDArray[np.int64]: ...  # [n], 0 without FLAG_HAS_VERSION; 0 rows without version_header
    def __len__(self) -> int: ...

@final
class Chunk:
    @property
    def batches(self) -> Batches: ...
    @property
    def records(self) -> Records: ...
    @property
    def consumed(self) -> int: ...
    @property
    def needed(self) -> int: ...

def scan_headers(data: NDArray[np.uint8], position: int, *, verify_crc: bool = False) -> Batches:
    """Headers of all whole batches; nothing is decompressed. ``position`` is the file position of ``data[0]``.

    Raises:
        CorruptLogError: a size below the smallest batch, a magic other than 0, 1, 2, a negative record count, an offset
        delta below zero, a wrong CRC-32C or CRC-32 (``verify_crc``).
    """

def decode_chunk(
    data: NDArray[np.uint8],
    position: int,
    *,
    hash_key: bytes | None = None,
    version_header: bytes | None = None,
    version_encoding: str = "long",
    tombstone_header: bytes | None = None,
    verify_crc: bool = True,
    max_unpacked: int = 1073741824,
) -> Chunk:
    """Whole batches to columns, every codec unpacked inside. Stops early, between batches, when it grows large.

    ``hash_key``: 16 random bytes, one per plan, for SipHash-1-3-128 of the record keys (null keys hash to 0, 0).
    ``version_header``, ``tombstone_header``: names of headers, of which the last one of a name counts. Without them no
    header is looked at. Magic 0 and 1 have none. A value that means nothing is never an error (R280-6, R87-4).
    ``version_encoding``: ``"long"``, eight bytes big-endian; or ``"varlong"``, the zigzag varlong that records use
    (Kafka's ``ByteUtils.readVarlong``), up to the last byte of the value.
    ``max_unpacked``: bytes that one batch may unpack to.

    Raises:
        CorruptLogError: what scan_headers raises, and: unknown codec, damaged compressed data, more than
        ``max_unpacked``, a
            record that does not use exactly its length, a record count that the bytes do not bear out; of a
            wrapper: no value, nothing whole in it, another
            wrapper in it, offsets that decrease or exceed the wrapper's, a wrong CRC-32 inside. A message
            that is cut at the end of a wrapper is passed over, as Kafka does.
        ValueError: ``hash_key`` has not 16 bytes, an unknown ``version_encoding``, a negative ``max_unpacked``.
    """

@final
class Digests:
    """What ``content_digest`` says of ``n`` records: the rows of ``decode_chunk``, control records included."""

    @property
    def digest(self) -> NDArray[np.uint64]: ...  # [2n], low and high word in turn
    @property
    def attributes(self) -> NDArray[np.uint8]: ...  # of the record; 0 for magic 0 and 1
    @property
    def size(self) -> NDArray[np.uint32]: ...  # bytes of the record, unpacked, its length included
    @property
    def consumed(self) -> int: ...
    @property
    def needed(self) -> int: ...
    def __len__(self) -> int: ...

def content_digest(
    data: NDArray[np.uint8],
    position: int,
    *,
    hash_key: bytes,
    verify_crc: bool = True,
    max_unpacked: int = 1073741824,
) -> Digests:
    """SipHash-1-3-128 of each record's offset, timestamp, key, value and headers, without its attributes.

    The timestamp is the one that a consumer sees. Two records are equal by their fields, whatever batch, codec or
    message format contains them; invalid UTF-8 in names of headers becomes U+FFFD, as when Kafka rewrites it (F-2.3).

    Raises:
        CorruptLogError: as decode_chunk.
        ValueError: ``hash_key`` has not 16 bytes, a negative ``max_unpacked``.
    """

@final
class Contents:
    """Keys, values and headers of ``n`` records with ``h`` headers, laid out as Arrow wants them.

    Row ``i`` is ``data[offsets[i] : offsets[i + 1]]``, or null; record ``i`` has the headers ``first_header[i]`` to
    ``first_header[i + 1]`` (exclusive). Names of headers are bytes as stored.
    """

    @property
    def key_offsets(self) -> NDArray[np.int32]: ...  # [n + 1]
    @property
    def key_data(self) -> NDArray[np.uint8]: ...
    @property
    def key_null(self) -> NDArray[np.bool_]: ...  # [n]
    @property
    def value_offsets(self) -> NDArray[np.int32]: ...  # [n + 1]
    @property
    def value_data(self) -> NDArray[np.uint8]: ...
    @property
    def value_null(self) -> NDArray[np.bool_]: ...  # [n]
    @property
    def first_header(self) -> NDArray[np.int32]: ...  # [n + 1]
    @property
    def header_name_offsets(self) -> NDArray[np.int32]: ...  # [h + 1]
    @property
    def header_name_data(self) -> NDArray[np.uint8]: ...
    @property
    def header_value_offsets(self) -> NDArray[np.int32]: ...  # [h + 1]
    @property
    def header_value_data(self) -> NDArray[np.uint8]: ...
    @property
    def header_value_null(self) -> NDArray[np.bool_]: ...  # [h]
    @property
    def consumed(self) -> int: ...
    @property
    def needed(self) -> int: ...
    def __len__(self) -> int: ...

def read_contents(
    data: NDArray[np.uint8],
    position: int,
    keep: NDArray[np.bool_],
    *,
    verify_crc: bool = True,
    max_unpacked: int = 1073741824,
) -> Contents:
    """The records of ``data`` whose row in ``keep`` is true. ``keep`` has a row for each record, as decode_chunk has.

    Raises:
        CorruptLogError: as decode_chunk; also when a column would pass 2^31-1 bytes.
        ValueError: ``keep`` has more or fewer rows than there are records, a negative ``max_unpacked``.
    """

@final
class OffsetMap:
    """key hash -> largest ordinal, in a fixed amount of memory (4x16 pair layout).

    ``versions``: largest (has version, version, ordinal) instead (R280-4 to R280-6), for half as many bytes again.
    ``memory_bytes`` is the total; 48 KiB or more, 72 KiB with versions.

    With ``shards`` > 1 every call works on the keys of ``shard`` alone and leaves the rows of others aside.
    """

    def __new__(
        cls, memory_bytes: int, *, load: float = 0.85, huge_pages: bool = True, versions: bool = False
    ) -> OffsetMap: ...
    def put_max(
        self,
        key_hash: NDArray[np.uint64],
        first_ordinal: int,
        mask: NDArray[np.bool_],
        *,
        version: NDArray[np.int64] | None = None,
        has_version: NDArray[np.bool_] | None = None,
        shard: int = 0,
        shards: int = 1,
    ) -> int:
        """Record ``i`` has ordinal ``first_ordinal + i``. Rows where ``mask`` is false are passed over.

        ``version``, ``has_version``: [n]; ``version`` is ignored where ``has_version`` is false.

        Returns the number of rows dealt with: ``n``, or less when the map is full (that row and the rest were not
        put).

        Raises:
            ValueError: arrays of different lengths, an ordinal above 2^39 - 2 (2^39 - 3 with versions), no such shard,
            versions for a map without them or none for a map with them.
        """
    def update_existing(
        self,
        key_hash: NDArray[np.uint64],
        first_ordinal: int,
        mask: NDArray[np.bool_],
        *,
        version: NDArray[np.int64],
        has_version: NDArray[np.bool_],
        shard: int = 0,
        shards: int = 1,
    ) -> NDArray[np.bool_]:
        """As put_max of a map with versions, for keys that it contains; it adds none (R280-10).

        Returns [n]: true where ``mask`` is true, the key belongs to ``shard`` and the map holds it, raised or not.

        Raises:
            ValueError: as put_max.
        """
    def contains(
        self, key_hash: NDArray[np.uint64], mask: NDArray[np.bool_], *, shard: int = 0, shards: int = 1
    ) -> NDArray[np.bool_]:
        """True where ``mask`` is true, the key belongs to ``shard`` and the map holds it."""
    def ordinals(
        self, key_hash: NDArray[np.uint64], mask: NDArray[np.bool_], *, shard: int = 0, shards: int = 1
    ) -> NDArray[np.int64]:
        """[n]: the ordinal that the map holds for the row's key, -1 where it holds none. Only with versions."""
    def winners(self, first_ordinal: int, count: int) -> NDArray[np.uint64]:
        """Bit ``i``: some key's winning ordinal is ``first_ordinal + i``. ``first_ordinal`` is a multiple of 64."""
    def mark_winners(self, first_ordinal: int, count: int, bits: NDArray[np.uint64]) -> None:
        """Set the bits of :meth:`winners` in ``bits``, ``ceil(count / 64)`` words; costs nothing for each ordinal."""
    def put_rows(self, rows: NDArray[np.uint64], *, shard: int = 0, shards: int = 1) -> int:
        """``put_max`` of the ``rows`` that ``KeyRows.deal`` returned; returns the number of rows dealt with.

        Raises:
            ValueError: no whole rows, an ordinal that is too large, no such shard.
        """
    def meet_rows(self, rows: NDArray[np.uint64], *, shard: int = 0, shards: int = 1) -> NDArray[np.bool_]:
        """``contains`` of such rows, with versions ``update_existing``."""
    def clear(self) -> None: ...
    @property
    def capacity(self) -> int: ...
    """Keys it takes before it is full."""
    @property
    def memory_bytes(self) -> int: ...
    @property
    def identity_bits(self) -> float: ...
    @property
    def versions(self) -> bool: ...
    def __len__(self) -> int: ...

@final
class KeyRows:
    """Rows of keys for the disk: three words each, low and high hash and ordinal; with ``versions`` four.

    Bit 63 of the ordinal says that the version, the fourth word, is there. It takes ``room`` rows.
    """

    def __new__(cls, room: int, *, versions: bool = False) -> KeyRows: ...
    def add(
        self,
        key_hash: NDArray[np.uint64],
        first_ordinal: int,
        mask: NDArray[np.bool_],
        *,
        version: NDArray[np.int64] | None = None,
        has_version: NDArray[np.bool_] | None = None,
    ) -> int:
        """A row for each record of ``mask``; arguments, result and errors as those of ``OffsetMap.put_max``."""
    def deal(self, shards: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """The rows by shard, in each in the order of :meth:`add`; [shards]: how many each has. None are left."""
    def __len__(self) -> int: ...

def popcount_by_batch(bits: NDArray[np.uint64], first_record: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """[b]: set bits of each batch's records. ``bits`` must reach ``first_record[b]``."""

def fill_by_batch(flags: NDArray[np.bool_], first_record: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """Bitmap with the bits of every record of the flagged batches set; ``ceil(first_record[b] / 64)`` words."""

def store_bits(bits: NDArray[np.uint64], first_bit: int, values: NDArray[np.bool_]) -> None:
    """Overwrite bits ``first_bit .. first_bit + len(values)`` of the (writable) bitmap."""

@final
class Written:
    """The result of rewrite_chunk: the bytes and, per written batch, the facts for the indexes."""

    @property
    def data(self) -> NDArray[np.uint8]: ...
    @property
    def with_lead(self) -> NDArray[np.uint8]: ...  # data with ChunkRewriter's ``lead`` in front of it
    @property
    def position(self) -> NDArray[np.uint32]: ...  # [w] in data
    @property
    def size(self) -> NDArray[np.uint32]: ...  # [w]
    @property
    def source_size(self) -> NDArray[np.uint32]: ...  # [w] of the batch that it was made from
    @property
    def last_offset(self) -> NDArray[np.int64]: ...  # [w]
    @property
    def max_timestamp(self) -> NDArray[np.int64]: ...  # [w]
    @property
    def record_count(self) -> NDArray[np.uint32]: ...  # [w]
    @property
    def consumed(self) -> int: ...
    @property
    def needed(self) -> int: ...
    @property
    def batches_read(self) -> int: ...
    @property
    def records_read(self) -> int: ...
    @property
    def without_horizon(self) -> int: ...  # batches too large for a new delete horizon
    def __len__(self) -> int: ...

def rewrite_chunk(
    data: NDArray[np.uint8],
    position: int,
    keep_bits: NDArray[np.uint64],
    first_bit: int,
    actions: NDArray[np.uint8],
    *,
    delete_horizon: int = -1,
    convert_legacy: bool = False,
    verify_crc: bool = True,
    max_unpacked: int = 1073741824,
) -> Written:
    """Apply ``actions`` to each whole batch in ``data``; ``actions[0]`` and ``first_bit`` belong to the first.

    ``actions`` may be longer than the batches in ``data``. Dropped batches are neither checked nor unpacked. Of
    records that go only the length is looked at: whoever decides has decoded them (F-2.3). Rebuilt
    batches follow F-2.2, F-2.5, F-2.6 and C-52, with record attributes kept (U-14) and the batch's own codec at its
    default level. A negative ``delete_horizon`` with ACTION_SET_HORIZON rebuilds without the bit (C-50). Stops early,
    between batches, when the output grows large.

    Rebuilt legacy batches keep their format (F-3.2) or become v2 (F-3.3, ``convert_legacy``); an emptied one becomes an
    empty v2 batch (U-13). Wrappers are unpacked whatever becomes of them, to count their records.

    Raises:
        CorruptLogError: as decode_chunk, for the batches that are copied, rebuilt or emptied; also what C-54 lists.
        ValueError: fewer actions or keep bits than batches or records, an unknown action, REBUILD that keeps no
        record,
            COPY of a legacy batch with ``convert_legacy``, ACTION_SET_HORIZON of one without.
    """

@final
class ChunkDecoder:
    """``decode_chunk`` fed piece by piece: the bytes of a small piece are still in the CPU's cache when they are used.

    After an error it is of no use any more.
    """

    def __new__(
        cls,
        expected_bytes: int,
        *,
        hash_key: bytes | None = None,
        version_header: bytes | None = None,
        version_encoding: str = "long",
        tombstone_header: bytes | None = None,
        verify_crc: bool = True,
        max_unpacked: int = 1073741824,
    ) -> ChunkDecoder: ...
    def feed(self, data: NDArray[np.uint8], position: int) -> tuple[int, int]:
        """The whole batches of ``data``, which follow those before.

        Returns the bytes that they take, and what the next batch needs when it did not fit (0: unknown, or none).

        Raises:
            CorruptLogError: as decode_chunk.
            ValueError: it is finished.
        """
    @property
    def full(self) -> bool:
        """It takes no more: there are many records, or what was unpacked is large."""
    def finish(self) -> Chunk:
        """The result of all fed bytes, as from decode_chunk. Call it once."""

@final
class ChunkRewriter:
    """``rewrite_chunk`` in pieces. ``keep_bits`` and ``actions`` are not copied: do not change them meanwhile.

    ``lead``: less than 4096 bytes for the front of the output. The output is allocated so that ``with_lead`` begins at
    a page of memory, for direct I/O; an output much larger than ``expected_bytes`` may be elsewhere.
    ``least_max_timestamps``: one per batch, as ``actions``: a rebuilt v2 batch's largest timestamp is not lower (U-65).
    ``max_batch_bytes``: a v2 batch that only a new delete horizon makes larger than this gets none (U-95); 0: no limit.
    """

    def __new__(
        cls,
        expected_bytes: int,
        keep_bits: NDArray[np.uint64],
        first_bit: int,
        actions: NDArray[np.uint8],
        *,
        delete_horizon: int = -1,
        max_batch_bytes: int = 0,
        convert_legacy: bool = False,
        verify_crc: bool = True,
        max_unpacked: int = 1073741824,
        lead: NDArray[np.uint8] | None = None,
        least_max_timestamps: NDArray[np.int64] | None = None,
    ) -> ChunkRewriter: ...
    def feed(self, data: NDArray[np.uint8], position: int) -> tuple[int, int]:
        """As ``ChunkDecoder.feed``.

        Raises:
            CorruptLogError, ValueError: as rewrite_chunk; ValueError also for a longer ``lead``, or when finished.
        """
    @property
    def full(self) -> bool:
        """It takes no more: the output is large."""
    def finish(self) -> Written:
        """The result of all fed bytes, as from rewrite_chunk. Call it once."""

@final
class IndexBuilder:
    """The two indexes of one segment that is being written (F-6/7.1, per batch as 3.9 and 4.x do)."""

    def __new__(
        cls, base_offset: int, interval_bytes: int, *, max_offset_entries: int, max_time_entries: int
    ) -> IndexBuilder: ...
    def append(self, written: Written) -> None:
        """The batches of ``written`` follow in the segment. Entries over the maxima are left out (T-36).

        Raises:
            ValueError: a last offset outside ``base_offset .. base_offset + 2^31 - 1``.
        """
    def finish(self) -> tuple[bytes, bytes]:
        """``.index`` and ``.timeindex`` contents, the closing time entry included; the builder stays as it was."""
    @property
    def position(self) -> int: ...
    """Bytes of the segment so far."""
    @property
    def max_timestamp(self) -> int: ...
    """Largest batch timestamp so far, -1 when none."""

def crc32c(data: NDArray[np.uint8], seed: int = 0) -> int:
    """CRC-32C; ``seed`` is the value of the bytes before."""

def crc32c_of_batches(data: NDArray[np.uint8], seed: int = 0) -> int:
    """``crc32c(data, seed)`` for whole batches whose own CRCs were checked or made just now: their bytes are not read.

    What is no whole v2 batch is read. Wrong where a batch's CRC is wrong: check first.
    """

def crc32c_combine(first: int, second: int, second_bytes: int) -> int:
    """CRC-32C of bytes with ``first`` followed by ``second_bytes`` bytes with ``second``; nothing is read."""

def compress(codec: int, data: bytes) -> bytes:
    """``data`` as the payload of a batch with this codec (0..4), at the codec's default level.

    Raises:
        ValueError: no such codec.
    """

def decompress(codec: int, data: bytes, limit: int) -> bytes:
    """The other way.

    Raises:
        CorruptLogError: damaged data, or more than ``limit`` bytes. ``position`` is -1.
        ValueError: no such codec.
    """

def build_info() -> dict[str, str]:
    """Version, target, profile and crate versions: what belongs into a bug report."""
