"""U-33: a path in a record of trash/ or ready.json makes undo or apply touch no other file."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.clean_log_dirs import CLEANED, COMPACT, DIRTY, NOW, Answer, Shell, dirty, keys, make
from tests.support.hostile import OWNER, Victim, give_all
from tests.support.log_dirs import make_log_dir
from tests.support.root import needs_root

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("kept")

PLAN = "20260101t000000-0123abcd"


def cleaned(shell: Shell) -> Path:
    path = make(shell.root)
    assert shell.clean(path, "--keep-replaced", shell.root / "kept").code == 0
    assert keys(path / "orders-0") == CLEANED
    return path


def undo(shell: Shell, path: Path, *more: object) -> Answer:
    return shell("undo", path, "--yes", "--quiet", *more)


def change(root: Path, **values: Any) -> None:
    """Put ``values`` into the only entry of trash/; the entry gets the name that fits, if that is a valid name."""
    (entry_file,) = (root / "state" / "trash").iterdir()
    head, *groups = entry_file.read_text().splitlines()
    document = json.loads(head)
    document["entry"].update(values)
    entry_file.write_text("\n".join([json.dumps(document), *groups, ""]))
    if values.get("plan") == PLAN:
        entry_file.rename(entry_file.with_name(f"{PLAN}.json"))


@pytest.mark.parametrize("where", ["tree", "plan", "parent", "relative", "link"])
def test_undo_deletes_no_tree_that_trash_json_names(root: Path, shell: Shell, where: str) -> None:
    """A damaged entry, and a carefully forged one: the directory stays, the log stays cleaned."""
    path = cleaned(shell)
    (plan,) = [each.name for each in (root / "kept").iterdir()]
    precious = root / "precious" / plan / "orders-0"
    precious.mkdir(parents=True)
    for file in (root / "kept" / plan / "orders-0").iterdir():
        os.link(file, precious / file.name)
    (precious / "letters").write_text("mine")
    (root / "precious" / "more").write_text("mine")
    (root / "linked").symlink_to(root / "precious")
    kept = {
        "tree": root / "precious",
        "plan": precious,
        "parent": root / "kept" / plan / "orders-0" / ".." / ".." / ".." / "precious",
        "relative": "precious",
        "link": root / "linked" / plan / "orders-0",
    }[where]
    change(root, kept=str(kept))
    before = sorted(file for file in (root / "precious").rglob("*"))
    answer = undo(shell, path)
    assert answer.code == (1 if where == "link" else 4)
    assert ("it is a symbolic link" if where == "link" else "--keep-replaced DIR") in answer.err
    assert sorted(file for file in (root / "precious").rglob("*")) == before
    assert keys(path / "orders-0") == CLEANED


@pytest.mark.parametrize("values", [{"plan": "../../x"}, {"topic": "../orders"}, {"plan": PLAN}])
def test_names_in_a_record_do_not_leave_their_directory(root: Path, shell: Shell, values: dict[str, Any]) -> None:
    """Plan and topic are names, and no path to another directory."""
    path = cleaned(shell)
    change(root, **values)
    before = sorted((root / "kept").rglob("*"))
    answer = undo(shell, path)
    assert "Traceback" not in answer.err
    assert sorted((root / "kept").rglob("*")) == before
    assert keys(path / "orders-0") == CLEANED


@pytest.mark.parametrize("field", ["kept", "log_dir"])
def test_a_path_that_no_system_call_accepts(root: Path, shell: Shell, field: str) -> None:
    """That entry is damaged, and nothing ends."""
    path = cleaned(shell)
    (plan,) = [each.name for each in (root / "kept").iterdir()]
    change(root, **{field: f"/a\0b/{plan}/orders-0"})
    answer = undo(shell, path)
    assert answer.code == 0
    assert "damaged; set aside" in answer.err
    assert keys(path / "orders-0") == CLEANED


@pytest.mark.long
@pytest.mark.parametrize("change_of", [{"offset": "x"}, {"offset": 1e400}, {"last_segment": {}}, {"last_output": 7}])
def test_an_invalid_checkpoint(root: Path, shell: Shell, change_of: dict[str, Any]) -> None:
    """It is not used, which costs time only, and what is stored afterwards can be read again."""
    path = make(root)
    assert shell.clean(path, "--cleanable-to", 4).code == 0
    assert shell.clean(path, "--keep-replaced", root / "kept").code == 0
    (entry_file,) = (root / "state" / "trash").iterdir()
    point = json.loads(entry_file.read_text().splitlines()[0])["entry"]["cleanerd_checkpoint"]
    change(root, cleanerd_checkpoint=point | change_of)
    assert undo(shell, path).code == 0
    (state,) = (root / "state" / "partitions").rglob("*.json")
    assert json.loads(state.read_text())["cleanerd_checkpoint"] is None
    answer = shell.clean(path)
    assert (answer.code, answer.err) == (0, "")
    assert keys(path / "orders-0") == CLEANED


def test_the_operator_names_the_directory(root: Path, shell: Shell) -> None:
    """Also for replaced segments of an earlier release, without an entry there; and afterwards nothing is left."""
    path = cleaned(shell)
    for note in (root / "kept").rglob(".cleanerd-keeps-*"):
        note.unlink()
    assert undo(shell, path).code == 4
    shutil.move(root / "kept", root / "moved")
    (root / "kept").mkdir()
    assert undo(shell, path, "--keep-replaced", root / "moved").code == 0
    assert keys(path / "orders-0") == DIRTY
    assert list((root / "moved").iterdir()) == []


def test_foreign_files_beside_kept_segments_stay(root: Path, shell: Shell) -> None:
    """Only files of segments are removed."""
    path = cleaned(shell)
    (plan,) = (root / "kept").iterdir()
    (plan / "orders-0" / "letters").write_text("mine")
    assert undo(shell, path).code == 0
    assert keys(path / "orders-0") == DIRTY
    assert [file.name for file in (plan / "orders-0").iterdir()] == ["letters"]


def staged(shell: Shell) -> Path:
    path = make(shell.root)
    cleaning = ("--force", "--quiet", "--now-ms", NOW, "--keep-replaced", shell.root / "kept", *COMPACT)
    assert shell("stage", path, *cleaning).code == 0
    return path


@pytest.mark.long
@pytest.mark.parametrize("place", ["/a\0b", "", "kept"])
def test_an_invalid_directory_in_a_staged_cleaning(root: Path, shell: Shell, place: str) -> None:
    """``stage`` never writes such a value: this staged cleaning is invalid, and the other ones are applied (OP-10)."""
    path = make_log_dir(root / "logs", {"orders-0": dirty(), "orders-1": dirty()})
    cleaning = ("--force", "--quiet", "--now-ms", NOW, "--keep-replaced", shell.root / "kept", *COMPACT)
    assert shell("stage", path, *cleaning).code == 0
    (ready,) = (path / "orders-0" / ".kstage").glob("*/ready.json")
    ready.write_text(json.dumps({**json.loads(ready.read_text()), "keep_replaced": place}))
    answer = shell("apply", path, "--quiet", *COMPACT)
    assert answer.code == 0
    assert "is not a record of a staged plan" in answer.err
    assert (keys(path / "orders-0"), keys(path / "orders-1")) == (DIRTY, CLEANED)


@needs_root
def test_apply_keeps_nothing_in_a_directory_that_only_the_staged_cleaning_names(root: Path, shell: Shell) -> None:
    """The partition's owner wrote into ready.json where root is to create directories and links: refused."""
    path = staged(shell)
    victim = Victim.under(root)
    give_all(path)
    (ready,) = (path / "orders-0" / ".kstage").glob("*/ready.json")
    ready.write_text(json.dumps({**json.loads(ready.read_text()), "keep_replaced": str(victim.directory)}))
    before = victim.state()
    answer = shell("apply", path, "--quiet", *COMPACT)
    assert "does not belong to the partition's owner" in answer.err
    assert victim.state() == before
    assert keys(path / "orders-0") == DIRTY


@needs_root
def test_apply_keeps_in_directories_of_the_owner_or_the_operators_choice(root: Path, shell: Shell) -> None:
    """A directory of the broker's user; and any other that is named on the command line."""
    os.chown(root / "kept", OWNER, OWNER)
    path = make(root)
    give_all(path)
    stage = ("--force", "--quiet", "--now-ms", NOW, "--keep-replaced", root / "kept", *COMPACT)
    assert shell("stage", path, *stage).code == 0
    assert shell("apply", path, "--quiet", *COMPACT).code == 0
    assert keys(path / "orders-0") == CLEANED
    assert undo(shell, path).code == 0
    os.chown(root / "kept", 0, 0)
    assert shell("stage", path, *stage, "--from-start").code == 0
    answer = shell("apply", path, "--quiet", *COMPACT)
    assert "apply --keep-replaced DIR" in answer.err
    assert keys(path / "orders-0") == DIRTY
    assert shell("apply", path, "--quiet", "--keep-replaced", root / "kept", *COMPACT).code == 0
    assert keys(path / "orders-0") == CLEANED
    assert undo(shell, path).code == 0
