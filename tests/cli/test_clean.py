"""``cleanerd clean``: outcomes, exit codes, one line for every error."""

from __future__ import annotations

import shutil
import uuid
from typing import TYPE_CHECKING

import pytest

from cleanerd.format.names import uuid_to_base64
from tests.cli.clean_log_dirs import (
    CLEANED,
    COMPACT,
    NOW,
    Shell,
    batch,
    dirty,
    good,
    keys,
    lock_holder,
    make,
    write_metadata,
)
from tests.support.log_dirs import (
    CLEAN_SHUTDOWN,
    CLEANER_CHECKPOINT,
    Partition,
    make_log_dir,
    read_checkpoint,
    tree,
)
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path


FIELDS = {
    "topic", "partition", "outcome", "reason", "strategy", "first_dirty_offset", "end_offset", "records_read",
    "records_kept", "bytes_before", "bytes_after", "segments_before", "segments_after", "segments_rewritten", "removed",
    "passes", "seconds",
}  # fmt: skip


def test_json(root: Path, shell: Shell) -> None:
    """Every field of the contract, schema 1, nothing but the result on stdout."""
    path = make(root)
    answer = shell.clean(path, "--json")
    assert (answer.code, answer.err) == (0, "")
    document = answer.json
    assert document["schema"] == 1
    (entry,) = document["partitions"]
    assert entry.keys() >= FIELDS
    assert entry["removed"] == {"superseded": 3, "tombstone": 0, "aborted": 0, "no_key": 1, "marker": 0}
    assert entry["seconds"].keys() == {"index", "decide", "rewrite", "swap"}
    expected = {
        "topic": "orders",
        "partition": 0,
        "outcome": "cleaned",
        "reason": "",
        "strategy": "offset",
        "first_dirty_offset": 0,
        "end_offset": 6,
        "records_read": 6,
        "records_kept": 2,
        "segments_before": 3,
        "segments_after": 1,
        "segments_rewritten": 3,
        "passes": 1,
    }
    assert {name: entry[name] for name in expected} == expected
    assert entry["bytes_after"] == (path / "orders-0" / f"{0:020d}.log").stat().st_size < entry["bytes_before"]
    assert keys(path / "orders-0") == CLEANED


def test_table(root: Path, shell: Shell) -> None:
    """One row per partition, notes on stderr."""
    path = make_log_dir(root / "logs", {"orders-0": dirty(), "good-0": good()})
    answer = shell("clean", path, "--yes", "--force", *COMPACT)
    assert answer.code == 0
    lines = answer.out.splitlines()
    assert lines[0].split()[:2] == ["partition", "outcome"]
    assert lines[1].split()[:2] == ["orders-0", "cleaned"]
    assert "good-0" not in answer.out, "nothing says that it is compacted"
    assert any("no KRaft metadata log" in line for line in answer.err.splitlines())
    assert keys(path / "good-0") == {0: [(0, "k")], 1: [(1, "k")], 2: []}


def test_second_run(root: Path, shell: Shell) -> None:
    """Nothing to do is success."""
    path = make(root)
    shell.clean(path)
    before = tree(path)
    answer = shell.clean(path, "--json")
    (entry,) = answer.json["partitions"]
    assert (answer.code, entry["outcome"]) == (0, "skipped")
    assert "nothing to clean" in entry["reason"]
    assert "from offset 6" in entry["reason"]
    assert tree(path) == before


def test_a_table_without_counts_shows_the_reason(root: Path, shell: Shell) -> None:
    """Nothing was counted, so there is no column of counts; the reason is shown once."""
    path = make(root)
    shell.clean(path)
    answer = shell.clean(path)
    head, row = (line.split() for line in answer.out.splitlines() if line.split()[:1] in (["partition"], ["orders-0"]))
    assert head == ["partition", "outcome", "why"]
    assert row[:2] == ["orders-0", "skipped"]
    assert (answer.out + answer.err).count("nothing to clean") == 1


def test_many_skipped_partitions_are_one_line(root: Path, shell: Shell) -> None:
    """OP-22: with more than 20 partitions, the table has those that were cleaned; the JSON has all."""
    active_only = Partition({0: batch(0, ("a", "1"))})
    path = make_log_dir(root / "logs", {"orders-0": dirty(), **{f"orders-{at}": active_only for at in range(1, 22)}})
    answer = shell.clean(path)
    titles, row, idle, _, total = answer.out.splitlines()
    assert titles.split()[:2] == ["partition", "outcome"]
    assert row.split()[:2] == ["orders-0", "cleaned"]
    assert idle.startswith("21 partitions skipped, such as orders-1: nothing to clean: ")
    assert total.startswith("1 of 22 partitions cleaned: ")
    assert "orders-2" not in answer.err
    again = shell.clean(path)
    assert again.out.startswith("22 partitions skipped, such as orders-0: nothing to clean: ")
    assert len(shell.clean(path, "--json").json["partitions"]) == 22


def test_ratio(root: Path, shell: Shell) -> None:
    """C-11: without --force the ratio decides, strictly above; the reason has the numbers and the fix."""
    path = make(root, cleaner_offset=4)
    setting = ("--set", "topics.orders.min.cleanable.dirty.ratio=0.5")
    answer = shell("clean", path, "--yes", "--quiet", "--json", *COMPACT, *setting)
    (entry,) = answer.json["partitions"]
    assert (answer.code, entry["outcome"]) == (0, "skipped")
    assert "min.cleanable.dirty.ratio 0.5" in entry["reason"]
    assert "--force" in entry["reason"]
    answer = shell(
        "clean", path, "--yes", "--quiet", "--json", *COMPACT, "--set", "topics.orders.min.cleanable.dirty.ratio=0.1"
    )
    assert answer.json["partitions"][0]["outcome"] == "cleaned"


@pytest.mark.slow
def test_it_needs_a_confirmation(root: Path, shell: Shell) -> None:
    """Without a terminal and without --yes it refuses, and touches nothing."""
    path = make(root)
    before = tree(path)
    process = shell.subprocess("clean", path, "--force", *COMPACT)
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, out) == (4, "")
    assert err.splitlines() == ["cleanerd: confirmation needed: pass --yes (standard input is not a terminal)"]
    assert tree(path) == before


def test_dry_run(root: Path, shell: Shell) -> None:
    """--dry-run writes nothing at all: no lock file, no state, no changed time; it shows the exact saving."""
    path = make(root)
    before = tree(root, without=())
    answer = shell("clean", path, "--dry-run", "--force", "--json", *COMPACT)
    assert answer.code == 0
    (entry,) = answer.json["partitions"]
    assert (entry["action"], entry["exact"]["records"], entry["exact"]["kept"]) == ("clean", 6, 2)
    assert tree(root, without=()) == before


@pytest.mark.long
def test_as_a_process(root: Path, shell: Shell) -> None:
    """The entry point itself; including the lock's second."""
    path = make(root)
    process = shell.subprocess("clean", path, "--yes", "--force", "--json", *COMPACT)
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, '"cleaned"' in out, "Traceback" in err) == (0, True, False)
    assert keys(path / "orders-0") == CLEANED


def test_lock_is_held(root: Path, shell: Shell) -> None:
    """S-10: a broker's lock (a POSIX record lock, as Java takes it): exit code 4, with its holder."""
    path = make(root)
    with lock_holder(path) as process_id:
        before = tree(path)
        answer = shell.clean(path)
    assert answer.code == 4
    assert len(answer.errors) == 1
    assert str(path / ".lock") in answer.err
    assert str(process_id) in answer.err
    assert answer.out == "", "the message is not about missing partitions"
    assert tree(path) == before
    assert shell.clean(path).code == 0


@pytest.mark.parametrize("given", [False, True])
def test_unclean(root: Path, shell: Shell, given: bool) -> None:
    """S-27: no clean-shutdown file: skipped with the reason, or cleaned below the recovery point on request."""
    path = make_log_dir(root / "logs", {"orders-0": dirty(recovery_point=5)}, clean_shutdown=False)
    before = tree(path)
    answer = shell.clean(path, "--json", *(["--unclean"] if given else []))
    (entry,) = answer.json["partitions"]
    assert answer.code == 0
    if given:
        assert (entry["outcome"], entry["end_offset"]) == ("cleaned", 4)
        assert not (path / CLEAN_SHUTDOWN).exists()
    else:
        assert entry["outcome"] == "skipped"
        assert "--unclean" in entry["reason"]
        assert tree(path) == before


def test_unclean_with_a_torn_end(root: Path, shell: Shell) -> None:
    """S-27: a power loss leaves half a batch in the active segment: the broker truncates it; the rest is cleaned."""
    path = make_log_dir(root / "logs", {"orders-0": dirty(recovery_point=6)}, clean_shutdown=False)
    active = path / "orders-0" / f"{6:020d}.log"
    torn = active.read_bytes() + batch(7, ("y", "1"))[:-9]
    active.write_bytes(torn)
    answer = shell.clean(path, "--unclean")
    assert (answer.code, answer.err) == (0, "")
    assert active.read_bytes() == torn
    active.write_bytes(b"")
    assert keys(path / "orders-0")[0] == CLEANED[0]


def test_a_torn_end_without_unclean_shows_what_to_do(root: Path, shell: Shell) -> None:
    """S-27: the torn end is found before the missing clean-shutdown file is: the fix is the same, and shown."""
    path = make_log_dir(root / "logs", {"orders-0": dirty(recovery_point=6)}, clean_shutdown=False)
    active = path / "orders-0" / f"{6:020d}.log"
    active.write_bytes(active.read_bytes() + batch(7, ("y", "1"))[:-9])
    before = tree(path)
    answer = shell.clean(path)
    assert answer.code == 5
    assert "ends inside a batch" in answer.err
    assert "start and stop it once, or give --unclean" in answer.err
    assert tree(path) == before
    (path / CLEAN_SHUTDOWN).touch()
    answer = shell.clean(path)
    assert "ends inside a batch" in answer.err
    assert "--unclean" not in answer.err, "it was stopped cleanly: this is damage"


def test_marker_stays(root: Path, shell: Shell) -> None:
    """S-27: .kafka_cleanshutdown is never created, changed or removed: it carries the broker epoch."""
    path = make(root)
    before = tree(path)[CLEAN_SHUTDOWN]
    shell.clean(path)
    assert tree(path)[CLEAN_SHUTDOWN] == before


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (("--first-dirty", "8"), 4, "--first-dirty 8 is outside the log 0..7"),
        (("--cleanable-to", "7"), 4, "--cleanable-to 7 is above the first uncleanable offset 6"),
        (("--first-dirty", "-1"), 2, "--first-dirty"),
        (("--first-dirty", "x"), 2, "--first-dirty"),
        (("--first-dirty", "1", "--from-start"), 2, "not both"),
        (("--partition", "order"), 3, "did you mean orders"),
        (("--partition", "orders-1"), 3, "no such partition"),
        (("--partition", "__cluster_metadata-0"), 4, "never cleaned"),
        (("--set", "no.such.key=1"), 3, "no.such.key"),
        (("--set", "nonsense"), 2, "KEY=VALUE"),
        (("--nonsense",), 2, "--nonsense"),
    ],
)  # fmt: skip
def test_contradicting_options(root: Path, shell: Shell, options: tuple[str, ...], code: int, says: str) -> None:
    """Refused before anything is touched."""
    path = make(root)
    before = tree(path)
    answer = shell.clean(path, *options)
    assert answer.code == code
    assert says in answer.err
    assert "Traceback" not in answer.err
    assert tree(path) == before


def test_a_rewrite_that_removes_nothing_shows_why(root: Path, shell: Shell) -> None:
    """C-48: --cleanable-to inside a segment: nothing can be removed yet, but its tombstones get a delete horizon."""
    logs = {0: batch(0, ("a", "1")) + batch(1, ("b", None)), 4: batch(4, ("b", "3")), 6: batch(6, ("z", "1"))}
    path = make_log_dir(root / "logs", {"orders-0": Partition(logs)})
    reported = (
        "no record is removed this time, but 1 segment is rewritten: in 1 batch, tombstones and markers get their"
    )
    (planned,) = shell("plan", path, "--exact", "--cleanable-to", 1, "--force", "--json", *COMPACT).json["partitions"]
    assert reported in " ".join(planned["exact"]["notes"])
    (cleaned,) = shell.clean(path, "--cleanable-to", 1, "--json").json["partitions"]
    assert cleaned["records_kept"] == cleaned["records_read"]
    assert reported in " ".join(cleaned["notes"])
    (cleaned,) = shell.clean(path, "--json").json["partitions"]
    assert cleaned["notes"] == []


@pytest.mark.parametrize("option", [("--first-dirty", "8"), ("--cleanable-to", "7")])
def test_an_offset_out_of_range_is_not_a_quarantine(root: Path, shell: Shell, option: tuple[str, str]) -> None:
    """A mistake on the command line is not a fault of the log: skipped, and not stored."""
    path = make(root)
    answer = shell.clean(path, *option, "--json")
    assert answer.code == 4
    assert answer.json["partitions"][0]["outcome"] == "refused"
    assert not list(root.rglob("partitions/*/*.json"))


def test_range_of_offsets(root: Path, shell: Shell) -> None:
    """--first-dirty, --cleanable-to: the log end offset and the first uncleanable offset themselves are allowed."""
    path = make(root)
    answer = shell.clean(path, "--first-dirty", "7", "--json")
    assert (answer.code, answer.json["partitions"][0]["outcome"]) == (0, "skipped")
    answer = shell.clean(path, "--cleanable-to", "4", "--json")
    assert (answer.code, answer.json["partitions"][0]["end_offset"]) == (0, 4)
    assert read_checkpoint(path / CLEANER_CHECKPOINT) == {"orders-0": 4}
    assert shell.clean(path, "--cleanable-to", "6").code == 0
    assert keys(path / "orders-0") == CLEANED


def test_clock(root: Path, shell: Shell) -> None:
    """--now-ms decides every horizon."""
    path = make_log_dir(root / "logs", {"orders-0": Partition({0: batch(0, ("a", None), ("b", "1")), 2: b""})})
    retention = ("--set", "topics.orders.delete.retention.ms=10", "--from-start")
    assert shell.clean(path, *retention).code == 0
    again = ("clean", path, "--yes", "--force", "--json", "--quiet", *COMPACT, *retention)
    assert shell(*again, "--now-ms", NOW + 9).json["partitions"][0]["removed"]["tombstone"] == 0
    assert shell(*again, "--now-ms", NOW + 10).json["partitions"][0]["removed"]["tombstone"] == 1


def test_unknown_policy(root: Path, shell: Shell) -> None:
    """An explicit --partition with an unknown policy is an error that lists the three ways to set it."""
    path = make_log_dir(root / "logs", {"orders-0": dirty(), "good-0": good()})
    before = tree(path)
    reported = shell("clean", path, "--yes", "--force", "--partition", "good-0").err
    assert reported.count("policy of this topic is unknown") == 1
    answer = shell("clean", path, "--yes", "--force", "--quiet", "--partition", "good-0")
    assert answer.code == 3
    assert len(answer.errors) == 1
    assert all(
        way in answer.err
        for way in ("cleanerd.metadata.log.dir", '[topics."good"]', "--set topics.good.cleanup.policy=")
    )
    assert tree(path) == before


def test_policy_that_is_not_compact(root: Path, shell: Shell) -> None:
    """The same for a known policy that is not compact."""
    path = make(root)
    delete = "topics.orders.cleanup.policy=delete"
    answer = shell("clean", path, "--yes", "--quiet", "--partition", "orders-0", "--set", delete)
    assert answer.code == 3
    assert "cleanup.policy is delete" in answer.err


def test_policy_from_metadata(root: Path, shell: Shell) -> None:
    """OP-7: the cluster's metadata decides which topics are compacted, and has their settings."""
    path = make_log_dir(root / "logs", {"orders-0": dirty(), "good-0": good(), "plain-0": good()})
    settings = {"cleanup.policy": "compact", "delete.retention.ms": "7"}
    write_metadata(path, topics={"orders": settings, "plain": {}, "gone": {"cleanup.policy": "compact"}})
    answer = shell("clean", path, "--yes", "--force", "--quiet", "--json", "--now-ms", NOW)
    assert [(entry["topic"], entry["outcome"]) for entry in answer.json["partitions"]] == [("orders", "cleaned")]
    other = make_log_dir(root / "other", {"orders-0": dirty()})
    shutil.copy(path / "orders-0" / "partition.metadata", other / "orders-0")
    answer = shell(
        "clean", other, "--yes", "--force", "--quiet", "--json", "--set", f"cleanerd.metadata.log.dir={path}"
    )
    assert answer.json["partitions"][0]["outcome"] == "cleaned"


@pytest.mark.parametrize("options", [(), ("--partition", "orders-0"), COMPACT], ids=["all", "named", "stated"])
def test_topic_created_again(root: Path, shell: Shell, options: tuple[str, ...]) -> None:
    """U-23: topics match by id.

    Data of an older topic of the same name is not cleaned with the newer one's settings.
    """
    path = make_log_dir(root / "logs", {"orders-0": dirty(), "good-0": good()})
    before = tree(path / "orders-0")
    compact = {"cleanup.policy": "compact"}
    write_metadata(path, topics={"orders": compact, "good": compact}, ids={"orders": uuid.UUID(int=5)})
    answer = shell("clean", path, "--yes", "--force", "--quiet", "--json", *options)
    (entry,) = [entry for entry in answer.json["partitions"] if entry["topic"] == "orders"]
    assert entry["outcome"] == "refused"
    assert "created again" in entry["reason"]
    assert answer.code == (4 if "--partition" in options else 6)
    assert tree(path / "orders-0") == before


def test_metadata_of_another_broker(root: Path, shell: Shell) -> None:
    """U-23: only this broker's log directories are searched for the metadata log."""
    other = make_log_dir(root / "other", {"good-0": good()})
    write_metadata(other, topics={"orders": {"cleanup.policy": "compact"}})
    path = make_log_dir(root / "logs", {"orders-0": dirty(topic_id=None)})
    meta = path / "meta.properties"
    ours = meta.read_text()
    for line in ("cluster.id=", "node.id="):
        meta.write_text(ours.replace(line, f"{line}1"))
        answer = shell("clean", other, path, "--yes", "--force", "--quiet", "--json")
        assert answer.json["partitions"] == []
    meta.write_text(ours)
    answer = shell("clean", other, path, "--yes", "--force", "--quiet", "--json")
    assert [entry["outcome"] for entry in answer.json["partitions"]] == ["cleaned"]


def test_metadata_left_behind(root: Path, shell: Shell) -> None:
    """U-23: of two copies the older one remained when metadata.log.dir changed; its policies are outdated."""
    path = make(root)
    topic_id = uuid.UUID(int=5)
    (path / "orders-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {uuid_to_base64(topic_id)}")
    write_metadata(path, topics={"orders": {"cleanup.policy": "compact"}})
    newer = make_log_dir(root / "newer", {"good-0": good()})
    write_metadata(newer, topics={"orders": {"cleanup.policy": "delete"}}, ids={"orders": topic_id}, more=1)
    before = tree(path)
    answer = shell("clean", path, newer, "--yes", "--force", "--quiet", "--json")
    assert answer.json["partitions"] == []
    assert tree(path) == before


def test_internal_topics(root: Path, shell: Shell) -> None:
    """R280-12, U-11: __cluster_metadata is never touched, even if the settings say that it is compacted."""
    path = make(root)
    write_metadata(path, topics={"orders": {"cleanup.policy": "compact"}})
    before = tree(path / "__cluster_metadata-0")
    answer = shell(
        "clean", path, "--yes", "--force", "--quiet", "--set", "topics.__cluster_metadata.cleanup.policy=compact"
    )
    assert answer.code == 0
    assert tree(path / "__cluster_metadata-0") == before
