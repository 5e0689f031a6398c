"""When ``make bench-kafka-source`` reaches its goal."""

from __future__ import annotations

from tests.bench.spark_kafka.run import verdict


def test_throughput_decides_and_not_the_cpu() -> None:
    """The goal is throughput: 2.4 times less CPU is only reported beside it."""
    seconds = {"kafka": [12.3, 6.8], "kafka-segments": [2.9, 2.1]}
    cpu = {"kafka": [22.2, 9.9], "kafka-segments": [5.6, 4.2]}
    text, reached = verdict(seconds, cpu)
    assert reached
    assert "3.2 times as quick by the best round (goal 3), 4.2 by the first; 2.4 times less CPU" in text


def test_below_three_times_is_not_reached() -> None:
    """Less CPU does not compensate for it."""
    assert not verdict({"kafka": [6.0], "kafka-segments": [2.1]}, {"kafka": [9.0], "kafka-segments": [1.0]})[1]
