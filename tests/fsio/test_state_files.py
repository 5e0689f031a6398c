"""U-33: files of the state directory are locked, and their owner, any user, cannot block others indefinitely."""

from __future__ import annotations

import fcntl
import os
import threading
from typing import TYPE_CHECKING

import pytest

from cleanerd.daemon.registry.pauses import Pauses, load_pauses
from cleanerd.errors import CleanerdError
from cleanerd.fsio import state_files
from cleanerd.state.delegations import Delegations

if TYPE_CHECKING:
    from pathlib import Path


def change(root: Path, wait_seconds: float = state_files.LOCK_WAIT_SECONDS) -> None:
    with Delegations(root).changing(wait_seconds):
        pass


def test_a_lock_that_is_never_released(tmp_path: Path) -> None:
    """The wait is limited, and its error names the holder."""
    with (tmp_path / "delegations.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(CleanerdError, match=r"another process has held delegations\.lock for"):
            change(tmp_path, wait_seconds=0.2)
    change(tmp_path)


def test_a_lock_that_is_released_is_taken(tmp_path: Path) -> None:
    """A process waits for others that change the file."""
    descriptor = os.open(tmp_path / "x.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    given_back: list[bool] = []

    def give_back() -> None:
        given_back.append(True)
        os.close(descriptor)

    timer = threading.Timer(0.3, give_back)
    timer.start()
    with state_files.locked(tmp_path / "x.lock", tmp_path.stat()):
        assert given_back
    timer.join()


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ('{"format": 2, "paused": true}', "written by a newer cleanerd (format 2, this one knows 1)"),
        ('{"format": 0}', "damaged (its format is 0, not 1)"),
        ('{"format": true, "paused": true}', "damaged (its format is True, not 1)"),
        ('{"format": 1, "paused": true}', "damaged (paused_partitions: Field required)"),
        ('{"format": 1, "paused": 1, "paused_partitions": []}', "damaged (paused: Input should be a valid boolean)"),
        ('{"format": "2"}', "damaged (its format is '2', not 1)"),
        ("[]", "damaged ("),
    ],
)
def test_a_newer_release_is_distinguished_from_damage(tmp_path: Path, text: str, reported: str) -> None:
    """U-10, D-22: an operator who downgrades must not suspect a broken disk; this test uses the pauses."""
    (tmp_path / "daemon.json").write_text(text)
    pauses, warning = load_pauses(tmp_path)
    assert pauses == Pauses(everything=True), "D-22"
    assert warning.startswith(f"{tmp_path / 'daemon.json'}: {reported}")
