"""Release names of brokers, and the release of Apache Kafka that each means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.agent.java_program import JAVA, reported_by

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.long

READ_AS: Final = {
    "4.3.1": "4.3 true",
    "4.4.0": "4.4 true",
    "3.8.1": "3.8 true",
    "3.3.2": "3.3 true",
    "7.6.1-ccs": "3.6 true",
    "3.7.0-amzn": "3.7 true",
    "3.9": "3.9 true",
    "4.1.0-SNAPSHOT": "4.1 true",
    "3.9.0-amzn": "3.9 true",
    "3.8.x": "3.8 true",
    "3.9.0.redhat-00003": "3.9 true",
    "7.9.2-ccs": "3.9 true",
    "8.1.0-ccs": "4.1 true",
    # Confluent Platform has other numbers and other server code; a newer or older one is unknown.
    "7.9.2-ce": "null false",
    "7.9.2": "7.9 false",
    "4.3.0-ce": "null false",
    "2.8.2": "2.8 false",
    "3.2.3": "3.2 false",
    "4.39.0": "4.39 false",
    "43.1": "43.1 false",
    "5.0.0": "5.0 false",
    "unknown": "null false",
    "": "null false",
    "4": "null false",
    "4.3x": "null false",
}


def test_a_repeated_self_test_failure_is_logged_once(tmp_path: Path) -> None:
    """R-10: each try has another directory name; with that name in the message, each try was logged, once a minute."""
    failures = [f"/t/cleanerd-self-test-{number}: Read-only file system" for number in (17, 4711)]
    reported = reported_by(tmp_path, [JAVA / "Words.java"], "cleanerd.agent.Words", *failures)
    assert reported == ["java.io.IOException: /t/cleanerd-self-test-*: Read-only file system"] * 2


def test_release_names(tmp_path: Path) -> None:
    """R-2: patches and vendors' names count as the release they are built from; other names are unknown."""
    reported = reported_by(tmp_path, [JAVA / "Releases.java"], "cleanerd.agent.Releases", *READ_AS)
    assert dict(zip(READ_AS, reported, strict=False)) == READ_AS
    assert reported[len(READ_AS) :] == ["null false"]  # a broker without a release name
