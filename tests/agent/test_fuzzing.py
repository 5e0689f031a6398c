"""Coverage-guided attack on the agent's readers; and its seeds, which the agent accepts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.agent.fuzz import outcomes, seeds

pytestmark = pytest.mark.long

TOP = Path(__file__).resolve().parents[2]


def test_the_unchanged_requests_are_accepted(tmp_path: Path) -> None:
    """A-23, A-29: accepted requests and staged files; after a change of one byte a batch matches no source."""
    known = list(seeds())
    right = outcomes(tmp_path, known)
    assert [message for message in right if message != "well"] == ["bad_log: the staged log has no batch"], right
    staged = next(data for data, message in zip(known, right, strict=True) if data[0] & 1 and message == "well")
    changed = bytearray(staged)
    changed[3 + 50] ^= 1  # the producer of the staged batch; the checksums are recomputed
    message, cut = outcomes(tmp_path, [bytes(changed), staged[:40]])
    assert message.startswith("foreign_batch"), message
    assert cut.startswith("bad_log"), cut


@pytest.mark.timeout(900)
def test_coverage_led_requests_are_refused() -> None:
    """A-23, A-29: for twenty seconds every input is refused."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.agent.fuzz", "--seconds", "20"],
        cwd=TOP, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert ", 0 wrong" in done.stdout
