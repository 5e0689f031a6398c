"""Later releases read the state of 0.1.0 (docs/stability.md): one stored file for each kind of document."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.fsio.json_text import line_bytes

if TYPE_CHECKING:
    from cleanerd.state.document import Document

TOP = Path(__file__).parents[2]
STORED: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("format_1.json").read_text())
"""By the module and name of its kind; the fields as release 0.1.0 writes them."""


def kind_of(name: str) -> Document[Any]:
    module, _, attribute = name.rpartition(".")
    found: Document[Any] = getattr(import_module(module), attribute)
    return found


@pytest.mark.parametrize("name", STORED)
def test_a_stored_file_is_read(name: str) -> None:
    """U-10: a field that was added since has a default, and no field was dropped: otherwise its format is another."""
    kind = kind_of(name)
    body = kind.parse(line_bytes(STORED[name]))
    again = kind.to_bytes(body)
    assert kind.parse(again) == body
    assert STORED[name].keys() <= json.loads(again).keys() | {"topic", "partition"}


def test_each_kind_has_a_stored_file() -> None:
    """A new kind of file needs one, too."""
    kinds = set()
    for path in (TOP / "cleanerd").rglob("*.py"):
        module = ".".join(path.relative_to(TOP).with_suffix("").parts)
        kinds |= {f"{module}.{name}" for name in re.findall(r"^(\w+): Final = Document\(", path.read_text(), re.M)}
    assert kinds == STORED.keys()
