"""What counts as a complaint of a broker: a slow machine and its network do not, and nothing else is passed over."""

from __future__ import annotations

import pytest

from tests.brokers.node import error_lines, errors

SLOW = (
    "[2026-11-25 19:06:48,387] [controller-1-registration-manager-event-handler] ERROR "
    "kafka.server.ControllerRegistrationManager - [ControllerRegistrationManager id=1 incarnation=hBplGk9xScKuP6sOE] "
    "RegistrationResponseHandler: channel manager timed out before sending the request."
)
"""The controller of a node registers with itself, and asks again; seen at starts that took longer than a minute."""


def test_a_slow_start() -> None:
    """U-27: it failed tests that ask for any error, at a load of 30."""
    assert error_lines(SLOW) == errors(SLOW) == []


@pytest.mark.parametrize(
    "line",
    [
        SLOW.replace("channel manager timed out before sending the request", "authentication failed"),
        SLOW.replace("ControllerRegistrationManager", "LogManager").replace("channel manager", "flush"),
    ],
)
def test_log_lines_of_one_class_are_alike(line: str) -> None:
    """U-27: another word of the same class, and the same words of another."""
    assert error_lines(line) == [line]
    assert len(errors(line)) == 1
