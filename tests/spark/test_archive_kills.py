"""A driver that dies while it writes a cleaned copy of an archive: no manifest, and the next run succeeds."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from cleanerd.cli.main import run
from cleanerd.spark.archive import run as driver
from cleanerd.spark.archive import scratch as scratches
from cleanerd.spark.archive.scratch import scratch
from cleanerd.spark.archive.target import MANIFEST, target_of
from cleanerd.verify.record_places import SCRATCH_PREFIX
from tests.spark.archives import CLEAN, archived, cleaned_locally, files_of, make_archive, manifest_of, settings
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

Capsys = pytest.CaptureFixture[str]
PLACES = {
    "nothing is sent": (driver, "_all_done"),
    "partitions are sent": (driver, "_finished"),
    "all but the manifest": (driver, "manifest_bytes"),
    "while a file is written": (os, "link"),
}


def killed(path: Path, output: Path, state: Path, where: str) -> None:
    """A driver that exits without cleaning up; runs in a new process."""
    owner, name = PLACES[where]

    def dying(*_arguments: Any, **_named: Any) -> Any:
        os._exit(77)

    with mock.patch.object(owner, name, dying):  # the driver dies exactly there
        run(["spark", "clean", str(path), "--output", str(output), *CLEAN, *settings(state)])


@pytest.mark.long
@pytest.mark.parametrize("where", PLACES)
def test_a_driver_that_dies(tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Its leftovers are not an archive, are reported, and do not mix with the files of the next run."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # its copies stay there for a while, without a process to remove them
    path = make_archive(tmp_path / "data", "offset-0", "transactions-0")
    output = tmp_path / "out"
    process = multiprocessing.get_context("spawn").Process(
        target=killed, args=(path, output, tmp_path / "state", where)
    )
    process.start()
    process.join(PATIENCE_SECONDS)
    assert process.exitcode == 77
    assert not (output / MANIFEST).exists()
    left = files_of(output) if output.exists() else {}
    assert bool(left) == (where != "nothing is sent")
    code, _, reported = archived(capsys, path, output, tmp_path / "state")
    assert code == 0, reported
    assert ("is of a run that did not end" in reported) == bool(left)
    assert left.items() <= files_of(output).items()
    for old in [each for each in output.iterdir() if f"{each.name}/" in "".join(left) or each.name.startswith(".")]:
        target_of(output).remove(old.name)
    (one,) = manifest_of(output)["log_dirs"]
    assert files_of(output / one["path"]) == cleaned_locally(capsys, path)


HOLDING = f"""
import signal, threading
from cleanerd.cli.main import main
from cleanerd.spark.archive.target import _Here
came, install, real = threading.Event(), signal.signal, _Here.put

def noting(number, handler):
    def noted(*about):
        came.set()
        return handler(*about)
    return install(number, noted if callable(handler) else handler)

def put(target, name, *arguments, **options):
    real(target, name, *arguments, **options)
    if name.endswith(".log"):
        print("one is there", flush=True)
        came.wait({PATIENCE_SECONDS})

signal.signal, _Here.put = noting, put
main()
"""
"""A thread uploads, which no signal ends: it continues after a signal."""


def test_a_signal(tmp_path: Path) -> None:
    """A stopped driver removes the files that it wrote."""
    path = make_archive(tmp_path / "data", "offset-0", "transactions-0")
    command = [sys.executable, "-c", HOLDING, "spark", "clean", str(path), "--output", str(tmp_path / "out")]
    process = subprocess.Popen([*command, *CLEAN, *settings(tmp_path / "state")], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "one is there\n"
    assert [each for each in files_of(tmp_path / "out") if each.endswith(".log")]
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 128 + signal.SIGTERM
    assert files_of(tmp_path / "out") == {}


def test_copies_of_a_killed_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next process removes them, but not those in use, recent ones, or links of another user."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)  # the standard library caches TMPDIR
    scratches._sweep.cache_clear()
    for name in ("dead", "used", "young", "bare"):
        (tmp_path / f"{SCRATCH_PREFIX}{name}").mkdir()
        (tmp_path / f"{SCRATCH_PREFIX}{name}" / "data").touch()
        if name != "bare":
            (tmp_path / f"{SCRATCH_PREFIX}{name}" / "lock").touch()
        if name != "young":
            os.utime(tmp_path / f"{SCRATCH_PREFIX}{name}", (0, 0))
    (tmp_path / "mine").mkdir()
    (tmp_path / f"{SCRATCH_PREFIX}link").symlink_to(tmp_path / "mine")
    with (tmp_path / f"{SCRATCH_PREFIX}used" / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with scratch() as place:
            assert place.parent == tmp_path
            names = {each.name.removeprefix(SCRATCH_PREFIX) for each in tmp_path.iterdir()} - {
                place.name.removeprefix(SCRATCH_PREFIX)
            }
            assert names == {"used", "young", "link", "mine"}
    assert not place.exists()
