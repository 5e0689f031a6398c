"""What ``cleanerd status`` shows: its first line, and which partitions."""

from __future__ import annotations

import pytest

from cleanerd.cli.output import Output
from cleanerd.cli.status import headline, matching, tell
from cleanerd.daemon.view import Totals
from cleanerd.errors import ConfigError
from cleanerd.words import counted, human_change
from tests.daemon.views import log_dir, partition, view


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


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (15_518_925, 2_202_009, "14.8 -> 2.1 MiB (-86 %)"),
        (15_518_925, 2_202, "14.8 MiB -> 2.2 KiB (-100.0 %)"),
        (15_518_925, 15_500_000, "14.8 -> 14.8 MiB (-0.1 %)"),
        (1000, 1000, "1000 -> 1000 B (0 %)"),
        (1000, 0, "1000 -> 0 B (-100 %)"),
        (1000, 1010, "1000 -> 1010 B (+1 %)"),
        (0, 0, "0 -> 0 B"),
    ],
)
def test_a_change(before: int, after: int, said: str) -> None:
    """Units that agree are named once; what hardly changes is not called unchanged."""
    assert human_change(before, after) == said


def test_which_partitions() -> None:
    """By names, topics, patterns, and by state; both together narrow it down."""
    made = view(
        partitions=(
            partition("orders", 0),
            partition("orders", 1, phase="quarantined"),
            partition("carts", 0, phase="quarantined"),
        )
    ).to_json()

    def names(*words: str, states: tuple[str, ...] = ()) -> list[str]:
        return [f"{each['topic']}-{each['partition']}" for each in matching(made, words, states)]

    assert names("orders") == ["orders-0", "orders-1"]
    assert names(states=("quarantined",)) == ["orders-1", "carts-0"]
    assert names("ord*", states=("quarantined",)) == ["orders-1"]
    with pytest.raises(ConfigError, match="nope-0, x: the daemon knows no such"):
        names("nope-0", "orders", "x")


def test_several_log_directories_have_a_column(capsys: pytest.CaptureFixture[str]) -> None:
    """Where there is one its name says nothing."""
    rows = (partition(log_dir="/data-1"), partition(number=1, log_dir="/data-2"))
    both = view(log_dirs=(log_dir("/data-1"), log_dir("/data-2")), partitions=rows).to_json()
    tell(Output(), both, both["partitions"])
    told = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("orders-")]
    assert [words[:2] for words in told] == [["orders-0", "/data-1"], ["orders-1", "/data-2"]]
    one = view(log_dirs=(log_dir("/data-1"),), partitions=rows[:1]).to_json()
    tell(Output(), one, one["partitions"])
    (row,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("orders-")]
    assert "/data-1" not in row


def test_a_log_directory_that_cannot_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    """How much is free there nobody knows; it was told as 0 B."""
    gone = log_dir("/data-1", online=False, total_bytes=0, free_bytes=0, error="does not exist")
    tell(Output(), view(log_dirs=(gone,)).to_json(), [])
    (row,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("/data-1")]
    assert row.split() == ["/data-1", "offline!", "?", "does", "not", "exist"]


def test_no_partition_at_all(capsys: pytest.CaptureFixture[str]) -> None:
    """An empty table is no answer: a topic that was made just now is missing, and will come."""
    tell(Output(), view().to_json(), [])
    assert "a topic counts 5 minutes after it was made or changed" in " ".join(capsys.readouterr().err.split())
    shown = view(partitions=(partition("orders", 0),)).to_json()
    tell(Output(), shown, [])
    assert capsys.readouterr().err == "", "none of those that were asked for"
    tell(Output(), view(ready=False).to_json(), [])
    assert capsys.readouterr().err == "", "nobody has looked yet"
