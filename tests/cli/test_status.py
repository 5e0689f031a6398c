"""The output of ``cleanerd status``: its first line, and which partitions."""

from __future__ import annotations

import pytest

from cleanerd.cli.output import Output
from cleanerd.cli.status import attention, headline, matching, partition_row, print_status, show_history
from cleanerd.daemon.view import CanaryView, CleaningView, DaemonTotals, QuarantineView
from cleanerd.errors import ConfigError
from cleanerd.humanize import counted, human_change
from tests.daemon.views import GIB, NOW_MS, log_dir, open_since, partition, view


def test_the_headline() -> None:
    """The work by mode: observe mode cleans nothing, and shows how many savings it computed."""
    well = headline(view(partitions=(partition(),)).to_json())
    assert well.startswith("cleanerd 0.1.0, mode auto, ready, up ")
    assert ", 1 partition, 0 cleaned, " in well
    assert "observation" not in well
    totals = DaemonTotals(observed=3)
    observing = headline(view(mode="observe", partitions=(partition(), partition(number=1)), totals=totals).to_json())
    assert ", 2 partitions, " in observing
    assert observing.endswith(", 3 observations")
    trouble = headline(view(ready=False, healthy=False, unhealthy_reason="a worker died", paused=True).to_json())
    assert "not ready" in trouble
    assert trouble.endswith(", PAUSED, UNHEALTHY: a worker died")


def test_a_number_and_its_noun() -> None:
    """``1 partitions`` never appears."""
    assert [counted(count, "batch") for count in (0, 1, 1234)] == ["0 batches", "1 batch", "1,234 batches"]
    assert (counted(1, "topic", "is"), counted(2, "topic", "is")) == ("1 topic is", "2 topics are")


@pytest.mark.parametrize(
    ("before", "after", "message"),
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
def test_a_change(before: int, after: int, message: str) -> None:
    """Equal units appear once; a small change is not shown as unchanged."""
    assert human_change(before, after) == message


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
    assert names(states=("quarantined",)) == ["carts-0", "orders-1"]
    assert names("ord*", states=("quarantined",)) == ["orders-1"]
    with pytest.raises(ConfigError, match="nope-0, x: the daemon knows no such"):
        names("nope-0", "orders", "x")


def test_several_log_directories_have_a_column(capsys: pytest.CaptureFixture[str]) -> None:
    """With a single directory the column is not shown."""
    rows = (partition(log_dir="/data-1"), partition(number=1, log_dir="/data-2"))
    both = view(log_dirs=(log_dir("/data-1"), log_dir("/data-2")), partitions=rows).to_json()
    print_status(Output(), both, both["partitions"])
    output = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("orders-")]
    assert [words[:2] for words in output] == [["orders-0", "/data-1"], ["orders-1", "/data-2"]]
    one = view(log_dirs=(log_dir("/data-1"),), partitions=rows[:1]).to_json()
    print_status(Output(), one, one["partitions"])
    (row,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("orders-")]
    assert "/data-1" not in row


def test_a_log_directory_that_cannot_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    """Its free space is unknown; it was shown as 0 B."""
    gone = log_dir("/data-1", online=False, total_bytes=0, free_bytes=0, error="does not exist")
    print_status(Output(), view(log_dirs=(gone,)).to_json(), [])
    (row,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("/data-1")]
    assert row.split() == ["/data-1", "offline!", "?", "does", "not", "exist"]


def test_no_partition_at_all(capsys: pytest.CaptureFixture[str]) -> None:
    """An empty table is not an answer: a topic that was just created is missing, and will appear."""
    print_status(Output(), view().to_json(), [])
    assert "a topic is listed 5 minutes after it was created or changed" in " ".join(capsys.readouterr().err.split())
    shown = view(partitions=(partition("orders", 0),)).to_json()
    print_status(Output(), shown, [])
    assert capsys.readouterr().err == "", "none of the requested ones"
    print_status(Output(), view(ready=False).to_json(), [])
    assert capsys.readouterr().err == "", "no scan has ended yet"


def _clean(number: int, outcome: str, ended_ms: int, **result: object) -> CleaningView:
    entry = {"outcome": outcome, "reason": "", "bytes_before": 2 * GIB, "bytes_after": GIB, **result}
    return CleaningView("orders", number, ended_ms - 5000, ended_ms, "ratio", entry)


def test_partitions_that_need_attention(capsys: pytest.CaptureFixture[str]) -> None:
    """OP-17: as text the content of the page's first tile, and more: which partitions, and the command for them."""
    failed = _clean(4, "failed", NOW_MS, reason="not enough free space")
    made = view(
        made_ms=NOW_MS,
        last_scan_ms=NOW_MS - 3_600_000,
        paused=True,
        log_dirs=(
            log_dir("/full", free_bytes=GIB),
            log_dir("/gone", online=False, free_bytes=0),
            log_dir("/well"),
            log_dir("/down", mode="offline", mode_reason="no broker runs on it; it may be about to start"),
            log_dir("/waits", mode_reason="waits, because cleanerd.mode is live: no broker runs on it"),
        ),
        partitions=(
            partition(number=0),
            partition(number=1, phase="quarantined", quarantine=QuarantineView("damaged", NOW_MS, 1, None)),
            partition(number=2, phase="refused", delegated=False),
            partition(number=3, phase="refused"),
            partition(number=4, last_cleaning=failed),
            partition(number=5, overdue_at_ms=NOW_MS - 1),
            partition(number=6, overdue_at_ms=NOW_MS + 1, last_cleaning=_clean(6, "cleaned", NOW_MS)),
            partition(number=9, has_wrong_times=True),
            partition(number=10, waits_for=(2,), next_purge_ms=NOW_MS),
            partition(number=11, waits_for=(2,), next_purge_ms=NOW_MS + 1),
            partition(number=12, waits_for=(), next_purge_ms=NOW_MS),
            partition(number=7, open_transaction=open_since(NOW_MS - 900_001)),
            partition(number=8, open_transaction=open_since(NOW_MS - 900_000)),
            partition(number=13, last_cleaning=_clean(13, "quarantined", NOW_MS)),
            *(partition("many", number, overdue_at_ms=1) for number in range(11)),
        ),
    ).to_json()
    found = attention(made, NOW_MS)
    assert [line.removeprefix("needs attention: ") for line in found] == [
        "the partitions were last scanned 1 h ago",
        "everything is paused, so nothing is cleaned (cleanerd resume)",
        "1 log directories offline: /gone",
        "2 log directories without a running broker: /down, /waits",
        "1 log directories below cleanerd.disk.reserve: /full (free some space)",
        "1 quarantined: orders-1 (cleanerd status --state quarantined)",
        "1 not delegated: orders-2 (cleanerd delegate TOPIC)",
        "1 refused: orders-3 (cleanerd status --state refused)",
        "12 overdue by max.compaction.lag.ms: "
        + ", ".join(f"many-{number}" for number in range(10))
        + " and 2 more (cleanerd explain TOPIC-N)",
        "1 limited by a transaction open for more than 15 minutes: orders-7 (cleanerd explain TOPIC-N)",
        "1 with timestamps that are not in milliseconds: orders-9 (cleanerd explain TOPIC-N)",
        "1 with tombstones that wait for a replica: orders-10 (cleanerd explain TOPIC-N)",
        "2 whose last cleaning failed: orders-4, orders-13 (cleanerd status --history)",
    ]
    print_status(Output(), made, [])
    assert "needs attention: 1 quarantined: orders-1" in capsys.readouterr().out
    well = view(made_ms=NOW_MS, last_scan_ms=NOW_MS, log_dirs=(log_dir(),), partitions=(partition(),)).to_json()
    assert attention(well, NOW_MS) == []
    print_status(Output(), {**well, "last_scan_ms": None}, [])
    assert "nothing needs attention" in capsys.readouterr().out


@pytest.mark.parametrize(("kept", "shown"), [(1200, "up to 1,200 wait for 2"), (None, "waits for 2")])
def test_the_number_of_waiting_tombstones(kept: int | None, shown: str) -> None:
    """U-94: an upper bound; unknown until a cleaning has counted them."""
    held = partition(waits_for=(2,), next_purge_ms=NOW_MS, tombstones_kept=kept)
    (entry,) = view(partitions=(held,)).to_json()["partitions"]
    assert shown in partition_row(entry, NOW_MS)


def test_history_in_text(capsys: pytest.CaptureFixture[str]) -> None:
    """OP-17: for hosts without a browser; the newest first, of the named partitions, up to a limit."""
    made = view(
        partitions=(partition(number=0), partition(number=1)),
        history=(
            _clean(0, "cleaned", NOW_MS, active_bytes=GIB),
            _clean(1, "failed", NOW_MS + 2000, reason="not enough free space", bytes_before=None, bytes_after=None),
            _clean(0, "unchanged", NOW_MS + 1000),
        ),
    ).to_json()

    def shown(*words: str, limit: int | None = None) -> list[list[str]]:
        show_history(Output(), made, words, limit)
        return [line.split() for line in capsys.readouterr().out.splitlines()[1:]]

    assert [row[1:4] for row in shown()] == [
        ["orders-1", "failed", "ratio"],
        ["orders-0", "unchanged", "ratio"],
        ["orders-0", "cleaned", "ratio"],
    ]
    failed, _, cleaned = shown()
    assert failed[4:] == ["5.0", "s", "not", "enough", "free", "space"]
    assert cleaned[4:] == ["5.0", "s", "3.0", "GiB", "2.0", "GiB"]
    assert [row[2] for row in shown("orders-0", limit=1)] == ["unchanged"]
    show_history(Output(as_json=True), made, (), None)
    assert '"ended_ms"' in capsys.readouterr().out
    show_history(Output(), view().to_json(), (), None)
    assert capsys.readouterr().out == "No cleaning has ended since the daemon started.\n"


def test_many_partitions_are_shown_by_topic(capsys: pytest.CaptureFixture[str]) -> None:
    """OP-22: topics by saving; idle and excluded ones without a saving in one line."""
    unknown = {"reclaimable_bytes": None, "reclaimable_low_bytes": None, "reclaimable_high_bytes": None}
    known = {"reclaimable_bytes": 10, "reclaimable_low_bytes": 10, "reclaimable_high_bytes": 10}
    small = [partition("small", number, phase="idle", reclaimable_exact=True, **known) for number in range(2)]
    large = [partition("large", number, phase="cleaning", reclaimable_exact=True, **known) for number in range(20)]
    quiet = [partition("quiet", phase="idle", **unknown), partition("left", phase="excluded", **unknown)]
    shown = view(partitions=(*small, *large, *quiet)).to_json()
    print_status(Output(), shown, shown["partitions"])
    titles, *topics, rest = capsys.readouterr().out.splitlines()[-4:]
    assert titles.split()[:2] == ["topic", "partitions"]
    assert [(line.split()[:2], line.split("  ")[-1]) for line in topics] == [
        (["large", "20"], "20 cleaning"), (["small", "2"], "2 idle"),
    ]  # fmt: skip
    assert " 200 B " in topics[0]
    assert " saved, 220 B reclaimable" in headline(shown)
    assert rest == "nothing to reclaim in 2 topics: 1 partition excluded, 1 partition idle; --by partition shows each"
    print_status(Output(), shown, shown["partitions"], by="partition", top=1)
    assert capsys.readouterr().out.splitlines()[-1] == "and 23 more partitions; --top sets how many are shown"


def test_the_canary(capsys: pytest.CaptureFixture[str]) -> None:
    """D-20: its progress, and why it holds."""
    well = CanaryView("5 partitions", 2, 4096, 1500, verifying="orders-1")
    print_status(Output(as_json=False), view(canary=well).to_json(), [])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "canary (5 partitions): verifies orders-1 now, 2 partitions to verify, 1,500 verified"
    held = CanaryView("5 partitions", 2, 4096, 7, "", "orders-0", "/a", "key-twice: 0.log: twice", NOW_MS)
    (line,) = attention(view(canary=held).to_json(), NOW_MS)
    assert line.startswith("needs attention: nothing is cleaned: orders-0 in /a: key-twice: 0.log: twice (")
    assert "cleanerd retry" in line
    assert "cleanerd resume --canary" in line
