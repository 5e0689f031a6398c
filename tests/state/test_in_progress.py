"""Notes about partitions in progress, and the treatment of those that a killed process left (U-35)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from cleanerd.format.names import TopicPartition
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.state import in_progress
from cleanerd.state.cleaner_checkpoint import StateStore
from cleanerd.state.in_progress import CrashSuspect, InFlightMarkers
from tests.cleaner.driver import scratch
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import keyed_batch
from tests.support.root import OTHER_UID, as_other_user, needs_root

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.segments.log_dir import LogDir

NAME = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)

_WORKER = """
import sys, time
from pathlib import Path
from cleanerd.format.names import TopicPartition
from cleanerd.state.in_progress import InFlightMarkers
from cleanerd.state.cleaner_checkpoint import StateStore
from cleanerd.segments.log_dir import read_log_dir
marks = InFlightMarkers(StateStore(Path(sys.argv[1])))
log_dir = read_log_dir(Path(sys.argv[2]))
marks.suspects(log_dir)
with marks.working(log_dir, TopicPartition("orders", 0)):
    print("at work", flush=True)
    time.sleep(60)
"""


class Scene:
    """A state directory and a log directory."""

    def __init__(self, root: Path) -> None:
        self.state = root / "state"
        self.path = make_log_dir(root / "logs", {"orders-0": Partition({0: keyed_batch(0, [("k", "v")])})})
        self.store = StateStore(self.state)
        self.log_dir: LogDir = read_log_dir(self.path)

    def markers(self) -> InFlightMarkers:
        """The notes, as another process finds them."""
        return InFlightMarkers(StateStore(self.state))

    def suspects(self) -> dict[TopicPartition, int]:
        """How many died at each."""
        return {name: suspect.deaths for name, suspect in self.markers().suspects(self.log_dir).items()}

    def worker(self) -> subprocess.Popen[str]:
        """A process with a partition in progress."""
        words = [sys.executable, "-c", _WORKER, str(self.state), str(self.path)]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "at work\n"
        return process

    def killed(self, number: int = signal.SIGKILL) -> None:
        """A process that is killed with a partition in progress."""
        process = self.worker()
        process.send_signal(number)
        process.wait()

    @property
    def marker(self) -> Path:
        """The file."""
        return self.state / in_progress.PLACE / self.store.directory_name(self.log_dir) / str(NAME)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """One scene per test."""
    return Scene(tmp_path)


def test_a_live_process_leaves_no_marker(scene: Scene) -> None:
    """Neither while it runs, nor when it has ended, with an error or without."""
    with scene.markers().working(scene.log_dir, NAME):
        assert scene.marker.exists()
        assert scene.suspects() == {}
    with pytest.raises(KeyError), scene.markers().working(scene.log_dir, NAME):
        raise KeyError
    assert list(scene.marker.parent.iterdir()) == []
    assert scene.suspects() == {}


def test_a_killed_one_is_counted_once(scene: Scene) -> None:
    """However many scans there are, and whichever process has another partition in progress meanwhile."""
    scene.killed()
    assert [scene.suspects() for _ in range(3)] == [{NAME: 1}] * 3
    with scene.markers().working(scene.log_dir, OTHER):
        assert scene.suspects() == {NAME: 1}
    assert not next(iter(scene.markers().suspects(scene.log_dir).values())).is_too_much
    scene.killed()
    assert scene.suspects() == {NAME: 2}
    (found,) = scene.markers().suspects(scene.log_dir).values()
    assert found.is_too_much
    assert "killed 2 times in a row" in found.reason
    assert abs(found.noticed_ms / 1000 - time.time()) < 60


def test_a_live_process_is_not_a_suspect(scene: Scene) -> None:
    """Another running cleanerd process, also if it tries a suspect again."""
    scene.killed()
    process = scene.worker()
    try:
        assert scene.suspects() == {}
    finally:
        process.kill()
        process.wait()
    assert scene.suspects() == {NAME: 2}


def test_a_successful_end_clears_the_suspect(scene: Scene) -> None:
    """The partition was not the cause of the kill."""
    scene.killed()
    assert scene.suspects() == {NAME: 1}
    with scene.markers().working(scene.log_dir, NAME):
        pass
    assert scene.suspects() == {}


def test_a_machine_that_lost_power_is_not_counted(scene: Scene) -> None:
    """A power cut, as the time of the last boot shows: any number of them puts nothing in quarantine."""
    for _ in range(3):
        scene.killed()
        document = json.loads(scene.marker.read_text())
        scene.marker.write_text(json.dumps({**document, "boot_seconds": document["boot_seconds"] - 100_000}))
        assert scene.suspects() == {}
    scene.killed()
    assert scene.suspects() == {NAME: 1}


def test_a_requested_end_is_not_counted(scene: Scene) -> None:
    """A stopping daemon removes its notes; a kill after that is not counted for a partition."""
    markers = scene.markers()
    with markers.working(scene.log_dir, NAME):
        markers.begin_shutdown()
        assert not scene.marker.exists()
        with markers.working(scene.log_dir, OTHER):
            assert list(scene.marker.parent.iterdir()) == []
    assert scene.suspects() == {}


@pytest.mark.long
def test_after_retry_it_has_one_more_try(scene: Scene) -> None:
    """``cleanerd retry``: again last and alone, and paused again after one more death."""
    assert scene.markers().clear_failures(scene.log_dir, NAME) is None
    for _ in range(2):
        scene.killed()
        scene.suspects()
    assert scene.suspects() == {NAME: 2}
    forgiven = scene.markers().clear_failures(scene.log_dir, NAME)
    assert forgiven is not None
    assert not forgiven.is_too_much
    assert scene.suspects() == {NAME: 1}
    scene.killed()
    assert scene.suspects() == {NAME: 2}


@pytest.mark.long
def test_a_death_after_the_cleaning_does_not_count(scene: Scene) -> None:
    """Nothing is left to do there: it is forgotten, unless the partition is in progress again."""
    scene.killed()
    assert scene.suspects() == {NAME: 1}
    process = scene.worker()
    try:
        scene.markers().outlived(scene.log_dir, NAME)
        assert scene.marker.exists()
    finally:
        process.kill()
        process.wait()
    assert scene.suspects() == {NAME: 2}
    scene.markers().outlived(scene.log_dir, NAME)
    assert scene.suspects() == {}
    assert not scene.marker.exists()
    scene.markers().outlived(scene.log_dir, NAME)


@pytest.mark.slow
@pytest.mark.parametrize("rubbish", [b"", b"{", b"[]", b'{"format": 2}', b'{"format": 1, "deaths": "x"}', b"\xff" * 9])
def test_rubbish_names_no_process(scene: Scene, rubbish: bytes) -> None:
    """A damaged note loses only its content."""
    scene.killed()
    scene.marker.write_bytes(rubbish)
    assert scene.suspects() == {}
    with scene.markers().working(scene.log_dir, NAME):
        pass
    assert not scene.marker.exists()


def test_names_are_hostile(scene: Scene, tmp_path: Path) -> None:
    """U-33: a planted file at a note's name is neither followed nor changed, and no process waits for a pipe."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    for plant in (
        lambda: scene.marker.symlink_to(victim),
        lambda: os.link(victim, scene.marker),
        lambda: os.mkfifo(scene.marker),
    ):
        scene.marker.parent.mkdir(parents=True, exist_ok=True)
        scene.marker.unlink(missing_ok=True)
        plant()
        assert scene.suspects() == {}
        with scene.markers().working(scene.log_dir, NAME):
            assert scene.suspects() == {}
        assert victim.read_text() == "mine"
        assert not scene.marker.exists()
    (scene.state / in_progress.PLACE).rename(scene.state / "elsewhere")
    (scene.state / in_progress.PLACE).symlink_to(scene.state / "elsewhere")
    with scene.markers().working(scene.log_dir, NAME):
        assert list((scene.state / "elsewhere").rglob(str(NAME))) == []


def test_a_state_directory_that_cannot_be_used_costs_no_cleaning(tmp_path: Path) -> None:
    """The notes are advisory."""
    scene = Scene(tmp_path)
    scene.state.write_text("a file")
    with scene.markers().working(scene.log_dir, NAME):
        pass
    assert scene.suspects() == {}


@pytest.mark.slow
@needs_root
def test_a_marker_that_cannot_be_removed_blames_nothing() -> None:
    """The state directory became read-only meanwhile: the note stayed, and a later death counted for the partition."""
    with scratch() as root:
        os.chown(root, OTHER_UID, OTHER_UID)

        def story() -> list[int]:
            os.umask(0o022)
            scene = Scene(root)
            markers = scene.markers()
            with markers.working(scene.log_dir, NAME):
                scene.marker.parent.chmod(0o500)
            left = scene.marker.exists()
            scene.marker.parent.chmod(0o700)
            found = [len(each.suspects(scene.log_dir)) for each in (scene.markers(), markers, scene.markers())]
            return [left, *found, len(list(scene.marker.parent.iterdir()))]

        assert as_other_user(story) == [True, 0, 0, 0, 0]


def test_half_a_marker_is_swept(scene: Scene) -> None:
    """The leftover of a process that was killed while it created one."""
    scene.killed()
    (scene.marker.parent / "0123.tmp").write_text("half")
    assert scene.suspects() == {NAME: 1}
    assert [path.name for path in scene.marker.parent.iterdir()] == [str(NAME)]
    assert CrashSuspect(1, 0).reason.startswith("cleanerd was killed while")
