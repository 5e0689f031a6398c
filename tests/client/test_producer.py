"""The producer with a stub broker, for answers that no release would give (U-29); real brokers: test_brokers.py."""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.client.errors import ClientError, FlagModeError, IdempotenceError
from cleanerd.client.producer import Producer
from cleanerd.client.rules import TopicRules
from cleanerd.errors import ConfigError
from cleanerd.format.record import Record, records_of
from cleanerd.policy.version import encode_version
from tests.client.stub_broker import (
    BROKER,
    DUPLICATE_SEQUENCE_NUMBER,
    INIT_PRODUCER_ID,
    PRODUCE,
    TOPIC,
    Answers,
    StubBroker,
)
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from cleanerd.client.delivery import Delivery

CLUSTER_AUTHORIZATION_FAILED = 31
MESSAGE_TOO_LARGE = 10
OLD_FORMAT = {(TOPIC, "old"): {"message.format.version": "0.10.2-IV0"}}


def settings(stub: StubBroker, **more: Any) -> dict[str, Any]:
    # Only a flush, or a full batch, ends a batch: not the time that it takes to fill it.
    return {"bootstrap.servers": stub.bootstrap, "linger.ms": 60_000, **more}


def without_init_producer_id() -> Answers:
    answers = Answers()
    del answers.apis[INIT_PRODUCER_ID]
    return answers


def deliver(producer: Producer, count: int, topic: str = "t") -> list[Delivery]:
    found: list[Delivery] = []
    for number in range(count):
        producer.produce(topic, b"k%d" % number, b"v", on_delivery=found.append)
    assert producer.flush(PATIENCE_SECONDS) == 0
    return found


def written(stub: StubBroker) -> list[Record]:
    return [record for batch in stub.batches for record in records_of(batch, limit_bytes=1 << 20)]


def has_sequences(stub: StubBroker) -> list[bool]:
    return [int.from_bytes(batch[43:51], "big", signed=True) == 4711 for batch in stub.batches]


# ---- idempotence -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["requested", "required", None])
def test_idempotence_if_it_is_supported(mode: str | None) -> None:
    """R192-5: on; the default is ``requested``."""
    with StubBroker(Answers()) as stub:
        requested = {} if mode is None else {"enable.idempotence": mode}
        with Producer(settings(stub, **requested)) as producer:
            assert producer.is_idempotent
            assert producer.why_not_idempotent == {}
            assert all(found.has_offset for found in deliver(producer, 2))
        assert has_sequences(stub) == [True]


def test_idempotence_off() -> None:
    """R192-5: no broker is queried."""
    with StubBroker(Answers()) as stub:
        with Producer(settings(stub, **{"enable.idempotence": "off"})) as producer:
            assert not producer.is_idempotent
            deliver(producer, 1)
        assert has_sequences(stub) == [False]
        assert INIT_PRODUCER_ID not in stub.requested


def test_requested_from_a_broker_without_it() -> None:
    """R192-5: ApiVersions without InitProducerId: written without, with the reason."""
    with StubBroker(without_init_producer_id()) as stub:
        with Producer(settings(stub, **{"enable.idempotence": "requested"})) as producer:
            assert not producer.is_idempotent
            assert "not supported by any" in producer.why_not_idempotent[""]
            assert [found.offset for found in deliver(producer, 2)] == [0, 1]
        assert has_sequences(stub) == [False]


def test_required_from_a_broker_without_it() -> None:
    """R192-5: an error with the reason."""
    with (
        StubBroker(without_init_producer_id()) as stub,
        pytest.raises(IdempotenceError, match=r"required, but .*not supported by any.*0\.11"),
    ):
        Producer(settings(stub, **{"enable.idempotence": "required"}))
    assert PRODUCE not in stub.requested


@pytest.mark.slow
def test_not_authorized() -> None:
    """R192-5: the broker has it, but not for us."""
    with StubBroker(Answers(init_producer_id=CLUSTER_AUTHORIZATION_FAILED)) as stub:
        with pytest.raises(IdempotenceError, match="authorization failed"):
            Producer(settings(stub, **{"enable.idempotence": "required"}))
        with Producer(settings(stub)) as producer:
            assert "authorization failed" in producer.why_not_idempotent[""]


def test_settings_that_contradict_it() -> None:
    """R192-5: ``acks=1`` and idempotence exclude each other."""
    with StubBroker(Answers()) as stub:
        with pytest.raises(IdempotenceError, match=r"settings contradict it: .*acks"):
            Producer(settings(stub, **{"enable.idempotence": "required", "acks": "1"}))
        with Producer(settings(stub, acks="1")) as producer:
            assert not producer.is_idempotent


@pytest.mark.slow
def test_no_broker_answers() -> None:
    """It is unknown whether they support it: an error under both."""
    with StubBroker(Answers()) as stub:
        gone = stub.bootstrap
    for mode in ("requested", "required"):
        with pytest.raises(IdempotenceError, match="no broker gave a producer id within"):
            Producer({"bootstrap.servers": gone, "enable.idempotence": mode}, connect_timeout_s=0.5)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", [{}, {"inter.broker.protocol.version": "3.9-IV0"}])
def test_a_message_format_setting_that_brokers_ignore(protocol: dict[str, str]) -> None:
    """R192-5: from 3.0 on, brokers ignore ``message.format.version``; 4.0 has neither setting."""
    with StubBroker(Answers(configs={**OLD_FORMAT, (BROKER, "1"): protocol})) as stub:
        with Producer(settings(stub, **{"enable.idempotence": "required"})) as producer:
            deliver(producer, 1, "old")
        assert has_sequences(stub) == [True]


@pytest.mark.slow
def test_topics_of_an_old_format() -> None:
    """R192-5, KIP-192: ``requested`` by topic: one in an old format is written without, the others with sequences."""
    configs = {**OLD_FORMAT, (BROKER, "1"): {"inter.broker.protocol.version": "2.8-IV1"}}
    with StubBroker(Answers(configs=configs)) as stub:
        with Producer(settings(stub)) as producer:
            deliver(producer, 1, "old")
            deliver(producer, 1, "t")
            assert producer.is_idempotent
            assert list(producer.why_not_idempotent) == ["old"]
            assert "0.10.2-IV0" in producer.why_not_idempotent["old"]
        assert has_sequences(stub) == [False, True]
        with (
            Producer(settings(stub, **{"enable.idempotence": "required"})) as producer,
            pytest.raises(IdempotenceError, match=r"message\.format\.version of topic old is 0\.10\.2-IV0"),
        ):
            producer.produce("old", b"k", b"v")


def test_a_topic_that_must_not_be_described() -> None:
    """Missing permission is no reason: every format since 0.11 has sequences."""
    with StubBroker(Answers(config_error=CLUSTER_AUTHORIZATION_FAILED)) as stub:
        with Producer(settings(stub, **{"enable.idempotence": "required"})) as producer:
            deliver(producer, 1)
        assert has_sequences(stub) == [True]


@pytest.mark.slow
@pytest.mark.parametrize(("old", "new"), [(True, "required"), (False, "off"), ("true", "required"), ("false", "off")])
def test_the_old_values(old: bool | str, new: str) -> None:
    """R192-5, KIP-192: true means required, false means off, both deprecated."""
    with StubBroker(without_init_producer_id()) as stub:
        requested = settings(stub, **{"enable.idempotence": old})
        expected = pytest.raises(IdempotenceError) if new == "required" else contextlib.nullcontext()
        with expected, pytest.warns(DeprecationWarning, match=f"say {new}") as caught:
            Producer(requested)
        assert caught.pop(DeprecationWarning).filename == __file__  # others are those collected meanwhile


def test_the_new_values_do_not_warn() -> None:
    with StubBroker(Answers()) as stub, warnings.catch_warnings():
        warnings.simplefilter("error")
        Producer(settings(stub, **{"enable.idempotence": "Required"}))


def test_bad_settings() -> None:
    with pytest.raises(ConfigError, match=r"'maybe'.*requested, required, off"):
        Producer({"enable.idempotence": "maybe"})
    with pytest.raises(ConfigError, match=r"transactional\.id"):
        Producer({"transactional.id": "x"})
    with pytest.raises(ConfigError, match="on_delivery= to produce"):
        Producer({"on_delivery": print})
    with pytest.raises(ClientError, match=r"does not take the settings.*no\.such"):
        Producer({"no.such": "x", "enable.idempotence": "off"})


# ---- deliveries ------------------------------------------------------------------------------------------------------


def test_a_duplicate_sequence_is_success_without_offset() -> None:
    """R192-6: and the offsets that librdkafka counts up from -1 are not used, the next batch's are."""
    answers = Answers(produce=[(DUPLICATE_SEQUENCE_NUMBER, -1, -1), (0, 7, 1234)])
    with StubBroker(answers) as stub:
        batches = {"batch.num.messages": 3, "enable.idempotence": "required", "max.in.flight": 1}
        with Producer(settings(stub, **batches)) as producer:
            found = deliver(producer, 6)
    assert [delivery.error for delivery in found] == [None] * 6
    assert [delivery.has_offset for delivery in found] == [False] * 3 + [True] * 3
    assert [delivery.has_timestamp for delivery in found] == [False] * 3 + [True] * 3
    assert [delivery.offset for delivery in found[3:]] == [7, 8, 9]
    assert [delivery.timestamp_ms for delivery in found] == [None] * 3 + [1234] * 3
    assert [delivery.key for delivery in found] == [b"k%d" % n for n in range(6)]


@pytest.mark.slow
def test_a_duplicate_at_the_start_of_the_log() -> None:
    """R192-6: three duplicates are at 0..2 at least, so 3 is real; and a first offset of 0 always is."""
    answers = Answers(produce=[(0, 0, -1), (DUPLICATE_SEQUENCE_NUMBER, -1, -1), (0, 6, -1)])
    with StubBroker(answers) as stub:
        batches = {"batch.num.messages": 3, "enable.idempotence": "required", "max.in.flight": 1}
        with Producer(settings(stub, **batches)) as producer:
            found = deliver(producer, 9)
    assert [delivery.offset for delivery in found] == [0, 1, 2, None, None, None, 6, 7, 8]


def test_without_acknowledgement() -> None:
    """R192-6: ``acks=0``: the offset is unknown."""
    with StubBroker(Answers()) as stub, Producer(settings(stub, acks=0)) as producer:
        found = deliver(producer, 2)
    assert [(delivery.error, delivery.has_offset, delivery.has_timestamp) for delivery in found] == [
        (None, False, False)
    ] * 2


def test_a_failed_delivery() -> None:
    with (
        StubBroker(Answers(produce=[(MESSAGE_TOO_LARGE, -1, -1)])) as stub,
        Producer(settings(stub, **{"enable.idempotence": "off"})) as producer,
    ):
        found = deliver(producer, 1)
    assert found[0].error is not None
    assert not found[0].has_offset
    assert not found[0].has_timestamp


# ---- written records -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_versions_and_tombstones_on_the_wire() -> None:
    """R280-5, R87-4: 8 bytes big-endian, behind the caller's header; the header makes a value a tombstone."""
    rules = TopicRules("header", "v", "long", "header", "gone")
    with StubBroker(Answers()) as stub:
        with Producer(settings(stub), {"t": rules}) as producer:
            producer.produce("t", b"a", b"1", version=258, headers=[("x", None), ("v", b"old")], timestamp_ms=99)
            producer.produce("t", b"a", b"bye", version=-1, tombstone=True, partition=0)
            producer.produce("t", b"a", None, version=3)
            producer.produce("u", b"a", b"1")
        found = written(stub)
    of_t = [record for record in found if record.headers]
    assert [(record.key, record.value) for record in of_t] == [(b"a", b"1"), (b"a", b"bye"), (b"a", None)]
    assert of_t[0].timestamp == 99
    assert of_t[0].headers == ((b"x", None), (b"v", b"old"), (b"v", b"\0\0\0\0\0\0\1\2"))
    assert of_t[1].headers == ((b"v", b"\xff" * 8), (b"gone", b"true"))
    assert of_t[2].headers == ((b"v", encode_version(3, "long")),)
    assert len(found) == 4


@pytest.mark.parametrize("rules", [TopicRules(tombstone_mode="flag"), {"t": TopicRules(tombstone_mode="flag")}])
def test_flags_are_not_possible(rules: TopicRules | dict[str, TopicRules]) -> None:
    """U-25: an error that shows the alternative."""
    with pytest.raises(FlagModeError, match="kafka_flag"):
        Producer({}, rules)
