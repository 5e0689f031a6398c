"""Fixtures that every room may use."""

import signal

from hypothesis import settings

pytest_plugins = ["tests.kafka.fixtures", "tests.support.failing_files"]

# A busy machine is no failure: tests have a time limit of their own (pyproject.toml).
settings.register_profile("cleanerd", deadline=None)
settings.load_profile("cleanerd")

# A shell has what it starts in the background ignore SIGINT, and what the tests start would inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
