"""Everything that the pages and alerts tell you to type exists: commands, options, settings, linked files."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import click
import pytest

from cleanerd.cli.main import COMMANDS
from cleanerd.config.keys import DAEMON_FIELDS, TOPIC_FIELDS

ROOT = Path(__file__).parents[2]
PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    "examples/README.md",
    *(f"docs/{page.name}" for page in ROOT.glob("docs/*.md")),
]
TEXTS = [*PAGES, "config/prometheus/cleanerd.rules.yml", "config/compose.yml", "config/kubernetes/strimzi.yml"]
CALL = re.compile(r"cleanerd ((?:agent|erase|spark|config) [a-z]+|[a-z-]+)((?: +[^`\n#;|]*)?)")
KEY = re.compile(r'[`"](cleanerd(?:\.[a-z]+){2,})[`"=]')


def commands() -> dict[str, set[str]]:
    """Command, or group and command -> its options."""
    found: dict[str, click.Command] = {}
    for subcommand, (place, _) in COMMANDS.items():
        module, name = place.split(":")
        command = getattr(importlib.import_module(module), name)
        found[subcommand] = command
        if isinstance(command, click.Group):
            context = click.Context(command)
            for below in command.list_commands(context):
                under = command.get_command(context, below)
                assert under is not None
                found[f"{subcommand} {below}"] = under
    return {
        subcommand: {"--help", *(option for each in command.params for option in each.opts)}
        for subcommand, command in found.items()
    }


@pytest.mark.parametrize("text", TEXTS)
def test_every_documented_option_and_setting_exists(text: str) -> None:
    """Every option after a command belongs to that command; every key of ours is a setting."""
    reported = (ROOT / text).read_text(encoding="utf-8")
    options = commands()
    for command, rest in CALL.findall(reported):
        for option in re.findall(r"(?<!\S)--[a-z][a-z-]*", rest):
            assert option in options.get(command, {option}), f"cleanerd {command} {option}"
    unknown = {key for key in KEY.findall(reported) if not key.endswith((".toml", ".rules.yml"))}
    assert unknown <= DAEMON_FIELDS.keys() | TOPIC_FIELDS.keys()


@pytest.mark.parametrize("page", PAGES)
def test_links_have_a_target(page: str) -> None:
    """Relative ones; there are no others."""
    path = ROOT / page
    for link, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", path.read_text(encoding="utf-8")):
        target = path.parent / link if link else path
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), f"{link}#{anchor}"


def anchors(page: Path) -> set[str]:
    """The anchors that its headings get."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\s-]", "", each.lower()).strip().replace(" ", "-") for each in headings}


def test_a_missing_anchor_is_found() -> None:
    """Otherwise the test above would pass whatever a link says."""
    assert "exit-codes" in anchors(ROOT / "docs" / "command-line.md")
    assert "no-such-heading" not in anchors(ROOT / "docs" / "command-line.md")


def test_the_first_page_is_read_in_two_minutes() -> None:
    """About 120 lines: further reading is in docs/."""
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 125


def test_every_command_is_described() -> None:
    """Somewhere in README.md or docs/."""
    reported = "".join((ROOT / page).read_text(encoding="utf-8") for page in PAGES)
    assert [command for command in COMMANDS if f"cleanerd {command}" not in reported] == []
