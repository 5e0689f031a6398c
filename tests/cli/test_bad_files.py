"""Every command that reads a log directory, with damaged or unexpected files.

A documented exit code, the file reported once, nothing changed, no traceback. ``test_clean_bad_input.py`` tests
``clean`` and ``plan`` on damaged contents; ``tests/verify`` has the finer damage.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import shutil
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.cli.clean_log_dirs import CLEANED, NOW, Answer, Shell, batch, keys, make, write_metadata
from tests.support.log_dirs import CLEANER_CHECKPOINT, HIGH_WATERMARKS, Producer, tree
from tests.support.logs import Record, encode_batch, encode_legacy
from tests.support.system_calls import system_call

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ZERO, TWO, ACTIVE = f"{0:020d}", f"{2:020d}", f"{6:020d}"
METADATA = f"__cluster_metadata-0/{ZERO}.log"
CHANGING: Final = ("clean", "stage", "apply", "undo")
LOOKING: Final = ("plan", "explain", "audit", "verify", "doctor")


pytestmark = pytest.mark.usefixtures("kept")


def prepared(shell: Shell, command: str) -> Path:
    """A dirty log directory; staged for ``apply``, cleaned for ``undo``."""
    path = make(shell.root, cleaner_offset=0, snapshots={6: [Producer(1, 3, NOW)]})
    write_metadata(path, topics={"orders": {"cleanup.policy": "compact"}})
    before = {"apply": "stage", "undo": "clean"}.get(command)
    if before is not None:
        keep = ("--keep-replaced", shell.root / "kept") if command == "undo" else ()
        assert ask(shell, before, path, *keep).code == 0
    return path


def ask(shell: Shell, command: str, path: Path, *more: object) -> Answer:
    cleaning = (path, "--force", "--quiet", "--now-ms", NOW)
    arguments: dict[str, tuple[object, ...]] = {
        "clean": (*cleaning, "--yes"),
        "stage": cleaning,
        "plan": (*cleaning, "--exact"),
        "apply": (path, "--quiet"),
        "undo": (path, "--yes", "--quiet"),
        "explain": ("orders-0", path, "--quiet"),
        "audit": ("orders-0", path, "--key", "a", "--quiet"),
        "verify": (path, "--quiet"),
        "doctor": (path, "--quiet"),
    }
    return shell(command, *arguments[command], *more)


def reported(answer: Answer, file: Path) -> None:
    """Clear output: no traceback; the file is named, on one line of stderr or in the result."""
    assert "Traceback" not in answer.err
    assert len(answer.errors) <= 1, answer.err
    assert str(file) in answer.err + answer.out


def to_directory(file: Path) -> None:
    if file.exists():
        file.unlink()
    file.mkdir()


def to_garbage(file: Path) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(b"\xff\x00" * 40)


ALL = (*CHANGING, *LOOKING)
REFUSING = (*CHANGING, "plan", "explain", "doctor")
"""Commands that read a partition as a cleaning does."""

CASES: Final[dict[str, tuple[str, Callable[[Path], None], dict[str, int]]]] = {
    "a directory as segment": (f"orders-0/{TWO}.log", to_directory, dict.fromkeys(ALL, 5)),
    "a directory as active segment": (f"orders-0/{ACTIVE}.log", to_directory, dict.fromkeys(ALL, 5)),
    "a directory as index": (f"orders-0/{TWO}.index", to_directory, dict.fromkeys((*REFUSING, "verify"), 5)),
    "a directory as time index": (f"orders-0/{TWO}.timeindex", to_directory, dict.fromkeys((*REFUSING, "verify"), 5)),
    "a directory as txn index": (f"orders-0/{TWO}.txnindex", to_directory, dict.fromkeys((*REFUSING, "verify"), 5)),
    "a directory as snapshot": (f"orders-0/{ACTIVE}.snapshot", to_directory, dict.fromkeys((*REFUSING, "verify"), 5)),
    "a directory as topic id": (
        "orders-0/partition.metadata", to_directory, {**dict.fromkeys(REFUSING, 1), "verify": 5},
    ),
    "a directory as leader epochs": (
        "orders-0/leader-epoch-checkpoint", to_directory, {**dict.fromkeys(REFUSING, 1), "verify": 5},
    ),
    "garbage as leader epochs": (
        "orders-0/leader-epoch-checkpoint", to_garbage, dict.fromkeys((*REFUSING, "verify"), 5),
    ),
    "a directory as checkpoint": (CLEANER_CHECKPOINT, to_directory, dict.fromkeys(ALL, 1)),
    "garbage as checkpoint": (CLEANER_CHECKPOINT, to_garbage, dict.fromkeys((*REFUSING, "verify"), 5)),
    "a directory as high watermarks": (HIGH_WATERMARKS, to_directory, dict.fromkeys(ALL, 1)),
    "a directory as meta.properties": ("meta.properties", to_directory, dict.fromkeys((*REFUSING, "audit"), 1)),
    "garbage as metadata": (METADATA, to_garbage, dict.fromkeys((*REFUSING, "verify"), 5)),
    "a directory as metadata": (METADATA, to_directory, {**dict.fromkeys(REFUSING, 1), "verify": 5}),
    "a foreign .swap": (
        f"orders-0/{TWO}.log.swap", to_garbage, {**dict.fromkeys(CHANGING, 4), "verify": 5, "audit": 5},
    ),
    "a foreign .cleaned": (f"orders-0/{TWO}.index.cleaned", to_garbage, dict.fromkeys(CHANGING, 4)),
    "a file as .kstage": ("orders-0/.kstage", to_garbage, {"clean": 4, "stage": 4, "undo": 4}),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "command"), [(case, command) for case, (_, _, codes) in CASES.items() for command in codes], ids=str
)
def test_bad_file(shell: Shell, case: str, command: str) -> None:
    """OP-10: whatever the file is, nothing is lost."""
    name, damage, codes = CASES[case]
    path = prepared(shell, command)
    damage(path / name)
    before = tree(path)
    answer = ask(shell, command, path)
    assert answer.code == codes[command], (answer.out, answer.err)
    reported(answer, path / ("orders-0" if codes[command] == 4 else name))
    assert tree(path) == before


def sealed(**options: Any) -> bytes:
    """A batch at offset 2 with right checksums, whatever else is wrong in it."""
    return encode_batch([Record(b"a", b"2", NOW - 1000)], base_offset=2, **options)


def of_length(length: int) -> bytes:
    return sealed()[:8] + length.to_bytes(4, "big", signed=True) + sealed()[12:]


BAD_BATCHES: Final = {
    "bad CRC": sealed()[:-1] + b"\xff",
    "truncated": sealed()[:-1],
    "length too small": of_length(1),
    "negative length": of_length(-1),
    "length past the end": of_length(2**31 - 1),
    "bad magic": sealed()[:16] + b"\x07" + sealed()[17:],
    "unknown codec": sealed(attributes=5),
    "damaged gzip": sealed(attributes=1, payload=b"no gzip at all"),
    "count too large": sealed(record_count=2),
    "count too small": encode_batch([Record(b"a"), Record(b"b")], base_offset=2, record_count=1),
    "negative count": sealed(record_count=-1),
    "varint overflow": sealed(payload=b"\xff" * 11),
    "bomb": encode_batch([Record(b"a", bytes(3 << 20))], base_offset=2, codec=4),
    "legacy, bad CRC": encode_legacy(2, b"a", b"1")[:-1] + b"\xff",
    "legacy, nothing in the wrapper": encode_legacy(2, None, b"", attributes=1),
}


CLEANING: Final = ("clean", "stage", "plan")
READERS: Final = {
    "bad CRC": (*CLEANING, "verify"),  # audit finds keys, whatever the checksum
    "legacy, bad CRC": (*CLEANING, "verify"),
    "bomb": CLEANING,  # verify and audit have a limit of their own, which real batches never reach
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bad", "command"),
    [(bad, command) for bad in BAD_BATCHES for command in READERS.get(bad, (*CLEANING, "verify", "audit"))],
)
def test_bad_batch(shell: Shell, bad: str, command: str) -> None:
    """F-1..F-3, C-54, C-57: exit code 5 with file and byte, for every command that reads records; a good one before it.

    U-35: a batch that only takes too much memory is not damaged, it is refused (4).
    """
    path = prepared(shell, command)
    log, good = path / "orders-0" / f"{ZERO}.log", batch(0, ("a", "1"), ("b", "1"))
    log.write_bytes(good + BAD_BATCHES[bad])
    for other in ("2.log", "2.index", "2.timeindex"):
        (path / "orders-0" / f"{0:019d}{other}").unlink()
    before = tree(path)
    answer = ask(shell, command, path, "--set", "cleanerd.max.unpacked.bytes=1MiB")
    assert answer.code == (4 if bad == "bomb" else 5), (answer.out, answer.err)
    reported(answer, log)
    text = " ".join((answer.err + answer.out).split())
    assert f"{log} at byte {len(good)}" in text or f"{log} {len(good)} " in text
    assert tree(path) == before


def inode_of(path: object, dir_fd: int | None = None) -> int:
    try:
        return os.stat(path, dir_fd=dir_fd, follow_symlinks=False).st_ino  # type: ignore[arg-type]
    except (OSError, TypeError):
        return -1


def forbid(monkeypatch: pytest.MonkeyPatch, file: Path, code: int) -> None:
    """Opening ``file``, by any path, fails with ``code``: the tests may run as root, which may read everything."""
    wanted, real_os, real = os.stat(file).st_ino, os.open, io.open

    def os_open(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if inode_of(path, dir_fd) == wanted:
            raise OSError(code, os.strerror(code), str(path))
        return real_os(path, flags, mode, dir_fd=dir_fd)

    def io_open(path: Any, *arguments: Any, **options: Any) -> Any:
        if not isinstance(path, int) and inode_of(path) == wanted:
            raise OSError(code, os.strerror(code), str(path))
        return real(path, *arguments, **options)

    # The tests may run as root, which may read everything, and no disk fails on demand.
    system_call(monkeypatch, "open", os_open)
    monkeypatch.setattr(io, "open", io_open)
    monkeypatch.setattr(builtins, "open", io_open)


UNREADABLE: Final = {
    f"orders-0/{TWO}.log": ("clean", "stage", "plan", "apply", "audit"),
    f"orders-0/{ACTIVE}.log": ("clean", "stage", "plan", "apply", "undo", "explain", "audit", "doctor"),
    CLEANER_CHECKPOINT: ALL,
    "meta.properties": ALL,
    "orders-0/partition.metadata": REFUSING,
    METADATA: REFUSING,
}


@pytest.mark.slow
@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO], ids=errno.errorcode.get)
@pytest.mark.parametrize(
    ("name", "command"), [(name, command) for name, commands in UNREADABLE.items() for command in commands], ids=str
)
def test_unreadable(shell: Shell, monkeypatch: pytest.MonkeyPatch, name: str, command: str, code: int) -> None:
    """Exit code 1 with the system's reason; a user without permission gets the name of one who has it.

    ``audit`` has 5 for a segment that it cannot read, which proves nothing: 1 would mean that the key was found.
    """
    path = prepared(shell, command)
    before = tree(path)
    with monkeypatch.context() as patch:
        forbid(patch, path / name, code)
        answer = ask(shell, command, path)
    assert answer.code == (5 if command == "audit" and name.endswith(".log") else 1), (answer.out, answer.err)
    reported(answer, path / name)
    text = answer.err + answer.out
    assert os.strerror(code) in text
    if command not in ("audit", "verify"):
        assert ("broker's user" in text) == (code == errno.EACCES)
    assert tree(path) == before


@pytest.mark.parametrize("command", CHANGING)
def test_read_only_file_system(shell: Shell, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """Exit code 1 and the reason; no advice to use another user, and nothing was half done."""
    path = prepared(shell, command)
    before = tree(path)
    real = os.open

    def read_only(place: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR) and not str(place).startswith(str(shell.root / "state")):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(place))
        return real(place, flags, mode, dir_fd=dir_fd)

    def refuse(*_arguments: object, **_options: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", read_only)
        for call in ("mkdir", "rename", "unlink", "rmdir"):
            patch.setattr(os, call, refuse)
        answer = ask(shell, command, path)
    assert answer.code == 1
    (line,) = answer.errors
    assert "Read-only file system" in line
    assert "user" not in line
    assert tree(path) == before


@pytest.mark.parametrize("command", ALL)
def test_stale_lock_file(shell: Shell, command: str) -> None:
    """S-10: every broker leaves a ``.lock`` without a holder; it blocks nothing."""
    path = prepared(shell, command)
    (path / ".lock").write_bytes(b"")
    answer = ask(shell, command, path)
    assert (answer.code, answer.err) == (0, "")
    if command in ("clean", "apply"):
        assert keys(path / "orders-0") == CLEANED


@pytest.mark.parametrize("command", ["stage", "apply", "undo"])
@pytest.mark.parametrize("state", ["a file", "garbage"])
def test_bad_state(shell: Shell, command: str, state: str) -> None:
    """These commands work without readable state; a file in place of its directory is an invalid setting."""
    path = prepared(shell, command)
    directory = shell.root / "state"
    if state == "a file":
        shutil.rmtree(directory, ignore_errors=True)
        directory.write_bytes(b"")
    else:
        directory.mkdir(exist_ok=True)
        (directory / "trash").mkdir(exist_ok=True)
        for file in [*directory.rglob("*.json"), directory / "trash" / "20260101t000000-0123abcd.json"]:
            file.write_bytes(b"{")
    before = tree(path / "orders-0")
    answer = ask(shell, command, path)
    assert "Traceback" not in answer.err
    if state == "a file":
        assert tree(path / "orders-0") == before
        assert answer.code == 3
        assert str(directory) in answer.err
    elif command == "undo":
        assert tree(path / "orders-0") == before
        assert answer.code == 0
        assert str(directory) in answer.err
    else:
        assert answer.code == 0
        assert all(line.startswith("warning: ") and str(directory) in line for line in answer.errors)
