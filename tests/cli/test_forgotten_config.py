"""A forgotten ``--config`` does not change the retained records of a versioned topic (U-6, U-8)."""

from __future__ import annotations

import errno
import json
import os
import shutil
import uuid
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.format.names import uuid_to_base64
from cleanerd.fsio import directory_time, safe_open
from cleanerd.fsio.directory_time import CLOCK_TICK_NS
from cleanerd.fsio.state_files import UnreadableState
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.segments.partition import read_partition
from cleanerd.state import last_settings
from cleanerd.state.cleaner_checkpoint import CleanerdCheckpoint, LastSegment, PartitionState, StateStore
from cleanerd.state.gone_partitions import OtherPlacesOfTopic, SweepResult, delete_gone_state
from cleanerd.state.other_places import rules_of
from tests.cli.clean_log_dirs import NOW, batch, make, only_partition, write_metadata
from tests.cli.strategy_topics import (
    CLUSTER,
    DELEGATED,
    HEADER,
    OFFSET,
    QUIET,
    TIMESTAMP,
    UNDELEGATED,
    clean_forced,
    log_dir_by_version,
    remember_delegation,
    set_topic,
)
from tests.support.log_dirs import Partition, make_log_dir, tree, with_directory_id

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.clean_log_dirs import Shell


@pytest.mark.slow
@pytest.mark.parametrize("known", ["delegated", "cleaned", "both", "another partition was cleaned"])
def test_clean_without_its_settings_is_refused(root: Path, shell: Shell, known: str) -> None:
    """U-6: exit code 4 and nothing changed; with its settings it is cleaned.

    With a confirmation, by the other strategy.
    """
    path = log_dir_by_version(root)
    if known != "delegated":
        assert clean_forced(shell, path, *HEADER, only="orders-1" if "another" in known else "orders-0").code == 0
        (path / "orders-0" / f"{6:020d}.log").write_bytes(b"")
    if known in ("delegated", "both"):
        remember_delegation(root)
    before = tree(path / "orders-0", without=())
    for command in ("clean", "stage"):
        yes = ["--yes"] if command == "clean" else []
        answer = shell(
            command, path, *yes, "--json", "--force", "--partition", "orders-0", "--from-start", "--now-ms", NOW, *QUIET
        )
        assert answer.code == 4, command
        reason = only_partition(answer)["reason"]
        assert reason.startswith("refused: orders ")
        assert ("is delegated" in reason) == (known in ("delegated", "both"))
        assert ("was last cleaned by header:v" in reason) == (known != "delegated")
        assert "these settings say offset (was --config forgotten? If not, use --change-strategy)" in reason
        assert reason in answer.err
    assert tree(path / "orders-0", without=()) == before
    row = only_partition(shell("plan", path, "--json", "--partition", "orders-0", "--force", *QUIET))
    assert (row["action"], row["reason"]) == ("none", reason)
    report = shell("explain", "orders-0", path, "--json", *QUIET).json
    assert (report["rule"], report["reason"], report["cleaned_now"]) == ("compaction.strategy", reason, False)
    assert "topics.orders.compaction.strategy" in report["changes"]
    assert clean_forced(shell, path, *HEADER, "--from-start").code == 0
    assert clean_forced(shell, path, "--change-strategy", "--from-start").code == 0


def test_a_strategy_in_the_settings_is_enough(root: Path, shell: Shell) -> None:
    """U-6, R280-11: a configured strategy counts as intended; the message shows what stays as it is."""
    path = log_dir_by_version(root)
    assert clean_forced(shell, path, *HEADER).code == 0
    answer = clean_forced(shell, path, *TIMESTAMP, "--from-start")
    assert answer.code == 0
    assert "the topic was cleaned with other settings before" in answer.err
    assert clean_forced(shell, path).code == 4, "the new settings are stored"
    assert clean_forced(shell, path, *OFFSET, "--from-start").code == 0


def test_a_lost_tombstone_mode(root: Path, shell: Shell) -> None:
    """U-6: a record that is a tombstone by its header would be kept as a value indefinitely."""
    path = log_dir_by_version(root)
    marked = (*HEADER, *set_topic("tombstone.mode", "header"), *set_topic("tombstone.header", "d"))
    assert clean_forced(shell, path, *marked).code == 0
    answer = clean_forced(shell, path, *HEADER)
    assert answer.code == 4
    assert (
        "cleaned by header:v, tombstones by header d; these settings say header:v (" in only_partition(answer)["reason"]
    )


def test_apply_without_its_settings_keeps_the_staged_cleaning(root: Path, shell: Shell) -> None:
    """U-6, S-29: a staged cleaning with other settings is neither applied nor lost; with its settings it is applied."""
    path = log_dir_by_version(root)
    assert (
        only_partition(shell("stage", path, "--json", "--force", "--partition", "orders-0", *HEADER, *QUIET))["outcome"]
        == "staged"
    )
    before = tree(path / "orders-0", without=())
    answer = shell("apply", path, "--json", *QUIET)
    assert (answer.code, only_partition(answer)["outcome"]) == (0, "skipped")
    assert (
        "it was staged by header:v; these settings say offset (was --config forgotten?)"
        in only_partition(answer)["reason"]
    )
    assert tree(path / "orders-0", without=()) == before
    assert only_partition(shell("apply", path, "--json", *HEADER, *QUIET))["outcome"] == "cleaned"


def test_apply_of_a_staged_cleaning_without_its_settings(root: Path, shell: Shell) -> None:
    """U-6: staged by offset before the topic was delegated; only a confirmation when staging permits it."""
    path = log_dir_by_version(root)
    for word in ((), ("--change-strategy",)):
        write_metadata(path, topics={"orders": DELEGATED if word else UNDELEGATED})
        stage = shell("stage", path, "--json", "--force", "--partition", "orders-0", *word, *QUIET)
        assert only_partition(stage)["outcome"] == "staged", stage.err
        write_metadata(path, topics={"orders": DELEGATED})
        remember_delegation(root)
        answer = only_partition(shell("apply", path, "--json", *QUIET))
        assert answer["outcome"] == ("cleaned" if word else "skipped")
        assert word or "orders is delegated; these settings say offset" in answer["reason"]


@pytest.mark.parametrize("cleaned_by_offset", [False, True])
def test_a_forgotten_config_and_state_directory_are_refused(root: Path, shell: Shell, cleaned_by_offset: bool) -> None:
    """U-96: no state, no settings: only the topic's two values in the cluster show that it is delegated.

    The offset strategy would lose the winner by version at offset 0.
    """
    path = log_dir_by_version(root)
    if cleaned_by_offset:  # before the topic was delegated
        write_metadata(path, topics={"orders": UNDELEGATED})
        assert clean_forced(shell, path, "--cleanable-to", "0", "--first-dirty", "0").code == 0
        write_metadata(path, topics={"orders": DELEGATED})
    before = tree(path / "orders-0", without=())
    words = ("--partition", "orders-0", "--now-ms", NOW, *QUIET)
    for command, yes in (("clean", ["--yes"]), ("stage", [])):
        answer = shell(command, path, *yes, "--json", "--force", *words)
        assert (answer.code, only_partition(answer)["outcome"]) == (4, "refused"), command
        reason = only_partition(answer)["reason"]
        assert reason == (
            "refused: orders has min.cleanable.dirty.ratio=1 and max.compaction.lag.ms=9223372036854775807 in the "
            "cluster, as cleanerd delegate sets them, but the state directory knows of no delegation; these settings "
            "say offset (was --config or cleanerd.state.dir forgotten? If not, set "
            "topics.orders.compaction.strategy=offset, or use --change-strategy each time)"
        )
    assert tree(path / "orders-0", without=()) == before
    plan = shell("plan", path, "--partition", "orders-0", *QUIET)
    explained = shell("explain", "orders-0", path, *QUIET)
    doctor = shell("doctor", path, *QUIET)
    assert "knows of no delegation" in plan.out
    assert "knows of no delegation" in explained.out
    assert "knows of no delegation" in doctor.out
    assert "--force" not in plan.out + plan.err + explained.out + explained.err
    assert clean_forced(shell, path, *OFFSET, "--cleanable-to", "0", "--first-dirty", "0").code == 0
    assert clean_forced(shell, path, "--change-strategy", "--cleanable-to", "0", "--first-dirty", "0").code == 0
    assert clean_forced(shell, path).code == 4
    assert clean_forced(shell, path, *HEADER).code == 0


def test_a_staged_cleaning_by_offset_is_not_applied_to_a_topic_that_delegated_in_cluster(
    root: Path, shell: Shell
) -> None:
    """U-96: staged before the delegation, by settings that name no strategy."""
    path = log_dir_by_version(root)
    write_metadata(path, topics={"orders": UNDELEGATED})
    stage = shell("stage", path, "--json", "--force", "--partition", "orders-0", *QUIET)
    assert only_partition(stage)["outcome"] == "staged"
    write_metadata(path, topics={"orders": DELEGATED})
    answer = only_partition(shell("apply", path, "--json", *QUIET))
    assert answer["outcome"] == "skipped"
    assert "knows of no delegation; these settings say offset" in answer["reason"]
    assert only_partition(shell("apply", path, "--json", *QUIET, *OFFSET))["outcome"] == "cleaned"


def test_a_ratio_of_1_alone_is_hinted_at(root: Path, shell: Shell) -> None:
    """U-8: without state the ratio in the cluster alone proves no delegation; an operator may have set it."""
    path = log_dir_by_version(root)
    write_metadata(path, topics={"orders": {**UNDELEGATED, "min.cleanable.dirty.ratio": "1"}})
    hint = "min.cleanable.dirty.ratio of orders is 1 in the cluster, as cleanerd delegate sets it"
    assert hint in shell("plan", path, *QUIET).err
    assert hint not in shell("plan", path, *QUIET, *OFFSET).err
    assert hint not in shell("plan", path, *QUIET, *HEADER).err
    write_metadata(path, topics={"orders": DELEGATED})
    assert hint not in shell("plan", path, *QUIET).err, "U-96: it is refused"


@pytest.mark.parametrize(
    ("settings", "is_mentioned"),
    [
        pytest.param((), True, id="only the policy"),
        pytest.param(OFFSET, False, id="offset is named"),
        pytest.param((*TIMESTAMP, "--set", "cleanerd.delegation=assumed"), False, id="another strategy"),
    ],
)
def test_an_unknown_delegation_is_mentioned(
    root: Path, shell: Shell, settings: tuple[str, ...], is_mentioned: bool
) -> None:
    """U-96: a directory without the metadata log: the topic's configuration is what would show a delegation."""
    path = log_dir_by_version(root)
    shutil.rmtree(path / "__cluster_metadata-0")
    policy = set_topic("cleanup.policy", "compact")
    advice = shell("clean", path, "--yes", "--partition", "orders-0", *QUIET, *settings).err
    assert f"{policy[1]}; if the topic may be delegated, also set its topics.orders.compaction.strategy" in advice
    known = "whether orders is delegated is unknown"
    assert (known in shell("plan", path, *QUIET, *policy, *settings).err) == is_mentioned
    answer = clean_forced(shell, path, *policy, *settings)
    assert (answer.code, known in answer.err) == (0, is_mentioned), "it is a warning"
    meta = path / "meta.properties"
    meta.write_text("".join(line for line in meta.read_text().splitlines(True) if "cluster.id" not in line))
    assert known not in shell("plan", path, *QUIET, *policy, *settings).err, "it belongs to no cluster"


def test_stored_settings_of_another_topic_or_cluster_do_not_count(root: Path, shell: Shell) -> None:
    """U-6: a topic is identified by its id, a delegation by its cluster."""
    path = log_dir_by_version(root)
    assert clean_forced(shell, path, *HEADER, only="orders-1").code == 0
    state = next((root / "state" / "partitions").rglob("*.json"))
    other = state.with_name("x" + state.name[1:])
    state.rename(other)
    remember_delegation(root)
    file = root / "state" / "delegations.json"
    file.write_text(file.read_text().replace(CLUSTER, "another"))
    write_metadata(path, topics={"orders": UNDELEGATED})
    assert clean_forced(shell, path).code == 0


def test_a_topic_in_several_log_directories(root: Path, shell: Shell) -> None:
    """U-6: a broker's partitions are spread over its log directories; a topic id is unique in all of them."""
    path = log_dir_by_version(root)
    assert clean_forced(shell, path, *HEADER, only="orders-1").code == 0
    other = root / "other"
    path.rename(other)
    meta = other / "meta.properties"
    lines = [line for line in meta.read_text().splitlines() if not line.startswith("directory.id")]
    meta.write_text("\n".join([*lines, f"directory.id={uuid_to_base64(uuid.UUID(int=9))}", ""]))
    answer = clean_forced(shell, other)
    assert answer.code == 4
    assert "was last cleaned by header:v" in only_partition(answer)["reason"]


def test_a_partition_that_moved_to_another_log_directory(root: Path, shell: Shell) -> None:
    """U-6: the daemon sweeps the old directory's state; no command cleans it with forgotten settings in the new one."""
    path = log_dir_by_version(root)
    assert clean_forced(shell, path, *HEADER).code == 0
    other = with_directory_id(make_log_dir(root / "other", {}), uuid.UUID(int=9))
    (path / "orders-0").rename(other / "orders-0")
    swept = delete_gone_state(StateStore(root / "state"), read_log_dir(path), OtherPlacesOfTopic((other,)))
    assert swept == SweepResult(kept=1)
    for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint", ".kafka_cleanshutdown"):
        shutil.copy(path / name, other / name)
    (path / "__cluster_metadata-0").rename(other / "__cluster_metadata-0")
    (other / "orders-0" / f"{6:020d}.log").write_bytes(b"")
    before = tree(other / "orders-0", without=())
    for command, yes in (("clean", ["--yes"]), ("stage", [])):
        answer = shell(command, other, *yes, "--json", "--force", "--from-start", "--now-ms", NOW, *QUIET)
        assert answer.code == 4, command
        assert "was last cleaned by header:v; these settings say offset" in only_partition(answer)["reason"]
    assert tree(other / "orders-0", without=()) == before
    assert clean_forced(shell, other, *HEADER, "--from-start").code == 0
    assert delete_gone_state(
        StateStore(root / "state"), read_log_dir(path), OtherPlacesOfTopic((other,))
    ) == SweepResult(removed=1)
    assert clean_forced(shell, other).code == 4, "its new directory has the settings itself"


def test_the_stored_settings_of_a_topic_are_listed_once(tmp_path: Path) -> None:
    """U-6: 2,000 partitions without a checkpoint need it; the state directory is listed once while it is unchanged."""
    path = make(tmp_path)
    store = StateStore(tmp_path / "state")
    log_dir = read_log_dir(path)
    log = read_partition(log_dir, log_dir.partitions[0])
    directory = store.path(log_dir, log).parent
    directory.mkdir(parents=True)
    assert rules_of(store, log_dir, log, None) is None
    point = {"offset": 1, "leader_epoch": 0, "fingerprint": "strategy=timestamp;tombstone.mode=null"}
    last = {"base": 0, "dev": 0, "inode": 0, "size": 0, "mtime_ns": 0}
    document = {
        "format": 1,
        "cleanerd_checkpoint": {**point, "last_segment": last},
        "quarantine": None,
        "last_result": None,
    }
    name = store.path(log_dir, log).name.removesuffix("-0.json")
    (directory / f"{name}-6.json").write_text("{")
    reported = rules_of(store, log_dir, log, None)
    assert isinstance(reported, UnreadableState), "its contents are unknown"
    assert reported.where == str(directory / f"{name}-6.json")
    (directory / f"{name}-7.json").write_text(json.dumps(document))
    assert rules_of(store, log_dir, log, None) == "strategy=timestamp;tombstone.mode=null"
    assert (directory / f"{name}-6.json").exists(), "a read-only command sets nothing aside"


@pytest.mark.parametrize("seconds", [0, 1])
def test_settings_stored_within_one_clock_tick_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    """U-6: another process stores settings during the listing of the directory, whose time may stay the same.

    However many ``seconds`` the listing takes: the tick may be over when it ends.
    """
    path = make(tmp_path)
    store, log_dir = StateStore(tmp_path / "state"), read_log_dir(path)
    log = read_partition(log_dir, log_dir.partitions[0])
    directory = store.path(log_dir, log).parent
    directory.mkdir(parents=True)
    changed_ns = directory.stat().st_mtime_ns
    now_ns, real = changed_ns + CLOCK_TICK_NS // 2, safe_open.names_in

    def names_in(*place: Any) -> Any:
        nonlocal now_ns
        now_ns += seconds * 10**9
        return real(*place)

    # The clock only stands still during the listing, which no real clock does.
    monkeypatch.setattr("cleanerd.state.last_settings.names_in", names_in)
    monkeypatch.setattr(directory_time, "time", SimpleNamespace(time_ns=lambda: now_ns))
    assert rules_of(store, log_dir, log, None) is None
    rules = "strategy=timestamp;tombstone.mode=null"
    other = StateStore(tmp_path / "state")
    other.save(log_dir, log, PartitionState(None, None, None, rules=rules))
    name = other.path(log_dir, log)
    name.rename(name.with_name(name.name.replace("-0.json", "-7.json")))
    os.utime(directory, ns=(changed_ns, changed_ns))
    assert rules_of(store, log_dir, log, None) == rules


@pytest.mark.parametrize("lost", ["damaged", "unreadable"])
def test_a_configured_strategy_is_enough_when_the_state_cannot_be_read(
    root: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """U-6: nothing is guessed.

    The strategy alone does not set the tombstone mode; a cleaning stores the settings again.
    """
    path = log_dir_by_version(root)
    assert clean_forced(shell, path, *HEADER).code == 0
    (path / "orders-0" / f"{6:020d}.log").write_bytes(b"")
    (file,) = (root / "state" / "partitions").rglob("*.json")
    real = safe_open.read_whole

    def fails(name: str, **options: Any) -> bytes:
        if name == file.name:
            raise OSError(errno.EIO, os.strerror(errno.EIO), name)
        return real(name, **options)

    if lost == "damaged":
        file.write_bytes(b"{")
    before = tree(path / "orders-0", without=())
    with monkeypatch.context() as patched:
        if lost == "unreadable":
            for place in (safe_open, last_settings):
                patched.setattr(place, "read_whole", fails)
        for settings in ((), HEADER):
            answer = clean_forced(shell, path, "--from-start", *settings)
            assert answer.code == 4
            reason = only_partition(answer)["reason"]
            assert str(file.with_suffix("")) in reason
            assert ("is damaged (" if lost == "damaged" else "cannot be read (Input/output error)") in reason
        report = shell("explain", "orders-0", path, "--json", *QUIET).json
        assert "topics.orders.compaction.strategy and topics.orders.tombstone.mode" in report["changes"]
        assert tree(path / "orders-0", without=()) == before
        assert clean_forced(shell, path, *HEADER, *set_topic("tombstone.mode", "null"), "--from-start").code == 0
    assert "was last cleaned by header:v" in only_partition(clean_forced(shell, path))["reason"]


def test_a_quarantine_does_not_replace_an_unreadable_state_file(tmp_path: Path) -> None:
    """U-6: it has no settings; replacing the file that has them would lose them."""
    path = make(tmp_path)
    log_dir = read_log_dir(path)
    log = read_partition(log_dir, log_dir.partitions[0])
    store = StateStore(tmp_path / "state")
    point = CleanerdCheckpoint(3, 0, "strategy=timestamp;tombstone.mode=null", LastSegment.of(log.segments[0]))
    store.save(log_dir, log, PartitionState(point, None, None))
    file = store.path(log_dir, log)
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    assert store.load(log_dir, log) is None
    store.save(log_dir, log, PartitionState(None, "damaged", None))
    state = store.load(log_dir, log)
    assert state is not None
    assert state.quarantine == "damaged"
    reported = rules_of(store, log_dir, log, state)
    assert isinstance(reported, UnreadableState)
    assert reported.where == str(file.with_suffix(".damaged"))
    store.save(log_dir, log, PartitionState(point, None, None))
    assert rules_of(store, log_dir, log, store.load(log_dir, log)) == point.fingerprint


FIRST_DIRTY = ("--first-dirty", "3")


@pytest.mark.long
@pytest.mark.parametrize("way", ["clean", "stage"])
def test_a_cleaning_that_moves_no_checkpoint_is_stored(root: Path, shell: Shell, way: str) -> None:
    """U-6: ``--first-dirty`` does not move the checkpoint, and has decided retained records nevertheless."""
    path = log_dir_by_version(root)
    if way == "clean":
        assert clean_forced(shell, path, *HEADER, *FIRST_DIRTY).code == 0
    else:
        staged = shell(
            "stage",
            path,
            "--json",
            "--force",
            "--partition",
            "orders-0",
            "--now-ms",
            NOW,
            *QUIET,
            *HEADER,
            *FIRST_DIRTY,
        )
        assert only_partition(staged)["outcome"] == "staged"
        assert "last cleaned" not in only_partition(clean_forced(shell, path, only="orders-1"))["reason"]
        assert shell("apply", path, *QUIET, *HEADER).code == 0
    answer = clean_forced(shell, path)
    assert answer.code == 4
    assert "was last cleaned by header:v" in only_partition(answer)["reason"]
    report = shell("explain", "orders-0", path, "--json", *HEADER, *QUIET).json
    assert report["cleaned_by_fingerprint"].startswith("strategy=header")
    assert report["first_dirty_offset"] == 0, "the first dirty offset stays"
    assert only_partition(clean_forced(shell, path, *HEADER))["outcome"] in ("cleaned", "unchanged")


def test_a_confirmed_return_to_kafkas_strategy_is_stored(root: Path, shell: Shell) -> None:
    """U-6: a confirmed change needs no second confirmation, also if the cleaning moved no checkpoint."""
    path = log_dir_by_version(root)
    assert clean_forced(shell, path, *HEADER, *FIRST_DIRTY).code == 0
    assert clean_forced(shell, path, *FIRST_DIRTY).code == 4
    assert clean_forced(shell, path, *FIRST_DIRTY, "--change-strategy").code == 0
    assert clean_forced(shell, path, *FIRST_DIRTY).code == 4, "U-96: it is still delegated"
    write_metadata(path, topics={"orders": UNDELEGATED})
    assert clean_forced(shell, path, *FIRST_DIRTY).code == 0


def test_undo_restores_the_stored_settings(root: Path, shell: Shell) -> None:
    """U-6: the state from before the cleaning is restored, also without a checkpoint."""
    path, kept = log_dir_by_version(root), root / "kept"
    kept.mkdir()
    keeps = ("--keep-replaced", str(kept))
    assert clean_forced(shell, path, *HEADER, "--first-dirty", "4", *keeps).code == 0
    answer = clean_forced(shell, path, *HEADER, *keeps)
    assert only_partition(answer)["outcome"] == "cleaned"
    assert shell("undo", path, "--yes", *QUIET).code == 0
    assert "was last cleaned by header:v" in only_partition(clean_forced(shell, path))["reason"]
    assert shell("undo", path, "--yes", *QUIET).code == 0
    write_metadata(path, topics={"orders": UNDELEGATED})
    assert only_partition(clean_forced(shell, path))["outcome"] == "cleaned"


def test_a_topic_without_versions_is_unaffected(root: Path, shell: Shell) -> None:
    """A plain topic is not affected by any of this: two cleanings by offset, without a message."""
    path = make_log_dir(root / "logs", {"orders-0": Partition({0: batch(0, ("k", "1"), ("k", "2")), 2: b""})})
    write_metadata(path, topics={"orders": {"cleanup.policy": "compact"}})
    assert only_partition(clean_forced(shell, path))["outcome"] == "cleaned"
    answer = clean_forced(shell, path, "--from-start")
    assert (answer.code, only_partition(answer)["outcome"]) == (0, "unchanged")
