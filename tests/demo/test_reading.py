"""Reading a topic of a broker that has just started."""

from __future__ import annotations

import time
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from cleanerd_lab.demo import reading
from cleanerd_lab.demo.broker import BrokerError


class _Answers:
    """A consumer that returns one prepared answer after the other, the last one indefinitely."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)

    def get_watermark_offsets(self, _: object, timeout: float) -> Any:
        assert timeout > 0
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def _error(code: int) -> KafkaException:
    return KafkaException(KafkaError(code))


def _end(seconds: float, *answers: object) -> int:
    consumer = cast("Consumer", _Answers(*answers))
    return reading._end_offset(consumer, TopicPartition("t", 0), time.monotonic() + seconds, again_seconds=0.0)


def test_a_broker_that_does_not_lead_yet_is_queried_again() -> None:
    """A broker may serve before it leads its partitions; the demo ended there on a loaded machine."""
    not_leader = _error(KafkaError.NOT_LEADER_FOR_PARTITION)
    assert _end(60, not_leader, _error(KafkaError.LEADER_NOT_AVAILABLE), (3, 7)) == 7


def test_not_indefinitely_and_not_after_other_errors() -> None:
    """A lasting failure is a plain error that names the topic, not a KafkaException."""
    with pytest.raises(BrokerError, match="the end of t is not known"):
        _end(-1, _error(KafkaError.NOT_LEADER_FOR_PARTITION))
    with pytest.raises(BrokerError, match="the end of t is not known"):
        _end(60, _error(KafkaError.TOPIC_AUTHORIZATION_FAILED), (3, 7))
    with pytest.raises(BrokerError, match="no answer"):
        _end(60, None)
