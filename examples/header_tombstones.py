"""Deletes a key with a record that says who did it, and reads it back: a header makes it a tombstone, not the value."""

import sys

from cleanerd.client.consumer import Consumer
from cleanerd.client.producer import Producer
from cleanerd.client.rules import TopicRules

# The same as in cleanerd's configuration of the topic: tombstone.mode=header, tombstone.header=deleted
RULES = TopicRules(tombstone_mode="header", tombstone_header="deleted")


def main(bootstrap: str, topic: str) -> None:
    with Producer({"bootstrap.servers": bootstrap}, RULES) as producer:
        producer.produce(topic, b"customer-1", b"Ada")
        producer.produce(topic, b"customer-2", b"Bob")
        producer.produce(topic, b"customer-1", b"erased on request 4711", tombstone=True)
        producer.produce(topic, b"customer-2", None)  # not given: a null value deletes, as ever

    config = {"bootstrap.servers": bootstrap, "group.id": f"example-{topic}", "auto.offset.reset": "earliest"}
    with Consumer(config, RULES) as consumer:
        consumer.subscribe([topic])
        for _ in range(4):
            while (record := consumer.poll(1.0)) is None:
                pass
            what = "deletes" if record.is_tombstone() else "sets"
            print(f"{record.offset}: {what} {record.key!r} {record.value!r}")


if __name__ == "__main__":
    main(*sys.argv[1:])
