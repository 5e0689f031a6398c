"""JSON files of cleanerd: the same text as from the ``json`` module, for paths of any bytes."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleanerd.fsio.json_text import document_bytes, line_bytes

# U+007F is the only character that one of them escapes and the other does not
TEXT = st.text(st.characters(exclude_characters="\x7f"))
SCALARS = st.none() | st.booleans() | st.integers(-(2**80), 2**80) | TEXT
DOCUMENTS = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4), max_leaves=20
)


@dataclass(frozen=True, slots=True)
class Place:
    """A value like those in state files."""

    base: int
    name: str | None


@given(DOCUMENTS)
def test_as_the_json_module_writes_it(document: Any) -> None:
    """With lone surrogates among the characters, as in a name of bytes that are not valid text."""
    assert document_bytes(document) == json.dumps(document, indent=1).encode()
    assert json.loads(line_bytes(document)) == document
    assert b"\n" not in line_bytes(document)


def test_a_path_of_any_bytes() -> None:
    path = os.fsdecode(b"/data/\xff\xfe/d1")
    assert os.fsencode(json.loads(document_bytes({"path": path}))["path"]) == b"/data/\xff\xfe/d1"
    assert os.fsencode(json.loads(line_bytes({"path": path}))["path"]) == b"/data/\xff\xfe/d1"


@pytest.mark.parametrize("path", ["/data/d1", os.fsdecode(b"/data/\xff")], ids=["text", "no text"])
def test_dataclasses_inside(path: str) -> None:
    found = json.loads(document_bytes({"path": path, "segments": [Place(5, None), Place(7, "x")]}))
    assert found == {"path": path, "segments": [{"base": 5, "name": None}, {"base": 7, "name": "x"}]}


def test_values_that_are_not_json_raise() -> None:
    with pytest.raises(TypeError):
        document_bytes({"path": object()})
    with pytest.raises(TypeError):
        line_bytes({"path": object()})
