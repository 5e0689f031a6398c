"""Fixtures that every room may use."""

import os
import signal

import pytest
from hypothesis import Phase, settings
from hypothesis.internal.conjecture import providers

pytest_plugins = ["tests.kafka.fixtures", "tests.support.failing_files", "tests.support.order", "tests.support.budget"]

# No deadline per example, because the machine may be busy: tests have a time limit (pyproject.toml). `make test` runs
# the same few examples each time, so that it judges the change. The rest of `make test-all` draws new ones.
settings.register_profile("same", deadline=None, derandomize=True, max_examples=60)
settings.register_profile("drawn", deadline=None)
# For `make mutants`: a red test is enough, its smallest example is not needed.
UNSHRUNK = (Phase.explicit, Phase.reuse, Phase.generate)
settings.register_profile("unshrunk", settings.get_profile("same"), phases=UNSHRUNK, report_multiple_bugs=False)
settings.load_profile("same")


@pytest.hookimpl(trylast=True)
def pytest_configure() -> None:
    """Numbers and texts of our modules would be drawn too: of those that some test before has had imported."""
    if settings.get_current_profile_name() == "same":
        providers._get_local_constants = providers.Constants


# A shell lets its background processes ignore SIGINT, and processes of the tests would inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Files in a machine's /etc are not part of a test; processes that tests start inherit this.
os.environ["_CLEANERD_DEFAULT_CONFIG"] = ""
