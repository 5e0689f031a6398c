"""The generated pages of the reference say what the program says."""

from __future__ import annotations

import re

import pytest

from cleanerd.cleaner.result import CleaningResult
from cleanerd.format.names import TopicPartition
from tests.daemon.views import log_dir, partition
from tools.reference import DOCS, pages


@pytest.mark.parametrize("page", pages())
def test_the_page_is_up_to_date(page: str) -> None:
    """After a change of options, settings or events: ``python -m tools.reference``."""
    assert (DOCS / page).read_text(encoding="utf-8") == pages()[page]


def test_the_json_page_has_the_fields_of_the_results() -> None:
    """What ``to_json`` gives is on the page, under the heading of its object, and nothing else is."""
    results = {
        "`status` and `/status`: an entry of `partitions`": partition().to_json(),
        "`status` and `/status`: an entry of `log_dirs`": log_dir().to_json(),
        "`clean`, `stage`, `apply` and `spark clean`: an entry of `partitions`": CleaningResult(
            TopicPartition("orders", 0), "/d", "cleaned"
        ).to_json(),
    }
    sections = dict(each.split("\n", 1) for each in pages()["json.md"].split("\n## ")[1:])
    for heading, document in results.items():
        assert set(re.findall(r"^\| `(\w+)` \|", sections[heading], re.MULTILINE)) == set(document)
