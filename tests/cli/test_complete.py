"""Completion in shells (docs/install.md): through the real program, as bash asks it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from cleanerd.cli.complete import VARIABLE
from cleanerd.cli.main import VERBS


def _answers(*words: str) -> list[str]:
    """What bash is offered for the last of ``words``."""
    environment = {**os.environ, VARIABLE: "bash_complete", "COMP_WORDS": " ".join(("cleanerd", *words))}
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "cleanerd"],
        env={**environment, "COMP_CWORD": str(len(words))},
        capture_output=True,
        text=True,
        check=True,
    )
    # Verbs come without their modules, or every key press would wait for NumPy.
    assert ("numpy" in done.stderr) == (len(words) > 1)
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


def test_verbs() -> None:
    assert _answers("") == list(VERBS)
    assert _answers("in") == ["inspect"]


def test_options_of_a_verb() -> None:
    assert {"--from-start", "--force"} <= set(_answers("clean", "--f"))


def test_an_unknown_verb_is_no_reason_to_complain() -> None:
    environment = {**os.environ, VARIABLE: "bash_complete", "COMP_WORDS": "cleanerd nosuch x", "COMP_CWORD": "2"}
    done = subprocess.run(
        [sys.executable, "-m", "cleanerd"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script(shell: str) -> None:
    environment = {**os.environ, VARIABLE: f"{shell}_source"}
    done = subprocess.run(
        [sys.executable, "-m", "cleanerd"], env=environment, capture_output=True, text=True, check=True
    )
    assert VARIABLE in done.stdout
