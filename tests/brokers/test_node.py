"""Complaints of a broker: messages about a slow machine or network do not count, all others do."""

from __future__ import annotations

import pytest

from tests.brokers.node import error_lines, errors

SLOW = (
    "[2026-11-25 19:06:48,387] [controller-1-registration-manager-event-handler] ERROR "
    "kafka.server.ControllerRegistrationManager - [ControllerRegistrationManager id=1 incarnation=hBplGk9xScKuP6sOE] "
    "RegistrationResponseHandler: channel manager timed out before sending the request."
)
"""The controller of a node registers with itself, and retries; seen at starts that took longer than a minute."""
LATE_HEARTBEAT = (
    "[2026-11-28 14:39:49,332] ERROR [Controller 1] processBrokerHeartbeat: unable to start processing because of "
    "TimeoutException. (org.apache.kafka.controller.QuorumController)"
)
"""The broker sends another one; seen in 3.3 at a load of 8."""


@pytest.mark.parametrize("line", [SLOW, LATE_HEARTBEAT])
def test_a_slow_machine(line: str) -> None:
    """U-27: at a high load it failed tests that allow no error."""
    assert error_lines(line) == errors(line) == []


@pytest.mark.parametrize(
    "line",
    [
        SLOW.replace("channel manager timed out before sending the request", "authentication failed"),
        SLOW.replace("ControllerRegistrationManager", "LogManager").replace("channel manager", "flush"),
        LATE_HEARTBEAT.replace("TimeoutException", "NotControllerException"),
        LATE_HEARTBEAT.replace("processBrokerHeartbeat", "registerBroker"),
    ],
)
def test_log_lines_of_one_class_are_alike(line: str) -> None:
    """U-27: another message of the same class, and the same message of another class."""
    assert error_lines(line) == [line]
    assert len(errors(line)) == 1
