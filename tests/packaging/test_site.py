"""The pages as a site (`make docs`): complete, built offline, loading nothing from elsewhere, links checked."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

REPOSITORY = Path(__file__).parents[2]
OUTSIDE = {"architecture", "changelog", "contributing", "examples", "releasing"}
DEVELOPERS = {"architecture", "rules", "where", "benchmark-log", "torture-log", "releasing", "decisions/index"}
ELSEWHERE = re.compile(r"<(?:link|script|img|iframe)[^>]*(?:src|href)=[\"']?((?:https?:)?//[^\"' >]+)")
WITHOUT_NETWORK = """
import socket, sys
def refuse(*_, **__):
    raise OSError("the site is built offline")
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse
from mkdocs.__main__ import cli
sys.exit(cli(["build", "--strict", "--site-dir", sys.argv[1]]))
"""


def _config() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((REPOSITORY / "mkdocs.yml").read_text())
    return loaded


def _pages(entries: Any) -> list[str]:
    """The files in a part of the navigation."""
    if isinstance(entries, str):
        return [entries]
    values = entries.values() if isinstance(entries, dict) else entries
    return [page for each in values for page in _pages(each)]


def _sources() -> set[str]:
    docs = REPOSITORY / "docs"
    return {str(page.relative_to(docs).with_suffix("")) for page in docs.rglob("*.md")}


def _decisions() -> set[str]:
    return {page for page in _sources() if page.startswith("decisions/")} - {"decisions/index"}


def _commands() -> set[str]:
    return {page for page in _sources() if page.startswith("commands/")}


def test_every_page_is_in_the_navigation_once() -> None:
    """Users' pages are in the navigation, those of commands in a list, those of developers in Contributing."""
    named = [page.removesuffix(".md") for page in _pages(_config()["nav"])]
    assert sorted([*named, *DEVELOPERS, *_decisions(), *_commands()]) == sorted(_sources() | OUTSIDE)
    unlisted = {page.removeprefix("/").removesuffix(".md") for page in _config()["not_in_nav"].split()}
    assert unlisted == DEVELOPERS - {"decisions/index"} | {"decisions/*", "commands/*"}
    contributing = (REPOSITORY / "CONTRIBUTING.md").read_text().casefold()
    assert [page for page in DEVELOPERS if f"{page}.md)" not in contributing] == []
    commands = (REPOSITORY / "docs/commands.md").read_text()
    assert [page for page in _commands() if f"({page}.md)" not in commands] == []
    index = (REPOSITORY / "docs/decisions/index.md").read_text()
    assert [page for page in _decisions() if f"({page.removeprefix('decisions/')}.md)" not in index] == []


def test_nothing_is_requested_from_other_hosts() -> None:
    """Fonts, scripts and styles are the theme's or in docs/, and the strictest checks are on."""
    config = _config()
    assert config["theme"]["font"] is False
    assert config["strict"] is True
    assert "extra_javascript" not in config
    assert "offline" in config["plugins"], "search in pages that are opened from a disk"
    own = [REPOSITORY / "docs" / name for name in (*config["extra"]["polyfills"], *config["extra_css"])]
    assert [str(file) for file in own if not file.is_file()] == []
    assert not any("url(" in file.read_text() or "@import" in file.read_text() for file in own)
    assert set(config["validation"]["links"].values()) == {"warn"}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the pages and of the site's build files, to be changed."""
    for name in ("docs", "tools", "examples"):
        shutil.copytree(REPOSITORY / name, tmp_path / "tree" / name)
    for name in ("mkdocs.yml", "README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "RELEASING.md"):
        shutil.copy(REPOSITORY / name, tmp_path / "tree")
    return tmp_path / "tree"


def _build(tree: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_NETWORK, str(tree.parent / "site")],
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.long
def test_it_is_built_without_a_network_and_loads_nothing(copy: Path) -> None:
    """Every page exists; none of them makes a browser load a file from another host."""
    done = _build(copy)
    assert done.returncode == 0, done.stdout + done.stderr
    site = copy.parent / "site"
    assert {str(page.relative_to(site).with_suffix("")) for page in site.rglob("*.html")} == _sources() | OUTSIDE | {
        "404"
    }
    assert 'href="../performance.html"' in (site / "decisions/01-three-phases.html").read_text()
    assert (site / "search" / "search_index.js").is_file()
    for page in site.rglob("*.html"):
        assert ELSEWHERE.findall(page.read_text()) == [], page.name
    assert 'href="where.html"' in (site / "architecture.html").read_text()
    assert 'href="architecture.html"' in (site / "where.html").read_text()


@pytest.mark.long
@pytest.mark.parametrize(("page", "anchor"), [("nowhere", ""), ("faq", "#no-such-heading"), ("../NOWHERE", "")])
def test_a_broken_link_fails_the_build(copy: Path, page: str, anchor: str) -> None:
    """A page, a heading, a file of the tree."""
    changed = copy / "docs" / "daemon.md"
    changed.write_text(f"{changed.read_text()}\n[more]({page}.md{anchor})\n")
    done = _build(copy)
    assert done.returncode != 0
    assert page in done.stdout + done.stderr
