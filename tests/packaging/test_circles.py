"""No two files depend on each other. For Python, ``lint-imports`` checks it."""

from __future__ import annotations

import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
USE = re.compile(r"\b(crate|super)((?:::\w+)+)")
TESTS = "#[cfg(test)]"


def _used_by_file(sources: Path) -> dict[Path, set[Path]]:
    """Every Rust file -> the files whose names it uses. A folder's own file that uses those in it is not counted."""
    files = {file.relative_to(sources).with_suffix(""): file for file in sources.rglob("*.rs")}
    homes = {name.parent if name.name == "mod" else name: file for name, file in files.items()}
    used: dict[Path, set[Path]] = {}
    for home, file in homes.items():
        text = re.sub(r"//.*", "", file.read_text().partition(TESTS)[0])
        bases = {"crate": Path(), "super": home.parent}
        paths = [(bases[base], names.split("::")[1:]) for base, names in USE.findall(text)]
        reached = {
            next((homes[at] for at in _deepest_first(base, names) if at in homes), None) for base, names in paths
        }
        used[file] = {other for other in reached if other is not None and other != file}
    return used


def _deepest_first(base: Path, names: list[str]) -> list[Path]:
    return [base.joinpath(*names[:depth]) for depth in range(len(names), 0, -1)]


@pytest.mark.parametrize("crate", ["kernel/src", "kernel/python/src"])
def test_the_kernels_files_know_each_other_one_way(crate: str) -> None:
    used = _used_by_file(TOP / crate)
    assert sum(map(len, used.values())) >= 5, "the pattern still finds uses"
    TopologicalSorter(used).prepare()


def test_a_circle_of_two_files_is_found(tmp_path: Path) -> None:
    """As ``header.rs`` and ``legacy.rs`` once were; and a folder's file that is used from inside of it."""
    (tmp_path / "codec").mkdir()
    (tmp_path / "header.rs").write_text("use crate::legacy;\n")
    (tmp_path / "legacy.rs").write_text("use crate::{\n    error::Reason,\n};\nuse crate::header::{Header, NONE};\n")
    (tmp_path / "codec/mod.rs").write_text("mod gzip;\n")
    (tmp_path / "codec/gzip.rs").write_text("use super::scratch::Scratch;\nuse crate::codec::NONE;\n")
    (tmp_path / "codec/scratch.rs").write_text("#[cfg(test)]\nmod tests { use super::*; }\n")
    used = _used_by_file(tmp_path)
    names = {file.stem: {other.stem for other in others} for file, others in used.items()}
    assert names == {
        "header": {"legacy"},
        "legacy": {"header"},
        "mod": set(),
        "gzip": {"scratch", "mod"},
        "scratch": set(),
    }
    with pytest.raises(CycleError):
        TopologicalSorter(used).prepare()
