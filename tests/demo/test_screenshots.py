"""The pictures on the pages: small, shown, and made again from the demonstration (`make screenshots`)."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from cleanerd_lab.demo.jars import find_kafka
from tests.demo.screenshots import HEIGHT, MOST_BYTES, PICTURES, WIDTH, take

REPOSITORY = Path(__file__).parents[2]
IMAGES = REPOSITORY / "docs" / "images"


def _size(path: Path) -> tuple[int, int]:
    """Width and height, as the PNG's first chunk says them."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    return width, height


def test_every_picture_is_there_small_and_shown() -> None:
    """Exactly those that `make screenshots` makes; each is on a page."""
    pages = "".join(page.read_text() for page in (REPOSITORY / "README.md", *REPOSITORY.glob("docs/*.md")))
    assert {path.stem for path in IMAGES.iterdir()} == set(PICTURES)
    for name in PICTURES:
        picture = IMAGES / f"{name}.png"
        assert _size(picture) == (WIDTH, HEIGHT)
        assert picture.stat().st_size < MOST_BYTES
        assert f"images/{name}.png)" in pages


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.browser
def test_the_screenshots_can_be_made_again(tmp_path: Path) -> None:
    """The demonstration runs, the page is drawn, the pictures are small enough."""
    taken = take(tmp_path, find_kafka(None))
    assert [path.stem for path in taken] == list(PICTURES)
    assert {_size(path) for path in taken} == {(WIDTH, HEIGHT)}
