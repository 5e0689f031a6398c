"""Every place outside of its directory that may have records of a log: found, or named (U-47)."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from cleanerd.errors import CleanerdError
from cleanerd.format.names import TopicPartition
from cleanerd.state.moved_aside import record_aside_dir
from cleanerd.verify.record_places import SCRATCH_PREFIX, RecordPlace, record_places
from tests.support.root import as_other_user, needs_root

if TYPE_CHECKING:
    from pathlib import Path

PLAN, OTHER_PLAN = "20260101t000000-0123abcd", "20260102t000000-0123abcd"
NAME, OTHER_NAME = TopicPartition("orders", 0), TopicPartition("others", 0)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    return tmp_path / "tmp"


def remember(state: Path, kept: Path, place: str = f"{PLAN}/orders-0") -> Path:
    """Like a cleaning with ``--keep-replaced``."""
    (state / "trash").mkdir(parents=True, exist_ok=True)
    entry = {"topic": "orders", "partition": 0, "log_dir": "/d", "kept": str(kept / place)}
    file = state / "trash" / f"{PLAN}.json"
    file.write_text(json.dumps({"format": 1, "entry": entry}) + "\n{}\n")
    return file


def keep(kept: Path, plan: str = PLAN) -> Path:
    (kept / plan / "orders-0").mkdir(parents=True)
    return kept / plan / "orders-0"


def test_kept_segments(tmp_path: Path) -> None:
    """S-40: by the remembered entries and by the settings; each directory once."""
    kept, state = tmp_path / "kept", tmp_path / "state"
    remembered, other = keep(kept), keep(kept, OTHER_PLAN)
    (kept / "lost+found").mkdir()
    remember(state, kept)
    only = record_places(state, [], [])
    assert (only.places, only.unsearched) == ([RecordPlace(remembered, NAME, "kept", "/d")], [])
    assert [each.path for each in record_places(state, [kept], []).places] == [remembered, other]
    assert [each.path for each in record_places(tmp_path / "none", [kept], []).places] == [remembered, other]
    assert record_places(state, [], []).of({OTHER_NAME}).places == []


def test_removed_segments_are_not_listed(tmp_path: Path) -> None:
    """If the directory of kept segments exists, an entry missing from it was removed."""
    remember(tmp_path / "state", tmp_path / "kept")
    (tmp_path / "kept").mkdir()
    found = record_places(tmp_path / "state", [], [])
    assert (found.places, found.unsearched) == ([], [])


def test_a_disk_that_is_not_mounted(tmp_path: Path) -> None:
    """Its segments may still exist: the remembered ones are named, for that partition."""
    file = remember(tmp_path / "state", tmp_path / "kept")
    found = record_places(tmp_path / "state", [], [])
    (missing,) = found.unsearched
    assert (missing.name, str(file) in missing.what) == (NAME, True)
    assert found.of({OTHER_NAME}).unsearched == []
    (configured,) = record_places(tmp_path / "none", [tmp_path / "nowhere"], []).unsearched
    assert (configured.name, "nowhere" in configured.what) == (None, True)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param(f"{PLAN}.json", "{", id="cut"),
        pytest.param(f"{PLAN}.json", '{"format": 1}', id="without an entry"),
        pytest.param(f"{PLAN}.damaged", "{}", id="set aside"),
        pytest.param("strange.json", "{}", id="of no plan"),
    ],
)
def test_an_unreadable_entry(tmp_path: Path, name: str, text: str) -> None:
    """It may have been about any partition."""
    (tmp_path / "trash").mkdir()
    (tmp_path / "trash" / name).write_text(text)
    (missing,) = record_places(tmp_path, [], []).unsearched
    assert (missing.name, name in missing.what) == (None, True)


def test_an_entry_that_leads_out_of_the_directory(tmp_path: Path) -> None:
    """U-33: the broker's user can write there."""
    remember(tmp_path / "state", tmp_path, "orders-0")
    found = record_places(tmp_path / "state", [], [])
    assert (found.places, len(found.unsearched)) == ([], 1)


@needs_root
def test_a_state_directory_of_another_user(tmp_path: Path) -> None:
    """The kept segments are unknown."""
    remember(tmp_path / "state", tmp_path / "kept")
    (tmp_path / "state" / "trash").chmod(0o700)
    tmp_path.chmod(0o755)
    missing = as_other_user(lambda: [each.what for each in record_places(tmp_path / "state", [], []).unsearched])
    assert missing[0].startswith(f"{tmp_path / 'state' / 'trash'}: "), "its temporary files may be others' too"


@pytest.mark.parametrize("state", ["-delete", "-stray", "-future"])
def test_directories_that_a_broker_renamed(tmp_path: Path, state: str) -> None:
    """F-12: the partition's former directory, or its future one."""
    (tmp_path / f"orders-0.{'0a' * 16}{state}").mkdir()
    (tmp_path / "orders-0").mkdir()
    (tmp_path / f"orders-0.{'0a' * 16}{state}.txt").mkdir()
    assert record_places(tmp_path / "none", [], [tmp_path]).places == [
        RecordPlace(tmp_path / f"orders-0.{'0a' * 16}{state}", NAME, state)
    ]


def test_symbolic_links(tmp_path: Path) -> None:
    """U-33, U-47: a broker follows them, cleanerd does not: each is named, also one to a disk that is not mounted."""
    logs, kept = tmp_path / "logs", tmp_path / "kept"
    moved = keep(tmp_path / "other disk")
    keep(kept, OTHER_PLAN).rmdir()
    logs.mkdir()
    links = [logs / "orders-0", logs / f"orders-0.{'0a' * 16}-delete", kept / OTHER_PLAN / "orders-0"]
    for link in links:
        link.symlink_to(moved)
    (kept / PLAN).symlink_to(moved.parent)
    (logs / "others-0").symlink_to(tmp_path / "not mounted")
    (logs / "a file").symlink_to(tmp_path / "other disk")
    found = record_places(tmp_path / "none", [kept], [logs])
    assert found.places == []
    of_topic = [str(each) for each in (kept / PLAN, *links)]
    assert sorted(each.what.partition(":")[0] for each in found.of({NAME}).unsearched) == sorted(of_topic)
    assert [each.what.partition(":")[0] for each in found.of({OTHER_NAME}).unsearched] == [
        str(kept / PLAN),
        str(logs / "others-0"),
    ]


@pytest.mark.parametrize("state", ["-delete", "-stray"])
def test_a_topic_whose_name_the_broker_cut(tmp_path: Path, state: str) -> None:
    """U-47: a broker cuts long names to 255 characters; the directory may be of each topic that begins like this."""
    ending = f"-0.{'0a' * 16}{state}"
    (tmp_path / f"{'t' * (255 - len(ending))}{ending}").mkdir()
    (tmp_path / f"{'s' * 100}{ending}").mkdir()
    found = record_places(tmp_path / "none", [], [tmp_path])
    assert [each.state for each in found.of({TopicPartition("t" * 249, 0)}).places] == [state]
    assert found.of({TopicPartition("t" * 249, 1), TopicPartition("t" * 200, 0), NAME}).places == []
    assert found.of({TopicPartition("s" * 101, 0)}).places == [], "this name is complete"


def test_moved_partitions(tmp_path: Path) -> None:
    """U-77: beside the log directory, also through a link, and at the place of --to; other files there are ignored."""
    logs, elsewhere = tmp_path / "disk" / "logs", tmp_path / "elsewhere"
    logs.mkdir(parents=True)
    (tmp_path / "link").symlink_to(logs)
    record_aside_dir(tmp_path / "state", elsewhere)
    moved = [each / "orders-0.20260101T000000Z" for each in (tmp_path / "disk" / "logs.aside", elsewhere)]
    for each in (*moved, elsewhere / "lost+found"):
        each.mkdir(parents=True)
    found = record_places(tmp_path / "state", [], [tmp_path / "link"])
    assert (found.places, found.unsearched) == ([RecordPlace(each, NAME, "moved-aside") for each in moved], [])
    shutil.rmtree(elsewhere)
    (missing,) = record_places(tmp_path / "state", [], [logs]).unsearched
    assert (missing.name, missing.what.startswith(f"{elsewhere}: ")) == (None, True)


def test_a_damaged_record_of_moves(tmp_path: Path) -> None:
    """It may have named any place; the next move does not overwrite it."""
    file = tmp_path / "moved-aside.json"
    file.write_text("{")
    (missing,) = record_places(tmp_path, [], []).unsearched
    assert (missing.name, str(file) in missing.what) == (None, True)
    with pytest.raises(CleanerdError, match=r"moved-aside\.json"):
        record_aside_dir(tmp_path, tmp_path / "elsewhere")
    assert file.read_text() == "{"


def test_copies_of_a_killed_archive_run(tmp_path: Path, temporary: Path) -> None:
    """A copy of the partition, among temporary files or in Spark's own directory."""
    copied = temporary / f"{SCRATCH_PREFIX}x" / "logs" / "orders-0"
    copied.mkdir(parents=True)
    (temporary / "others" / "orders-0").mkdir(parents=True)
    assert record_places(tmp_path / "none", [], []).places == [RecordPlace(copied, NAME, "copied")]
