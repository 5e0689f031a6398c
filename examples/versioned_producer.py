"""Writes three versions of a key out of order, as racing writers would; the highest wins, not the last."""

import sys

from cleanerd.client.delivery import Delivery
from cleanerd.client.producer import Producer
from cleanerd.client.rules import TopicRules

# The same as in cleanerd's configuration of the topic: compaction.strategy=header, compaction.strategy.header=version
RULES = TopicRules(strategy="header", version_header="version")


def report(delivery: Delivery) -> None:
    if delivery.error is not None:
        print(f"not written: {delivery.error}")
    elif delivery.has_offset:
        print(f"written at offset {delivery.offset}")
    else:
        # A retry found its own first attempt (duplicate sequence): it is in the log, at an offset unknown here.
        print("written, offset unknown")


def main(bootstrap: str, topic: str) -> None:
    # "requested" enables idempotence if broker and topic support it; "required" would fail if they do not.
    config = {"bootstrap.servers": bootstrap, "enable.idempotence": "requested"}
    with Producer(config, RULES) as producer:
        for version, value in [(1, b"placed"), (3, b"shipped"), (2, b"paid")]:
            producer.produce(topic, b"order-1", value, version=version, on_delivery=report)
        print("idempotent:", producer.is_idempotent, *producer.why_not_idempotent.values())


if __name__ == "__main__":
    main(*sys.argv[1:])
