"""Two installed releases of cleanerd on the same directories, in turns: upgrade and downgrade (U-6, U-10).

No record is lost, and no topic is cleaned by another strategy, whichever release wrote the files.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd import __version__
from tests.cli.clean_log_dirs import CLEANED, COMPACT, NOW, Shell, keys, make
from tests.cli.strategy_topics import HEADER, QUIET, log_dir_by_version
from tests.support.log_dirs import tree
from tests.support.releases import NEXT, Ran, next_release, this_release

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.releases import Release

pytestmark = pytest.mark.long

NEWER = "written by a newer cleanerd (format 2, this one knows 1)"


@dataclass(frozen=True, slots=True)
class Tree:
    """This release, in this process: the same results as an installed one, in less time.

    ``live/test_two_releases.py`` has the installed one.
    """

    shell: Shell
    version: str = __version__

    def run(self, command: str, *words: object) -> Ran:
        """As ``Release.run``."""
        answer = self.shell(command, *words, "--json")
        return Ran(answer.code, answer.json if answer.out.strip() else None, answer.err)


@pytest.fixture
def old(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Tree:
    return Tree(Shell(tmp_path, capsys, monkeypatch))


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Release:
    return next_release(tmp_path_factory.mktemp("new"))


def run(release: Release | Tree, root: Path, command: str, *words: object) -> Ran:
    """Run a command on the directory of ``root``."""
    common = ("--set", f"cleanerd.state.dir={root / 'state'}", "--set", "cleanerd.disk.reserve=0")
    yes = ("--yes",) if command == "clean" else ()
    force = ("--force", "--now-ms", NOW) if command in {"clean", "stage"} else ()
    return release.run(command, root / "logs", *yes, *force, *words, *common)


def state_of(root: Path) -> dict[str, Any]:
    """The state file of the one partition."""
    (path,) = (root / "state" / "partitions").rglob("*-0.json")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def outcomes(ran: Ran) -> list[str]:
    return [row["outcome"] for row in ran.document["partitions"]]


def test_each_process_runs_its_own_release(tmp_path: Path, new: Release) -> None:
    """Each process runs the requested release, not this tree."""
    for release in (this_release(tmp_path), new):
        done = subprocess.run(
            release.command("--version"), env=release.environment, capture_output=True, text=True, check=True
        )
        assert release.version in done.stdout
    assert __version__ != NEXT


def test_up_and_down_again(old: Tree, new: Release, tmp_path: Path) -> None:
    """U-10: an upgrade reads the checkpoints; a downgrade reports, ignores and replaces them: more work, no loss."""
    path = make(tmp_path)
    assert outcomes(run(old, tmp_path, "clean", *COMPACT)) == ["cleaned"]
    assert keys(path / "orders-0") == CLEANED
    first = state_of(tmp_path)
    assert (first["format"], first["cleanerd"]) == (1, old.version)
    upgraded = run(new, tmp_path, "clean", *COMPACT)
    assert (upgraded.code, outcomes(upgraded), upgraded.err.count("written by")) == (0, ["skipped"], 0)
    assert "dirty from offset 6," in upgraded.document["partitions"][0]["reason"], "it continues from the checkpoint"
    assert outcomes(run(new, tmp_path, "clean", "--from-start", *COMPACT)) == ["unchanged"]
    second = state_of(tmp_path)
    assert (second["format"], second["cleanerd"]) == (2, NEXT)
    scanned = run(old, tmp_path, "plan", *COMPACT)
    assert scanned.code == 0
    assert state_of(tmp_path) == second, "a command that only reads does not remove it"
    downgraded = run(old, tmp_path, "clean", "--from-start", *COMPACT)
    assert (downgraded.code, outcomes(downgraded)) == (0, ["unchanged"]), downgraded.err
    assert NEWER in downgraded.err
    assert state_of(tmp_path)["format"] == 1
    assert keys(path / "orders-0") == CLEANED


@pytest.mark.parametrize("upwards", [True, False], ids=["up", "down"])
def test_a_plan_staged_by_the_other_release(old: Tree, new: Release, tmp_path: Path, *, upwards: bool) -> None:
    """S-29: an upgrade applies the plan; a downgrade reports it and stages again; no partial swap ever happens."""
    path = make(tmp_path)
    stages, applies = (old, new) if upwards else (new, old)
    before = tree(path / "orders-0", without=(".kstage",))
    assert outcomes(run(stages, tmp_path, "stage", *COMPACT)) == ["staged"]
    applied = run(applies, tmp_path, "apply", *COMPACT)
    assert applied.code == 0, applied.err
    if upwards:
        assert keys(path / "orders-0") == CLEANED
        return
    assert tree(path / "orders-0", without=(".kstage",)) == before, applied.document
    assert "one of a newer cleanerd was dropped: stage again" in applied.document["partitions"][0]["reason"]
    assert outcomes(run(applies, tmp_path, "stage", *COMPACT)) == ["staged"]
    assert run(applies, tmp_path, "apply", *COMPACT).code == 0
    assert keys(path / "orders-0") == CLEANED


@pytest.mark.parametrize("command", ["clean", "stage"])
def test_a_strategy_that_only_the_newer_release_stored(old: Tree, new: Release, tmp_path: Path, command: str) -> None:
    """U-6: after a downgrade without --config no retained record is lost: it is refused as with own memory."""
    path = log_dir_by_version(tmp_path)
    words = ("--partition", "orders-0", *QUIET)
    done = run(new, tmp_path, "clean", *words, *HEADER)
    assert (done.code, outcomes(done)) == (0, ["cleaned"]), done.err
    (path / "orders-0" / f"{6:020d}.log").write_bytes(b"")
    before = tree(path / "orders-0", without=())
    ran = run(old, tmp_path, command, *words, "--from-start")
    assert ran.code == 4, (ran.document, ran.err)
    assert tree(path / "orders-0", without=()) == before
    other = run(old, tmp_path, "clean", "--partition", "orders-1", *QUIET)
    assert other.code == 4, "one partition's unreadable file counts for the whole topic"
    kept = run(old, tmp_path, "clean", *words, *HEADER, "--from-start")
    assert kept.code == 0, kept.err
    assert (0, "k") in keys(path / "orders-0")[0], "the retained record by version"
    assert state_of(tmp_path)["format"] == 1


def test_an_older_release_does_not_undo_a_newer_entry(old: Tree, new: Release, tmp_path: Path) -> None:
    """F-12: the older release does not undo an entry that it cannot read, and leaves it to the newer one."""
    path = make(tmp_path)
    before = keys(path / "orders-0")
    kept = tmp_path / "kept"
    kept.mkdir()
    assert outcomes(run(new, tmp_path, "clean", "--keep-replaced", kept, *COMPACT)) == ["cleaned"]
    left = tree(kept, without=())
    undo = ("--yes", "--keep-replaced", kept, "--partition", "orders-0")
    refused = run(old, tmp_path, "undo", *undo)
    assert refused.code == 4, (refused.document, refused.err)
    assert keys(path / "orders-0") == CLEANED
    assert tree(kept, without=()) == left
    assert run(new, tmp_path, "undo", *undo).code == 0
    assert keys(path / "orders-0") == before
