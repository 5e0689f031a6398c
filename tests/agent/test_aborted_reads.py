"""A swap between two steps of Kafka's read_committed read, which takes no lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.agent.java_program import JAVA, reported_by
from tests.kafka.judge import fetch

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.kafka


def test_a_swap_in_the_middle_of_a_read(tmp_path: Path) -> None:
    """D-09: the segment's data is read from the old file, and the aborted transaction is searched after the swap.

    It is not found in a merged segment, or if its entry was removed with its data: Kafka's own cleaner makes both. It
    is found if each source has its own output, and the entry stays as long as its marker.
    """
    sources = sorted((JAVA / "aborted").rglob("*.java"))
    reported = reported_by(tmp_path, sources, "cleanerd.judge.AbortedReads", str(tmp_path), libs=fetch("4.3").libs)
    lines = dict(line.split("=", 1) for line in reported if "=" in line and not line.startswith("["))
    assert lines == {
        "nothing": "true",
        "both by one": "false",
        "one by one, with the entry": "true",
        "one by one, without it": "false",
    }
