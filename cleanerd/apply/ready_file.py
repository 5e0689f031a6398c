"""``ready.json``: what ``cleanerd apply`` has to know of a staged plan besides its manifest."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Final

from cleanerd.cleaner.manifest import FileFact
from cleanerd.errors import CorruptionError
from cleanerd.log.state_files import DAMAGE

FORMAT: Final = 3


@dataclass(frozen=True, slots=True)
class Ready:
    """What ``ready.json`` adds to the manifest. ``clean_to`` is None when the clean point must not move.

    ``keep_replaced``: the directory that ``apply`` keeps the replaced segments in (S-40); None: nowhere. ``purged`` is
    the file with the keys whose tombstones go, None when no record that comes late matters to the plan (U-1).
    ``change_strategy``: it was said that other rules than those of the last cleaning are meant.
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
        return json.dumps(document, indent=1).encode() + b"\n"

    @classmethod
    def from_json(cls, data: bytes, where: str) -> Ready:
        """Read it back.

        Raises:
            CorruptionError: it is no such file, or one of another release; the plan can be staged again.
        """
        try:
            document = json.loads(data)
            clean_to, strategy, result = document["clean_to"], document["strategy"], document["result"]
            purged = None if document["purged"] is None else FileFact(**document["purged"])
        except DAMAGE:
            raise CorruptionError("is no record of a staged plan", where=where) from None
        kept = document.get("keep_replaced")
        sound = (clean_to is None or isinstance(clean_to, int)) and isinstance(result, dict)
        sound = sound and (kept is None or isinstance(kept, str))
        if document.get("format") != FORMAT or not sound or not isinstance(strategy, str):
            raise CorruptionError("is no record of a staged plan that this release knows", where=where)
        return cls(clean_to, strategy, result, kept, purged, document.get("change_strategy") is True)
