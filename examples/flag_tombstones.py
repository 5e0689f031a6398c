"""Deletes a key with a value and the tombstone flag of KIP-87, which kafka-python alone has access to."""

import sys

from cleanerd.client.flag_topic import FlagTopic
from cleanerd.client.kafka_flag import FlagConsumer, FlagProducer
from cleanerd.client.latest_state import LatestState

# In cleanerd's configuration of the topic: tombstone.mode=flag


def main(bootstrap: str, topic: str) -> None:
    with FlagProducer(bootstrap_servers=bootstrap) as producer:
        producer.send(topic, b"customer-1", b"Ada")
        producer.send(topic, b"customer-2", b"Bob")
        producer.send(topic, b"customer-1", b"erased on request 4711", tombstone=True)

    with FlagConsumer(topic, bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="earliest") as consumer:
        records = iter(consumer)
        for _ in range(3):
            record = next(records)
            what = "deletes" if record.is_tombstone() else "sets"
            print(f"{record.offset}: {what} {record.key!r} {record.value!r}")

    with LatestState(FlagTopic(topic, bootstrap_servers=bootstrap)) as state:
        state.update()
        print("left:", *(f"{key!r} {record.value!r}" for key, record in state.items()))


if __name__ == "__main__":
    main(*sys.argv[1:])
