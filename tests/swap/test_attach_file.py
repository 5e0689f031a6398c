"""U-33: the attach file of a JVM is in the process's own directory, where its user can plant names."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from cleanerd.broker import agent_attach
from cleanerd.broker.agent_attach import Jvm
from cleanerd.errors import CleanerdError, RefusedError
from tests.support.hostile import OWNER, PLANTS, Victim, plant
from tests.support.patience import PATIENCE_SECONDS
from tests.support.root import needs_root

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = needs_root


@contextmanager
def process(directory: Path) -> Iterator[Jvm]:
    """A process of uid 1000 with this working directory; not a JVM, and the test sends it no signal."""
    directory.mkdir()
    os.chown(directory, OWNER, OWNER)
    with subprocess.Popen([sys.executable, "-c", "input()"], cwd=directory, stdin=subprocess.PIPE) as child:
        try:
            yield Jvm(child.pid, OWNER, OWNER, child.pid, catches_quit=True)
        finally:
            child.kill()


def attach_file(jvm: Jvm) -> Path:
    """Create the attach file in a thread: a pipe without a reader would block it."""
    found: list[Path] = []

    def make() -> None:
        with agent_attach._attach_file(jvm):
            for place in (agent_attach._PROC / str(jvm.pid) / "cwd", jvm.root / "tmp"):
                path = place / f".attach_pid{jvm.inner_pid}"
                status = path.lstat() if os.path.lexists(path) else None
                if status is not None and stat.S_ISREG(status.st_mode) and status.st_uid == OWNER:
                    found.append(path.resolve())

    thread = threading.Thread(target=make, daemon=True)
    thread.start()
    thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()
    (path,) = found
    assert not path.exists()
    return path


@pytest.mark.parametrize("what", PLANTS)
def test_a_planted_attach_file_is_not_followed(tmp_path: Path, what: str) -> None:
    """It was opened and given to the process's user: a hard link to root's file, or a pipe that blocked cleanerd.

    Now cleanerd creates the file in ``/tmp`` instead.
    """
    victim = Victim.under(tmp_path)
    before = victim.state()
    with process(tmp_path / "work") as jvm:
        plant(tmp_path / "work" / f".attach_pid{jvm.inner_pid}", what, victim)
        path = attach_file(jvm)
    assert path.parent != tmp_path / "work"
    assert victim.state() == before
    assert not victim.file.with_name("made-by-a-link").exists()


@pytest.mark.parametrize("left", [False, True])
def test_the_attach_file_is_made_and_removed(tmp_path: Path, left: bool) -> None:
    """Also if a killed cleanerd left the file."""
    with process(tmp_path / "work") as jvm:
        if left:
            (tmp_path / "work" / f".attach_pid{jvm.inner_pid}").touch()
        assert attach_file(jvm).parent == tmp_path / "work"


def test_a_socket_of_another_service_is_not_used(tmp_path: Path) -> None:
    """The JVM's socket is replaced by a link."""
    link = tmp_path / "java_pid"
    plant(tmp_path / "service", "socket", Victim.under(tmp_path))
    link.symlink_to(tmp_path / "service")

    class Linked(Jvm):
        @property
        def attach_socket(self) -> Path:
            return link

    with pytest.raises(CleanerdError, match="is not a socket of this process"):
        agent_attach._load(Linked(1, OWNER, OWNER, 1, catches_quit=True), "jar=")


@pytest.mark.parametrize(
    ("release", "refused"),
    [
        ('JAVA_VERSION="10.0.2"', "Java 10.0.2"),
        ('IMPLEMENTOR="x"\nJAVA_VERSION="1.8.0_392"\n', "Java 1.8.0_392"),
        ('JAVA_VERSION="11.0.13"', None),
        ('JAVA_VERSION="17.0.9"', None),
        ('JAVA_VERSION="25"', None),
        ("nothing of the sort \xff", None),
        (None, None),
    ],
)
def test_a_java_that_is_too_old(tmp_path: Path, release: str | None, refused: str | None) -> None:
    """A-01: the JVM's own file shows its Java version, with which the agent could only fail.

    Without the file, no error.
    """
    if release is not None:
        (tmp_path / "release").write_text(release, encoding="latin-1")
    jvm = Jvm(os.getpid(), OWNER, OWNER, os.getpid(), catches_quit=True, home=str(tmp_path))
    if refused is None:
        agent_attach._require_java(jvm)
        return
    with pytest.raises(RefusedError, match=rf"{refused}, and the agent needs Java 11 or newer"):
        agent_attach._require_java(jvm)
