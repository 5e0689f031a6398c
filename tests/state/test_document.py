"""U-10: the one mechanism of state files: their contents never have another effect than a warning."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from cleanerd.state.document import Document

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Entry:
    path: str
    topic_id: UUID | None = None
    sizes: dict[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Entries:
    entries: tuple[Entry, ...]


def check(body: Entries) -> None:
    if len(body.entries) > 2:
        raise ValueError("more than two")


ENTRIES = Document("entries.json", Entries, check=check)
ID = UUID(int=7)


@pytest.mark.parametrize("path", ["/data/d1", "/data/\u00e4", os.fsdecode(b"/data/\xff"), "/data/\U0001f600"])
def test_a_written_document_is_read(tmp_path: Path, path: str) -> None:
    """A path may be of any bytes; keys of numbers stay numbers."""
    body = Entries((Entry(path, ID, {5: 6}), Entry(path)))
    ENTRIES.write(tmp_path / "made", body)
    assert ENTRIES.get(tmp_path / "made") == body
    assert ENTRIES.parse(ENTRIES.to_line(body)) == body


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        pytest.param("", "damaged (Invalid JSON", id="empty"),
        pytest.param("[" * 100_000, "damaged (Invalid JSON", id="depth"),
        pytest.param("[]", "damaged (Input should be an object", id="a list"),
        pytest.param('{"entries": []}', "damaged (format: Field required)", id="no format"),
        pytest.param('{"format": true, "entries": []}', "damaged (its format is True, not 1)", id="a truth as format"),
        pytest.param('{"format": 1e999, "entries": []}', "damaged (its format is inf, not 1)", id="infinity"),
        pytest.param('{"format": 2}', "written by a newer cleanerd (format 2, this one knows 1)", id="newer"),
        pytest.param('{"format": 1, "entries": [{"path": 5}]}', "damaged (entries.0.path: ", id="a number as path"),
        pytest.param(
            '{"format": 1, "entries": [{"path": "a", "sizes": {"1": "2"}}]}',
            "damaged (entries.0.sizes.1: ",
            id="a text as number",
        ),
        pytest.param(
            '{"format": 1, "entries": [{"path": "\\ud800"}, 5]}', "damaged (entries.1: ", id="half a character"
        ),
        pytest.param(
            json.dumps({"format": 1, "entries": [{"path": "a"}] * 3}), "damaged (more than two)", id="against the check"
        ),
    ],
)
def test_unusable_documents(tmp_path: Path, text: str, warning: str) -> None:
    """It counts as absent, with one warning that has the reason; the same bytes give the same warning."""
    (tmp_path / "entries.json").write_text(text)
    warnings: list[str] = []
    assert ENTRIES.load(tmp_path, warnings) is None
    assert ENTRIES.load(tmp_path, warnings) is None
    assert len(set(warnings)) == 1
    assert warnings[0].startswith(f"{tmp_path / 'entries.json'}: {warning}")
    assert warnings[0].endswith("; ignored")


def test_missing_and_additional_contents(tmp_path: Path) -> None:
    """No file is no warning; a field that another release added is ignored."""
    warnings: list[str] = []
    assert ENTRIES.load(tmp_path, warnings) is None
    (tmp_path / "entries.json").write_text('{"format": 1, "entries": [{"path": "a", "more": 1}], "other": []}')
    assert ENTRIES.load(tmp_path, warnings) == Entries((Entry("a"),))
    assert warnings == []
