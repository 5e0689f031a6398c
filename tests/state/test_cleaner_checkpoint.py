"""cleanerd's own checkpoint: what lowers it; its file affects only the amount of work (U-6, U-10)."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cleanerd.format.checkpoint import EpochStart
from cleanerd.format.names import TopicPartition, parse_topic_partition_dir, uuid_to_base64
from cleanerd.fsio.state_files import set_aside
from cleanerd.segments.log_dir import DirectoryPlace, LogDir, read_log_dir
from cleanerd.segments.partition import PartitionLog, read_partition
from cleanerd.state import cleaner_checkpoint
from cleanerd.state.cleaner_checkpoint import (
    CleanerdCheckpoint,
    LastSegment,
    PartitionState,
    StateStore,
)
from cleanerd.state.first_dirty_offset import may_be_about, still_valid
from cleanerd.state.last_settings import LastSettings
from cleanerd.state.other_places import rules_of
from tests.cleaner.driver import scratch
from tests.support.log_dirs import DIRECTORY_ID, Partition, make_log_dir
from tests.support.logs import keyed_batch
from tests.support.root import as_other_user, needs_root

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TOPIC_ID = uuid.UUID(int=77)


@pytest.fixture
def found(tmp_path: Path) -> tuple[LogDir, PartitionLog]:
    segments = {0: keyed_batch(0, [("a", "1")] * 5), 5: keyed_batch(5, [("a", "1")] * 5), 10: b""}
    partition = Partition(segments, topic_id=TOPIC_ID, epochs=((0, 0), (3, 5)))
    log_dir = read_log_dir(make_log_dir(tmp_path / "logs", {"orders.v1-0": partition}))
    name = parse_topic_partition_dir("orders.v1-0")
    assert name is not None
    return log_dir, read_partition(log_dir, name)


def point_of(log: PartitionLog) -> CleanerdCheckpoint:
    return CleanerdCheckpoint(10, 3, "strategy=offset", LastSegment.of(log.segments[1]))


def state_of(log: PartitionLog) -> PartitionState:
    return PartitionState(point_of(log), None, {"outcome": "cleaned"})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        pytest.param(lambda p: p, None, id="nothing changed"),
        pytest.param(lambda p: replace(p, offset=-1), "outside", id="below the log"),
        pytest.param(lambda p: replace(p, offset=11), "outside", id="beyond the end: truncated"),
        pytest.param(lambda p: replace(p, log_start=0), None, id="it begins as then"),
        pytest.param(lambda p: replace(p, log_start=1), "there again", id="what was deleted is there again"),
        pytest.param(lambda p: replace(p, leader_epoch=2), "epoch", id="another leader wrote there"),
        pytest.param(lambda p: replace(p, last_segment=replace(p.last_segment, base=4)), "4", id="no such segment"),
        pytest.param(
            lambda p: replace(p, last_segment=replace(p.last_segment, inode=1)),
            "not the file that was cleaned",
            id="inode",
        ),
        pytest.param(
            lambda p: replace(
                p, last_segment=replace(p.last_segment, dev=1), last_output=replace(p.last_segment, dev=2)
            ),
            None,
            id="the same disk after a reboot",
        ),
        pytest.param(
            lambda p: replace(p, last_segment=replace(p.last_segment, size=1)),
            "not the file that was cleaned",
            id="size",
        ),
        pytest.param(
            lambda p: replace(p, last_segment=replace(p.last_segment, mtime_ns=1)),
            "not the file that was cleaned",
            id="mtime",
        ),
        pytest.param(
            lambda p: replace(p, last_output=replace(p.last_segment, base=0)),
            "segment 0 is not the file that was cleaned",
            id="output",
        ),
        pytest.param(
            lambda p: replace(p, last_output=replace(p.last_segment, base=3)), "segment 3", id="no such output"
        ),
    ],
)
def test_every_mismatch_counts(
    found: tuple[LogDir, PartitionLog], change: Callable[[CleanerdCheckpoint], CleanerdCheckpoint], says: str | None
) -> None:
    """U-10: any mismatch."""
    reason = still_valid(change(point_of(found[1])), found[1], 10)
    assert reason is None if says is None else says in str(reason)


def test_a_checkpoint_of_a_log_whose_start_moved_back(found: tuple[LogDir, PartitionLog]) -> None:
    """U-10, U-2: a check also treats the log as not cleaned, because it may contain records that no cleaning read."""
    assert may_be_about(replace(point_of(found[1]), log_start=0), found[1])
    assert not may_be_about(replace(point_of(found[1]), log_start=1), found[1])


def test_epoch_of_the_last_clean_offset(found: tuple[LogDir, PartitionLog]) -> None:
    """U-10: the epoch at ``offset - 1``, the last cleaned offset; any leader may write the next one."""
    log = replace(found[1], leader_epochs=(EpochStart(0, 0), EpochStart(3, 5), EpochStart(4, 10)))
    assert still_valid(point_of(log), log, 10) is None
    again = replace(log, leader_epochs=(EpochStart(0, 0), EpochStart(4, 9)))
    assert "epoch" in str(still_valid(point_of(log), again, 10))


def test_an_output_that_the_broker_deleted(found: tuple[LogDir, PartitionLog]) -> None:
    """U-10: together with the beginning of the log, as retention does; this restores nothing."""
    point = replace(point_of(found[1]), last_output=LastSegment.of(found[1].segments[0]))
    assert still_valid(point, found[1], 10) is None
    log = replace(found[1], segments=found[1].segments[1:], log_start_offset=5)
    assert still_valid(point, log, 10) is None


@pytest.mark.parametrize("gone", [0, 2], ids=["the cleaned file is as it was", "the broker deleted it since"])
def test_a_checkpoint_after_a_truncation_and_new_records(found: tuple[LogDir, PartitionLog], gone: int) -> None:
    """U-10: a truncation may remove nothing of the last cleaned file, if no batch is left at its end: 7 is new."""
    first, last, active = found[1].segments
    point = point_of(found[1])
    segments = (first, last, replace(last, base=7, inode=77), active)[gone:]
    log = replace(found[1], segments=segments, log_start_offset=segments[0].base)
    assert "segment 5 is not the file that was cleaned" in str(still_valid(point, log, 10))
    assert not may_be_about(point, log)
    assert may_be_about(point, found[1])


def test_log_start_moved_past_it(found: tuple[LogDir, PartitionLog]) -> None:
    """Records were deleted up to an offset above it."""
    assert "outside" in str(still_valid(point_of(found[1]), replace(found[1], log_start_offset=11), 20))


def test_round_trip(tmp_path: Path, found: tuple[LogDir, PartitionLog]) -> None:
    """By directory and topic id."""
    store = StateStore(tmp_path / "state")
    assert store.load(*found) is None
    store.save(*found, state_of(found[1]))
    place = tmp_path / "state" / "partitions" / found[0].place.name
    assert place.name.startswith(uuid_to_base64(DIRECTORY_ID))
    expected = place / f"{uuid_to_base64(TOPIC_ID)}-0.json"
    assert store.path(*found) == expected
    assert {path for path in (tmp_path / "state").rglob("*") if path.is_file()} == {expected, place / "place"}
    assert store.load(*found) == state_of(found[1])
    store.save(*found, replace(state_of(found[1]), cleanerd_checkpoint=None, quarantine="bad"))
    assert store.load(*found) == PartitionState(None, "bad", {"outcome": "cleaned"})
    assert store.warnings == []


@pytest.mark.parametrize("length", [1, 231, 232, 249])
def test_a_topic_without_an_id_has_any_name(found: tuple[LogDir, PartitionLog], tmp_path: Path, length: int) -> None:
    """U-6: as long as Kafka allows, with any number behind it: file names have a lower limit."""
    log_dir, log = found
    store = StateStore(tmp_path / "state")
    states = {}
    for last in ("a", "b"):
        for partition in (0, 2**31 - 1):
            name = TopicPartition("t" * (length - 1) + last, partition)
            log = replace(log, name=name, topic_id=None)
            states[name] = replace(state_of(log), rules=f"rules of {last}")
            store.save(log_dir, log, states[name])
    assert not store.warnings
    again = StateStore(tmp_path / "state")
    for name, state in states.items():
        log = replace(log, name=name)
        assert again.load(log_dir, log) == state
        assert rules_of(again, log_dir, replace(log, name=TopicPartition(name.topic, 1)), None) == state.rules
        assert LastSettings(tmp_path / "state").of_name(name.topic, None) == [state.rules]
    for name in states:
        set_aside(again.path(log_dir, replace(log, name=name)), tmp_path / "state")


def test_created_again(tmp_path: Path, found: tuple[LogDir, PartitionLog]) -> None:
    """S-51: a topic of the same name with another id starts from zero; so does another directory."""
    store = StateStore(tmp_path / "state")
    log_dir, log = found
    store.save(log_dir, log, state_of(log))
    assert store.load(log_dir, replace(log, topic_id=uuid.UUID(int=78))) is None
    other = replace(log_dir, place=DirectoryPlace.of(log_dir.path, uuid.UUID(int=5)))
    assert store.load(other, log) is None
    nameless = replace(log_dir, place=DirectoryPlace.of(log_dir.path, None)), replace(log, topic_id=None)
    store.save(*nameless, state_of(log))
    assert store.load(*nameless) == state_of(log)
    assert len(list((tmp_path / "state").rglob("*.json"))) == 2


VALID = {
    "format": 1,
    "cleanerd_checkpoint": {
        "offset": 1,
        "leader_epoch": 0,
        "fingerprint": "f",
        "last_segment": {"base": 0, "dev": 0, "inode": 0, "size": 0, "mtime_ns": 0},
    },
    "quarantine": None,
    "last_result": None,
}


def variant(**changes: object) -> bytes:
    return json.dumps({**VALID, **changes}).encode()


def point(**changes: object) -> dict[str, object]:
    return {**VALID["cleanerd_checkpoint"], **changes}  # type: ignore[dict-item]


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="0 bytes"),
        pytest.param(b"{", id="cut"),
        pytest.param(b"\xff\xfe{}", id="no text"),
        pytest.param(b"\x00" * 64, id="zeros"),
        pytest.param(b"[]", id="a list"),
        pytest.param(b"7", id="a number"),
        pytest.param(b"null", id="null"),
        pytest.param(b"[" * 100_000, id="deep"),
        pytest.param(b"{}", id="nothing in it"),
        pytest.param(variant(format=0), id="a format that never was"),
        pytest.param(variant(cleanerd_checkpoint=7), id="no checkpoint"),
        pytest.param(variant(cleanerd_checkpoint=point(offset="x")), id="a word as a number"),
        pytest.param(variant(cleanerd_checkpoint=point(offset=None)), id="null for a number"),
        pytest.param(variant(cleanerd_checkpoint=point(offset=float("inf"))), id="infinity"),
        pytest.param(variant(cleanerd_checkpoint=point(last_segment=[])), id="a list for the segment"),
        pytest.param(variant(cleanerd_checkpoint=point(last_segment={"base": 0})), id="half a segment"),
        pytest.param(variant(cleanerd_checkpoint=point(last_segment={"what": 0})), id="another segment"),
    ],
)
def test_damaged_file(tmp_path: Path, found: tuple[LogDir, PartitionLog], content: bytes) -> None:
    """Set aside with a warning, counts as absent, and saving continues."""
    store = StateStore(tmp_path / "state")
    path = store.path(*found)
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    assert store.load(*found) is None
    assert len(store.warnings) == 1
    assert str(path) in store.warnings[0]
    assert path.with_suffix(".damaged").read_bytes() == content
    assert not path.exists()
    store.save(*found, state_of(found[1]))
    assert store.load(*found) == state_of(found[1])
    assert len(store.warnings) == 1


def test_a_newer_release_wrote_it(tmp_path: Path, found: tuple[LogDir, PartitionLog]) -> None:
    """U-6, U-10: after a downgrade it is reported as such, its settings still count, and the next save replaces it.

    Set aside as damaged, it would hide the settings of the topic's last cleaning, and the topic would be refused.
    """
    store = StateStore(tmp_path / "state")
    path = store.path(*found)
    path.parent.mkdir(parents=True)
    content = variant(format=2, novelty=[1])
    path.write_bytes(content)
    assert store.load(*found) is None
    words = "written by a newer cleanerd (format 2, this one knows 1)"
    assert store.warnings == [f"{path}: {words}; ignored until the next cleaning"]
    assert path.read_bytes() == content
    assert not path.with_suffix(".damaged").exists()
    assert rules_of(store, *found, None) == json.loads(content)["cleanerd_checkpoint"]["fingerprint"]
    store.recheck()
    assert list(store.standing) == [path], "reported once, not at every scan, as long as it exists"
    path.write_bytes(variant())
    assert store.load(*found) is not None
    assert not store.standing, "after an upgrade, or with the old file restored"
    path.write_bytes(content)
    assert store.load(*found) is None
    store.save(*found, state_of(found[1]))
    assert store.load(*found) == state_of(found[1])
    assert not store.standing


def test_unusable_directory(tmp_path: Path, found: tuple[LogDir, PartitionLog]) -> None:
    """Offline commands work without a writable state directory."""
    (tmp_path / "state").write_text("a file, not a directory")
    store = StateStore(tmp_path / "state" / "below")
    assert store.load(*found) is None
    store.save(*found, state_of(found[1]))
    assert any("cannot be written" in warning and "Kafka's checkpoint" in warning for warning in store.warnings)


@pytest.mark.skipif(os.geteuid() == 0, reason="needs a user who is not root, who may write everywhere")
def test_read_only_directory(tmp_path: Path, found: tuple[LogDir, PartitionLog]) -> None:
    """The same for a directory that may not be written."""
    (tmp_path / "state").mkdir(mode=0o500)
    store = StateStore(tmp_path / "state")
    store.save(*found, state_of(found[1]))
    assert any("cannot be written" in warning for warning in store.warnings)


def test_a_removed_directory_is_created_again(found: tuple[LogDir, PartitionLog], tmp_path: Path) -> None:
    """U-10: its existence is checked once; an emptied state directory loses its contents, and nothing later."""
    log_dir, log = found
    store = StateStore(tmp_path / "state")
    store.save(log_dir, log, state_of(log))
    shutil.rmtree(tmp_path / "state")
    store.save(log_dir, log, state_of(log))
    assert store.warnings == []
    assert store.load(log_dir, log) == state_of(log)
    shutil.rmtree(store.directory(log_dir))
    store.save(log_dir, log, state_of(log))
    assert store.load(log_dir, log) == state_of(log)


def test_the_state_directory_is_made_once(
    found: tuple[LogDir, PartitionLog], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon writes here for each partition that it cleans."""
    log_dir, log = found
    store = StateStore(tmp_path / "state")
    made: list[Path] = []
    real = cleaner_checkpoint.make_directory
    # The number of tries shows in no result.
    monkeypatch.setattr(
        cleaner_checkpoint, "make_directory", lambda path, *more: (made.append(path), real(path, *more))
    )
    for _ in range(3):
        store.save(log_dir, log, state_of(log))
    assert made == [store.root, store.root / "partitions", store.directory(log_dir)]


@needs_root
def test_a_closed_directory_is_one_warning(found: tuple[LogDir, PartitionLog]) -> None:
    """However many partitions there are; a single unreadable file is still reported by its name."""
    log_dir, log = found
    logs = [replace(log, name=replace(log.name, partition=number)) for number in range(3)]
    with scratch() as root:
        root.chmod(0o755)
        state = root / "state"
        for each in logs:
            StateStore(state).save(log_dir, each, state_of(log))

        def reported() -> list[str]:
            store = StateStore(state, keeps_damaged=True)
            for each in logs:
                store.load(log_dir, each)
            return store.warnings

        state.chmod(0o700)
        assert as_other_user(reported) == [f"{state}: cannot be read (Permission denied); ignored"]
        for path in (state, *state.rglob("*")):
            path.chmod(0o755)
        hidden = StateStore(state).path(log_dir, logs[0])
        hidden.chmod(0)
        assert as_other_user(reported)[0] == f"{hidden}: cannot be read (Permission denied); ignored"


def test_settings_stored_by_another_process_are_used(found: tuple[LogDir, PartitionLog], tmp_path: Path) -> None:
    """U-6: a process that started before anything was stored sees it, and continues when all of it is removed."""
    root = tmp_path / "state"
    ours, theirs = StateStore(root), StateStore(root)
    for _ in range(2):
        assert ours.load(*found) is None
        assert rules_of(ours, *found, None) is None
        root.mkdir(exist_ok=True)
    state = state_of(found[1])
    theirs.save(*found, state)
    assert rules_of(ours, *found, None) == state.cleaned_by
    assert ours.load(*found) == state
    shutil.rmtree(root)
    assert ours.load(*found) is None
    assert rules_of(ours, *found, None) is None
    theirs.save(*found, state)
    assert ours.load(*found) == state
