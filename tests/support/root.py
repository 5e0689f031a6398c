"""Tests with two users: one owns the files, and the other accesses them. Only root can be both."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

needs_root: Final = pytest.mark.skipif(
    os.geteuid() != 0, reason="needs root: it works with files and processes of another user"
)

OTHER_UID: Final = 65534
"""A user without files of its own."""


REPOSITORY = Path(__file__).parents[2]


def as_other_user(call: Callable[[], object]) -> Any:
    """Run ``call`` as another user than root, in a new process; its result comes back as JSON."""
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(OTHER_UID, OTHER_UID, OTHER_UID)
            os.setresuid(OTHER_UID, OTHER_UID, OTHER_UID)
            os.write(sink, json.dumps(call()).encode())
        finally:
            os._exit(0)
    os.close(sink)
    with os.fdopen(source, "rb") as reported:
        answer = reported.read()
    os.waitpid(child, 0)
    return json.loads(answer)
