"""Chaos on two brokers, for CHAOS_MINUTES (2.5); CHAOS_SEED repeats the order of events of a run."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Final

import pytest

from tests.live.chaos import chaos

if TYPE_CHECKING:
    from pathlib import Path

MINUTES: Final = float(os.environ.get("CHAOS_MINUTES", "2.5"))
SEED: Final = int(os.environ.get("CHAOS_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)

pytestmark = [pytest.mark.kafka, pytest.mark.broker, pytest.mark.long, pytest.mark.timeout(round(60 * MINUTES) + 1800)]


def test_chaos(tmp_path: Path) -> None:
    """LT-21: after random events, readers and both replicas have the last acknowledged value of every key."""
    again = (
        f"CHAOS_SEED={SEED} CHAOS_MINUTES={MINUTES:g} .venv/bin/python -m pytest -s -m long {os.path.relpath(__file__)}"
    )
    print(f"\n{again}", flush=True)  # noqa: T201 - a run that hangs has said it already
    try:
        with chaos(tmp_path, random.Random(SEED)) as field:
            with field.load:
                field.play(60 * MINUTES)
            field.check()
            assert field.happened.keys() == field.events.keys()
            print(f"{field.load.ledger.count} records, {field.swaps} swaps, {dict(field.happened)}")  # noqa: T201
    except BaseException as error:
        error.add_note(f"the same events again: {again}")
        raise
