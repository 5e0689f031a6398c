"""What a topic's strategy keeps of it, from the log directories of a stopped broker."""

import sys
from pathlib import Path

from cleanerd.client.latest_state import LatestState
from cleanerd.client.log_dir_topic import LogDirTopic
from cleanerd.client.rules import TopicRules

# The same as in cleanerd's configuration of the topic.
RULES = TopicRules(strategy="header", version_header="version")


def main(topic: str, *log_dirs: str) -> None:
    state = LatestState(LogDirTopic([Path(log_dir) for log_dir in log_dirs], topic, RULES))
    state.update()
    for number, partition in sorted(state.partitions.items()):
        for key, record in partition.items():
            print(f"{topic}-{number} offset {record.offset}: {key!r} is {record.value!r}, version {record.version}")


if __name__ == "__main__":
    main(*sys.argv[1:])
