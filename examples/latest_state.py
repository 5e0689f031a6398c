"""The latest state of a topic that is not cleaned yet, by its strategy; then as many changes as requested."""

import sys

from cleanerd.client.broker_topic import BrokerTopic
from cleanerd.client.command_config import confluent_options
from cleanerd.client.latest_state import LatestState
from cleanerd.client.rules import TopicRules

# The same as in cleanerd's configuration of the topic.
RULES = TopicRules(strategy="header", version_header="version")


def main(bootstrap: str, topic: str, changes: str = "0", command_config: str = "") -> None:
    # With TLS or a login: Kafka's client properties, the same file as for Kafka's tools.
    config = confluent_options(command_config, bootstrap) if command_config else {"bootstrap.servers": bootstrap}
    with LatestState(BrokerTopic(config, topic, RULES)) as state:
        state.update()
        for key, record in state.items():
            print(f"{key!r} is {record.value!r}, version {record.version}", flush=True)
        # Tombstones are changes. A late write that loses against the latest record is not.
        for _, record in zip(range(int(changes)), state.follow(pause_s=0.2), strict=False):
            what = "is gone" if record.is_tombstone() else f"is now {record.value!r}"
            print(f"{record.key!r} {what}, version {record.version}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
