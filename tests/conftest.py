"""Fixtures that every room may use."""

import os
import signal

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

pytest_plugins = ["tests.kafka.fixtures", "tests.support.failing_files", "tests.support.order", "tests.support.budget"]

# A busy machine is no failure: tests have a time limit of their own (pyproject.toml). What `make test` plays is the
# same every time, and fewer of it, so that it judges the change and not the dice; `make test-all` tries what nobody
# has tried.
settings.register_profile("same", deadline=None, derandomize=True, max_examples=60)
settings.register_profile("drawn", deadline=None)
settings.load_profile("same")


@pytest.hookimpl(trylast=True)
def pytest_configure() -> None:
    """Numbers and texts of our modules would be drawn too: of those that some test before has had imported."""
    if settings.get_current_profile_name() == "same":
        providers._get_local_constants = providers.Constants


# A shell has what it starts in the background ignore SIGINT, and what the tests start would inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What lies in a machine's /etc is no part of a test; processes that tests start inherit this.
os.environ["_CLEANERD_DEFAULT_CONFIG"] = ""
