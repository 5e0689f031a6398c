"""Fixtures of the tests of verify."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cleaner.driver import scratch
from tests.verify.cleaned_partition import make_scene

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.verify.cleaned_partition import Scene


@pytest.fixture
def scene() -> Iterator[Scene]:
    """A cleaned partition, and a copy from before."""
    with scratch() as root:
        yield make_scene(root)
