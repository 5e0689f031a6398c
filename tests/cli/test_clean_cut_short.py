"""``cleanerd clean`` stopped by a bug, a signal, a full disk, a read-only file system: the log is old or new."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from cleanerd.swap import offline_swap
from tests.cli.clean_log_dirs import (
    CLEANED,
    COMPACT,
    Shell,
    batch,
    dirty,
    keys,
    make,
)
from tests.support.log_dirs import (
    Partition,
    make_log_dir,
    tree,
)
from tests.support.mounts import tmpfs
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def test_unexpected_error(root: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug also ends with one line, and leaves the log complete."""
    path = make(root)
    before = tree(path)

    def broken(*_arguments: object, **_options: object) -> None:
        raise ZeroDivisionError("oh")

    # A simulated bug.
    monkeypatch.setattr(offline_swap, "swap_group", broken)
    answer = shell.clean(path)
    assert (answer.code, len(answer.errors)) == (1, 1)
    assert "ZeroDivisionError" in answer.err
    assert tree(path) == before


@pytest.mark.long
@pytest.mark.parametrize(
    ("script", "expected"),
    [
        pytest.param(
            "import cleanerd.cleaner.stage as s; s.Staging.finish = wait(s.Staging.finish)", "old", id="while staging"
        ),
        pytest.param(
            "import cleanerd.cleaner.decide as s; s.decide_segment = wait(s.decide_segment)",
            "old",
            id="while deciding",
        ),
        pytest.param(
            "import cleanerd.swap.offline_swap as s; s.swap_group = wait(s.swap_group)", "new", id="while swapping"
        ),
    ],
)
def test_stopped_by_a_signal(root: Path, shell: Shell, script: str, expected: str) -> None:
    """143, old or new and never between, the lock free again, nothing left behind."""
    path = make(root)
    before = tree(path)
    waiting, signalled = root / "waiting", root / "signalled"
    wrapper = f"""
import os, time
def wait(real):
    def call(*arguments, **options):
        open({str(waiting)!r}, 'w').close()
        end = time.monotonic() + {PATIENCE_SECONDS}
        while time.monotonic() < end and not os.path.exists({str(signalled)!r}): time.sleep(0.02)
        return real(*arguments, **options)
    return call
{script}"""
    process = shell.subprocess("clean", path, "--yes", "--force", *COMPACT, script=wrapper)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not waiting.exists():
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    signalled.touch()
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, out) == (143, "")
    assert "Traceback" not in err
    assert err.splitlines()[-1] == "cleanerd: stopped by SIGTERM"
    if expected == "old":
        assert tree(path) == before
    else:
        assert keys(path / "orders-0") == CLEANED
    assert not (path / "orders-0" / ".kstage").exists()
    assert shell.clean(path).code == 0
    assert keys(path / "orders-0") == CLEANED


@pytest.fixture
def mounted(root: Path) -> Iterator[Path]:
    """Mount a file system of 1 MiB."""
    with tmpfs(root / "mounted", "size=1m") as place:
        yield place


def test_full_disk(mounted: Path, shell: Shell) -> None:
    """OP-10: a disk that is really full: reported, the log unchanged, cleaned when there is space."""
    path = make_log_dir(mounted / "logs", {"orders-0": dirty()})
    ballast = mounted / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    before = tree(path)
    answer = shell.clean(path)
    assert (answer.code, len(answer.errors)) == (1, 1)
    assert "space" in answer.err
    assert tree(path) == before
    ballast.unlink()
    assert shell.clean(path).code == 0
    assert keys(path / "orders-0") == CLEANED


def test_disk_that_becomes_full(mounted: Path, shell: Shell) -> None:
    """OP-10: the estimate was too low; the group is discarded, and the log is unchanged."""
    small = [(f"s{number}", "x") for number in range(9)]
    logs = {0: batch(0, *small, ("big", "y" * 500_000)), 10: batch(10, *small), 19: b""}
    path = make_log_dir(mounted / "logs", {"orders-0": Partition(logs)})
    (mounted / "ballast").write_bytes(b"x" * 300_000)
    before = tree(path)
    answer = shell.clean(path)
    assert (answer.code, len(answer.errors)) == (1, 1)
    assert "No space left" in answer.err
    assert tree(path) == before


def test_read_only_file_system(mounted: Path, shell: Shell) -> None:
    """It ends with one line."""
    path = make_log_dir(mounted / "logs", {"orders-0": dirty()})
    before = tree(path)
    subprocess.run(["mount", "-o", "remount,ro", str(mounted)], check=True)
    answer = shell.clean(path)
    assert (answer.code, len(answer.errors)) == (1, 1)
    assert "Read-only file system" in answer.err
    assert tree(path) == before
    answer = shell("plan", path, "--exact", "--json", *COMPACT)
    assert (answer.code, answer.json["partitions"][0]["action"]) == (0, "clean")
