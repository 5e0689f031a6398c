"""How the agent finds and calls the broker's LogManager in a JVM, with classes of its shape instead of a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.agent.java_program import JAVA, reported_by

if TYPE_CHECKING:
    from pathlib import Path

EXPECTED: Final = {
    # while no LogManager is loaded, no class of Kafka is initialized, least of all its metrics.
    "none loaded": "0",
    "helpers only": "0",
    "touched by then": "",
    # 4.3 has a second class of that name, whichever comes first.
    "helpers first": "true",
    "helpers last": "true",
    # if a JVM has two LogManagers, the first that has the partition.
    "in both": "both of one",
    "in the second": "second of two",
    "its manager": "true",
    # a LogManager that is still loading has no log of that name yet: a valid answer, not an error.
    "in none": "no_log",
    # private, inherited and interface methods; exceptions come out unchanged; options and lists of both
    # languages.
    "directories": "[/kafka/logs, /kafka/logs]",
    "of a bad disk": "IOException: the disk is bad",
    "what it throws": "both",
    "java.util.Optional": "7",
    "java.util.OptionalLong": "7",
    "scala.Option": "7",
    "empty java.util.Optional": "null",
    "empty java.util.OptionalLong": "null",
    "empty scala.Option": "null",
    "a list of Java": "[1, 2]",
    "a list of Scala": "[1, 2]",
}


def test_finding(tmp_path: Path) -> None:
    """A-07, A-08, A-09, A-10, A-12."""
    sources = sorted((JAVA / "finding").rglob("*.java"))
    reported = reported_by(tmp_path, sources, "cleanerd.agent.Finding")
    assert dict(line.split("=", 1) for line in reported) == EXPECTED
