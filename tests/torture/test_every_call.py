"""Faults that :mod:`system_calls` found: missing causes, and disk errors reported as wrong settings."""

from __future__ import annotations

import errno
import os
import re
import socket
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.broker import agent_transport
from cleanerd.cli.main import run
from cleanerd.config.check import missing_paths
from cleanerd.config.load import load_settings
from cleanerd.errors import CleanerdError
from cleanerd.swap.lock import LogDirLock
from tests.support.log_dirs import make_log_dir
from tests.support.now_open import open_descriptors
from tests.support.system_calls import system_call
from tests.swap.offline_round import two_groups
from tests.torture.failing_calls import fails

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def fails_at(
    monkeypatch: pytest.MonkeyPatch, name: str, path: Path, numbers: range = range(1000)
) -> Iterator[list[int]]:
    """Calls of ``os.NAME`` in the block that name ``path``, or have it open, fail; yields the failed ones."""
    seen, failed = count(), list[int]()
    real = getattr(os, name)

    def call(what: int | str | Path, *arguments: Any, **options: Any) -> Any:
        named = os.readlink(f"/proc/self/fd/{what}") if isinstance(what, int) else os.fspath(what)
        if named == str(path) and (number := next(seen)) in numbers:
            failed.append(number)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(what, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, name, call)
        yield failed


def settings_in(state_dir: Path) -> list[str]:
    """Arguments of a command that cleans ``orders`` and stores its state in ``state_dir``."""
    settings = [f"cleanerd.state.dir={state_dir}", "cleanerd.disk.reserve=0", "cleanerd.delegation=assumed"]
    settings.append("topics.orders.cleanup.policy=compact")
    return [word for each in settings for word in ("--set", each)]


@pytest.mark.parametrize("failing", ["fstat", "stat"])
def test_a_lock_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    """U-29: the message was "[Errno 5] Input/output error", without a file."""
    before = open_descriptors()
    with fails_at(monkeypatch, failing, tmp_path / ".lock") as requested, pytest.raises(CleanerdError) as error:
        LogDirLock.acquire(tmp_path, settle_seconds=0)
    assert requested
    what = {"fstat": "opened", "stat": "read"}[failing]  # the first check of the open file belongs to opening it
    assert str(error.value) == f"{tmp_path / '.lock'}: cannot be {what}: Input/output error"
    assert open_descriptors() <= before


def test_space_that_cannot_be_reserved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """U-16, U-29: the message named only the partition, not the staging directory."""
    root = make_log_dir(tmp_path / "logs", {"orders-0": two_groups()})
    settings = [f"cleanerd.state.dir={tmp_path / 'state'}", "topics.orders.cleanup.policy=compact"]
    settings.append("cleanerd.delegation=assumed")
    with fails(monkeypatch, "fstatvfs") as calls:
        assert run(["clean", str(root), "--yes", *(word for each in settings for word in ("--set", each))]) != 0
    assert calls
    output = capsys.readouterr().err
    assert re.search(
        r"orders-0/\.kstage/\S+: the free space of its file system cannot be read: Input/output error", output
    )


@pytest.mark.parametrize("numbers", [range(1), range(1, 2), range(1000)])
@pytest.mark.parametrize("key", ["cleanerd.state.dir", "cleanerd.log.dirs"])
def test_a_disk_error_is_not_a_wrong_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, numbers: range
) -> None:
    """OP-10: an unreadable directory was reported as "is not a directory" or "does not exist", exit code 3."""
    there, file = tmp_path / "there", tmp_path / "file"
    there.mkdir()
    file.touch()
    with fails_at(monkeypatch, "stat", there, numbers) as failed:
        assert list(missing_paths(load_settings([], [f"{key}={there}"], {}))) == []
    assert failed or numbers == range(1, 2)
    for wrong in (f"{there}/none", f"{file}/none"):
        (error,) = missing_paths(load_settings([], [f"cleanerd.log.dirs={wrong}"], {}))
        assert f"{wrong} does not exist" in str(error)
    (error,) = missing_paths(load_settings([], [f"cleanerd.state.dir={file}"], {}))
    assert f"{file} is not a directory" in str(error)


def test_a_path_of_the_command_line_is_read_only_when_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """U-29: a disk error was reported as a wrong command line, "Path is not readable", exit code 2, without cause."""
    root = make_log_dir(tmp_path / "logs", {"orders-0": two_groups()})
    kept = tmp_path / "kept"
    kept.mkdir()
    words = settings_in(tmp_path / "state")
    system_call(monkeypatch, "access", lambda *_arguments, **_options: False)
    assert run(["clean", str(root), "--yes", "--keep-replaced", str(kept), *words]) == 0
    missing = tmp_path / "config"
    assert run(["clean", str(root), "--config", str(missing)]) == 3
    assert str(missing) in capsys.readouterr().err


@pytest.mark.parametrize("what", ["delegations.json", "partitions"])
def test_apply_with_a_state_directory_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    """U-6, S-26: a disk error was reported as a waiting plan, exit code 0, as for a missing setting."""
    root, state = make_log_dir(tmp_path / "logs", {"orders-0": two_groups()}), tmp_path / "state"
    words = settings_in(state)
    assert run(["stage", str(root), "--force", *words]) == 0
    before = sorted((root / "orders-0").rglob("*"))

    def failing(real: Any) -> Any:
        def call(path: Any, *arguments: Any, **options: Any) -> Any:
            if path in {what, str(state / what), state / what}:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return real(path, *arguments, **options)

        return call

    # its existence is unknown, so it counts as existing
    for calls in (("open", "lstat"), ("open",)):
        with monkeypatch.context() as patch:
            for name in calls:
                patch.setattr(os, name, failing(getattr(os, name)))
            assert run(["apply", str(root), *words]) == 1
        output = capsys.readouterr()
        assert re.search(r"orders-0 +failed", output.out)
        assert re.search(
            rf"{state}\S*{what}\S* cannot be read \(Input/output error\).*the staged cleaning is kept", output.err
        )
        assert sorted((root / "orders-0").rglob("*")) == before
        (state / "partitions").mkdir(exist_ok=True)
    (state / "delegations.json").write_text("{")  # an absurd one waits for the operator, like a wrong setting
    assert run(["apply", str(root), *words]) == 0
    assert re.search(r"orders-0 +skipped", capsys.readouterr().out)
    (state / "delegations.json").unlink()
    (state / "delegations.damaged").unlink(missing_ok=True)
    assert run(["apply", str(root), *words]) == 0
    assert re.search(r"orders-0 +cleaned", capsys.readouterr().out)


def test_a_connection_that_a_signal_interrupts_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A-29: its peer had no user, "uid -1", and was reported as planted. Python reports no error after EINTR."""
    made: list[str] = []

    class Interrupted(socket.socket):
        def connect(self, address: Any) -> None:
            made.append(address)
            if len(made) > 1:
                super().connect(address)

    path = tmp_path / agent_transport.SOCKET
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        monkeypatch.setattr(socket, "socket", Interrupted)  # a signal that arrives at this very moment
        with agent_transport.connect(path, 5) as connection:
            assert connection.getpeername() == str(path)
    assert made == [str(path)] * 2


@pytest.mark.long
def test_undo_of_unreadable_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """S-40, U-29: a disk error was reported as "is missing", "it cannot be undone"; after the repair it can."""
    root, kept, words = tmp_path / "logs", tmp_path / "kept", settings_in(tmp_path / "state")
    make_log_dir(root, {"orders-0": two_groups()})
    kept.mkdir()
    before = {path.name: path.read_bytes() for path in (root / "orders-0").glob("*.log")}
    assert run(["clean", str(root), "--yes", "--keep-replaced", str(kept), *words]) == 0
    (plan,) = (path for path in kept.iterdir() if path.is_dir())
    capsys.readouterr()
    with fails_at(monkeypatch, "lstat", plan) as requested:
        assert run(["undo", str(root), "--yes", *words]) == 1
    output = capsys.readouterr().err
    assert requested
    assert f"{plan}: cannot be read: Input/output error" in output
    assert "missing" not in output
    assert run(["undo", str(root), "--yes", *words]) == 0
    assert {path.name: path.read_bytes() for path in (root / "orders-0").glob("*.log")} == before
