"""``ready.json``: what ``cleanerd apply`` has to know of a staged plan besides its manifest."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field

from cleanerd.cleaner.manifest import FileFact
from cleanerd.errors import CorruptionError
from cleanerd.format.adapters import Offset, adapter_of
from cleanerd.fsio.json_text import document_bytes
from cleanerd.fsio.state_files import DAMAGE

FORMAT: Final = 3

_STRICT = ConfigDict(strict=True, extra="forbid")


@dataclass(frozen=True, slots=True)
class _KeysFile:
    """Size and CRC-32C of the file with the keys: as large as there are tombstones."""

    bytes: Offset
    crc32c: Annotated[int, Field(ge=0, le=2**32 - 1)]

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class _ReadyDocument:
    """The file itself: the owner of the partition's directory may have written it (U-33)."""

    clean_to: Offset | None
    strategy: str
    result: dict[str, Any]
    purged: _KeysFile | None
    keep_replaced: Annotated[str, Field(pattern=r"^/[^\x00]*$")] | None = None
    change_strategy: bool = False

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class ReadyFile:
    """The additions of ``ready.json`` to the manifest. ``clean_to`` is None when the checkpoint must not move.

    ``keep_replaced``: the directory for the segments that ``apply`` replaces (S-40); None: nowhere. ``purged``: the
    file with the keys of removed tombstones, None when late records do not matter to the plan (U-1).
    ``change_strategy``: a change of rules since the last cleaning is intended.
    """

    clean_to: int | None
    strategy: str
    result: dict[str, Any]
    keep_replaced: str | None = None
    purged: FileFact | None = None
    change_strategy: bool = False

    def to_json(self) -> bytes:
        """The bytes of the file that :meth:`from_json` reads."""
        document = {
            "format": FORMAT,
            "clean_to": self.clean_to,
            "strategy": self.strategy,
            "keep_replaced": self.keep_replaced,
            "change_strategy": self.change_strategy,
            "purged": None if self.purged is None else asdict(self.purged),
            "result": self.result,
        }
        return document_bytes(document) + b"\n"

    @classmethod
    def from_json(cls, data: bytes, where: str) -> ReadyFile:
        """Read it back.

        Raises:
            CorruptionError: it is not such a file, or of another release; the plan can be staged again.
        """
        try:
            document = json.loads(data)
            known = document.pop("format") == FORMAT
            parsed = adapter_of(_ReadyDocument).validate_json(json.dumps(document)) if known else None
        except DAMAGE:
            raise CorruptionError("is not a record of a staged plan", where=where) from None
        if parsed is None:
            raise CorruptionError("is not a record of a staged plan that this release knows", where=where)
        purged = None if parsed.purged is None else FileFact(parsed.purged.bytes, parsed.purged.crc32c)
        return cls(
            parsed.clean_to, parsed.strategy, parsed.result, parsed.keep_replaced, purged, parsed.change_strategy
        )
