"""Directories that stay open always match the present targets of their names (U-33)."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest

from cleanerd.fsio import held_directories
from cleanerd.fsio.held_directories import MOST_HELD, HeldDirectory
from cleanerd.fsio.safe_open import HostileNameError, names_in

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory with ``a/b`` in it, and a file in that."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_text("first")
    return tmp_path


def names(root: Path, name: str = "a/b") -> list[str]:
    """Its names."""
    with HeldDirectory(str(root), name) as directory:
        return sorted(names_in(".", directory))


def held_below(root: Path) -> list[str]:
    """The held directories below it."""
    return [path for path in held_directories._held if path.startswith(f"{root}/")]


def test_opened_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second request does not open it again."""
    assert names(root) == ["file"]
    # a second open is not visible in any result
    monkeypatch.setattr(held_directories, "_opened", lambda *_: pytest.fail("opened again"))
    assert names(root) == ["file"]


def test_another_directory_has_its_name(root: Path) -> None:
    """Nothing is written to the moved directory."""
    names(root)
    (root / "a").rename(root / "before")
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "other").touch()
    assert names(root) == ["other"]
    (root / "a" / "b" / "other").unlink()
    (root / "a" / "b").rmdir()
    with pytest.raises(FileNotFoundError), HeldDirectory(str(root), "a/b"):
        pytest.fail("there is none")
    assert held_below(root) == []


@pytest.mark.parametrize("link", ["a", "a/b"])
def test_a_link_replaces_it(root: Path, link: str) -> None:
    """U-33: it is refused, although it leads to a directory."""
    names(root)
    (root / link).rename(root / "before")
    elsewhere = root / "elsewhere"
    (elsewhere / "b").mkdir(parents=True)
    (root / link).symlink_to(elsewhere)
    with pytest.raises(HostileNameError, match="it is a symbolic link"), HeldDirectory(str(root), "a/b"):
        pytest.fail("a link was followed")
    (root / link).unlink()
    (root / "before").rename(root / link)
    names(root)
    (root / link).rename(root / "before")
    (root / link).symlink_to(root / "before")
    with pytest.raises(HostileNameError, match="it is a symbolic link"), HeldDirectory(str(root), "a/b"):
        pytest.fail("a link was followed")


def test_replaced_while_it_is_used(root: Path) -> None:
    """A user of the old directory keeps it, and the last user closes the descriptor: no reused number is closed."""
    with HeldDirectory(str(root), "a/b") as first:
        with HeldDirectory(str(root), "a/b") as same:
            assert first == same
        (root / "a").rename(root / "before")
        (root / "a" / "b").mkdir(parents=True)
        assert names(root) == []
        assert os.listdir(first) == ["file"]
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(first)


def test_the_number_of_held_directories_is_limited(root: Path) -> None:
    """Those requested first are closed."""
    before = len(os.listdir("/proc/self/fd"))
    for number in range(2 * MOST_HELD):
        (root / "a" / str(number)).mkdir()
        names(root, f"a/{number}")
    assert len(held_directories._held) == MOST_HELD
    assert len(os.listdir("/proc/self/fd")) <= before + MOST_HELD
    assert names(root) == ["file"]


def test_concurrent_requests(root: Path) -> None:
    """Several threads request a directory that is replaced repeatedly: each gets one that existed."""
    seen: set[tuple[str, ...]] = set()
    problems: list[BaseException] = []

    def ask() -> None:
        for _ in range(300):
            try:
                seen.add(tuple(names(root)))
            except FileNotFoundError:
                continue  # between two replacements
            except BaseException as error:  # noqa: BLE001 - reported below
                problems.append(error)
                return

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(100):
        (root / "a").rename(root / f"before{number}")
        (root / "a" / "b").mkdir(parents=True)
        (root / "a" / "b" / "file").touch()
    for thread in threads:
        thread.join()
    assert problems == []
    assert seen <= {("file",), ()}
    assert len(held_below(root)) <= 1
