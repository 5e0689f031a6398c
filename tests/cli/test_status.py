"""The first line of ``cleanerd status``."""

from __future__ import annotations

from cleanerd.cli.status import headline
from cleanerd.daemon.view import Totals
from cleanerd.words import counted
from tests.daemon.views import partition, view


def test_the_headline() -> None:
    """What was done by mode: observe mode cleans nothing, and says how often it worked out what it would save."""
    well = headline(view(partitions=(partition(),)).to_json())
    assert well.startswith("cleanerd 0.1.0, mode auto, ready, up ")
    assert ", 1 partition, 0 cleaned, " in well
    assert "observation" not in well
    totals = Totals(observed=3)
    observing = headline(view(mode="observe", partitions=(partition(), partition(number=1)), totals=totals).to_json())
    assert ", 2 partitions, " in observing
    assert observing.endswith(", 3 observations")
    trouble = headline(view(ready=False, healthy=False, unhealthy_reason="a worker died", paused=True).to_json())
    assert "not ready" in trouble
    assert trouble.endswith(", PAUSED, UNHEALTHY: a worker died")


def test_a_number_and_its_noun() -> None:
    """No operator reads ``1 partitions``."""
    assert [counted(count, "batch") for count in (0, 1, 1234)] == ["0 batches", "1 batch", "1,234 batches"]
    assert (counted(1, "topic", "is"), counted(2, "topic", "is")) == ("1 topic is", "2 topics are")
