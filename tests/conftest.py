"""Fixtures that every room may use."""

pytest_plugins = ["tests.kafka.fixtures"]
