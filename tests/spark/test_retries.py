"""The number of retries of a store or a registry, as the environment sets it."""

from __future__ import annotations

import pytest

from cleanerd.errors import ConfigError
from cleanerd.spark.retries import PAUSE_SECONDS, TRIES, RetryPolicy


def test_variables_replace_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty variable counts as missing, as Docker Compose sets it."""
    monkeypatch.delenv(TRIES, raising=False)
    monkeypatch.setenv(PAUSE_SECONDS, "")
    assert RetryPolicy.from_environment(tries=8) == RetryPolicy(8, 0.2)
    monkeypatch.setenv(TRIES, "3")
    monkeypatch.setenv(PAUSE_SECONDS, "0.5")
    assert RetryPolicy.from_environment(tries=8) == RetryPolicy(3, 0.5)


@pytest.mark.parametrize("text", ["often", "0", "-1", "nan", "inf"])
@pytest.mark.parametrize("variable", [TRIES, PAUSE_SECONDS])
def test_a_variable_that_is_not_a_positive_number_is_refused(
    monkeypatch: pytest.MonkeyPatch, variable: str, text: str
) -> None:
    """The error names the variable."""
    monkeypatch.setenv(variable, text)
    with pytest.raises(ConfigError, match=f"environment {variable}: '{text}' is not a positive number"):
        RetryPolicy.from_environment(tries=8)


def test_pauses_double_up_to_a_limit() -> None:
    """Drawn between half of the pause and all of it; the pause that the registry requests counts up to the limit."""
    policy = RetryPolicy(8, 0.2)
    for number, longest in ((0, 0.2), (1, 0.4), (4, 3.2), (5, 5.0), (7, 5.0)):
        assert longest / 2 <= policy.pause_seconds(number) <= longest
    assert 1.0 <= policy.pause_seconds(0, 2.0) <= 2.0
    assert 2.5 <= policy.pause_seconds(0, 60.0) <= 5.0
