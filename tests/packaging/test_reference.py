"""The generated pages of the reference agree with the program."""

from __future__ import annotations

import pytest

from tools.reference import DOCS, pages


@pytest.mark.parametrize("page", pages())
def test_the_page_is_up_to_date(page: str) -> None:
    """After a change of options, settings or events: ``python -m tools.reference``."""
    assert (DOCS / page).read_text(encoding="utf-8") == pages()[page]
