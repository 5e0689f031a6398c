"""The text of the JSON files that cleanerd writes: indented, for people, and in ASCII, whatever a path is made of.

The daemon writes three of them for each partition that it cleans. The ``json`` module indents in Python, a call for
each value; pydantic's serializer does the same in Rust in a tenth of the time. It writes the lines of
the agent's protocol too.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any
from uuid import UUID

from pydantic_core import PydanticSerializationError, to_json


def line_bytes(document: Any) -> bytes:
    """``document`` in one line, without spaces or a line end at its end.

    Raises:
        TypeError: something besides JSON's own types, UUIDs and dataclasses is in it.
    """
    try:
        return to_json(document)
    except PydanticSerializationError:
        return json.dumps(document, separators=(",", ":"), default=_plain).encode()


def document_bytes(document: Any) -> bytes:
    """``document``, made of JSON's own types, UUIDs and dataclasses, indented by one space; no line end at its end.

    Raises:
        TypeError: something else is in it.
    """
    try:
        return to_json(document, indent=1, ensure_ascii=True)
    except PydanticSerializationError:
        # A path whose bytes are not valid UTF-8 is a string with surrogates, which only this encoder writes.
        return json.dumps(document, indent=1, default=_plain).encode()


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, UUID) else asdict(value)
