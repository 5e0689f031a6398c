"""``cleanerd clean`` on a real broker's directories: which files it finds, changes, refuses and reports."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.brokers import topics
from tests.brokers.lifecycle import FORCED
from tests.brokers.node import cleanerd

if TYPE_CHECKING:
    from tests.brokers.accounts import Cleaning
    from tests.brokers.ledger import Partition
    from tests.brokers.lifecycle import Lifecycle

pytestmark = [pytest.mark.kafka, pytest.mark.broker]

REFUSED = 4
OTHER_USER = 65_534


def test_plan_beside_the_running_broker(lifecycle: Lifecycle) -> None:
    """``plan`` reads only; topic settings come from the KRaft metadata in the first log directory (U-23)."""
    young = lifecycle.beside.young
    assert (young.exit_code, young.partitions) == (0, {})
    assert "younger than 5 minutes: it does not count yet" in young.stderr
    plan = lifecycle.beside.plan
    assert plan.exit_code == 0
    assert set(topics.CLEANED) <= set(plan.partitions)
    assert not set(topics.PLAIN.names) & set(plan.partitions)
    for partition in topics.CLEANED:
        entry = plan.partitions[partition]
        assert entry["action"] == "clean", entry
        assert entry["origins"][topics.RATIO] == "topic configuration"
        assert entry["origins"]["segment.bytes"].startswith("topic configuration")
    assert {entry["log_dir"] for entry in plan.partitions.values()} == {str(path) for path in lifecycle.broker.log_dirs}


def test_clean_beside_the_running_broker(lifecycle: Lifecycle) -> None:
    """S-10: cleanerd respects the broker's lock, and no file changes."""
    assert lifecycle.beside.refused.exit_code == REFUSED
    assert lifecycle.beside.refused.document["partitions"] == []
    assert {error["exit_code"] for error in lifecycle.beside.refused.document["errors"]} == {REFUSED}
    for log_dir in lifecycle.broker.log_dirs:
        assert f"{log_dir}/.lock: is held by process" in lifecycle.beside.refused.stderr
    assert lifecycle.beside.before == lifecycle.beside.after


def test_the_ratio_of_the_topic_counts(lifecycle: Lifecycle) -> None:
    """C-11: strictly above; a ratio of 1, which stops the broker's cleaner, is never exceeded."""
    run = lifecycle.eligible
    assert run.exit_code == 0
    for partition in topics.CLEANED:
        assert run.partitions[partition]["outcome"] == "skipped"
        assert f"is not above {topics.RATIO} 1" in run.partitions[partition]["reason"]


def check_reported(cleaning: Cleaning, partitions: tuple[Partition, ...]) -> None:
    """The report equals the model of the rules."""
    for partition in partitions:
        entry, dropped = cleaning.run.partitions[partition], cleaning.dropped[partition]
        if entry["outcome"] == "skipped":
            assert entry["reason"].startswith("nothing to clean"), entry
            assert dropped.superseded == dropped.tombstone == dropped.keyless == dropped.aborted == 0
            continue
        assert entry["end_offset"] == cleaning.ends[partition], entry
        assert entry["removed"] == {
            "superseded": dropped.superseded,
            "tombstone": dropped.tombstone,
            "no_key": dropped.keyless,
            "aborted": dropped.aborted,
            "marker": 0,
        }, entry
        assert cleaning.checkpoint[partition] == cleaning.ends[partition]
        assert (entry["outcome"] == "cleaned") >= (sum(entry["removed"].values()) > 0)


def check_untouched(cleaning: Cleaning, partitions: tuple[Partition, ...]) -> None:
    """Same files, same inodes, same times, same bytes."""
    for partition in partitions:
        assert cleaning.before[partition] == cleaning.after[partition], partition


def test_first_cleaning(lifecycle: Lifecycle) -> None:
    """Both directories; every codec; most records are removed; the figures are those of the model."""
    cleaning = lifecycle.cleaned
    assert cleaning.run.exit_code == 0, cleaning.run.stderr
    check_reported(cleaning, topics.CLEANED)
    cleaned = {p: e for p, e in cleaning.run.partitions.items() if e["outcome"] == "cleaned"}
    assert set(cleaned) == set(topics.CLEANED)
    assert {entry["log_dir"] for entry in cleaned.values()} == {str(path) for path in lifecycle.broker.log_dirs}
    for partition, entry in cleaned.items():
        assert entry["removed"]["superseded"] > entry["records_read"] / 3, (partition, "U-26")
        assert entry["bytes_after"] < entry["bytes_before"]
        assert entry["records_read"] - sum(entry["removed"].values()) == entry["records_kept"]
    assert cleaned[topics.KEYLESS.names[0]]["removed"]["no_key"] > 20, "U-26"
    check_untouched(cleaning, topics.PLAIN.names)


def test_aborted_records_are_removed(lifecycle: Lifecycle) -> None:
    """R192-3: they leave the disk; the broker restarts and reads without them (test_clients)."""
    for cleaning in (lifecycle.cleaned, lifecycle.crashed.cleaning):
        entry = cleaning.run.partitions[topics.TRANSACTIONAL.names[0]]
        assert entry["outcome"] == "cleaned"
        assert entry["removed"]["aborted"] > 20, "U-26"
        assert not set(topics.PLAIN.names) & set(cleaning.run.partitions)


def test_no_files_are_left(lifecycle: Lifecycle) -> None:
    """No staging directory, no unfinished swap, no segment without its index."""
    for cleaning in (lifecycle.cleaned, lifecycle.crashed.cleaning):
        for partition, files in cleaning.after.items():
            names = {Path(name).name for name in files}
            assert not [name for name in names if name.endswith((".swap", ".cleaned", ".deleted", ".kstage", ".tmp"))]
            bases = {Path(name).stem for name in names if name.endswith(".log")}
            assert {Path(name).stem for name in names if name.endswith(".index")} == bases, partition
            assert {Path(name).stem for name in names if name.endswith(".timeindex")} == bases, partition


def test_dozens_of_wiped_segments_become_few(lifecycle: Lifecycle) -> None:
    """D-02: no run of segments without records; U-13: one header for all of them, not one per segment."""
    entry = lifecycle.cleaned.run.partitions[topics.WIPED.names[0]]
    assert entry["segments_before"] > 25
    assert entry["records_kept"] < 10
    assert entry["segments_after"] == 1


def test_last_batch_of_an_open_producer_is_emptied(lifecycle: Lifecycle) -> None:
    """C-39.1: its record is superseded by another producer's, the batch with the last sequence stays.

    U-26: an earlier batch stays for its record, so a state rebuilt without the last one would expect its sequence.
    """
    first = [(sequence, count) for _, _, sequence, count in lifecycle.cleaned.idle]
    assert first == [(0, 1), (1, 0)]
    second = [(sequence, count) for _, _, sequence, count in lifecycle.crashed.cleaning.idle]
    assert second == [(0, 1), (2, 1), (3, 0)]


def test_after_a_crash_nothing_is_cleaned_without_the_option(lifecycle: Lifecycle) -> None:
    """C-86: without the broker's clean shutdown file every partition is skipped, with the remedy."""
    skipped = lifecycle.crashed.skipped
    assert skipped.exit_code == 0
    for partition in topics.CLEANED:
        assert skipped.partitions[partition]["outcome"] == "skipped"
        assert "was not stopped cleanly" in skipped.partitions[partition]["reason"]
        assert "--unclean" in skipped.partitions[partition]["reason"]
    assert not lifecycle.crashed.skipped_changed


def test_after_a_crash_only_below_the_recovery_point(lifecycle: Lifecycle) -> None:
    """S-27: unflushed data is untouched, and flushed data is cleaned."""
    cleaning = lifecycle.crashed.cleaning
    check_reported(cleaning, topics.CLEANED)
    check_untouched(cleaning, topics.PLAIN.names)
    rolled_since = 0
    for partition in topics.CLEANED:
        entry = cleaning.run.partitions[partition]
        assert entry["outcome"] == "cleaned", entry
        assert entry["end_offset"] <= lifecycle.crashed.recovery_points[partition]
        bases = [int(Path(name).stem) for name in cleaning.before[partition] if name.endswith(".log")]
        rolled_since += max(bases) > entry["end_offset"]
        for name, facts in cleaning.before[partition].items():
            if Path(name).suffix == ".log" and int(Path(name).stem) >= entry["end_offset"]:
                assert cleaning.after[partition][name] == facts
    assert rolled_since, "U-26: nowhere was a segment sealed after the last flush"
    assert cleaning.run.partitions[topics.DELETED.names[0]]["removed"]["tombstone"] > 0, "U-26"


@pytest.mark.long
def test_third_cleaning(lifecycle: Lifecycle) -> None:
    """Also after a cleaning by Kafka's own cleaner."""
    cleaning = lifecycle.cleaned_again
    assert cleaning.run.exit_code == 0
    check_reported(cleaning, topics.CLEANED)
    check_untouched(cleaning, topics.PLAIN.names)
    starts = {p: cleaning.run.partitions[p]["first_dirty_offset"] for p in topics.CLEANED}
    assert starts == lifecycle.taken_over.ended_at, "it continues at the checkpoint of the broker's cleaner"


def test_files_keep_the_brokers_user(lifecycle: Lifecycle, tmp_path: Path) -> None:
    """S-11, S-60: cleaned by root, every file still belongs to the broker's user, with its mode."""
    _ = lifecycle.cleaned
    try:
        shutil.chown(tmp_path, OTHER_USER, OTHER_USER)
    except PermissionError:
        pytest.skip("needs root: it gives files to another user")
    log_dirs = [tmp_path / log_dir.name for log_dir in lifecycle.broker.log_dirs]
    for log_dir in log_dirs:
        shutil.copytree(lifecycle.copies / log_dir.name, log_dir)
        for path in [log_dir, *log_dir.rglob("*")]:
            shutil.chown(path, OTHER_USER, OTHER_USER)
            path.chmod(0o750 if path.is_dir() else 0o640)
        for name in (".lock", "cleaner-offset-checkpoint"):
            (log_dir / name).unlink(missing_ok=True)
    before = {str(path) for path in tmp_path.rglob("*")}
    run = cleanerd("clean", log_dirs, tmp_path / "state", *FORCED)
    assert run.exit_code == 0
    assert [entry["outcome"] for entry in run.partitions.values()].count("cleaned") == len(topics.CLEANED)
    paths = [path for log_dir in log_dirs for path in [log_dir, *log_dir.rglob("*")]]
    made = {path.relative_to(tmp_path) for path in paths if str(path) not in before}
    # an output may include aborted transactions where its first source had none
    made = {
        path for path in made if (path.parent.name, path.suffix) != (str(topics.TRANSACTIONAL.names[0]), ".txnindex")
    }
    assert made == {
        Path(log_dir.name) / name for log_dir in log_dirs for name in (".lock", "cleaner-offset-checkpoint")
    }
    for path in [*paths, *(tmp_path / "state").rglob("*"), tmp_path / "state"]:
        stat = path.stat()
        assert (stat.st_uid, stat.st_gid) == (OTHER_USER, OTHER_USER), path
        assert stat.st_mode & 0o777 == (0o750 if path.is_dir() else 0o640), path
