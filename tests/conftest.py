"""Fixtures that every room may use."""

from hypothesis import settings

pytest_plugins = ["tests.kafka.fixtures", "tests.support.failing_files"]

# A busy machine is no failure: tests have a time limit of their own (pyproject.toml).
settings.register_profile("cleanerd", deadline=None)
settings.load_profile("cleanerd")
