"""``ready.json``: the facts about a staged plan that ``cleanerd apply`` needs besides its manifest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field

from cleanerd.cleaner.manifest import READY
from cleanerd.errors import CorruptionError
from cleanerd.format.adapters import Offset  # noqa: TC001 - pydantic resolves the annotation
from cleanerd.fsio.state_files import DAMAGE, NewerFormatError
from cleanerd.state.document import Document

_STRICT = ConfigDict(strict=True, extra="forbid")


@dataclass(frozen=True, slots=True)
class KeysFact:
    """Size and CRC-32C of the file with the keys, whose size depends on the number of tombstones."""

    bytes: Offset
    crc32c: Annotated[int, Field(ge=0, le=2**32 - 1)]

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class ReadyFile:
    """The fields of ``ready.json``. ``clean_to``: None if the checkpoint must not move.

    ``keep_replaced``: the directory for the segments that ``apply`` replaces (S-40); None: nowhere.
    ``removed_tombstones``: the file with the keys of removed tombstones, None when late records do not matter to the
    plan (U-1). ``change_strategy``: a change of rules since the last cleaning is intended. The owner of the partition's
    directory may have written the file (U-33).
    """

    clean_to: Offset | None
    strategy: str
    result: dict[str, Any]
    keep_replaced: str | None = None
    removed_tombstones: KeysFact | None = None
    change_strategy: bool = False

    __pydantic_config__ = _STRICT

    def to_json(self) -> bytes:
        """The bytes of the file that :meth:`from_json` reads."""
        return _DOCUMENT.to_bytes(self) + b"\n"

    @classmethod
    def from_json(cls, data: bytes, where: str) -> ReadyFile:
        """The file's content.

        Raises:
            CorruptionError: it is not such a file, or of another release; the plan can be staged again.
        """
        try:
            return _DOCUMENT.parse(data)
        except NewerFormatError as error:
            raise CorruptionError(f"is not a record of a staged plan: {error}", where=where) from None
        except DAMAGE as error:
            raise CorruptionError(f"is not a record of a staged plan ({error})", where=where) from None


def _check(ready: ReadyFile) -> None:
    kept = ready.keep_replaced
    if kept is not None and (not kept.startswith("/") or "\0" in kept):
        raise ValueError("keep_replaced is not a path")


_DOCUMENT: Final = Document(READY, ReadyFile, check=_check, only_known=True)
