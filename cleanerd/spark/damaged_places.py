"""Describes damage in segments that tasks could not read: they send positions, which are read again here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cleanerd.errors import CorruptionError
from cleanerd.spark.record_scan import decoder, place_of
from cleanerd.verify.records import HASH_KEY_BYTES
from cleanerd.verify.rules import KAFKAS_RULES
from cleanerd.verify.walk import Damage, walk

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cleanerd.verify.listing import SegmentFile

_READ_NOW: Final = "could be read at a second try: its task had less memory, or it was changed meanwhile"


def reason_at(segment: SegmentFile, position: int) -> str:
    """Why the batch at byte ``position`` cannot be read: damaged, or too large for the memory (U-35).

    Raises:
        CleanerdError: the file cannot be read.
    """

    def damaged(damage: Damage) -> None:
        raise CorruptionError(damage.reason, where=str(segment.path), position=damage.position)

    decode = decoder(KAFKAS_RULES, bytes(HASH_KEY_BYTES), with_digests=True)
    try:
        next(walk(segment.path, segment.size_bytes, decode, damaged, start=position), None)
    except CorruptionError as error:
        return error.message
    return _READ_NOW


def other_damage(reported: Sequence[str], offsets: Iterable[int], files: Sequence[SegmentFile]) -> Iterator[str]:
    """The damage at ``offsets``, encoded as in :func:`place_of`, except places in ``reported``. ``files``: by number.

    Raises:
        CleanerdError: a file cannot be read.
    """
    for place in map(place_of, offsets):
        if place is not None:
            number, position = place
            where = f"{files[number].path} at byte {position}: "
            if not any(text.startswith(where) for text in reported):
                yield where + reason_at(files[number], position)
