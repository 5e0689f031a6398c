"""U-33 for reads: no content of other users is shown, nothing hangs, and other partitions are cleaned.

As in ``test_hostile_names.py`` there is no list of names: whatever a command opens below a log directory gets one
hostile file after the other.
"""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pytest

from cleanerd.errors import CleanerdError
from cleanerd.fsio.plain_file import open_plain, read_plain
from cleanerd.fsio.small_file import read_small_file
from tests.cleaner.driver import scratch
from tests.cli.clean_log_dirs import COMPACT, GOOD, NOW, Answer, Shell, dirty, good
from tests.support.hostile import OWNER, PLANTS, SECRET, Recorder, Victim, give_all, plant, planter
from tests.support.log_dirs import make_log_dir, read_segments
from tests.support.root import needs_root

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = needs_root

SECONDS: Final = 60
COMMANDS: Final = ("clean", "plan", "explain", "verify", "inspect", "inspect DIR", "doctor")


def make(root: Path) -> None:
    make_log_dir(root / "logs", {"orders-0": dirty(cleaner_offset=0), "good-0": good()})
    (root / "state").mkdir()
    give_all(root / "logs")


def ask(shell: Shell, command: str) -> Answer:
    logs = shell.root / "logs"
    arguments: dict[str, tuple[object, ...]] = {
        "clean": ("clean", logs, "--force", "--quiet", "--now-ms", NOW, "--yes", *COMPACT, *GOOD),
        "plan": ("plan", logs, "--exact", "--now-ms", NOW, *COMPACT, *GOOD),
        "explain": ("explain", "orders-0", logs, *COMPACT, *GOOD),
        "verify": ("verify", logs),
        "inspect": ("inspect", logs / "orders-0"),
        "inspect DIR": ("inspect", logs),
        "doctor": ("doctor", logs, *COMPACT, *GOOD),
    }
    command_name, *rest = arguments[command]
    with in_time(command):
        return shell(str(command_name), *rest)


@contextmanager
def in_time(what: str) -> Iterator[None]:
    """Waiting for a pipe is a failure, not the end of the test run."""

    def ring(*_: object) -> None:
        raise AssertionError(f"{what} hangs")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def read_by(command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that the command opens below the log directory and does not create."""
    with scratch() as root:
        make(root)
        recorder = Recorder(root)
        with recorder.listening(monkeypatch):
            ask(Shell(root, capsys, monkeypatch), command)
        there = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    return sorted(name for name in recorder.names & there if name.startswith("logs/") and "good" not in name)


def check(answer: Answer, reported: str) -> None:
    message = answer.out + answer.err
    assert SECRET not in message, f"{reported}\n{message}"
    assert "Traceback" not in message, f"{reported}\n{message}"
    assert "report it" not in message, f"{reported}\n{message}"


@pytest.mark.long
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("command", COMMANDS)
def test_planted_links_are_not_read(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, every: bool
) -> None:
    """At every name that is read: the victim is unchanged, none of it is shown, the other partition is cleaned.

    ``every``: everything at every name; otherwise a hard link at each, and one of the others after the other.
    """
    names = read_by(command, capsys, monkeypatch)
    assert len(names) > 2, names
    for number, name in enumerate(names):
        for what in PLANTS if every else ("hard link", PLANTS[number % len(PLANTS)]):
            with scratch() as root:
                make(root)
                victim = Victim.under(root)
                if not plant(root / name, what, victim):
                    continue
                before = victim.state()
                reported = f"{command}: {what} at {name}"
                answer = ask(Shell(root, capsys, monkeypatch), command)
                assert victim.state() == before, reported
                check(answer, reported)
                if command == "clean" and name.startswith("logs/orders-0"):
                    assert sorted(read_segments(root / "logs" / "good-0")) == [0, 2], f"{reported}\n{answer}"
                if name.endswith(".log") and command in {"clean", "plan", "verify"}:
                    assert answer.code != 0, reported


@pytest.mark.long
@pytest.mark.parametrize("command", ["clean", "plan", "verify"])
def test_links_planted_while_reading_are_not_read(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Links to root's file appear and disappear at every name that is read."""
    names = [name for name in read_by(command, capsys, monkeypatch) if name.startswith("logs/orders-0")]
    for _ in range(4):
        with scratch() as root:
            root.chmod(0o755)
            make(root)
            victim = Victim.under(root)
            before = victim.state()
            with planter(victim.file, [root / name for name in names]):
                answer = ask(Shell(root, capsys, monkeypatch), command)
            assert victim.state() == before
            check(answer, command)
            if command == "clean":
                assert sorted(read_segments(root / "logs" / "good-0")) == [0, 2], answer


@pytest.mark.parametrize(
    ("uid", "mode", "directory", "names", "readable"),
    [
        (OWNER, 0o600, (OWNER, 0o755), 2, True),  # a backup gave it a second name
        (0, 0o600, (OWNER, 0o755), 1, False),  # the other name was deleted: it was a link nevertheless
        (0, 0o600, (OWNER, 0o755), 2, False),
        (0, 0o644, (OWNER, 0o755), 2, True),  # all users may read it
        (4321, 0o640, (OWNER, 0o755), 1, True),  # by the group of both
        (OWNER, 0o600, (0, 0o755), 2, True),  # only root could plant a file there
        (0, 0o600, (0, 0o775), 2, False),  # others write to root's directory
        (0, 0o600, (0, 0o775), 1, True),
        (OWNER, 0o600, (0, 0o775), 1, True),  # a volume of Kubernetes, a broker with umask 077
        (OWNER, 0o600, (0, 0o775), 2, False),
        (OWNER, 0o600, (4321, 0o775), 1, False),
    ],
)
def test_the_owner_of_a_file_that_is_read(
    tmp_path: Path, uid: int, mode: int, directory: tuple[int, int], names: int, readable: bool
) -> None:
    """Only files that the directory's owner could have read; a second name alone is no reason to refuse."""
    place = tmp_path / "place"
    place.mkdir()
    file = place / "00000000000000000000.log"
    file.write_text(SECRET)
    os.chown(file, uid, 777)
    file.chmod(mode)
    for number in range(1, names):
        os.link(file, tmp_path / f"other-{number}")
    os.chown(place, directory[0], 777)
    place.chmod(directory[1])
    if readable:
        assert read_plain(file) == SECRET.encode()
    else:
        with pytest.raises(CleanerdError, match=r"may not read it|may write to its directory") as caught:
            read_small_file(file)
        assert SECRET not in str(caught.value)


def test_a_partition_that_is_a_link(tmp_path: Path) -> None:
    """A directory below a log directory is opened without following links; a log directory's own path may be one."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "orders-0").symlink_to("elsewhere")
    for name in ("partition.metadata", "meta.properties"):
        (tmp_path / "elsewhere" / name).write_text("x")
    with pytest.raises(CleanerdError, match="cannot be read"):
        read_small_file(tmp_path / "orders-0" / "partition.metadata")
    assert read_small_file(tmp_path / "orders-0" / "meta.properties") == b"x"


def test_a_file_that_is_too_large(tmp_path: Path) -> None:
    """A checkpoint of a terabyte does not fill the memory."""
    path = tmp_path / "replication-offset-checkpoint"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(CleanerdError, match="larger than"):
        read_small_file(path)
    os.close(open_plain(path))
