"""The text of JSON files that cleanerd writes: indented, and in ASCII even if a path is not.

The daemon writes three of them per cleaned partition. The ``json`` module indents in Python, with a call per value;
pydantic's serializer does the same in Rust in a tenth of the time. It also writes the lines of the agent's protocol.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any
from uuid import UUID

from pydantic_core import PydanticSerializationError, to_json


def line_bytes(document: Any) -> bytes:
    """``document`` as one line, without spaces and line end.

    Raises:
        TypeError: it contains something besides JSON's own types, UUIDs and dataclasses.
    """
    try:
        return to_json(document)
    except PydanticSerializationError:
        return json.dumps(document, separators=(",", ":"), default=_plain).encode()


def document_bytes(document: Any) -> bytes:
    """``document``, made of JSON's own types, UUIDs and dataclasses, indented by one space; without a final line end.

    Raises:
        TypeError: it contains something else.
    """
    try:
        return to_json(document, indent=1, ensure_ascii=True)
    except PydanticSerializationError:
        # A path that is not valid UTF-8 is a string with surrogates, which only this encoder writes.
        return json.dumps(document, indent=1, default=_plain).encode()


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, UUID) else asdict(value)
