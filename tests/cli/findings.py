"""The findings of ``cleanerd doctor``, by check."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cli.clean_log_dirs import Answer


def findings(answer: Answer, check: str) -> list[tuple[str, str]]:
    """Level and text of the findings of one check."""
    return [(found["level"], found["what"]) for found in answer.json["findings"] if found["check"] == check]
