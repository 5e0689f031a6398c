"""The cost of changed compaction settings is counted and shown before the change (U-6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleanerd.host.clock import wall_ms
from tests.cli.clean_log_dirs import keys, lock_holder, write_metadata
from tests.cli.strategy_topics import DELEGATED, HEADER, QUIET, TOPIC_ID, clean_forced, versioned
from tests.support.log_dirs import Partition, make_log_dir

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.clean_log_dirs import Shell


def test_the_cost_of_a_change_is_counted_before_it_happens(root: Path, shell: Shell) -> None:
    """U-6: one of the keys k and m gets another retained record; shown whether refused or not, before any question."""
    first = versioned(0, "m", 9) + versioned(1, "k", 1)
    later = versioned(2, "k", 2) + versioned(3, "m", 1)
    path = make_log_dir(root / "logs", {"orders-0": Partition({0: first, 2: later, 4: b""}, topic_id=TOPIC_ID)})
    write_metadata(path, topics={"orders": DELEGATED})
    reported = "orders-0: 1 of 2 keys get another record by offset than by header:v, the strategy of the last cleaning"
    assert clean_forced(shell, path, *HEADER, "--cleanable-to", "2").code == 0
    refused = clean_forced(shell, path)
    assert (refused.code, reported in refused.err) == (4, True)
    assert refused.err.count("refused: ") == 1
    assert "cleaned with other settings before" not in refused.err, "shown once: as the reason of the refusal"
    unasked = shell("clean", path, "--force", "--change-strategy", *QUIET)
    assert unasked.code == 4
    assert reported in unasked.err, "there was no terminal for a question, but the number was printed"
    assert reported in shell("plan", path, "--exact", *QUIET).err
    assert "plan --exact counts the affected keys" in shell("plan", path, *QUIET).err
    before = keys(path / "orders-0")
    staged = shell("stage", path, "--force", "--change-strategy", *QUIET)
    assert (staged.code, reported in staged.err) == (0, True)
    assert keys(path / "orders-0") == before
    assert "another re" not in clean_forced(shell, path, *HEADER).err
    assert "another re" not in clean_forced(shell, path).err, "no key is left that would get another record"
    assert "no key gets another retained record" in clean_forced(shell, path, "--change-strategy").err


def test_young_metadata_costs_nothing(root: Path, shell: Shell) -> None:
    """U-23, U-6: with a running broker only metadata older than five minutes is used, as by a cleaning."""
    logs = {0: versioned(0, "k", 9), 1: versioned(1, "k", 1), 2: b""}
    path = make_log_dir(root / "logs", {"orders-0": Partition(logs, topic_id=TOPIC_ID)})
    write_metadata(path, topics={"orders": DELEGATED})
    assert clean_forced(shell, path, *HEADER, "--cleanable-to", "1").code == 0
    (path / ".kafka_cleanshutdown").unlink()
    with lock_holder(path):
        assert "another record" in shell("stage", path, "--force", *QUIET).err
        write_metadata(path, topics={"orders": DELEGATED}, timestamp=wall_ms())
        assert "another record" not in shell("stage", path, "--force", *QUIET).err
