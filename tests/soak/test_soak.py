"""``make soak`` for two minutes, so that it keeps working."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.soak.run import Soak
from tests.soak.verdict import failing, table

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.kafka, pytest.mark.broker]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_two_minutes(tmp_path: Path) -> None:
    """``make soak`` in short: every kind of visitor comes at least once, without a problem."""
    lines: list[str] = []
    soak = Soak(2.0, tmp_path, lines.append)
    rows = soak.run()
    table(rows, soak.checks, lines.append)
    assert not failing([*rows, *soak.checks]), "\n".join(lines)
    assert soak.samples.series["swaps"][-1][1] > 100
