"""Fixtures that every room may use, and which tests may run beside each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Iterable

pytest_plugins = ["tests.kafka.fixtures", "tests.support.failing_files"]

# A busy machine is no failure: tests have a time limit of their own (pyproject.toml).
settings.register_profile("cleanerd", deadline=None)
settings.load_profile("cleanerd")


def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    """A file's tests share brokers, so they stay in one process (``make test`` has several); all of Spark's do."""
    for item in items:
        directory = item.path.parent.name
        group = directory if directory == "spark" else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))
