"""U-33: the owner of a directory plants names in it, and cleanerd runs as root.

No list of names here: every command runs once with a recorder. At each name that it opened or made below the log
directory, the state directory or --keep-replaced, the tests plant one hostile file after the other.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Final

import pytest

from cleanerd.cleaner import planning
from cleanerd.swap import split, undo
from tests.cleaner.driver import scratch
from tests.cli.clean_log_dirs import COMPACT, GOOD, NOW, Answer, Shell, dirty, good
from tests.support.hostile import PLANTS, SECRET, Recorder, Victim, give_all, plant, planter
from tests.support.log_dirs import make_log_dir, read_segments
from tests.support.root import needs_root

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [needs_root, pytest.mark.long]

TURNS: Final = 6
COMMANDS: Final = ("clean", "stage", "apply", "undo")
BEFORE: Final = {"apply": "stage", "undo": "clean"}

_numbers = itertools.count()


@pytest.fixture(autouse=True)
def _plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that names are the same in every run."""
    for module in (planning, split, undo):
        # The planted names have to be known in advance.
        monkeypatch.setattr(module, "new_plan_id", lambda: f"20260101t000000-{next(_numbers):08x}")


def make(root: Path) -> None:
    """Two partitions, a state directory and one for replaced segments: everything belongs to uid 1000."""
    global _numbers  # noqa: PLW0603 - each test starts at zero
    _numbers = itertools.count()
    make_log_dir(root / "logs", {"orders-0": dirty(cleaner_offset=0), "good-0": good()})
    for name in ("state", "kept"):
        (root / name).mkdir()
    for name in ("logs", "state", "kept"):
        give_all(root / name)


def ask(shell: Shell, command: str) -> Answer:
    logs, kept = shell.root / "logs", ("--keep-replaced", shell.root / "kept")
    cleaning = ("--force", "--quiet", "--now-ms", NOW)
    arguments: dict[str, tuple[object, ...]] = {
        "clean": (logs, *cleaning, *kept, "--yes"),
        "stage": (logs, *cleaning, *kept),
        "apply": (logs, "--quiet"),
        "undo": (logs, "--quiet", "--yes"),
    }
    configured = () if command == "undo" else (*COMPACT, *GOOD)
    return shell(command, *arguments[command], *configured)


def prepared(shell: Shell, command: str) -> None:
    make(shell.root)
    if command in BEFORE:
        assert ask(shell, BEFORE[command]).code == 0


def recorded(shell: Shell, command: str, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    prepared(shell, command)
    recorder = Recorder(shell.root)
    with recorder.listening(monkeypatch):
        assert ask(shell, command).code == 0
    return recorder


def hostile(names: set[str]) -> list[str]:
    """The names below a directory of another user; one partition is left to be cleaned."""
    return sorted(
        name
        for name in names
        if name.startswith(("logs/orders-0/", "logs/cleaner-offset", "state/", "kept/")) and "good" not in name
    )


def check(shell: Shell, command: str, name: str, what: str, victim: Victim, before: list[tuple[object, ...]]) -> None:
    reported = f"{command}: {what} at {name}"
    answer = ask(shell, command)
    message = answer.out + answer.err
    assert victim.state() == before, reported
    assert not victim.file.with_name("made-by-a-link").exists(), reported
    assert SECRET not in message, reported
    assert "Traceback" not in message, f"{reported}\n{message}"
    assert re.search(r"\bbug\b", message) is None, f"{reported}\n{message}"
    if command in {"clean", "apply"} and name.startswith("logs/orders-0"):
        assert sorted(read_segments(shell.root / "logs" / "good-0")) == [0, 2], f"{reported}\n{message}"
    if answer.code == 0 and command == "clean":
        assert len(read_segments(shell.root / "logs" / "orders-0")) == 2, f"{reported}\n{message}"
    if answer.code != 0:
        assert message.strip(), reported


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "command", ["clean", "undo", *(pytest.param(command, marks=pytest.mark.long) for command in ("stage", "apply"))]
)
def test_names_planted_before(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, every: bool
) -> None:
    """Victims are unchanged, the error is clear, and the other partition is cleaned.

    ``every``: everything at every name; otherwise a link at each, and at every second one of the others after the
    other.
    """
    others = itertools.cycle(PLANTS[1:])
    with scratch() as root:
        names = hostile(recorded(Shell(root, capsys, monkeypatch), command, monkeypatch).names)
    assert len(names) > 15, names
    for number, name in enumerate(names):
        for what in PLANTS if every else ("link", next(others))[: 1 + number % 2]:
            with scratch() as root:
                shell = Shell(root, capsys, monkeypatch)
                prepared(shell, command)
                victim = Victim.under(root)
                if plant(root / name, what, victim):
                    check(shell, command, name, what, victim, victim.state())


@pytest.mark.parametrize("command", COMMANDS)
def test_names_planted_meanwhile(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second process, uid 1000, puts links to root's files at every name that is created, and removes them again."""
    with scratch() as root:
        names = hostile(recorded(Shell(root, capsys, monkeypatch), command, monkeypatch).written)
    made = [name for name in names if not name.endswith((".log", ".index", ".timeindex")) or ".kstage" in name]
    for turn in range(TURNS):
        with scratch() as root:
            root.chmod(0o755)
            shell = Shell(root, capsys, monkeypatch)
            prepared(shell, command)
            victim = Victim.under(root)
            before = victim.state()
            target = (victim.file, victim.directory)[turn % 2]
            # A fault in what all partitions share stops all of them.
            own = [name for name in made if turn < TURNS // 2 or name.startswith("logs/orders-0/")]
            with planter(target, [root / name for name in own]):
                answer = ask(shell, command)
            message = answer.out + answer.err
            assert victim.state() == before
            assert SECRET not in message
            assert "Traceback" not in message, message
            if command in {"clean", "apply"} and turn >= TURNS // 2:
                assert sorted(read_segments(root / "logs" / "good-0")) == [0, 2], message
