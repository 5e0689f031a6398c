"""``cleanerd stage`` and ``cleanerd apply``: complete staged cleanings, and what makes one stale (S-29, U-15)."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.format.batch import HAS_DELETE_HORIZON
from cleanerd.host.clock import wall_ms
from cleanerd.resolution import broker_facts, checkpoint_pair
from cleanerd.swap.deferred_swap import DeferredSwap
from tests.cleaner.driver import DAY_MS
from tests.cli.clean_log_dirs import (
    CLEANED,
    COMPACT,
    DIRTY,
    NOW,
    Answer,
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
    HIGH_WATERMARKS,
    LOG_STARTS,
    Partition,
    make_log_dir,
    read_checkpoint,
    read_segments,
    tree,
    write_checkpoint,
    write_segment,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cleanerd.cleaner.plan import CleaningPlan
    from cleanerd.segments.metadata_image import ClusterMetadata


KEPT = (*COMPACT, "--set", "topics.orders.min.cleanable.dirty.ratio=1")
"""Too little is dirty."""


def stage(shell: Shell, path: Path, *more: object) -> Answer:
    return shell("stage", path, "--force", "--quiet", "--json", "--now-ms", NOW, *COMPACT, *more)


def apply(shell: Shell, path: Path, *more: object) -> Answer:
    return shell("apply", path, "--quiet", "--json", *COMPACT, *more)


def entry(answer: Answer) -> Any:
    (found,) = answer.json["partitions"]
    return found


def staged_dir(path: Path) -> Path:
    (found,) = (path / "orders-0" / ".kstage").iterdir()
    return found


def test_a_waiting_staged_cleaning_is_reported(root: Path, shell: Shell) -> None:
    """U-15: commands report that the partition is staged already, and what swaps it in."""
    path = make(root)
    questions = (("plan", path), ("explain", "orders-0", path))
    for question in questions:
        assert "staged plan" not in reported(shell(*question, *COMPACT))
    assert shell("plan", path, "--json", *COMPACT).json["partitions"][0]["staged"] is None
    stage(shell, path)
    for question in questions:
        assert "staged cleaning up to offset 6" in reported(shell(*question, *COMPACT))
        assert "cleanerd apply" in reported(shell(*question, *COMPACT)) or "too old" in reported(
            shell(*question, *COMPACT)
        )
        document = shell(*question, "--json", *COMPACT).json
        (found,) = document.get("partitions", [document])
        assert found["staged"]["first_uncleanable_offset"] == 6


def reported(answer: Answer) -> str:
    return answer.out + answer.err


def test_the_next_step_after_staging_is_named(root: Path, shell: Shell) -> None:
    """The message names the command that swaps it in, and the time limit; not if nothing was staged."""
    path = make(root)
    message = " ".join(shell("stage", path, "--force", "--now-ms", NOW, *COMPACT).err.split())
    assert "1 partition staged. Stop the broker, run cleanerd apply with the same" in message
    assert "within 7 d" in message
    assert "cleanerd apply" not in shell("stage", path, "--partition", "orders-0", "--now-ms", NOW, *KEPT).err


def test_stage_then_apply(root: Path, shell: Shell) -> None:
    """Stage does not touch the log; the result of apply equals that of clean, with both checkpoints."""
    path = make(root)
    before = tree(path, without=())
    staged = stage(shell, path)
    assert (staged.code, staged.err) == (0, "")
    message = entry(staged)
    assert (message["outcome"], message["segments_before"], message["segments_after"]) == ("staged", 3, 1)
    assert message["records_kept"] == 2
    assert {name: data for name, data in tree(path, without=()).items() if ".kstage" not in name} == before
    assert not (path / ".lock").exists()
    applied = apply(shell, path)
    assert (applied.code, applied.err) == (0, "")
    now = entry(applied)
    assert now["outcome"] == "cleaned"
    same = ("records_read", "records_kept", "bytes_before", "bytes_after", "segments_after", "removed")
    assert {key: now[key] for key in same} == {key: message[key] for key in same}
    assert keys(path / "orders-0") == CLEANED
    assert now["bytes_after"] == (path / "orders-0" / f"{0:020d}.log").stat().st_size
    assert not (path / "orders-0" / ".kstage").exists()
    assert read_checkpoint(path / CLEANER_CHECKPOINT) == {"orders-0": 6}
    (row,) = shell("plan", path, "--json", "--quiet", *COMPACT).json["partitions"]
    assert row["first_dirty_offset"] == 6
    assert shell("apply", path).out == "Nothing is staged.\n"


def test_several_groups_are_all_staged_first(root: Path, shell: Shell) -> None:
    """The manifest lists every group; plan --exact shows the space that this takes."""
    logs = {2 * n: batch(2 * n, ("a", "1"), (f"k{n}", "1" * 200)) for n in range(5)}
    path = make_log_dir(root / "logs", {"orders-0": Partition(logs)})
    small = ("--set", "topics.orders.segment.bytes=200")
    (row,) = shell("plan", path, "--exact", "--json", "--quiet", "--force", *COMPACT, *small).json["partitions"]
    stage(shell, path, *small)
    manifest = json.loads((staged_dir(path) / "manifest.json").read_text())
    assert len(manifest["groups"]) == row["exact"]["groups"] > 1
    written = sum(file.stat().st_size for file in staged_dir(path).glob("*.log"))
    assert row["exact"]["peak_bytes"] < row["exact"]["stage_bytes"] <= written, "bytes of rebuilt batches are estimates"
    assert entry(apply(shell, path, *small))["outcome"] == "cleaned"
    assert sum(len(records) for records in keys(path / "orders-0").values()) == 5 + 2


def test_the_horizon(root: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """U-15: the old values can be read until the staged cleaning is applied, so tombstones stay that much longer."""
    real, planned_ms = DeferredSwap.plan, []

    def plan(staged: DeferredSwap, *arguments: Any) -> CleaningPlan:
        planned_ms.append(time.time_ns() // 1_000_000)
        while time.time_ns() // 1_000_000 == planned_ms[-1]:
            time.sleep(0.001)
        return real(staged, *arguments)

    monkeypatch.setattr(DeferredSwap, "plan", plan)  # to know when the first byte can have been staged
    path = make_log_dir(root / "logs", {"orders-0": Partition({0: batch(0, ("a", None)), 1: batch(1, ("b", "1"))})})
    stage(shell, path, "--set", "cleanerd.plan.max.age.ms=3d", "--set", "topics.orders.delete.retention.ms=2d")
    manifest = json.loads((staged_dir(path) / "manifest.json").read_text())
    assert manifest["max_age_ms"] == 3 * DAY_MS
    assert manifest["created_ms"] <= planned_ms[0], "its age counts from before the first byte was staged"
    assert entry(apply(shell, path))["outcome"] == "cleaned"
    header = read_segments(path / "orders-0")[0][0].header
    assert header.attributes & HAS_DELETE_HORIZON
    assert header.base_timestamp == NOW + 5 * DAY_MS


def test_only_one_staged_cleaning(root: Path, shell: Shell) -> None:
    """A newer one replaces the older one; clean replaces both."""
    path = make(root)
    stage(shell, path)
    first = staged_dir(path)
    stage(shell, path)
    assert staged_dir(path) != first
    assert shell.clean(path).code == 0
    assert not (path / "orders-0" / ".kstage").exists()
    assert keys(path / "orders-0") == CLEANED


def test_appended_segments_do_not_matter(root: Path, shell: Shell) -> None:
    """The broker ran on, rolled and wrote its checkpoints."""
    path = make(root)
    stage(shell, path)
    with (path / "orders-0" / f"{6:020d}.log").open("ab") as file:
        file.write(batch(7, ("y", "1")))
    write_segment(path / "orders-0", 8, batch(8, ("x", "1")))
    for name in (HIGH_WATERMARKS, "recovery-point-offset-checkpoint"):
        write_checkpoint(path / name, {"orders-0": 9})
    assert entry(apply(shell, path))["outcome"] == "cleaned"
    assert keys(path / "orders-0") == {**CLEANED, 6: [(6, "z"), (7, "y")], 8: [(8, "x")]}


def edit(file: Path, **values: object) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


def flip(file: Path) -> None:
    """Change one byte; ``stat`` shows only another ctime."""
    status, data = file.stat(), bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


def replace_text(file: Path, old: str, new: str) -> None:
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))


STALE: dict[str, Callable[[Path], object]] = {
    "the topic was created again": lambda p: (p / "orders-0" / "partition.metadata").write_text(
        "version: 0\ntopic_id: NY69WlWORPKC3PTXbSJZsA"
    ),
    "it is another log directory": lambda p: replace_text(p / "meta.properties", "NF-xw", "NG-xw"),
    "the log start offset moved": lambda p: write_checkpoint(p / LOG_STARTS, {"orders-0": 1}),
    "cleanable up to offset": lambda p: write_checkpoint(p / HIGH_WATERMARKS, {"orders-0": 3}),
    " old, limit": lambda p: edit(staged_dir(p) / "manifest.json", created_ms=0),
    "00000000000000000002.log changed": lambda p: flip(p / "orders-0" / f"{2:020d}.log"),
    "segment 2 appeared or vanished": lambda p: (p / "orders-0" / f"{2:020d}.log").unlink(),
    "segment 3 appeared or vanished": lambda p: write_segment(p / "orders-0", 3, batch(3, ("q", "1"))),
    "has another checksum": lambda p: flip(staged_dir(p) / f"{0:020d}.log"),
    "missing or has another size": lambda p: (staged_dir(p) / f"{0:020d}.timeindex").unlink(),
    "another owner or mode": lambda p: (staged_dir(p) / f"{0:020d}.log").chmod(0o600),
    "is not a record of a staged plan": lambda p: (staged_dir(p) / "ready.json").write_text("{"),
    "the strategy changed": lambda p: edit(staged_dir(p) / "manifest.json", strategy_fingerprint="other"),
    "the plan is one of": lambda p: edit(staged_dir(p) / "manifest.json", topic="other"),
}


@pytest.mark.slow
@pytest.mark.parametrize("require", [False, True])
@pytest.mark.parametrize("reason", STALE)
def test_an_outdated_staged_cleaning_is_discarded(root: Path, shell: Shell, reason: str, require: bool) -> None:
    """S-29: discarded with its reason before the first rename; the broker starts with an unchanged log."""
    path = make(root)
    stage(shell, path)
    STALE[reason](path)
    before = {name: data for name, data in tree(path, without=()).items() if ".kstage" not in name}
    answer = apply(shell, path, *(["--require"] if require else []))
    assert answer.code == (4 if require else 0)
    assert entry(answer)["outcome"] == "skipped"
    assert reason in entry(answer)["reason"]
    assert reason in answer.err
    after = tree(path, without=())
    assert {name: data for name, data in after.items() if name != ".lock"} == before
    assert entry_count(apply(shell, path)) == 0, "the staged cleaning is gone"


def entry_count(answer: Answer) -> int:
    return len(answer.json["partitions"])


def test_no_longer_compacted(root: Path, shell: Shell) -> None:
    """S-20: a topic that became cleanup.policy=delete is not cleaned."""
    path = make(root)
    stage(shell, path)
    answer = shell("apply", path, "--quiet", "--json", "--set", "topics.orders.cleanup.policy=delete")
    assert (answer.code, entry(answer)["outcome"]) == (0, "skipped")
    assert "compacted" in entry(answer)["reason"]
    assert keys(path / "orders-0") == DIRTY


@pytest.mark.parametrize(
    ("properties", "more", "reason"),
    [
        ("", (), "cleanup.policy of this topic is unknown"),
        ("log.segment.bytes=many\n", COMPACT, "a setting of this topic is wrong"),
    ],
)
def test_an_unknown_configuration_changes_nothing(
    root: Path, shell: Shell, properties: str, more: tuple[str, ...], reason: str
) -> None:
    """S-29: without the directory of the metadata log, or with an invalid setting, the staged cleaning waits."""
    path = make(root)
    stage(shell, path)
    file = root / "server.properties"
    file.write_text(properties)
    wrong = ("--set", f"cleanerd.broker.properties={file}", *more)
    answer = shell("apply", path, "--quiet", "--json", *wrong)
    assert (answer.code, entry(answer)["outcome"]) == (0, "skipped")
    assert reason in entry(answer)["reason"]
    assert "the staged cleaning is kept" in entry(answer)["reason"]
    assert shell("apply", path, "--require", "--quiet", *wrong).code == 4
    assert keys(path / "orders-0") == DIRTY
    assert entry(apply(shell, path))["outcome"] == "cleaned"


def test_not_stopped_cleanly(root: Path, shell: Shell) -> None:
    """S-27, X-22: opt-in only; the staged cleaning is kept until then."""
    path = make(root)
    stage(shell, path)
    (path / CLEAN_SHUTDOWN).unlink()
    answer = apply(shell, path)
    assert (answer.code, entry(answer)["outcome"]) == (0, "skipped")
    assert apply(shell, path, "--require").code == 4
    assert keys(path / "orders-0") == DIRTY
    assert entry(apply(shell, path, "--unclean"))["outcome"] == "cleaned"
    assert keys(path / "orders-0") == CLEANED


def test_apply_needs_the_directory(root: Path, shell: Shell) -> None:
    """S-10, S-14: lock and lease; stage needs neither."""
    path = make(root)
    stage(shell, path)
    with lock_holder(path):
        refused = shell("apply", path, *COMPACT)
    assert refused.code == 4
    assert "Nothing is staged" not in refused.out, "nothing was read"
    with (path / "orders-0" / f"{6:020d}.log").open("ab"):
        assert apply(shell, path).code == 4
    assert keys(path / "orders-0") == DIRTY
    assert entry(apply(shell, path))["outcome"] == "cleaned"


def test_beside_a_broker(root: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """S-03: of two readings the lower offset is used, and a log that became shorter is not cleaned at all."""
    path = make_log_dir(root / "logs", {"orders-0": dirty(), "orders-1": dirty()})
    (path / CLEAN_SHUTDOWN).unlink()  # a running broker has none
    write_checkpoint(path / HIGH_WATERMARKS, {"orders-0": 5, "orders-1": 7})

    real = time.sleep
    monkeypatch.setattr(checkpoint_pair, "SETTLE_SECONDS", 3600.0)

    def meanwhile(seconds: float) -> None:
        if not 3000 < seconds <= checkpoint_pair.SETTLE_SECONDS:  # a thread of an earlier test
            real(seconds)
            return
        write_checkpoint(path / HIGH_WATERMARKS, {"orders-0": 7, "orders-1": 7})
        active = path / "orders-1" / f"{6:020d}.log"
        active.write_bytes(active.read_bytes()[:-1])

    monkeypatch.setattr(checkpoint_pair.time, "sleep", meanwhile)  # the broker writes between the two readings
    with lock_holder(path):
        answer = stage(shell, path)
    rows = {row["partition"]: row for row in answer.json["partitions"]}
    assert (rows[0]["outcome"], rows[0]["end_offset"]) == ("staged", 4)
    assert rows[1]["outcome"] == "skipped"


def test_young_metadata(root: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """U-23: with a running broker only metadata older than five minutes is used; the answer says so."""
    path = make(root)
    (path / CLEAN_SHUTDOWN).unlink()
    log = write_metadata(path, topics={"orders": {"cleanup.policy": "compact"}}) / f"{0:020d}.log"
    assert log.exists()
    with lock_holder(path):
        answer = shell("stage", path, "--force", "--quiet", "--json", "--now-ms", NOW)
    assert answer.json["partitions"][0]["outcome"] == "staged", "the batches of the fixture are old"
    write_metadata(path, topics={"orders": {"cleanup.policy": "compact"}}, timestamp=wall_ms())
    with lock_holder(path):
        answer = shell("stage", path, "--force", "--quiet", "--json", "--now-ms", NOW)
    assert answer.json["partitions"] == []
    reads: list[tuple[bool, bool]] = []
    real = broker_facts.read_cluster_metadata

    def counting(directory: Path, *, only_before_ms: int | None, younger: bool, **more: Any) -> ClusterMetadata:
        reads.append((younger, only_before_ms is not None))
        return real(directory, only_before_ms=only_before_ms, younger=younger, **more)

    with lock_holder(path):
        # the number of readings shows in no result
        monkeypatch.setattr(broker_facts, "read_cluster_metadata", counting)
        answer = shell("stage", path, "--force", "--now-ms", NOW)
        assert shell("plan", path).out == "No partition counts yet: 1 compacted topic is younger than 5 minutes.\n"
        reads.pop()
    # One reading shows both the used and the too recent metadata.
    assert reads == [(True, True)]
    assert "No partition is known to be compacted." in answer.out
    assert "the configuration of 1 compacted topic (orders) is younger than" in answer.err
    assert "Try again later" in answer.err


def test_a_bad_partition_stops_no_other_one(root: Path, shell: Shell) -> None:
    """Damage: exit code 6, nothing of it is staged; the good one is applied."""
    path = make_log_dir(root / "logs", {"orders-0": dirty(), "orders-1": dirty(), "good-0": good()})
    flip(path / "orders-0" / f"{2:020d}.log")
    answer = stage(shell, path)
    assert answer.code == 6
    assert [row["outcome"] for row in answer.json["partitions"]] == ["quarantined", "staged"]
    assert not (path / "orders-0" / ".kstage").exists()
    assert entry(apply(shell, path))["partition"] == 1


def test_clean_up_to(root: Path, shell: Shell) -> None:
    """--first-dirty skips a range: the checkpoint does not move (as for clean)."""
    path = make(root)
    stage(shell, path, "--first-dirty", 4)
    assert entry(apply(shell, path))["outcome"] == "cleaned"
    assert not read_checkpoint(path / CLEANER_CHECKPOINT)
