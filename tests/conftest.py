"""Fixtures that every room may use."""

pytest_plugins = ["tests.kafka.fixtures", "tests.support.failing_files"]
